// SPDX-License-Identifier: Apache-2.0
#include "gui/core/foreign_marks.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace orrery::gui {
namespace {

/// Ranges nest: the innermost is looked for among those that began last.
constexpr int kDepth = 64;
constexpr std::uint32_t kNoSource = UINT32_MAX;

}  // namespace

std::optional<std::uint64_t> number_behind(std::string_view text, std::string_view word) {
  constexpr std::size_t kApart = 3;  // "layers.12", "step #3"
  std::string lower{text};
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  const std::size_t found = lower.find(word);
  if (found == std::string::npos) return {};
  const std::size_t behind = found + word.size(), digits = lower.find_first_of("0123456789", behind);
  if (digits == std::string::npos || digits > behind + kApart) return {};
  std::uint64_t n = 0;
  std::from_chars(lower.data() + digits, lower.data() + lower.size(), n);
  return n;
}

ForeignMarks::ForeignMarks(const ForeignTrace& trace) : trace_{trace}, source_(trace.events.size(), kNoSource) {
  for (const ForeignFlow& f : trace.flows) source_[f.to] = f.from;
  for (std::uint32_t e = 0; e < trace.events.size(); ++e) {
    const ForeignEvent& event = trace.events[e];
    if (source_[e] != kNoSource && !event.is_device)
      gradients_[event.thread].push_back({event.start_ps, event.end_ps, source_[e]});
    if (!event.is_marker) continue;
    const std::string_view name = trace.names[event.name];
    if (const auto step = number_behind(name, "step")) {
      step_ranges_[process_of(e)].push_back({event.start_ps, event.end_ps, *step});
      steps_.push_back(*step);
    }
    if (const auto layer = number_behind(name, "layer"))
      layers_[event.thread].push_back({event.start_ps, event.end_ps, *layer});
    for (const char* word : {"microbatch", "micro_batch", "micro-batch"})
      if (const auto microbatch = number_behind(name, word))
        microbatches_[event.thread].push_back({event.start_ps, event.end_ps, *microbatch});
  }
  for (Ranges* all : {&layers_, &microbatches_, &gradients_, &step_ranges_})
    for (auto& [key, ranges] : *all)
      std::stable_sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::sort(steps_.begin(), steps_.end());
  steps_.erase(std::unique(steps_.begin(), steps_.end()), steps_.end());
  find_step_before();
}

void ForeignMarks::find_step_before() {
  if (steps_.empty() || steps_.front() == 0) return;
  for (std::uint32_t e = 0; e < source_.size(); ++e) {
    if (!trace_.events[e].is_device || source_[e] == kNoSource) continue;
    const auto ranges = step_ranges_.find(process_of(source_[e]));
    if (ranges == step_ranges_.end() || trace_.events[source_[e]].start_ps >= ranges->second.front().begin) continue;
    step_before_ = steps_.front() - 1;
    steps_.insert(steps_.begin(), *step_before_);
    return;
  }
}

std::optional<std::uint64_t> ForeignMarks::step_at(std::uint32_t process, std::int64_t time) const {
  const auto ranges = step_ranges_.find(process);
  if (ranges != step_ranges_.end() && time < ranges->second.front().begin) return step_before_;
  return at(step_ranges_, process, time);
}

std::optional<std::uint64_t> ForeignMarks::at(const Ranges& ranges, std::uint32_t key, std::int64_t time) {
  const auto all = ranges.find(key);
  if (all == ranges.end()) return {};
  auto it = std::upper_bound(all->second.begin(), all->second.end(), time,
                             [](std::int64_t t, const Range& r) { return t < r.begin; });
  for (int i = 0; i < kDepth && it != all->second.begin(); ++i)
    if (--it; time < it->end) return it->value;
  return {};
}

std::optional<std::uint64_t> ForeignMarks::around(std::uint32_t event, const Ranges& ranges) const {
  return at(ranges, trace_.events[event].thread, trace_.events[event].start_ps);
}

ForeignPlace ForeignMarks::place(std::uint32_t e) const {
  const ForeignEvent& event = trace_.events[e];
  const std::uint32_t launch = event.is_device ? source_[e] : kNoSource;
  ForeignPlace out;
  out.layer = around(e, layers_);
  out.microbatch = around(e, microbatches_);
  if (launch == kNoSource) {
    // Without its launch, marks on the same GPU are right, and those of the host too early.
    out.step = at(step_ranges_, process_of(e), event.start_ps);
    return out;
  }
  const ForeignEvent& call = trace_.events[launch];
  out.step = step_at(process_of(launch), call.start_ps);
  if (!out.step) out.step = at(step_ranges_, process_of(e), event.start_ps);
  if (!out.layer) out.layer = around(launch, layers_);
  if (!out.microbatch) out.microbatch = around(launch, microbatches_);
  if (out.layer && out.microbatch) return out;
  const auto forward = at(gradients_, call.thread, call.start_ps);
  if (!forward) return out;
  if (!out.microbatch) out.microbatch = around(static_cast<std::uint32_t>(*forward), microbatches_);
  if (out.layer) return out;
  out.layer = around(static_cast<std::uint32_t>(*forward), layers_);
  out.is_backward = out.layer.has_value();
  return out;
}

}  // namespace orrery::gui
