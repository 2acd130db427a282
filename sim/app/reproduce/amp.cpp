// SPDX-License-Identifier: Apache-2.0
// AMP, Li and others, arXiv 2210.07297: a GPT-2 of 24 layers on 16 devices, 32 samples of 1,024 tokens per step, split
// in all ways of matrices, replicas, stages and microbatches, each predicted by its cost model from profiled layers and
// run with DeepSpeed (results of its repository). Homogeneous: four g4dn.12xlarge, four T4 each, 50 Gb/s inside of
// nodes and between them, as its model has it. Mixed: three p3.8xlarge in front of one g4dn
// (`scenarios/clusters/p3_g4dn.yaml`). Programs of 2021 keep the scores of attention in memory, scale, mask and drop
// them op by op, in 16 bits with dropout 0.1; so do these steps. Its layers, cut by its own dynamic program, are not
// published but for winners: even stages are taken. Calibrated, on two rows of the homogeneous cluster: by how much
// products, attention and memory of the devices are slower than data sheets and other devices' laws say, and the links
// that ranks of a node sum over. The mixed cluster gets the same.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "sim/app/accuracy/score.hpp"
#include "sim/app/reproduce/reproduction.hpp"
#include "sim/app/step_split.hpp"
#include "sim/base/parallel.hpp"

namespace orrery::papers::amp {
namespace {

constexpr const char* kResults = "arXiv 2210.07297, results of its repository";
constexpr std::int64_t kSamples = 32;

/// Seconds of a step split in this way: by AMP's cost model, and as measured.
struct Row {
  std::int64_t tp, dp, pp, samples;  // of a microbatch
  double amp, measured;
};
constexpr Row kHomogeneous[] = {
    {1, 16, 1, 1, 1.244, 1.32}, {1, 8, 2, 1, 1.266, 1.28},  {1, 4, 4, 1, 1.284, 1.2},  {1, 2, 8, 1, 1.38, 1.23},
    {1, 8, 2, 2, 1.471, 1.38},  {1, 1, 16, 1, 1.486, 1.55}, {1, 4, 4, 2, 1.59, 1.41},  {1, 2, 8, 2, 1.727, 1.43},
    {1, 8, 2, 4, 1.867, 1.72},  {1, 1, 16, 2, 1.87, 1.76},  {2, 8, 1, 1, 1.961, 1.76}, {2, 8, 1, 2, 1.961, 1.64},
    {2, 8, 1, 4, 1.961, 1.55},  {2, 4, 2, 1, 2.083, 1.68},  {2, 2, 4, 1, 2.18, 1.74},  {1, 4, 4, 4, 2.201, 1.85},
    {2, 1, 8, 1, 2.293, 1.95},  {2, 4, 2, 2, 2.304, 1.61},  {1, 2, 8, 4, 2.434, 1.88}, {2, 2, 4, 2, 2.509, 1.66},
    {1, 1, 16, 4, 2.639, 2.19}, {2, 1, 8, 2, 2.679, 1.85},  {2, 4, 2, 4, 2.745, 1.79}, {2, 2, 4, 4, 3.168, 1.89},
    {4, 4, 1, 1, 3.37, 2.48},   {4, 4, 1, 2, 3.37, 2.13},   {4, 4, 1, 4, 3.37, 1.98},  {4, 4, 1, 8, 3.37, 1.94},
    {1, 4, 4, 8, 3.411, 2.7},   {2, 1, 8, 4, 3.45, 2.09},   {4, 2, 2, 1, 3.542, 2.61}, {2, 4, 2, 8, 3.627, 2.13},
    {4, 1, 4, 1, 3.703, 2.67},  {4, 2, 2, 2, 3.747, 2.12},  {1, 2, 8, 8, 3.848, 2.92}, {4, 1, 4, 2, 4.009, 2.22},
    {4, 2, 2, 4, 4.156, 2.1},   {1, 1, 16, 8, 4.177, 3.25}, {2, 2, 4, 8, 4.485, 2.5},  {4, 1, 4, 4, 4.622, 2.24},
    {4, 2, 2, 8, 4.975, 2.4},   {2, 1, 8, 8, 4.992, 2.81},  {4, 1, 4, 8, 5.848, 2.69}, {4, 2, 2, 16, 6.613, 3.03},
    {2, 2, 4, 16, 7.12, 3.74},  {2, 1, 8, 16, 8.076, 4.29}, {4, 1, 4, 16, 8.3, 3.7}};
constexpr Row kMixed[] = {
    {1, 4, 4, 1, 1.086, 1.47},  {1, 2, 8, 1, 1.14, 1.28},   {1, 1, 16, 1, 1.147, 1.52}, {1, 4, 4, 2, 1.329, 1.53},
    {1, 2, 8, 2, 1.433, 1.54},  {1, 1, 16, 2, 1.459, 1.58}, {1, 4, 4, 4, 1.822, 1.71},  {1, 8, 2, 1, 1.976, 2.23},
    {2, 2, 4, 1, 2.004, 2.8},   {1, 2, 8, 4, 2.004, 1.71},  {2, 1, 8, 1, 2.106, 3.81},  {1, 8, 2, 2, 2.134, 2.26},
    {2, 4, 2, 1, 2.304, 2.89},  {2, 2, 4, 2, 2.311, 2.37},  {1, 8, 2, 4, 2.45, 2.34},   {2, 1, 8, 2, 2.463, 3.36},
    {2, 4, 2, 2, 2.507, 2.5},   {2, 8, 1, 1, 2.599, 3.13},  {2, 8, 1, 2, 2.599, 3.06},  {2, 8, 1, 4, 2.599, 3.03},
    {1, 16, 1, 1, 2.779, 2.9},  {1, 4, 4, 8, 2.788, 2.07},  {2, 4, 2, 4, 2.913, 2.41},  {2, 2, 4, 4, 2.926, 1.65},
    {2, 1, 8, 4, 3.178, 1.79},  {4, 4, 1, 1, 3.246, 3.8},   {4, 4, 1, 2, 3.246, 3.56},  {4, 4, 1, 4, 3.246, 3.29},
    {4, 4, 1, 8, 3.246, 3.27},  {4, 2, 2, 2, 3.347, 3.29},  {4, 1, 4, 2, 3.457, 3.92},  {4, 2, 2, 4, 3.705, 2.66},
    {2, 4, 2, 8, 3.724, 2.45},  {4, 1, 4, 4, 3.999, 2.05},  {2, 2, 4, 8, 4.155, 1.91},  {4, 2, 2, 8, 4.422, 2.71},
    {2, 1, 8, 8, 4.608, 2.12},  {4, 1, 4, 8, 5.085, 2.13},  {4, 2, 2, 16, 5.855, 2.66}, {2, 2, 4, 16, 6.615, 2.33},
    {4, 1, 4, 16, 7.256, 2.49}, {2, 1, 8, 16, 7.468, 2.69}, {4, 1, 4, 32, 11.598, 3.13}};
constexpr std::size_t kOfDevices = 6, kOfLinks = 26;  // calibrated rows: 1/4/4/2, and 4/4/1/4
constexpr double kMostScale = 4;

constexpr const char* kG4dn =
    "{nodes: 4, devices_per_node: 4, device: t4, host: {cores: 24, memory: 192 GiB, memory_bandwidth: 100 GB/s}, "
    "device_link: {name: PCIe 3.0, bandwidth: 50 Gb/s, latency: 5 us}, "
    "host_link: {name: PCIe 3.0 x8, bandwidth: 6 GB/s, latency: 2 us}, "
    "nic: {name: Ethernet, per: node, bandwidth: 50 Gb/s, latency: 30 us}}";

std::string scenario_of(const Row& r, const char* cluster) {
  return fmt::format(
      "model: {{model_type: gpt2, n_embd: 1024, n_layer: 24, n_head: 16, n_positions: 1024, vocab_size: 52256}}\n"
      "cluster: {}\nstrategy: [{{parallel: {{mesh: {}}}}}]\n"
      "workload: {{train: {{batch: {}, sequence: 1024, dtype: f16, microbatches: {}, stored_scores: true, "
      "eager_attention: true, dropout: 0.1, attention_dropout: 0.1, dropout_masks: true}}}}\n",
      cluster, SplitMesh{.pp = r.pp, .dp = r.dp, .tp = r.tp}.text(), kSamples, kSamples / (r.dp * r.samples));
}

std::string name_of(const Row& r) { return fmt::format("{}/{}/{}/{}", r.tp, r.dp, r.pp, r.samples); }

/// What hardware gives, over what our parameters say.
struct Rates {
  double devices = 1, links = 1;
};

double predicted(const Reproducer& r, const Row& row, const char* cluster, const Rates& rates) {
  return r
      .predict(scenario_of(row, cluster), {{"gemm.rate", rates.devices},
                                           {"attention.rate", rates.devices},
                                           {"memory.bandwidth", rates.devices},
                                           {"link.bandwidth", rates.links}})
      .report.step;
}

/// The rates under which both calibrated rows come out: one after the other by bisection, until neither moves.
Rates calibrated(const Reproducer& r) {
  Rates rates;
  const auto solve = [&](double Rates::*rate, const Row& row) {
    double low = 1 / kMostScale, high = kMostScale;
    for (int i = 0; i < 14; ++i) {
      rates.*rate = std::sqrt(low * high);
      (predicted(r, row, kG4dn, rates) > row.measured ? low : high) = rates.*rate;
    }
  };
  for (int round = 0; round < 4; ++round) {
    solve(&Rates::devices, kHomogeneous[kOfDevices]);
    solve(&Rates::links, kHomogeneous[kOfLinks]);
  }
  return rates;
}

/// All rows of a cluster, predicted.
struct TriedWays {
  std::span<const Row> rows;
  std::vector<double> ours, amp, measured;

  TriedWays(const Reproducer& r, std::span<const Row> of, const char* cluster, const Rates& rates)
      : rows{of}, ours(of.size()) {
    in_parallel(
        of.size(), [&](std::size_t i) { ours[i] = predicted(r, of[i], cluster, rates); }, [](double) {});
    for (const Row& row : of) amp.push_back(row.amp), measured.push_back(row.measured);
  }
  /// Mean factor between predictions and measurements, without rows that were calibrated on.
  double factor(const std::vector<double>& predictions, std::span<const std::size_t> without) const {
    double sum = 0;
    std::size_t n = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (std::find(without.begin(), without.end(), i) != without.end()) continue;
      sum += std::abs(std::log(predictions[i] / measured[i])), ++n;
    }
    return std::exp(sum / double(n));
  }
  /// What the way that is predicted to be fastest takes.
  double chosen(const std::vector<double>& predictions) const {
    const auto least = std::min_element(predictions.begin(), predictions.end());
    return measured[static_cast<std::size_t>(least - predictions.begin())];
  }
};

void add_claims(Reproduction& out, const char* cluster, const TriedWays& rows, std::span<const std::size_t> without,
                double published) {
  const auto n = rows.rows.size();
  const double best = *std::min_element(rows.measured.begin(), rows.measured.end());
  out.claims.push_back(
      {fmt::format("{}: mean factor to what was measured", cluster), kResults, 1, rows.factor(rows.ours, without),
       "factor", 0.15,
       fmt::format("{} ways; AMP's own predictions {:.3f}", n - without.size(), rows.factor(rows.amp, without))});
  out.claims.push_back(
      {fmt::format("{}: rank correlation", cluster), kResults, published, spearman(rows.ours, rows.measured).value(),
       "", 0.05,
       fmt::format("of the {} ways that ran; AMP's of the same {:.3f}", n, spearman(rows.amp, rows.measured).value())});
  out.claims.push_back({fmt::format("{}: step of the way predicted to be fastest", cluster), kResults, best,
                        rows.chosen(rows.ours), "s", 0.05,
                        fmt::format("AMP's first takes {:.3g} s", rows.chosen(rows.amp))});
}

void add_rows(Reproduction& out, const char* cluster, const TriedWays& rows) {
  for (std::size_t i = 0; i < rows.rows.size(); ++i)
    out.ablations.push_back(
        {fmt::format("{} {}", cluster, name_of(rows.rows[i])), {rows.measured[i], rows.ours[i], rows.amp[i]}});
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  Reproduction out{{}, {"measured, s", "ours", "AMP"}, {}};
  const Rates rates = calibrated(r);
  const TriedWays homogeneous{r, kHomogeneous, kG4dn, rates}, mixed{r, kMixed, "p3_g4dn", rates};
  const std::size_t set_on[] = {kOfDevices, kOfLinks};
  for (const std::size_t i : set_on)
    out.claims.push_back({fmt::format("T4: {}", name_of(kHomogeneous[i])), kResults, kHomogeneous[i].measured,
                          homogeneous.ours[i], "s", 0.1,
                          i == kOfDevices ? fmt::format("gives {:.3f} of our rates of devices", rates.devices)
                                          : fmt::format("gives {:.3f} of the links in a node", rates.links),
                          true});
  add_claims(out, "T4", homogeneous, set_on, 0.931);
  add_claims(out, "V100 and T4", mixed, {}, 0.687);
  add_rows(out, "T4", homogeneous);
  add_rows(out, "V100 and T4", mixed);
  return out;
}

}  // namespace orrery::papers::amp
