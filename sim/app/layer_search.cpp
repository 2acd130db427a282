// SPDX-License-Identifier: Apache-2.0
#include "sim/app/layer_search.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "sim/search/layer_plan.hpp"
#include "sim/strategy/model_parts.hpp"

namespace orrery {
namespace {

constexpr const char* kShared[] = {"zero1", "zero3"};
constexpr int kAttempts = 6;
constexpr std::int64_t kQuantum = 1 << 20;  // bytes
// Of a step: what a change that costs nothing is taken to cost, so that blocks of one way stand together; more where
// the later ones take less memory, as what early blocks make again lies where late ones kept something.
constexpr double kChange = 1e-7;
constexpr double kLost = std::numeric_limits<double>::infinity();

/// Blocks of each stage, in the order in which activations pass through them.
std::vector<std::vector<std::size_t>> blocks_of_stages(const StepSplit& s, std::size_t blocks, std::int64_t batch) {
  std::vector<std::vector<std::size_t>> out(static_cast<std::size_t>(s.mesh.pp));
  if (blocks == 0) return out;
  const std::vector<std::size_t> stages = stages_of_parts(s, batch);
  const std::vector<int> bounds = part_bounds(s.stage_layers, static_cast<std::int64_t>(blocks), std::ssize(stages));
  for (std::size_t part = 0; part < stages.size(); ++part)
    for (int b = bounds[part]; b < bounds[part + 1]; ++b) out[stages[part]].push_back(static_cast<std::size_t>(b));
  return out;
}

/// How else the ranks of a stage may be put to use: with half and with twice as many that share matrices.
std::vector<std::string> other_meshes(const StepSplit& s, std::int64_t devices_per_node) {
  std::vector<std::string> out;
  if (s.mesh.cp > 1 || s.mesh.ep > 1) return out;
  const std::int64_t ranks = s.mesh.dp * s.mesh.tp;
  for (const std::int64_t tp : {s.mesh.tp % 2 == 0 ? s.mesh.tp / 2 : 0, 2 * s.mesh.tp}) {
    if (tp == 0 || tp > devices_per_node || ranks % tp != 0 || (s.samples * s.mesh.dp) % (ranks / tp) != 0) continue;
    out.push_back(SplitMesh{.dp = ranks / tp, .tp = tp}.text());
  }
  return out;
}

class WaysOfBlocks {
 public:
  WaysOfBlocks(const LayerSearch& search, const SplitTrial& base)
      : search_{search},
        base_{base},
        kinds_{kinds_of_blocks(search.model)},
        stages_{blocks_of_stages(base.split, kinds_.size(), search.batch)},
        num_kinds_{kinds_.empty() ? 0 : *std::max_element(kinds_.begin(), kinds_.end()) + 1} {}

  std::vector<SplitTrial> run() {
    if (kinds_.empty() || base_.stages.size() != stages_.size()) return {};
    learn_ways();
    learn_changes();
    std::vector<double> off(stages_.size(), 0.0);
    std::vector<StepSplit> seen;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::optional<Planned> p = planned(off);
      if (!p || std::find(seen.begin(), seen.end(), p->split) != seen.end()) break;
      seen.push_back(p->split);
      const SplitTrial t = tried(p->split);
      if (!t.trial.is_open()) break;
      for (std::size_t i = 0; i < off.size(); ++i) off[i] = double(t.stages[i].bytes) - p->bytes[i];
    }
    return std::move(trials_);
  }

 private:
  struct Planned {
    StepSplit split;
    std::vector<double> bytes;  // of each stage, before what predictions were off by
  };

  SplitTrial tried(const StepSplit& s) {
    trials_.push_back(search_.predict(s));
    return trials_.back();
  }
  double seconds(const SplitTrial& t, std::size_t stage) const {
    return stages_.size() == 1 ? t.trial.step : t.stages[stage].busy;
  }
  std::size_t blocks_of(std::size_t kind, std::size_t stage) const {
    return static_cast<std::size_t>(
        std::count_if(stages_[stage].begin(), stages_[stage].end(), [&](std::size_t b) { return kinds_[b] == kind; }));
  }

  /// Adds a way with what it costs beside the split's own; false where no kind of block can have it.
  bool learn(const LayerWay& way) {
    std::vector<std::vector<LayerCost>> costs(num_kinds_, std::vector<LayerCost>(stages_.size(), {kLost, 0}));
    bool is_open = false;
    for (std::size_t kind = 0; kind < num_kinds_; ++kind) {
      StepSplit s = base_.split;
      for (const std::size_t k : kinds_) s.layers.push_back(k == kind ? way : s.way());
      const SplitTrial t = ways_.empty() ? base_ : tried(s);
      if (!t.trial.is_open()) continue;
      is_open = true;
      for (std::size_t i = 0; i < stages_.size(); ++i)
        if (const auto n = double(blocks_of(kind, i)); n > 0)
          costs[kind][i] = {(seconds(t, i) - seconds(base_, i)) / n,
                            static_cast<std::int64_t>(double(t.stages[i].bytes - base_.stages[i].bytes) / n)};
    }
    if (!is_open) return false;
    ways_.push_back(way);
    costs_.push_back(std::move(costs));
    return true;
  }

  /// Whether blocks of some stage cost less time or less memory in the last way than in each one before it.
  bool is_useful() const {
    const auto& last = costs_.back();
    for (std::size_t kind = 0; kind < num_kinds_; ++kind)
      for (std::size_t i = 0; i < stages_.size(); ++i) {
        const LayerCost& c = last[kind][i];
        if (c.seconds < kLost && std::none_of(costs_.begin(), costs_.end() - 1, [&](const auto& known) {
              return known[kind][i].seconds <= c.seconds && known[kind][i].bytes <= c.bytes;
            }))
          return true;
      }
    return false;
  }

  /// Ways with a mesh: what replicas share and what is made again, as long as something can come of it.
  void learn_with(const std::string& mesh) {
    const StepSplit& s = base_.split;
    if (!mesh.empty() && (!learn({mesh, s.data, s.recompute}) || !is_useful())) return;
    std::vector<std::string> shared{s.data};
    for (const char* data : kShared)
      if (s.has_replicas() && s.data != data) shared.emplace_back(data);
    for (const std::string& data : shared) {
      if (data != s.data && (!learn({mesh, data, s.recompute}) || !is_useful())) continue;
      for (const char* recompute : kRecomputations)
        if (recompute != s.recompute) learn({mesh, data, recompute});
    }
  }

  void learn_ways() {
    learn(base_.split.way());
    learn_with("");
    for (const std::string& mesh : other_meshes(base_.split, search_.devices_per_node)) learn_with(mesh);
  }

  /// Seconds that it takes to go from one mesh to another: of all stages with the first half of their blocks in one.
  double change(std::size_t from, std::size_t to) {
    StepSplit s = base_.split;
    s.layers.assign(kinds_.size(), ways_[from]);
    for (const auto& blocks : stages_)
      for (std::size_t i = blocks.size() / 2; i < blocks.size(); ++i) s.layers[blocks[i]] = ways_[to];
    const SplitTrial t = tried(s);
    if (!t.trial.is_open()) return kLost;
    double most = 0;
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      double expected = seconds(base_, i);
      for (std::size_t k = 0; k < stages_[i].size(); ++k)
        expected += costs_[k < stages_[i].size() / 2 ? from : to][kinds_[stages_[i][k]]][i].seconds;
      most = std::max(most, seconds(t, i) - expected);
    }
    return most;
  }

  void learn_changes() {
    std::map<std::pair<std::string, std::string>, double> known;
    changes_.assign(ways_.size(), std::vector<double>(ways_.size(), 0.0));
    for (std::size_t a = 0; a < ways_.size(); ++a)
      for (std::size_t b = 0; b < ways_.size(); ++b) {
        if (ways_[a].mesh == ways_[b].mesh) continue;
        const auto pair = std::minmax(ways_[a].mesh, ways_[b].mesh);
        const auto it = known.find(pair);
        changes_[a][b] = it != known.end() ? it->second : known.emplace(pair, change(a, b)).first->second;
      }
  }

  LayerChoices choices_of(std::size_t stage) const {
    LayerChoices c;
    for (const std::size_t block : stages_[stage]) {
      c.layers.emplace_back();
      for (const auto& of_way : costs_) c.layers.back().push_back(of_way[kinds_[block]][stage]);
    }
    c.changes = changes_;
    const double least = kChange * base_.trial.step;
    for (std::size_t a = 0; a < ways_.size() && !c.layers.empty(); ++a)
      for (std::size_t b = 0; b < ways_.size(); ++b)
        if (a != b) c.changes[a][b] += c.layers.front()[b].bytes < c.layers.front()[a].bytes ? 2 * least : least;
    return c;
  }

  std::optional<Planned> planned(const std::vector<double>& off) const {
    Planned out{base_.split, {}};
    out.split.layers.assign(kinds_.size(), base_.split.way());
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      const auto held = double(base_.stages[i].bytes);
      const auto plan =
          plan_layers(choices_of(i), static_cast<std::int64_t>(base_.stages[i].room - held - off[i]), kQuantum);
      if (!plan) return {};
      double bytes = held;
      for (std::size_t k = 0; k < stages_[i].size(); ++k) {
        out.split.layers[stages_[i][k]] = ways_[plan->ways[k]];
        bytes += double(costs_[plan->ways[k]][kinds_[stages_[i][k]]][i].bytes);
      }
      out.bytes.push_back(bytes);
    }
    settle(out.split);
    return out;
  }

  /// What most blocks make again is the split's; where all have one way without a mesh of their own, so is that.
  static void settle(StepSplit& s) {
    std::map<std::string, int> counts;
    for (const LayerWay& w : s.layers) ++counts[w.recompute];
    s.recompute = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                    return a.second < b.second;
                  })->first;
    const LayerWay first = s.layers.front();
    if (!first.mesh.empty() ||
        std::any_of(s.layers.begin(), s.layers.end(), [&](const LayerWay& w) { return !(w == first); }))
      return;
    s.data = first.data;
    s.layers.clear();
  }

  const LayerSearch& search_;
  const SplitTrial& base_;
  std::vector<std::size_t> kinds_;                // of blocks
  std::vector<std::vector<std::size_t>> stages_;  // blocks of each
  std::size_t num_kinds_ = 0;
  std::vector<LayerWay> ways_;                              // the split's own first
  std::vector<std::vector<std::vector<LayerCost>>> costs_;  // [way][kind][stage], beside the split's own
  std::vector<std::vector<double>> changes_;                // [way][way]
  std::vector<SplitTrial> trials_;
};

}  // namespace

std::vector<std::size_t> kinds_of_blocks(const Model& model) {
  std::vector<std::size_t> kinds;
  const auto* t = std::get_if<Transformer>(&model.network);
  if (t == nullptr) return kinds;
  std::map<std::vector<std::int64_t>, std::size_t> known;
  for (const auto* stack : {&t->encoder, &t->decoder})
    for (const Block& b : *stack) {
      std::vector<std::int64_t> key{b.attention.window.value_or(0), static_cast<std::int64_t>(b.ffn.index())};
      for (const ParameterId p : parameters_of(model, static_cast<int>(kinds.size())))
        for (const std::int64_t n : model[p].shape) key.push_back(n);
      kinds.push_back(known.try_emplace(std::move(key), known.size()).first->second);
    }
  return kinds;
}

std::vector<SplitTrial> search_layers(const LayerSearch& search, const SplitTrial& base) {
  return WaysOfBlocks{search, base}.run();
}

}  // namespace orrery
