// SPDX-License-Identifier: Apache-2.0
// Which schedules there are, for which shapes, and that each of them can be executed; that `check` finds those that
// cannot.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <utility>

#include "sim/base/random.hpp"
#include "sim/strategy/pipeline/check.hpp"
#include "sim/strategy/pipeline/schedules.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

std::string error_of(std::string_view name, const PipelineShape& shape) {
  return user_error([&] { make_schedule(name, shape); });
}

/// Calls `use` with every entry and shape of a grid.
template <class Use>
void for_each_shape(Use&& use) {
  for (const ScheduleEntry& entry : schedules())
    for (std::int32_t p = 1; p <= 8; ++p)
      for (std::int32_t m = 1; m <= 19; ++m)
        for (std::int32_t v = entry.any_chunks ? 1 : entry.chunks; v <= (entry.any_chunks ? 4 : entry.chunks); ++v)
          use(entry, PipelineShape{p, m, v});
}

}  // namespace

TEST_CASE("every schedule can be executed, or says which shapes are legal") {
  std::size_t legal = 0, illegal = 0;
  for_each_shape([&](const ScheduleEntry& entry, const PipelineShape& shape) {
    CAPTURE(entry.name, shape.stages, shape.microbatches, *shape.chunks);
    if (problem_of(entry, shape)) {
      ++illegal;
      CHECK_THROWS_AS(make_schedule(entry, shape), UserError);
      return;
    }
    ++legal;
    const Schedule s = make_schedule(entry, shape);
    CHECK(check(s).empty());
    CHECK(s.name == entry.name);
    CHECK(s.microbatches == shape.microbatches);
  });
  // Of 8·19 shapes each: gpipe, 1f1b, zb-h1 and zb-v all, interleaved those with v ≥ 2, chimera the even p, dualpipe
  // the even p with m even in 2p … 18: 8 for p = 2, 6 for p = 4, 4 for p = 6, 2 for p = 8.
  CHECK(legal == 8 * 19 * (4 + 3) + 4 * 19 + 8 + 6 + 4 + 2);
  CHECK(illegal == 8 * 19 * 10 - legal);
}

TEST_CASE("home, part and copies of a part agree") {
  for_each_shape([](const ScheduleEntry& entry, const PipelineShape& shape) {
    if (problem_of(entry, shape)) return;
    const Schedule s = make_schedule(entry, shape);
    std::set<std::pair<std::int32_t, std::int32_t>> places;
    bool all_agree = true;
    for (std::int32_t part = 0; part < s.parts; ++part)
      for (const Home& home : s.copies(part)) {
        places.insert({home.stage, home.chunk});
        all_agree = all_agree && s.part(home.stage, home.chunk) == part;
      }
    CHECK(all_agree);
    CHECK(places.size() == static_cast<std::size_t>(s.stages * s.chunks));  // every chunk holds a part
  });
}

TEST_CASE("bidirectional schedules send even microbatches down and odd ones up") {
  const Schedule s = make_schedule("chimera", {4, 4});
  CHECK(s.home(0, 2) == Home{0, 0});
  CHECK(s.home(0, 3) == Home{3, 1});
  CHECK(s.copies(1) == std::vector<Home>{{1, 0}, {2, 1}});
}

TEST_CASE("a V has its first and its last part on the first stage") {
  const Schedule s = make_schedule("zb-v", {3, 5});
  CHECK(s.home(0, 0) == Home{0, 0});
  CHECK(s.home(2, 0) == Home{2, 0});
  CHECK(s.home(3, 0) == Home{2, 1});
  CHECK(s.home(5, 0) == Home{0, 1});
}

TEST_CASE("1f1b is the order of its paper") {
  const auto f = [](std::int32_t i) { return Action{Pass::Forward, 0, i}; };
  const auto b = [](std::int32_t i) { return Action{Pass::Backward, 0, i}; };
  const Schedule s = make_schedule("1f1b", {2, 3});
  CHECK(s.actions[0] == std::vector<Action>{f(0), f(1), b(0), f(2), b(1), b(2)});
  CHECK(s.actions[1] == std::vector<Action>{f(0), b(0), f(1), b(1), f(2), b(2)});
}

TEST_CASE("a schedule without one of its actions does not pass") {
  for (const ScheduleEntry& entry : schedules()) {
    const Schedule whole = make_schedule(entry, {4, 8});
    for (std::size_t stage = 0; stage < whole.actions.size(); ++stage)
      for (std::size_t i = 0; i < whole.actions[stage].size(); ++i) {
        Schedule s = whole;
        s.actions[stage].erase(s.actions[stage].begin() + static_cast<std::ptrdiff_t>(i));
        CAPTURE(entry.name, stage, i);
        CHECK_FALSE(check(s).empty());
        s.actions[stage] = whole.actions[stage];
        s.actions[stage].push_back(whole.actions[stage][i]);
        CHECK_FALSE(check(s).empty());
      }
  }
}

TEST_CASE("a schedule with a gradient before the pass that it needs does not pass") {
  // Swapped are two actions of the same chunk and microbatch on one stage: whatever stands between, it cannot start.
  for (const ScheduleEntry& entry : schedules()) {
    const Schedule whole = make_schedule(entry, {4, 8});
    for (std::size_t stage = 0; stage < whole.actions.size(); ++stage) {
      const auto& list = whole.actions[stage];
      for (std::size_t i = 0; i < list.size(); ++i)
        for (std::size_t j = i + 1; j < list.size(); ++j) {
          if (list[i].chunk != list[j].chunk || list[i].microbatch != list[j].microbatch) continue;
          Schedule s = whole;
          std::swap(s.actions[stage][i], s.actions[stage][j]);
          CAPTURE(entry.name, stage, i, j);
          CHECK_FALSE(check(s).empty());
        }
    }
  }
}

TEST_CASE("a schedule with an action on another stage, chunk or microbatch does not pass") {
  Random random{7};
  for (const ScheduleEntry& entry : schedules()) {
    const Schedule whole = make_schedule(entry, {4, 8});
    for (int round = 0; round < 200; ++round) {
      Schedule s = whole;
      auto& list = s.actions[random.below(s.actions.size())];
      const std::size_t i = random.below(list.size());
      const Action before = list[i];
      list[i].microbatch = static_cast<std::int32_t>(random.below(9));
      list[i].chunk = static_cast<std::int32_t>(random.below(3));
      CAPTURE(entry.name, round, i);
      CHECK(check(s).empty() == (list[i] == before));
    }
  }
}

TEST_CASE("check says which action is wrong") {
  Schedule s = make_schedule("1f1b", {2, 2});
  s.actions[1][0].microbatch = 2;
  CHECK(check(s) == std::vector<std::string>{
                        "stage 1, action 0 (forward, chunk 0, microbatch 2): chunks end at 0 and microbatches at 1"});

  s = make_schedule("chimera", {2, 2});
  s.actions[0][0].microbatch = 1;
  CHECK(check(s) == std::vector<std::string>{"stage 0, action 0 (forward, chunk 0, microbatch 1): part 0 of this "
                                             "microbatch is at home on chunk 1 of stage 1"});

  s = make_schedule("zb-h1", {1, 1});
  s.actions[0].pop_back();
  CHECK(check(s) ==
        std::vector<std::string>{"part 0, microbatch 0 has 0 backwards, 1 input gradients and 0 weight gradients"});

  s = make_schedule("gpipe", {1, 1});
  s.actions[0].insert(s.actions[0].begin(), s.actions[0].front());
  CHECK(check(s) == std::vector<std::string>{"part 0, microbatch 0 runs forward 2 times"});
}

TEST_CASE("check says who waits for whom when stages would wait for ever") {
  // Stage 0 wants the gradient of microbatch 0 before it sends microbatch 1, stage 1 wants microbatch 1 first.
  Schedule s = make_schedule("1f1b", {2, 2});
  s.actions[0] = {{Pass::Forward, 0, 0}, {Pass::Backward, 0, 0}, {Pass::Forward, 0, 1}, {Pass::Backward, 0, 1}};
  s.actions[1] = {{Pass::Forward, 0, 0}, {Pass::Forward, 0, 1}, {Pass::Backward, 0, 0}, {Pass::Backward, 0, 1}};
  CHECK(check(s) == std::vector<std::string>{
                        "stage 0, action 1 (backward, chunk 0, microbatch 0) waits for the gradient of part 1, "
                        "microbatch 0 from stage 1",
                        "stage 1, action 1 (forward, chunk 0, microbatch 1) waits for the output of part 0, "
                        "microbatch 1 from stage 0"});
}

TEST_CASE("an unknown schedule names the known ones", "[error]") {
  CHECK(
      user_error([] { find_schedule("zbv"); }) == user_error([] {
        throw unknown_name("schedule", "zbv", {"gpipe", "1f1b", "interleaved", "chimera", "zb-h1", "zb-v", "dualpipe"});
      }));
}

TEST_CASE("a shape that a schedule cannot have is an error that names legal ones", "[error]") {
  CHECK(error_of("gpipe", {0, 4}) == "gpipe needs 1 to 4096 stages, not 0");
  CHECK(error_of("gpipe", {4, 0}) == "gpipe needs at least 1 microbatch, not 0");
  CHECK(error_of("1f1b", {4, 8, 2}) ==
        "1f1b has 1 chunk per stage, not 2\n  hint: only interleaved takes another number");
  CHECK(error_of("zb-v", {4, 8, 3}) ==
        "zb-v has 2 chunks per stage, not 3\n  hint: only interleaved takes another number");
  CHECK(error_of("interleaved", {4, 8, 1}) ==
        "interleaved needs at least 2 chunks per stage, not 1\n  hint: with 1 chunk per stage, 1f1b does the same with "
        "fewer activations");
  CHECK(error_of("chimera", {5, 8}) == "chimera needs an even number of stages, not 5\n  hint: 4 or 6 are legal");
  CHECK(error_of("chimera", {1, 8}) == "chimera needs an even number of stages, not 1\n  hint: 2 or 4 are legal");
  CHECK(error_of("dualpipe", {3, 8}) == "dualpipe needs an even number of stages, not 3\n  hint: 2 or 4 are legal");
  CHECK(error_of("dualpipe", {4, 6}) ==
        "dualpipe on 4 stages needs an even number of microbatches and at least 8, not 6\n  hint: 8 or 10 are legal");
  CHECK(error_of("dualpipe", {4, 11}) ==
        "dualpipe on 4 stages needs an even number of microbatches and at least 8, not 11\n  hint: 10 or 12 are legal");
  CHECK(error_of("gpipe", {1000, 1'000'000}) ==
        "gpipe of 1000 stages, 1000000 microbatches and 1 chunks has 1e+09 forwards\n  hint: at most 1e+07 are legal");
}
