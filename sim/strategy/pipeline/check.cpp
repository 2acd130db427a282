// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/pipeline/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "sim/strategy/pipeline/run_lists.hpp"

namespace orrery {
namespace {

using Problems = std::vector<std::string>;

std::string text_of(const Schedule& s, std::int32_t stage, std::size_t index) {
  const Action& a = s.actions[static_cast<std::size_t>(stage)][index];
  return fmt::format("stage {}, action {} ({}, chunk {}, microbatch {})", stage, index, pass_name(a.pass), a.chunk,
                     a.microbatch);
}

bool in_range(const Schedule& s, const Action& a) {
  return a.chunk >= 0 && a.chunk < s.chunks && a.microbatch >= 0 && a.microbatch < s.microbatches;
}

void check_places(const Schedule& s, Problems& problems) {
  for (std::int32_t stage = 0; stage < s.stages; ++stage) {
    const auto& list = s.actions[static_cast<std::size_t>(stage)];
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Action& a = list[i];
      if (!in_range(s, a)) {
        problems.push_back(fmt::format("{}: chunks end at {} and microbatches at {}", text_of(s, stage, i),
                                       s.chunks - 1, s.microbatches - 1));
        continue;
      }
      const std::int32_t part = s.part(stage, a.chunk);
      if (const Home home = s.home(part, a.microbatch); home != Home{stage, a.chunk})
        problems.push_back(fmt::format("{}: part {} of this microbatch is at home on chunk {} of stage {}",
                                       text_of(s, stage, i), part, home.chunk, home.stage));
    }
  }
}

/// How often each pass of a part was done with a microbatch, by Pass.
using Times = std::array<int, 4>;

std::vector<Times> count_passes(const Schedule& s) {
  std::vector<Times> counts(static_cast<std::size_t>(s.parts) * static_cast<std::size_t>(s.microbatches), Times{});
  for (std::int32_t stage = 0; stage < s.stages; ++stage)
    for (const Action& a : s.actions[static_cast<std::size_t>(stage)])
      ++counts[PassResult{PassResultKind::Output, s.part(stage, a.chunk), a.microbatch}.index(s)]
              [static_cast<std::size_t>(a.pass)];
  return counts;
}

void check_counts(const Schedule& s, Problems& problems) {
  const std::vector<Times> counts = count_passes(s);
  for (std::int32_t part = 0; part < s.parts; ++part)
    for (std::int32_t microbatch = 0; microbatch < s.microbatches; ++microbatch) {
      const auto& [forward, backward, input, weight] =
          counts[PassResult{PassResultKind::Output, part, microbatch}.index(s)];
      const std::string where = fmt::format("part {}, microbatch {}", part, microbatch);
      if (forward != 1) problems.push_back(fmt::format("{} runs forward {} times", where, forward));
      if (backward + input != 1 || weight != input)
        problems.push_back(fmt::format("{} has {} backwards, {} input gradients and {} weight gradients", where,
                                       backward, input, weight));
    }
}

std::string waits_for(const Schedule& s, std::int32_t stage, std::size_t index, const PassResult& missing) {
  const Home home = s.home(missing.part, missing.microbatch);
  return fmt::format("{} waits for the {} of part {}, microbatch {} from stage {}", text_of(s, stage, index),
                     missing.kind == PassResultKind::Output ? "output" : "gradient", missing.part, missing.microbatch,
                     home.stage);
}

/// Every stage that stops before the end of its list, and what it waits for.
void check_order(const Schedule& s, Problems& problems) {
  std::vector<bool> done(2 * static_cast<std::size_t>(s.parts) * static_cast<std::size_t>(s.microbatches), false);
  const auto missing = [&](std::int32_t stage, std::span<const Action> actions) -> std::optional<PassResult> {
    for (const Action& a : actions)
      for (const PassResult& need : needs_of(s, stage, a))
        if (!done[need.index(s)]) return need;
    return {};
  };
  const auto next = run_lists(s, [&](std::int32_t stage, std::span<const Action> actions, std::size_t) {
    if (missing(stage, actions)) return false;
    for (const Action& a : actions)
      if (const auto result = result_of(s, stage, a)) done[result->index(s)] = true;
    return true;
  });
  for (std::int32_t stage = 0; stage < s.stages; ++stage) {
    const std::span<const Action> list = s.actions[static_cast<std::size_t>(stage)];
    const std::size_t at = next[static_cast<std::size_t>(stage)];
    if (at < list.size())
      problems.push_back(waits_for(s, stage, at, *missing(stage, list.subspan(at, s.together(stage, at)))));
  }
}

}  // namespace

std::vector<std::string> check(const Schedule& schedule) {
  Problems problems;
  check_places(schedule, problems);
  if (!problems.empty()) return problems;  // counting and running index by these numbers
  check_counts(schedule, problems);
  check_order(schedule, problems);
  return problems;
}

}  // namespace orrery
