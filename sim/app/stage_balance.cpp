// SPDX-License-Identifier: Apache-2.0
#include "sim/app/stage_balance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "sim/search/stage_partition.hpp"

namespace orrery {
namespace {

constexpr int kRounds = 4;               // of trade-offs, each with what was learnt from the one before
constexpr std::size_t kMostOfRound = 3;  // trade-offs that are predicted
constexpr std::size_t kMostTurns = 12;   // of one block after another
constexpr std::size_t kMostOfTurn = 6;   // blocks that are tried elsewhere
constexpr double kHopeful = 1.02;        // of a step: how much slower a move may be expected to be
constexpr double kLeastSeconds = 1e-12;  // of a block

using Blocks = std::vector<std::int64_t>;  // of each stage

class BalancedStages {
 public:
  BalancedStages(const StageBalance& ask, const SplitTrial& base)
      : ask_{ask}, base_{base}, stage_of_part_{stages_of_parts(base.split, ask.batch)}, parts_(base.stages.size(), 0) {
    for (const std::size_t stage : stage_of_part_)
      if (stage < parts_.size()) ++parts_[stage];
  }

  std::vector<SplitTrial> run() {
    const std::int64_t least = parts_.empty() ? 0 : *std::max_element(parts_.begin(), parts_.end());
    if (base_.split.mesh.pp != std::ssize(parts_) || !base_.trial.is_open() || !base_.split.layers.empty() ||
        ask_.blocks <= least * std::ssize(parts_))
      return {};
    add(blocks_of(base_.split), base_);
    predict(shifted(blocks_of(base_.split)));
    for (int round = 0; round < kRounds && try_tradeoffs(least); ++round) continue;
    for (const auto* start : {fastest(), emptiest()})
      if (start != nullptr) move_blocks(*start);
    return std::move(trials_);
  }

 private:
  /// Seconds and bytes of a stage by its blocks.
  struct Line {
    double seconds = 0, each = 0, bytes = 0, bytes_each = 0;

    double seconds_of(std::int64_t n) const { return seconds + each * double(n); }
    double bytes_of(std::int64_t n) const { return bytes + bytes_each * double(n); }
  };

  Blocks blocks_of(const StepSplit& s) const { return stage_sizes(s, ask_.blocks, ask_.batch); }
  /// The split with these; parts of a stage get as many as even, the first of them those left over.
  StepSplit split_of(const Blocks& blocks) const {
    StepSplit s = base_.split;
    s.stage_layers.clear();
    std::vector<std::int64_t> seen(parts_.size(), 0);
    for (const std::size_t stage : stage_of_part_) {
      const std::int64_t n = blocks[stage], k = parts_[stage];
      s.stage_layers.push_back(n / k + (seen[stage]++ < n % k ? 1 : 0));
    }
    return s;
  }

  void add(const Blocks& blocks, const SplitTrial& t) {
    if (!t.trial.is_open()) return;
    seen_.insert_or_assign(blocks, t);
    for (std::size_t i = 0; i < blocks.size(); ++i) known_[{i, blocks[i]}] = t.stages[i];
  }
  bool is_new(const Blocks& blocks) const { return seen_.count(blocks) == 0 && refused_.count(blocks) == 0; }
  SplitTrial predict(const Blocks& blocks) {
    trials_.push_back(ask_.predict(split_of(blocks)));
    if (!trials_.back().trial.is_open()) refused_.insert(blocks);
    add(blocks, trials_.back());
    return trials_.back();
  }

  /// Every stage with another number than it has: pairs of neighbours give one to each other.
  Blocks shifted(Blocks blocks) const {
    const auto give = [&](std::size_t from, std::size_t to) {
      if (blocks[from] <= parts_[from]) std::swap(from, to);
      if (blocks[from] > parts_[from]) --blocks[from], ++blocks[to];
    };
    for (std::size_t i = 0; i + 1 < blocks.size(); i += 2) give(i, i + 1);
    if (blocks.size() % 2 == 1) give(blocks.size() - 1, blocks.size() - 2);
    return blocks;
  }

  /// Through what is known nearest to so many blocks.
  Line line_of(std::size_t stage, std::int64_t at) const {
    std::vector<std::pair<std::int64_t, const StageReport*>> near;
    for (auto it = known_.lower_bound({stage, 0}); it != known_.end() && it->first.first == stage; ++it)
      near.emplace_back(it->first.second, &it->second);
    std::stable_sort(near.begin(), near.end(),
                     [&](const auto& a, const auto& b) { return std::abs(a.first - at) < std::abs(b.first - at); });
    const auto& [n, a] = near.front();
    if (near.size() == 1) return {0, std::max(kLeastSeconds, a->busy / double(n)), 0, double(a->bytes) / double(n)};
    const auto& [m, b] = near[1];
    Line line;
    line.each = std::max(kLeastSeconds, (b->busy - a->busy) / double(m - n));
    line.bytes_each = std::max(1.0, double(b->bytes - a->bytes) / double(m - n));
    line.seconds = std::max(0.0, a->busy - line.each * double(n));
    line.bytes = double(a->bytes) - line.bytes_each * double(n);
    return line;
  }
  std::vector<Line> lines(const Blocks& at) const {
    std::vector<Line> out;
    for (std::size_t i = 0; i < at.size(); ++i) out.push_back(line_of(i, at[i]));
    return out;
  }

  double weight() const { return double(base_.split.microbatches(ask_.batch) - 1); }
  /// Of a step, up to a factor; nothing where a stage has no room.
  std::optional<double> expected(const std::vector<Line>& lines, const Blocks& blocks) const {
    double total = 0, slowest = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i] < parts_[i] || lines[i].bytes_of(blocks[i]) > base_.stages[i].room) return {};
      total += lines[i].seconds_of(blocks[i]), slowest = std::max(slowest, lines[i].seconds_of(blocks[i]));
    }
    return total + weight() * slowest;
  }

  const SplitTrial* fastest() const {
    const SplitTrial* best = nullptr;
    for (const auto& [blocks, t] : seen_)
      if (t.trial.fits() && (best == nullptr || t.trial.step < best->trial.step)) best = &t;
    return best;
  }
  static double fullest(const SplitTrial& t) {
    double most = 0;
    for (const StageReport& s : t.stages) most = std::max(most, double(s.bytes) / s.room);
    return most;
  }
  const SplitTrial* emptiest() const {
    const SplitTrial* best = nullptr;
    for (const auto& [blocks, t] : seen_)
      if (t.trial.fits() && (best == nullptr || fullest(t) < fullest(*best))) best = &t;
    return best;
  }

  /// Predicts those that should be fastest, and the one that should leave most room; false where all are known.
  bool try_tradeoffs(std::int64_t least) {
    const SplitTrial* best = fastest();
    const std::vector<Line> by = lines(blocks_of(best != nullptr ? best->split : base_.split));
    const std::vector<LayerCost> blocks(static_cast<std::size_t>(ask_.blocks), LayerCost{1, 1});
    std::vector<StageDevice> in_time, in_memory;
    for (std::size_t i = 0; i < by.size(); ++i) {
      const double room = base_.stages[i].room, left = (room - by[i].bytes) / by[i].bytes_each;
      in_time.push_back(
          {by[i].each, static_cast<std::int64_t>(std::clamp(left, 0.0, double(ask_.blocks))), by[i].seconds});
      if (std::isfinite(room))
        in_memory.push_back({by[i].bytes_each / room, std::numeric_limits<std::int64_t>::max(), by[i].bytes / room});
    }
    std::vector<StagePartition> found = stage_tradeoffs(blocks, in_time, least);
    const auto step = [&](const StagePartition& p) { return p.total + weight() * p.slowest; };
    std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) { return step(a) < step(b); });
    std::size_t tried = 0;
    for (std::size_t i = 0; i < std::min(found.size(), kMostOfRound); ++i)
      if (is_new(found[i].sizes)) predict(found[i].sizes), ++tried;
    if (in_memory.size() == by.size())
      if (const auto p = partition_stages(blocks, in_memory, least); p && is_new(p->sizes)) predict(p->sizes), ++tried;
    return tried > 0;
  }

  /// With one block of some stage in another, as long as that is faster: those first that should be fastest.
  void move_blocks(SplitTrial from) {
    for (std::size_t turn = 0; turn < kMostTurns; ++turn) {
      const Blocks at = blocks_of(from.split);
      const std::vector<Line> by = lines(at);
      const double now = expected(by, at).value_or(INFINITY);
      std::vector<std::pair<double, Blocks>> moves;
      for (std::size_t a = 0; a < at.size(); ++a)
        for (std::size_t b = 0; b < at.size(); ++b) {
          Blocks next = at;
          --next[a], ++next[b];
          const std::optional<double> step = expected(by, next);
          if (step && *step < kHopeful * now && is_new(next)) moves.emplace_back(*step, std::move(next));
        }
      std::stable_sort(moves.begin(), moves.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      if (moves.size() > kMostOfTurn) moves.resize(kMostOfTurn);
      const double before = from.trial.step;
      for (const auto& [step, blocks] : moves) {
        SplitTrial t = predict(blocks);
        if (!t.trial.fits() || t.trial.step >= from.trial.step) continue;
        from = std::move(t);
        break;
      }
      if (from.trial.step >= before) return;
    }
  }

  const StageBalance& ask_;
  const SplitTrial& base_;
  std::vector<std::size_t> stage_of_part_;
  std::vector<std::int64_t> parts_;  // of each stage
  std::map<Blocks, SplitTrial> seen_;
  std::set<Blocks> refused_;
  std::map<std::pair<std::size_t, std::int64_t>, StageReport> known_;  // by stage and its blocks
  std::vector<SplitTrial> trials_;
};

}  // namespace

std::vector<SplitTrial> balance_stages(const StageBalance& ask, const SplitTrial& base) {
  if (base.split.mesh.pp == 1) return {};
  return BalancedStages{ask, base}.run();
}

}  // namespace orrery
