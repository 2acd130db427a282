// SPDX-License-Identifier: Apache-2.0
// Pairs, clocks and worst ops of two small timelines that are written by hand.
#include <catch2/catch.hpp>
#include <cmath>

#include "gui/core/alignment.hpp"
#include "gui/core/explorer.hpp"
#include "gui/core/retime.hpp"
#include "tests/timeline_testing.hpp"

using namespace orrery;
using namespace orrery::gui;

TEST_CASE("an op of the same plan that was not recorded has no partner, whatever looks like it", "[gui]") {
  SmallPlan p;
  const OpId a = p.add("a", gemm()), b = p.add("b", gemm()), c = p.add("c", gemm());
  Trace predicted, measured;
  for (const OpId op : {a, b}) ran(predicted.timeline, op, 0, 10 * std::int64_t{op.value}, 10 * op.value + 8);
  for (const OpId op : {a, c}) ran(measured.timeline, op, 0, 10 * std::int64_t{op.value}, 10 * op.value + 9);
  predicted.plans = measured.plans = describe(p.plan);
  const Matching m = match(Document{std::move(predicted), "p"}, Document{std::move(measured), "m"});
  CHECK(m.partner_of_main == std::vector<EventIndex>{0, kNoEvent});
  CHECK(m.unmatched_main == 1);
  CHECK(m.unmatched_main_time.base() == Approx(8e-6));
  CHECK(m.unmatched_other_time.base() == Approx(9e-6));
}

TEST_CASE("what an op was fused with can be asked", "[gui]") {
  std::vector<MatchStream> main{{0, "compute", {}}}, other{{0, "compute", {}}};
  for (EventIndex e = 0; e < 4; ++e) main[0].items.push_back({e, 0, 1, 10 + e});
  for (EventIndex e = 0; e < 3; ++e) other[0].items.push_back({e, 0, 1, e == 1 ? 99u : 10u + 3 * (e / 2), e == 1});
  const Matching m = match(main, 4, other, 3);
  REQUIRE(m.fusion_of(1) != nullptr);
  CHECK(m.fusion_of(1)->main == std::vector<EventIndex>{1, 2});
  CHECK(m.fusion_of(1)->other == std::vector<EventIndex>{1});
  CHECK(m.fusion_of(0) == nullptr);
}

TEST_CASE("documents of different plans match by collectives and inside layers", "[gui]") {
  SmallPlan p;
  SmallPlan q;
  q.add("extra", gemm());
  for (SmallPlan* plan : {&p, &q})
    for (int i = 0; i < 4; ++i) {
      plan->add("norm", NormForward{.rows = 8, .dim = 8});
      plan->add("sum", all_reduce(), Stream::Comm);
    }
  const auto trace = [](const SmallPlan& plan) {
    Trace t;
    for (std::size_t i = 0; i < plan.plan.ops.size(); ++i)
      ran(t.timeline, OpId{i}, 0, std::int64_t(i) * 10, std::int64_t(i) * 10 + 8);
    t.plans = describe(plan.plan);
    return t;
  };
  const Document main{trace(p), "p"}, other{trace(q), "q"};
  const Matching m = match(main, other);
  CHECK(m.pairs[static_cast<std::size_t>(MatchTier::Id)] == 0);
  CHECK(m.pairs[static_cast<std::size_t>(MatchTier::Collective)] == 4);
  // What the second plan begins with could be part of the norm behind it: that one is not sure.
  CHECK(m.pairs[static_cast<std::size_t>(MatchTier::Marked)] == 3);
  CHECK(m.pairs[static_cast<std::size_t>(MatchTier::Sequence)] == 1);
  CHECK(m.unmatched_other == 1);
}

TEST_CASE("a clock is not put so far that a collective ends before a rank begins it", "[gui]") {
  SmallPlan p{2};
  Trace t;
  // Clocks agree. Rank 1 notices every second end 200 us late: on the average it seems 100 us behind.
  for (int i = 0; i < 100; ++i) {
    const OpId op = p.add("sum" + std::to_string(i), all_reduce(), Stream::Comm);
    ran(t.timeline, op, 0, 1000 * i, 1000 * i + 10);
    ran(t.timeline, op, 1, 1000 * i, 1000 * i + (i % 4 == 1 || i % 4 == 2 ? 210 : 10));
  }
  t.plans = describe(p.plan);
  const ClockFit fit = fit_clocks(Document{std::move(t), "m"}).at(1);
  // It ends at 10 us at the earliest, and that is not before rank 0 has begun.
  const double at_end = fit.offset_ps + fit.skew * 99'010e6;
  CHECK(at_end >= -10.01e6);
  CHECK(at_end <= 0);
}

TEST_CASE("the worst op is the one that adds most to the critical path, not the longest off it", "[gui]") {
  SmallPlan p;
  const OpId a = p.add("a", gemm()), beside = p.add("beside", gemm(), Stream::CopyIn);
  const OpId b = p.add("b", gemm(), Stream::Compute, {a});
  Trace predicted, measured;
  ran(predicted.timeline, a, 0, 0, 50);
  ran(predicted.timeline, b, 0, 50, 100);
  ran(predicted.timeline, beside, 0, 0, 20);
  ran(measured.timeline, a, 0, 0, 60);
  ran(measured.timeline, b, 0, 60, 112);
  ran(measured.timeline, beside, 0, 0, 60);  // 40 longer, but 80 of slack
  predicted.plans = measured.plans = describe(p.plan);
  const Document main{std::move(predicted), "p"};
  const auto c = compare_documents(main, Document{std::move(measured), "m"}, {});
  const auto worst = worst_events(main, Insight{*main.trace()}, *c);
  REQUIRE(worst.size() == 2);
  CHECK(main.events().name(worst[0]) == "a");
  CHECK(main.events().name(worst[1]) == "b");
}

TEST_CASE("what is drawn as the error of an op can be chosen", "[gui]") {
  // Two ops, the second 2 us late and 5 us longer: 10 to 20 against 12 to 27.
  SmallPlan p;
  const OpId a = p.add("a", gemm()), b = p.add("b", gemm());
  Trace predicted, measured;
  ran(predicted.timeline, a, 0, 0, 10);
  ran(predicted.timeline, b, 0, 10, 20);
  ran(measured.timeline, a, 0, 0, 10);
  ran(measured.timeline, b, 0, 12, 27);
  for (Trace* t : {&predicted, &measured}) t->plans = describe(p.plan);
  measured.timeline.source = TimelineSource::Measured;
  Explorer e;
  e.open(Document{std::move(predicted), "p"});
  e.compare(compare_documents(e.document(), Document{std::move(measured), "m"}, {}));
  const auto picoseconds = [&](ErrorChannel channel) {
    e.view().error_channel = channel;
    e.refresh();
    const ShownErrors shown = e.other()->shown();
    return std::vector{shown.values[0] / kErrorRange * shown.range_ps, shown.values[1] / kErrorRange * shown.range_ps};
  };
  const auto is = [](const std::vector<double>& found, const std::vector<double>& wanted) {
    return std::abs(found[0] - wanted[0]) < 1 && std::abs(found[1] - wanted[1]) < 1;
  };
  CHECK(is(picoseconds(ErrorChannel::Time), {0, 5e6}));
  CHECK(is(picoseconds(ErrorChannel::Start), {0, 2e6}));
  CHECK(is(picoseconds(ErrorChannel::Gap), {0, 2e6}));
  CHECK(is(picoseconds(ErrorChannel::Overlap), {0, 0}));
  e.view().error_channel = ErrorChannel::Time;
  e.view().colour_by = ColourBy::Error;
  e.refresh();
  CHECK(e.colouring().legend[4].name == "+5 us");  // the end of the scale
  CHECK(title_of({.kind = RowKind::Errors}, e.layout(), e.document(), e.view()) == "error: time");
  e.view().error_channel = ErrorChannel::Duration;
  e.refresh();
  CHECK(e.other()->shown().values[1] == Approx(std::log(1.5)));
  CHECK(e.colouring().legend[4].name == "+30 %");
}
