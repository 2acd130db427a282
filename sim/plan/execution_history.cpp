// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/execution_history.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery {
namespace {

constexpr double kLeastBetween = 1.0 / 64;    // of what a plan touches
constexpr std::int32_t kMostExecutions = 32;  // behind which nothing is left of what came between

/// Of pairs of a value and its weight: the value in the middle.
Bytes middle(std::vector<std::pair<Bytes, Bytes>> weighted) {
  std::sort(weighted.begin(), weighted.end());
  Bytes all, below;
  for (const auto& [value, weight] : weighted) all += weight;
  for (const auto& [value, weight] : weighted)
    if (below += weight; below >= 0.5 * all) return value;
  return {};
}

bool contains(const std::vector<TouchedTensor>& by_name, std::string_view name) {
  const auto at = std::lower_bound(by_name.begin(), by_name.end(), name,
                                   [](const TouchedTensor& t, std::string_view n) { return t.name < n; });
  return at != by_name.end() && at->name == name;
}

}  // namespace

void ExecutionHistory::next(const Plan& plan, Bindings& bindings) {
  const Touched touched = touched_by(plan, bindings);
  bindings.working_set = touched.working_set.base();
  bindings.before = came_before(touched.tensors);
}

Interlude ExecutionHistory::came_before(const std::vector<TouchedTensor>& touched) {
  ++now_;
  std::map<std::uint64_t, Bytes> others;  // by the execution that touched them last
  for (const auto& [name, known] : tensors_)
    if (!contains(touched, name)) others[known.last] += known.bytes;
  std::vector<std::pair<Bytes, Bytes>> between;
  Interlude before;
  Bytes all, largest;
  for (const TouchedTensor& t : touched) {
    all += t.bytes;
    const auto known = tensors_.find(t.name);
    if (known == tensors_.end()) {
      between.emplace_back(Bytes{kBeyondCaches}, t.bytes);
      continue;
    }
    Bytes passed;
    for (auto later = others.upper_bound(known->second.last); later != others.end(); ++later) passed += later->second;
    between.emplace_back(passed, t.bytes);
    if (t.bytes > largest) largest = t.bytes, before = known->second.before;
  }
  if (const Bytes passed = middle(std::move(between)); passed >= kLeastBetween * all && passed > Bytes{})
    before = {passed.base(), 1};
  else if (before.executions > 0)
    before = before.executions < kMostExecutions ? Interlude{before.bytes, before.executions + 1} : Interlude{};
  for (const TouchedTensor& t : touched) tensors_[t.name] = {t.bytes, now_, before};
  return before;
}

}  // namespace orrery
