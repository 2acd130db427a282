// SPDX-License-Identifier: Apache-2.0
#include "sim/search/memory_plan.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

namespace orrery {
namespace {

/// Events [begin, end) in which blocks of one layer are taken, until another layer's turn.
struct LayerPass {
  int layer = -1;
  std::int64_t begin = 0, end = 0;
  std::vector<std::size_t> transient;  // blocks
};

std::vector<LayerPass> passes_of(const AllocationTrace& trace) {
  std::vector<LayerPass> out;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const auto& e = trace.events[i];
    if (e.kind != AllocationTrace::Kind::Take) continue;
    const int layer = layer_of(trace.labels[e.label]);
    if (!out.empty() && out.back().layer == layer) continue;
    if (!out.empty()) out.back().end = static_cast<std::int64_t>(i);
    out.push_back({layer, static_cast<std::int64_t>(i), 0, {}});
  }
  if (!out.empty()) out.back().end = static_cast<std::int64_t>(trace.events.size());
  std::erase_if(out, [](const LayerPass& p) { return p.layer < 0; });
  return out;
}

constexpr std::size_t kMostExact = 40;  // blocks of a mixed-integer program

/// Passes with equal keys need the same places.
using Key = std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>;

Key key_of(const LayerPass& p, const std::vector<StoredBlock>& blocks) {
  Key key;
  for (const std::size_t b : p.transient)
    key.emplace_back(blocks[b].bytes, blocks[b].begin - p.begin, blocks[b].end - p.begin);
  return key;
}

class Planner {
 public:
  Planner(const AllocationTrace& trace, Seconds limit)
      : blocks_{blocks_of(trace)}, passes_{passes_of(trace)}, limit_{limit} {}

  MemoryPlan run() {
    find_transient();
    plan_passes();
    plan_step();
    return std::move(out_);
  }

 private:
  void find_transient() {
    std::size_t pass = 0;
    is_transient_.assign(blocks_.size(), false);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {  // numbered as they are taken
      while (pass < passes_.size() && passes_[pass].end <= blocks_[b].begin) ++pass;
      if (pass == passes_.size()) break;
      if (blocks_[b].begin < passes_[pass].begin || blocks_[b].end > passes_[pass].end) continue;
      passes_[pass].transient.push_back(b);
      is_transient_[b] = true;
      ++out_.transient_blocks;
    }
  }

  StoragePlan solved(const std::vector<StoredBlock>& blocks) {
    StoragePlan plan = plan_storage(blocks);
    if (!plan.is_optimal() && blocks.size() <= kMostExact) plan = prove_storage(blocks, limit_);
    return plan;
  }

  void plan_passes() {
    std::map<Key, std::size_t> known;
    for (const LayerPass& p : passes_) {
      const auto [it, is_new] = known.try_emplace(key_of(p, blocks_), plans_.size());
      if (is_new) {
        std::vector<StoredBlock> own;
        for (const std::size_t b : p.transient) own.push_back(blocks_[b]);
        plans_.push_back(solved(own));
        out_.proved += plans_.back().is_optimal();
        out_.largest_pass = std::max(out_.largest_pass, plans_.back().height);
      }
      plan_of_.push_back(it->second);
    }
    out_.passes = static_cast<int>(passes_.size());
    out_.kinds = static_cast<int>(plans_.size());
  }

  void plan_step() {
    std::vector<StoredBlock> whole;
    std::vector<std::size_t> who;
    for (std::size_t b = 0; b < blocks_.size(); ++b)
      if (!is_transient_[b]) {
        whole.push_back(blocks_[b]);
        who.push_back(b);
      }
    out_.skeletal_live = orrery::most_live(whole);
    for (std::size_t p = 0; p < passes_.size(); ++p)
      whole.push_back({plans_[plan_of_[p]].height, passes_[p].begin, passes_[p].end});
    const StoragePlan step = solved(whole);
    out_.most_live = orrery::most_live(blocks_);
    out_.places = {std::vector<std::int64_t>(blocks_.size(), 0), step.height, out_.most_live};
    for (std::size_t i = 0; i < who.size(); ++i) out_.places.places[who[i]] = step.places[i];
    for (std::size_t p = 0; p < passes_.size(); ++p)
      for (std::size_t i = 0; i < passes_[p].transient.size(); ++i)
        out_.places.places[passes_[p].transient[i]] = step.places[who.size() + p] + plans_[plan_of_[p]].places[i];
  }

  std::vector<StoredBlock> blocks_;
  std::vector<LayerPass> passes_;
  Seconds limit_;
  std::vector<bool> is_transient_;
  std::vector<StoragePlan> plans_;
  std::vector<std::size_t> plan_of_;  // of each pass
  MemoryPlan out_;
};

}  // namespace

int layer_of(const std::string& label) {
  constexpr std::string_view kPrefix = "layers.";
  int layer = -1;
  if (label.starts_with(kPrefix)) std::from_chars(label.data() + kPrefix.size(), label.data() + label.size(), layer);
  return layer;
}

MemoryPlan plan_memory(const AllocationTrace& trace, Seconds limit) { return Planner{trace, limit}.run(); }

}  // namespace orrery
