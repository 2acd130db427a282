// SPDX-License-Identifier: Apache-2.0
// Colossal-Auto, Liu and others, arXiv 2302.02599: sharding of ops and recomputation, planned together. Its tables are
// not to be had; what its code tests is: distances of specs and the way between two of them, ways of a product, and the
// logical mesh of a box whose devices have NVLink in pairs. Of its speeds nothing is claimed here. Beside it what is
// planned here for the sizes of its examples: GPT-2 of 4 blocks and 4,096 columns, 16 samples of 1,024 tokens in f16,
// and 2 blocks of 2,048 in 8 GiB. Links of the box are those of its measured pairs, 211 GB/s, and 14 GB/s as cards of
// nodes of two; A100 80 GB and the latencies are assumed. GPT-2 medium of 8 samples under budgets for activations, of
// which it plans 15 up to 56,000 MiB.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "sim/app/reproduce/training.hpp"
#include "sim/app/sharding_search.hpp"
#include "sim/app/wiring.hpp"
#include "sim/model/load.hpp"
#include "sim/search/sharding/op_strategies.hpp"

namespace orrery::papers::colossal_auto {
namespace {

constexpr const char* kTestsOfCode = "arXiv 2302.02599, tests of its code";
constexpr const char* kMeasuredBox = "arXiv 2302.02599, measured pairs in its code";
constexpr double kAsPublished = 1e-9;
constexpr double kMillisecond = 1e-3;

void add_distances(std::vector<Claim>& claims) {
  const struct {
    MeshAxes from, to;
    double paper;
  } all[] = {{kS0, kS1, 31}, {kWhole, kS01, 16}, {kS01, kWhole, 46}, {kS1, kS01, 42}, {kS01, kS1, 57}};
  for (const auto& [from, to, paper] : all)
    claims.push_back({fmt::format("distance of {} from {}", text_of(to), text_of(from)), kTestsOfCode, paper,
                      double(spec_distance(from, to)), "", kAsPublished, ""});
}

/// Steps of the published way that the greedy search takes, and whether the cheapest way costs as much.
Claim conversion_claim() {
  const MeshSizes mesh{4, 4};
  const ShardedTensor t{{64, 32, 16}, 4 * 64 * 32 * 16};
  const StepCost cost = published_steps(mesh, {1e-5, 1e-11}, {1e-5, 1e-11});
  const ShardingSpec from = parse_spec("[R,S01,R]"), to = parse_spec("[S01,R,R]");
  const char* published[] = {"[R,S0,R]", "[S0,R,R]", "[S01,R,R]"};
  const auto greedy = greedy_conversion(from, to, t, mesh, cost), exact = cheapest_conversion(from, to, t, mesh, cost);
  double same = 0;
  for (std::size_t i = 0; i < std::min(greedy->steps.size(), std::size(published)); ++i)
    same += greedy->steps[i].result.text() == published[i];
  return {"steps from [R,S01,R] to [S01,R,R] as published",
          kTestsOfCode,
          double(std::size(published)),
          same,
          "steps",
          kAsPublished,
          fmt::format("the cheapest way costs {:.4f} of it", exact->cost / greedy->cost)};
}

/// Devices 0, 1, 4 and 5 of the box.
DevicePairs measured_pairs() {
  DevicePairs pairs(4, std::vector<AlphaBeta>(4, {1.9e-5, 7.0e-11}));
  pairs[0][1].beta = pairs[1][0].beta = pairs[2][3].beta = pairs[3][2].beta = 4.7e-12;
  return pairs;
}

void add_mesh(std::vector<Claim>& claims) {
  const LogicalMesh mesh = logical_mesh(measured_pairs());
  const bool joined = mesh.rows == std::vector<std::vector<std::size_t>>{{0, 1}, {2, 3}};
  claims.push_back(
      {"rows of the box's logical mesh", kMeasuredBox, 2, double(mesh.sizes().first), "", kAsPublished, ""});
  claims.push_back({"devices of a row", kMeasuredBox, 2, double(mesh.sizes().second), "", kAsPublished,
                    joined ? "those on NVLink" : "not those on NVLink"});
}

/// A box of the measured rates: each pair as a node, and PCIe as its cards, so that collectives see both.
std::string box(std::int64_t devices, const std::string& memory) {
  return fmt::format(
      "{{nodes: {}, devices_per_node: 2, device: a100_80g, device_memory: {}, host: {{cores: 16, memory: 128 GiB, "
      "memory_bandwidth: 100 GB/s}}, device_link: {{name: NVLink of a pair, bandwidth: 211 GB/s, latency: 1.5 us}}, "
      "host_link: {{bandwidth: 14 GB/s, latency: 2 us}}, nic: {{name: PCIe, bandwidth: 14 GB/s, latency: 5 us}}}}",
      devices / 2, memory);
}
std::string switched(std::int64_t devices, const std::string& memory) {
  return fmt::format(
      "{{nodes: 1, devices_per_node: {}, device: a100_80g, device_memory: {}, host: {{cores: 128, memory: 2 TiB, "
      "memory_bandwidth: 409.6 GB/s}}, device_link: {{name: NVLink 3, bandwidth: 300 GB/s, latency: 1.5 us, fabric: "
      "nvlink_3}}, host_link: {{bandwidth: 31.5 GB/s, latency: 1.5 us}}}}",
      devices, memory);
}

struct PlannedCase {
  std::string name;
  GptSize size;
  std::string cluster;
  std::int64_t ranks = 4;
};

TrainingRequest request_of(const Reproducer& r, const PlannedCase& c) {
  TrainingRequest q;
  q.model = parse_yaml(c.size.model(), "a published size");
  q.cluster = parse_yaml(c.cluster, "a cluster");
  q.ranks = c.ranks, q.batch = 16, q.sequence = 1024, q.dtype = "f16";
  const Machine machine = r.wiring.machine(read_cluster(q.cluster, c.name));
  q.room.device = machine.cost->capacity(Tier::Device).base();
  return q;
}

/// Milliseconds of what is planned, then of uniform plans with the least recomputation that fits.
Ablation planned_row(const Reproducer& r, const PlannedCase& c) {
  const TrainingRequest q = request_of(r, c);
  const Model model = model_from_config(q.model, c.name);
  const ShardingSearch found = search_shardings(r, q, model, [](std::string_view, double) {});
  Ablation row{c.name, {}};
  const auto add = [&](const TrainingTrial& t) {
    row.values.push_back(t.fits() ? std::optional{t.step / kMillisecond} : std::nullopt);
  };
  const ShardedTrial& best = found.trials.front();
  add(best.trial);
  row.values.push_back(best.trial.device_bytes().value_or(0) / kGiB);
  const std::string n = std::to_string(c.ranks), squares = c.ranks == 4 ? "row2 col2" : "depth2 row2 col2";
  for (const std::string& mesh : {"mesh: dp" + n, "mesh: tp" + n, "mesh: tp" + n + ", sequence_parallel: true",
                                  "mesh: " + squares, std::string{"mesh: x2 y2 z2"}}) {
    TrainingTrial least;
    for (const char* recompute : {"none", "selective", "full"})
      if (!least.fits() || !least.is_open())
        least = predict_training(r, q, fmt::format("parallel: {{{}}}", mesh), recompute);
    add(least);
  }
  return row;
}

/// GPT-2 medium on one A100 under a budget for activations: milliseconds and the device's peak.
Ablation budget_row(const Reproducer& r, std::int64_t mib) {
  const GptSize medium{.layers = 24, .hidden = 1024, .heads = 16};
  const std::string recompute = mib == 0 ? "none" : fmt::format("rotor, activation_budget: {} MiB", mib);
  const Report report =
      r.predict(
           fmt::format("model: {}\ncluster: {}\nstrategy: [single]\nworkload: {{train: {{batch: 8, sequence: 1024, "
                       "dtype: f16, recompute: {}}}}}\n",
                       medium.model(), switched(1, "80 GB"), recompute))
          .report;
  Ablation row{mib == 0 ? "GPT-2 medium, 8 samples, 1 device, all saved"
                        : fmt::format("GPT-2 medium, 8 samples, 1 device, Rotor in {} MiB", mib),
               {report.step / kMillisecond, double(report.memory.bytes) / kGiB}};
  row.values.resize(7);
  return row;
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  Reproduction out;
  add_distances(out.claims);
  out.claims.push_back(conversion_claim());
  out.claims.push_back({"ways of a product with weights", "arXiv 2302.02599, its code", 14,
                        double(linear_strategies().size()), "", kAsPublished, ""});
  add_mesh(out.claims);
  out.quantities = {"planned ms", "planned GiB", "replicas ms", "1D ms", "1D, rows split ms", "2D or 2.5D ms", "3D ms"};
  const GptSize wide{.layers = 4, .hidden = 4096, .heads = 16}, narrow{.layers = 2, .hidden = 2048, .heads = 16};
  const PlannedCase cases[] = {
      {"4 blocks of 4096, 4 of the box", wide, box(4, "80 GB"), 4},
      {"4 blocks of 4096, 8 of the box", wide, box(8, "80 GB"), 8},
      {"4 blocks of 4096, 4 on a switch", wide, switched(4, "80 GB"), 4},
      {"4 blocks of 4096, 8 on a switch", wide, switched(8, "80 GB"), 8},
      {"2 blocks of 2048, 4 of the box, 8 GiB", narrow, box(4, "8 GiB"), 4},
      {"2 blocks of 2048, 4 of the box, 2 GiB", narrow, box(4, "2 GiB"), 4},
  };
  for (const PlannedCase& c : cases) {
    r.pause();
    out.ablations.push_back(planned_row(r, c));
  }
  for (const std::int64_t mib : {0, 5'600, 4'000, 2'400}) out.ablations.push_back(budget_row(r, mib));
  return out;
}

}  // namespace orrery::papers::colossal_auto
