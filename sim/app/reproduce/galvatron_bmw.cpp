// SPDX-License-Identifier: Apache-2.0
// Galvatron-BMW, Wang and others, arXiv 2307.02031: layers that are made again as a fifth choice for each of them, and
// memory of each stage under 1F1B. Its measured tables are not to be had; what version 2.0 of its authors' code plans
// with their profiles of two nodes with eight A100 of 40 GB is. Here the same cost model goes through the planner of
// `galvatron`. Beside it the cost model with a whole pass forward for layers that are made again, as the paper has it
// (the code adds half of one), and what is simulated here of its plans.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/app/reproduce/galvatron_bmw_model.hpp"
#include "sim/app/reproduce/galvatron_published.hpp"
#include "sim/app/reproduce/reproduction.hpp"
#include "sim/base/parallel.hpp"

namespace orrery::papers::galvatron_bmw {
namespace {

constexpr const char* kPlanned = "arXiv 2307.02031, its code run on its profiles";
constexpr int kGpus = 16;
constexpr std::int64_t kLayers = 32, kSequence = 2048;
constexpr double kGainWithin = 0.05;
constexpr GalvatronBatches kBatches{16, 144};
constexpr int kMostParts = 8;  // of matrices, and stages

/// ms per MiB between two nodes of eight A100: a ring of so many ranks, neighbours or not.
constexpr MeasuredRing kA100Rings[] = {{0, 16, true, 1 / 44.68}, {0, 8, true, 1 / 155.66}, {0, 8, false, 1 / 20.77},
                                       {0, 4, true, 1 / 157.98}, {0, 4, false, 1 / 16.22}, {0, 2, true, 1 / 149.67},
                                       {0, 2, false, 1 / 8.13}};
constexpr std::array<double, 4> kA100Hops{0, 1 / 7.66, 1 / 8.02, 1 / 8.76};
constexpr GalvatronRules kCode{1.1256, 1, 2, 0.5, 1e-3, 1e-3, false};
constexpr double kWholePass = 1;  // of the forward pass, as the paper has it

/// As profiled, in MiB and ms per sample.
struct ProfiledGpt {
  const char* name;
  double hidden, forward, parameters;
  std::array<double, 4> activations;
  double input;
  GalvatronEnds alone, first, last;
};
constexpr ProfiledGpt kLarge{"GPT-6.7B",
                             4096,
                             4.6243,
                             768.859375,
                             {272.28173828125, 176.156494140625, 128.0938720703125, 104.14166259765625},
                             16,
                             {6540, 920.88623046875},
                             {3303, 26.8785400390625},
                             {3431, 352.786865234375}};

/// One of another width: activations of a layer by (10 + 24/t)·s·h bytes (arXiv 2205.05198), which is what the profile
/// of `of` shows, matrices with the square of the width, all else with the width.
constexpr ProfiledGpt scaled(const ProfiledGpt& of, const char* name, double hidden, double forward) {
  const double k = hidden / of.hidden, values = double(kSequence) * hidden / kGalvatronMiB;
  const auto ends = [&](const GalvatronEnds& e) { return GalvatronEnds{e.states * k, e.activations * k}; };
  return {name,
          hidden,
          forward,
          of.parameters * k * k,
          {34 * values, 22 * values, 16 * values, 13 * values},
          2 * values,
          ends(of.alone),
          ends(of.first),
          ends(of.last)};
}
const ProfiledGpt kGpts[] = {kLarge, scaled(kLarge, "GPT-2.7B", 2560, 2.0645)};

BmwModel bmw_model(const ProfiledGpt& gpt, double again) {
  const GalvatronLayer layer{gpt.parameters, gpt.activations, gpt.forward, double(kSequence) * gpt.hidden,
                             false,          gpt.input};
  BmwModel m{{std::vector<GalvatronLayer>(kLayers, layer), gpt.alone.states, gpt.alone.activations, 0, nullptr,
              kA100Rings, kCode},
             gpt.first,
             gpt.last,
             kA100Hops};
  m.layers.rules.again = again;
  return m;
}

/// Ways that its code is asked for plans of.
enum Family { kAllWays, kNoneAgain, kStages, kFixed };
constexpr const char* kFamilyNames[] = {"all ways", "none again", "dp, pp", "pp2 tp2 dp4"};

std::vector<GalvatronWay> ways_of(Family family) {
  std::vector<GalvatronWay> ways = galvatron_ways(kGpus);
  std::erase_if(ways, [&](const GalvatronWay& w) {
    if (family == kFixed) return w != GalvatronWay{2, 2, 4, true};
    return w.tp > kMostParts || w.pp > kMostParts || (family == kStages && (w.tp > 1 || w.sharded));
  });
  return family == kNoneAgain || family == kFixed ? ways : with_layers_again(std::move(ways));
}

/// Layers of one kind in a plan.
struct PlannedLayers {
  int tp = 1;
  bool sharded = false, again = false;
  std::int64_t count = 0;
};
struct BmwRow {
  std::size_t gpt;
  std::int64_t gib;
  Family family;
  double speed;  // samples per second
  std::int64_t batch, stages;
  std::vector<PlannedLayers> layers;

  std::string name() const { return fmt::format("{}, {} GiB, {}", kGpts[gpt].name, gib, kFamilyNames[family]); }
};
const BmwRow kBmwRows[] = {
    {0, 34, kAllWays, 30.08, 32, 1, {{1, false, true, 24}, {1, false, false, 8}}},
    {0, 40, kAllWays, 31.37, 32, 1, {{2, false, true, 1}, {1, false, true, 13}, {1, false, false, 18}}},
    {0, 40, kStages, 31.31, 32, 1, {{1, false, true, 15}, {1, false, false, 17}}},
    {0, 40, kNoneAgain, 28.93, 32, 1, {{1, false, false, 13}, {1, true, false, 19}}},
    {0, 40, kFixed, 15.81, 16, 2, {{2, false, false, 32}}},
    {1, 40, kAllWays, 77.44, 64, 1, {{1, false, true, 2}, {1, false, false, 30}}},
    {1, 40, kFixed, 46.61, 48, 2, {{2, false, false, 32}}}};
constexpr std::size_t kFirstOfOrder = 1, kEndOfOrder = 5;  // families of one model in one memory, fastest first

/// A fifth of what is more than 20 GiB stays free for the allocator.
std::int64_t usable_mib(std::int64_t gib) {
  const std::int64_t mib = 1024 * gib;
  return gib > 20 ? mib - mib / 5 : mib;
}

std::int64_t layers_as_planned(const BmwRow& row, const GalvatronPlan& plan) {
  std::int64_t same = 0;
  for (const PlannedLayers& kind : row.layers)
    same += std::min(kind.count, std::count_if(plan.ways.begin(), plan.ways.end(), [&](const GalvatronWay& w) {
                       return w.tp == kind.tp && w.sharded == kind.sharded && w.again == kind.again;
                     }));
  return same;
}

/// Two nodes whose rings of 16 are as fast as profiled: 44.68 GB/s are 0.667 of their cards, as much as rings reach.
constexpr const char* kA100Cluster =
    "{nodes: 2, devices_per_node: 8, device: a100_40g, host: {cores: 128, memory: 1 TiB, memory_bandwidth: 400 GB/s}, "
    "device_link: {name: NVLink 3, bandwidth: 300 GB/s, latency: 1.5 us, fabric: nvlink_3}, "
    "host_link: {name: PCIe 4.0 x16, bandwidth: 31.5 GB/s, latency: 1.5 us}, "
    "nic: {per: node, bandwidth: 67 GB/s, latency: 5 us}}";

std::string bmw_scenario(const BmwModel& model, const ProfiledGpt& gpt, const GalvatronPlan& p) {
  const StepSplit s = galvatron_split(p, "1f1b", "zero2");
  auto microbatches = std::ssize(bmw_microbatches(model, int(s.mesh.pp), p.batch / s.mesh.dp));
  return fmt::format(
      "model: {{model_type: gpt2, n_embd: {}, n_layer: {}, n_head: 32, n_positions: {}, vocab_size: 50257, "
      "tie_word_embeddings: false}}\n"
      "cluster: {}\nstrategy: [{{{}}}]\n"
      "workload: {{train: {{batch: {}, sequence: {}, dtype: bf16, dropout: 0.1, dropout_masks: true, recompute: "
      "{}}}}}\n",
      gpt.hidden, kLayers, kSequence, kA100Cluster, s.strategy(), p.batch, kSequence, s.recomputation(microbatches));
}

/// What comes out for a row.
struct FoundRow {
  GalvatronPlan plan;                  // as its code does
  std::optional<GalvatronPlan> paper;  // with a whole pass forward for layers that are made again
  double simulated = 0, bytes = 0;     // samples per second, and of a rank
};

FoundRow found_row(const Reproducer& r, const BmwRow& row) {
  r.pause();
  const ProfiledGpt& gpt = kGpts[row.gpt];
  const std::vector<GalvatronWay> ways = ways_of(row.family);
  const GalvatronBudget budget{usable_mib(row.gib)};
  const BmwModel model = bmw_model(gpt, kCode.again), paper = bmw_model(gpt, kWholePass);
  FoundRow f{search_galvatron(bmw_costs(model), ways, budget, kBatches).value(),
             search_galvatron(bmw_costs(paper), ways, budget, kBatches)};
  const Report simulated = r.predict(bmw_scenario(model, gpt, f.plan)).report;
  f.simulated = double(f.plan.batch) / simulated.step, f.bytes = double(simulated.memory.bytes);
  return f;
}

void add_row(const BmwRow& row, const FoundRow& f, std::vector<Claim>& claims) {
  const bool is_profiled = row.gpt == 0;
  claims.push_back({row.name() + ": speed", kPlanned, row.speed, f.plan.samples_per_second(), "samples/s",
                    is_profiled ? kHalfADigit / row.speed : kExactly,
                    is_profiled ? "" : "no table of its memory: layers by formula, else that of GPT-6.7B by width"});
  claims.push_back({row.name() + ": batch", kPlanned, double(row.batch), double(f.plan.batch), "", kExactly, ""});
  claims.push_back({row.name() + ": layers as planned", kPlanned, double(kLayers),
                    double(layers_as_planned(row, f.plan)), "layers", kExactly, ""});
}

Ablation ablation_of(const BmwRow& row, const FoundRow& f) {
  const auto count = [&](const auto& is) {
    return std::optional{double(std::count_if(f.plan.ways.begin(), f.plan.ways.end(), is))};
  };
  return {row.name(),
          {f.paper ? std::optional{f.paper->samples_per_second()} : std::nullopt, f.plan.samples_per_second(),
           f.simulated, f.bytes / kGiB, double(f.plan.batch), double(f.plan.stages.size()),
           count([](const GalvatronWay& w) { return w.again; }), count([](const GalvatronWay& w) { return w.sharded; }),
           count([](const GalvatronWay& w) { return w.tp > 1; })}};
}

/// How many rows stand where they are to, fastest first, by what `speed` says of them.
double in_order(std::span<const FoundRow> rows, double (*speed)(const FoundRow&)) {
  std::vector<std::size_t> order(rows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return speed(rows[a]) > speed(rows[b]); });
  double same = 0;
  for (std::size_t i = 0; i < order.size(); ++i) same += order[i] == i;
  return same;
}

double planned_speed(const FoundRow& f) { return f.plan.samples_per_second(); }
double simulated_speed(const FoundRow& f) { return f.simulated; }

void add_families(std::span<const FoundRow> found, std::vector<Claim>& claims) {
  const std::span<const FoundRow> rows = found.subspan(kFirstOfOrder, kEndOfOrder - kFirstOfOrder);
  const FoundRow &with = rows[0], &without = rows[2];
  constexpr double kPublishedGain = 31.37 / 28.93;
  claims.push_back({"GPT-6.7B, 40 GiB: gain by layers that are made again", kPlanned, kPublishedGain,
                    planned_speed(with) / planned_speed(without), "x", kExactly, ""});
  claims.push_back({"the same, simulated", kPlanned, kPublishedGain, with.simulated / without.simulated, "x",
                    kGainWithin, "gathers run beside products here, and passes forward are made whole again"});
  claims.push_back({"GPT-6.7B, 40 GiB: families in their order", kPlanned, double(rows.size()),
                    in_order(rows, planned_speed), "families", kExactly, "all ways, dp and pp, none again, fixed"});
  claims.push_back({"the same families, simulated", kPlanned, double(rows.size()), in_order(rows, simulated_speed),
                    "families", kExactly, ""});
  claims.push_back({"ways on eight devices", "arXiv 2307.02031", 44,
                    double(with_layers_again(galvatron_ways(8)).size()), "", kExactly,
                    "22 of arXiv 2211.13878, each with and without"});
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  std::vector<FoundRow> found(std::size(kBmwRows));
  in_parallel(found.size(), [&](std::size_t i) { found[i] = found_row(r, kBmwRows[i]); });
  Reproduction out{{}, {"paper", "code", "simulated", "GiB", "batch", "stages", "again", "sharded", "split"}, {}};
  for (std::size_t i = 0; i < found.size(); ++i) {
    add_row(kBmwRows[i], found[i], out.claims);
    out.ablations.push_back(ablation_of(kBmwRows[i], found[i]));
  }
  add_families(found, out.claims);
  return out;
}

}  // namespace orrery::papers::galvatron_bmw
