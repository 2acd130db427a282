// SPDX-License-Identifier: Apache-2.0
// Galvatron, Miao and others, arXiv 2211.13878: ways of their own for layers, in 8 to 20 GiB of eight RTX TITAN on
// PCIe. Its measured tables are not to be had, but its code with profiles of layers is, and what that code plans with
// them: samples per second by its own cost model, batch and stages, for families of ways and for all of them. Here the
// same profiles go through the same cost model, and then through the search for ways of layers of `orrery search`. For
// 16 devices its profile of what embedding and head take is not to be had. Beside it, what is simulated here of its
// plans for BERT: TITAN RTX by its data sheet, on links with which a ring of eight is as fast as profiled.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/app/reproduce/galvatron_published.hpp"
#include "sim/app/reproduce/reproduction.hpp"
#include "sim/base/parallel.hpp"

namespace orrery::papers::galvatron {
namespace {

constexpr const char* kPlans = "arXiv 2211.13878, its code run on its profiles";
constexpr std::int64_t kMiBPerGiB = 1024;
constexpr double kQuantaWithin = 0.05;
constexpr std::size_t kAll = std::size(kGalvatronFamilies) - 1;

/// What comes out for a cell. As published: samples per second in all digits, stages, and the batch or one that is as
/// good (where speed does not depend on it, rounding decides).
struct Found {
  std::optional<GalvatronPlan> plan;
  bool is_published = false, is_tied = false;
};

Found found(const GalvatronRow& row, std::size_t family) {
  const GalvatronModel model = row.model();
  const std::vector<GalvatronWay> ways = galvatron_family(family);
  const GalvatronBudget budget{row.gib * kMiBPerGiB};
  const GalvatronCell& cell = row.cells[family];
  const auto is_same = [&](const std::optional<GalvatronPlan>& p) {
    return p && std::abs(p->samples_per_second() - cell.speed) <= kHalfADigit && std::ssize(p->stages) == cell.stages;
  };
  const GalvatronCostsOf costs = galvatron_costs(model);
  Found f{search_galvatron(costs, ways, budget)};
  if (!f.plan || cell.speed == 0) return {f.plan, !f.plan && cell.speed == 0};
  f.is_tied = f.plan->batch != cell.batch && is_same(plan_galvatron(costs, ways, budget, cell.batch));
  f.is_published = is_same(f.plan) && (f.plan->batch == cell.batch || f.is_tied);
  return f;
}
using FoundRow = std::array<Found, std::size(kGalvatronFamilies)>;

std::int64_t sharded_layers(const GalvatronPlan& p) {
  return std::count_if(p.ways.begin(), p.ways.end(), [](const GalvatronWay& w) { return w.sharded; });
}

/// Of all rows of one model.
Claim cells_claim(const std::string& model, std::span<const FoundRow> rows) {
  int published = 0, tied = 0;
  for (const FoundRow& row : rows)
    for (const Found& f : row) published += f.is_published, tied += f.is_tied;
  return {model + ": speed, batch, stages",
          kPlans,
          double(rows.size() * std::size(kGalvatronFamilies)),
          double(published),
          "cells",
          kExactly,
          tied > 0 ? fmt::format("in {} other batches are as good", tied) : std::string{}};
}

/// Links are slower than PCIe 3.0 x16: what 0.7 of them, as much as devices reach, brings to the ring of 8.
constexpr const char* kTitanCluster =
    "{nodes: 1, devices_per_node: 8, device: titan_rtx, host: {cores: 32, memory: 256 GB, memory_bandwidth: 120 GB/s}, "
    "device_link: {name: PCIe 3.0, bandwidth: 6.96 GB/s, latency: 5 us}, "
    "host_link: {name: PCIe 3.0 x16, bandwidth: 12 GB/s, latency: 2 us}}";

/// A plan for BERT-Huge as a scenario: microbatches whole, and as many as the batch has room for.
std::string scenario_of(const GalvatronPlan& p, const GalvatronModel& model) {
  const StepSplit s = galvatron_split(p, "gpipe", "ddp");
  double most = 1;
  for (const GalvatronWay& w : p.ways)
    if (w.pp > 1) most = std::max(most, model.microbatches(double(p.batch) / w.dp, w));
  auto microbatches = static_cast<std::int64_t>(most);
  while (p.batch % (microbatches * s.mesh.dp) != 0) --microbatches;
  return fmt::format(
      "model: {{model_type: bert, architectures: [BertForMaskedLM], hidden_size: 1280, num_hidden_layers: {}, "
      "num_attention_heads: 16, intermediate_size: 5120, max_position_embeddings: 512, vocab_size: 30522, "
      "type_vocab_size: 2, hidden_act: gelu, layer_norm_eps: 1e-12}}\ncluster: {}\nstrategy: [{}]\n"
      "workload: {{train: {{batch: {}, sequence: 512, dtype: f32, stored_scores: true, dropout: 0.1, "
      "attention_dropout: 0.1, dropout_masks: true, recompute: {}}}}}\n",
      p.ways.size(), kTitanCluster, s.strategy(), p.batch, s.recomputation(microbatches));
}

Ablation row_of(const Reproducer& r, const GalvatronRow& row, const FoundRow& all) {
  Ablation a{row.name(), {}};
  for (const Found& f : all) a.values.push_back(f.plan ? std::optional{f.plan->samples_per_second()} : std::nullopt);
  const std::optional<GalvatronPlan>& best = all[kAll].plan;
  const auto of_best = [&](const auto& value) {
    a.values.push_back(best ? std::optional{double(value(*best))} : std::nullopt);
  };
  of_best([](const GalvatronPlan& p) { return p.batch; });
  of_best([](const GalvatronPlan& p) { return p.stages.size(); });
  of_best(sharded_layers);
  a.values.resize(a.values.size() + 2);
  if (best && galvatron_networks()[row.network].is_bert) {
    const Report simulated = r.predict(scenario_of(*best, row.model())).report;
    a.values.end()[-2] = double(best->batch) / simulated.step;
    a.values.end()[-1] = double(simulated.memory.bytes) / kGiB;
  }
  return a;
}

/// Of the fastest plans of all models in all budgets, how much slower they are where layers take whole quanta.
struct Quantum {
  std::int64_t mib;
  double mean, worst;  // %, as published
};
constexpr Quantum kQuanta[] = {{4, 0.1, 0.73}, {8, 0.3, 1.22}, {16, 0.85, 3.73}, {32, 1.59, 5.26}, {64, 2.23, 6.99}};

std::vector<std::optional<double>> best_speeds(const Reproducer& r, std::int64_t quantum) {
  constexpr std::int64_t kBudgets[] = {8, 12, 16, 20};
  constexpr std::size_t kLayers[] = {32, 48};
  const std::vector<GalvatronWay> ways = galvatron_family(kAll);
  std::vector<std::optional<double>> out(galvatron_networks().size() * std::size(kLayers) * std::size(kBudgets));
  in_parallel(out.size(), [&](std::size_t i) {
    r.pause();
    const GalvatronModel model = galvatron_networks()[i / 8].model(kLayers[i / 4 % 2]);
    const auto p = search_galvatron(galvatron_costs(model), ways, {kBudgets[i % 4] * kMiBPerGiB, quantum});
    if (p) out[i] = p->samples_per_second();
  });
  return out;
}

void add_quanta(const Reproducer& r, std::vector<Claim>& claims) {
  const std::vector<std::optional<double>> exact = best_speeds(r, 1);
  for (const Quantum& q : kQuanta) {
    const std::vector<std::optional<double>> coarse = best_speeds(r, q.mib);
    double sum = 0, worst = 0, n = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      if (!exact[i]) continue;
      const double lost = 100 * (1 - coarse[i].value_or(0) / *exact[i]);
      sum += lost, worst = std::max(worst, lost), ++n;
    }
    const std::string name = fmt::format("layers in whole {} MiB: ", q.mib);
    claims.push_back(
        {name + "speed lost", kPlans, q.mean, sum / n, "%", kQuantaWithin, fmt::format("mean of {:.0f} plans", n)});
    claims.push_back({name + "at worst", kPlans, q.worst, worst, "%", kQuantaWithin, ""});
  }
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  const std::span<const GalvatronRow> rows = galvatron_rows();
  std::vector<FoundRow> all(rows.size());
  in_parallel(all.size(), [&](std::size_t i) {
    for (std::size_t f = 0; f <= kAll; ++f) r.pause(), all[i][f] = found(rows[i], f);
  });
  Reproduction out{{}, {std::begin(kGalvatronFamilies), std::end(kGalvatronFamilies)}, {}};
  for (const char* q : {"batch", "stages", "sharded layers", "simulated", "GiB"}) out.quantities.emplace_back(q);
  for (std::size_t first = 0, end = 0; first < rows.size(); first = end) {
    while (end < rows.size() && rows[end].network == rows[first].network && rows[end].layers == rows[first].layers)
      ++end;
    out.claims.push_back(
        cells_claim(fmt::format("{}-{}", galvatron_networks()[rows[first].network].name, rows[first].layers),
                    std::span{all}.subspan(first, end - first)));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out.ablations.push_back(row_of(r, rows[i], all[i]));
    if (rows[i].sharded)
      out.claims.push_back({rows[i].name() + ": sharded layers", kPlans, double(*rows[i].sharded),
                            double(sharded_layers(all[i][kAll].plan.value())), "", kExactly, ""});
  }
  add_quanta(r, out.claims);
  return out;
}

}  // namespace orrery::papers::galvatron
