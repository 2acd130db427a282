// SPDX-License-Identifier: Apache-2.0
// Matching, alignment and explanation of two timelines, against pairs of which the truth is known.
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <set>

#include "gui/core/alignment.hpp"
#include "gui/core/explorer.hpp"
#include "gui/core/retime.hpp"
#include "sim/base/random.hpp"
#include "tests/gui_testing.hpp"
#include "tests/timeline_testing.hpp"

using namespace orrery;
using namespace orrery::gui;

namespace {

/// Training as a stream sees it: steps of identical layers of kernels, in which kinds occur several times.
struct Item {
  std::uint64_t kind, layer, step, truth;  // truth: the number of the op, 0 for one that has no partner
};
constexpr int kSteps = 3, kLayers = 80, kKernels = 65, kKinds = 23;

std::vector<Item> training() {
  std::vector<Item> out;
  for (std::uint64_t s = 0; s < kSteps; ++s)
    for (std::uint64_t l = 0; l < kLayers; ++l)
      for (std::uint64_t k = 0; k < kKernels; ++k) out.push_back({1 + k * k % kKinds, l, s, out.size() + 1});
  return out;
}

struct Result {
  std::uint64_t right = 0, wrong = 0;  // of the tiers that are sure
  std::uint64_t likely = 0;            // right as well, but of the last tier
  std::uint64_t pairable = 0, fusions = 0;
};

/// Matches by markers (or without any) and counts against the truth.
Result matched(const std::vector<Item>& a, const std::vector<Item>& b, bool has_markers) {
  const auto stream = [&](const std::vector<Item>& items) {
    MatchStream s{0, "compute", {}};
    for (std::size_t i = 0; i < items.size(); ++i)
      s.items.push_back({static_cast<EventIndex>(i), 0, has_markers ? 1 + items[i].step * kLayers + items[i].layer : 0,
                         items[i].kind});
    return s;
  };
  const std::vector<MatchStream> main{stream(a)}, other{stream(b)};
  const Matching m = match(main, a.size(), other, b.size());
  Result r;
  std::set<std::uint64_t> there;
  for (const Item& i : b) there.insert(i.truth);
  for (std::size_t i = 0; i < a.size(); ++i) {
    r.pairable += there.contains(a[i].truth) ? 1 : 0;
    if (m.partner_of_main[i] == kNoEvent) continue;
    const bool is_right = b[m.partner_of_main[i]].truth == a[i].truth;
    if (m.tier_of_main[i] == static_cast<std::uint8_t>(MatchTier::Sequence))
      r.likely += is_right;
    else
      (is_right ? r.right : r.wrong) += 1;
  }
  r.fusions = m.fusions.size();
  return r;
}

/// A predicted trace of three classes on two ranks, and the same ops with other durations, played by hand: compute and
/// collectives one after another.
struct Biased {
  Trace predicted, measured;
};
constexpr double kGemmBias = 1.10, kNormBias = 0.92, kCollectiveBias = 1.25;

Biased biased() {
  SmallPlan p{2};
  Biased out;
  std::vector<OpId> ops;
  OpId last;
  for (int i = 0; i < 300; ++i) {
    const Stream stream = i % 3 == 2 ? Stream::Comm : Stream::Compute;
    const Work work = i % 3 == 0 ? gemm() : i % 3 == 1 ? Work{NormForward{.rows = 8, .dim = 8}} : all_reduce();
    last = last.is_none() ? p.add("op" + std::to_string(i), work, stream)
                          : p.add("op" + std::to_string(i), work, stream, {last});
    ops.push_back(last);
  }
  Random random{3};
  std::int64_t now = 0, measured_now = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto us = 20 + static_cast<std::int64_t>(random.below(80));
    const double bias = i % 3 == 0 ? kGemmBias : i % 3 == 1 ? kNormBias : kCollectiveBias;
    const auto duration = static_cast<std::int64_t>(double(us * kMicrosecond) * bias);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      out.predicted.timeline.spans.push_back({now, now + us * kMicrosecond, ops[i], RankId{rank}, 0, 0});
      out.measured.timeline.spans.push_back({measured_now, measured_now + duration, ops[i], RankId{rank}, 0, 0});
    }
    now += us * kMicrosecond;
    measured_now += duration;
  }
  for (auto [trace, end] : {std::pair{&out.predicted, now}, {&out.measured, measured_now}}) {
    trace->timeline.makespan_ps = end;
    trace->timeline.instance_ends_ps = {end};
    trace->timeline.num_ranks = 2;
    trace->plans = describe(p.plan);
  }
  out.measured.timeline.source = TimelineSource::Measured;
  return out;
}

const Share& share(const Explanation& e, std::string_view name) {
  for (const Share& s : e.shares)
    if (s.name == name) return s;
  FAIL("no share " << name);
  return e.shares.front();
}

}  // namespace

TEST_CASE("equal streams match wholly, with markers and without", "[gui]") {
  const std::vector<Item> a = training();
  for (const bool markers : {true, false}) {
    const Result r = matched(a, a, markers);
    CHECK((markers ? r.right : r.likely) == a.size());
    CHECK(r.wrong == 0);
  }
}

TEST_CASE("a capture that starts late gives no wrong pairs inside markers", "[gui]") {
  const std::vector<Item> a = training();
  // 0.4 of a step late, in the middle of a layer.
  const std::vector<Item> b{a.begin() + kLayers * kKernels * 4 / 10 + 17, a.end()};
  const Result r = matched(a, b, true);
  CHECK(r.wrong == 0);
  // The first of the layer that is cut may contain what is missing.
  CHECK(double(r.right) >= 0.998 * double(r.pairable));
}

TEST_CASE("a layer that is missing gives no wrong pairs inside markers", "[gui]") {
  const std::vector<Item> a = training();
  std::vector<Item> b = a;
  std::erase_if(b, [](const Item& i) { return i.step == 1 && i.layer == 37; });
  const Result r = matched(a, b, true);
  CHECK(r.wrong == 0);
  CHECK(r.right == r.pairable);
}

TEST_CASE("two ops of each layer fused into one give no wrong pairs, and are found", "[gui]") {
  const std::vector<Item> a = training();
  std::vector<Item> b;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (i % kKernels == 31) continue;
    b.push_back(a[i]);
    if (i % kKernels == 30) b.back() = {1000, a[i].layer, a[i].step, 0};
  }
  const Result r = matched(a, b, true);
  CHECK(r.wrong == 0);
  CHECK(double(r.right) >= 0.95 * double(r.pairable));
  CHECK(r.fusions == kSteps * kLayers);
}

TEST_CASE("neighbours that changed places give no wrong pairs", "[gui]") {
  const std::vector<Item> a = training();
  std::vector<Item> b = a;
  Random random{5};
  for (std::size_t i = 0; i + 1 < b.size(); ++i)
    if (random.bernoulli(0.02) && b[i].layer == b[i + 1].layer && b[i].kind != b[i + 1].kind)
      std::swap(b[i], b[i + 1]), ++i;
  const Result r = matched(a, b, true);
  CHECK(r.wrong == 0);
  CHECK(double(r.right) >= 0.9 * double(a.size()));
  CHECK(double(r.right + r.likely) >= 0.999 * double(a.size()));
}

TEST_CASE("missing and added ops leave gaps where more than one reading is possible", "[gui]") {
  const std::vector<Item> a = training();
  std::vector<Item> b;
  Random random{11};
  for (const Item& i : a) {
    if (!random.bernoulli(0.005)) b.push_back(i);
    if (random.bernoulli(0.005)) b.push_back({1 + random.below(kKinds), i.layer, i.step, 0});
  }
  const Result r = matched(a, b, true);
  CHECK(double(r.wrong) <= 0.001 * double(a.size()));
  CHECK(double(r.right) >= 0.9 * double(r.pairable));
  CHECK(double(r.right + r.likely) >= 0.95 * double(r.pairable));
}

TEST_CASE("documents of one plan match by op id, rank and step", "[gui]") {
  Biased b = biased();
  const Document main{std::move(b.predicted), "p"}, other{std::move(b.measured), "m"};
  const Matching m = match(main, other);
  CHECK(m.pairs[0] == 600);
  CHECK(m.unmatched_main == 0);
  for (EventIndex e = 0; e < 600; ++e) CHECK(main.events().name(e) == other.events().name(m.partner_of_main[e]));
}

TEST_CASE("a bias of each class is recovered within half a percent", "[gui]") {
  Biased b = biased();
  const Document main{std::move(b.predicted), "p"}, other{std::move(b.measured), "m"};
  const Matching m = match(main, other);
  const Insight of_main{*main.trace()}, of_other{*other.trace()};
  const Explanation e = explain(main, of_main, other, of_other, m.partner_of_main);
  CHECK(share(e, "gemm").bias == Approx(kGemmBias - 1).margin(0.005));
  CHECK(share(e, "norm").bias == Approx(kNormBias - 1).margin(0.005));
  CHECK(share(e, "collective").bias == Approx(kCollectiveBias - 1).margin(0.005));
}

TEST_CASE("collectives in a node and between nodes are told apart", "[gui]") {
  // Two nodes of two ranks: the groups "tp", {0, 1} and {2, 3}, stay in a node, "dp", {0, 2} and {1, 3}, do not.
  SmallPlan p;
  p.plan.mesh.axes = {{"dp", 2}, {"tp", 2}};
  p.plan.groups = {{"dp", {0}, {}}, {"tp", {1}, {}}};
  p.plan.classes = {{"all", {{0, 2}, {0, 2}}, 0, 0}};
  const OpId in_node = p.add("in", Collective{.group = GroupId{1}, .bytes = Bytes{1e6}}, Stream::Comm);
  const OpId between = p.add("between", Collective{.group = GroupId{0}, .bytes = Bytes{1e6}}, Stream::Comm, {in_node});
  Trace predicted, measured;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    ran(predicted.timeline, in_node, rank, 0, 10);
    ran(predicted.timeline, between, rank, 10, 30);
    ran(measured.timeline, in_node, rank, 0, 11);
    ran(measured.timeline, between, rank, 11, 41);
  }
  for (Trace* t : {&predicted, &measured}) {
    t->plans = describe(p.plan);
    t->metadata.emplace_back("devices_per_node", "2");
  }
  const Document main{std::move(predicted), "p"}, other{std::move(measured), "m"};
  const Insight of_main{*main.trace()}, of_other{*other.trace()};
  const Explanation e = explain(main, of_main, other, of_other, match(main, other).partner_of_main);
  CHECK(share(e, "collective in a node").mean() == Approx(1e-6));
  CHECK(share(e, "collective between nodes").mean() == Approx(10e-6));
  CHECK(share(e, "collective between nodes").bias == Approx(0.5));
}

TEST_CASE("shares add up to the difference, and to those of a chain", "[gui]") {
  Biased b = biased();
  const Document main{std::move(b.predicted), "p"}, other{std::move(b.measured), "m"};
  const Insight of_main{*main.trace()}, of_other{*other.trace()};
  const Explanation e = explain(main, of_main, other, of_other, match(main, other).partner_of_main);
  double forward = 0, reverse = 0;
  for (const Share& s : e.shares) {
    forward += s.forward;
    reverse += s.reverse;
  }
  CHECK(forward == Approx(e.other - e.main));
  CHECK(reverse == Approx(e.other - e.main));
  // All ops are one chain: a class adds what its own ops are longer, and nothing is left for structure.
  std::map<OpClass, double> sums;
  for (EventIndex i = 0; i < main.events().size() / 2; ++i)
    sums[main.events().facets(2 * i).op_class] += double(main.end(2 * i) - main.start(2 * i)) * 1e-12;
  CHECK(share(e, "gemm").mean() == Approx(sums[OpClass::Gemm] * (kGemmBias - 1)).epsilon(0.005));
  CHECK(share(e, "collective").mean() == Approx(sums[OpClass::Collective] * (kCollectiveBias - 1)).epsilon(0.005));
  CHECK(share(e, "structure").mean() == Approx(0).margin(1e-9));
}

TEST_CASE("playing a timeline again with its own durations gives its own end", "[gui]") {
  const Trace t = testing::large_trace(4, 2000);
  const SpanGraph graph{t.timeline, t.plans};
  CHECK(Retimer{t.timeline, graph}.makespan() == t.timeline.makespan_ps);
}

TEST_CASE("errors are ln(measured / predicted), whichever comes first", "[gui]") {
  Biased b = biased(), c = biased();
  const Document predicted{std::move(b.predicted), "p"}, measured{std::move(c.measured), "m"};
  const EventErrors one = errors_of(predicted, measured, match(predicted, measured));
  const EventErrors two = errors_of(measured, predicted, match(measured, predicted));
  CHECK(one[0] == Approx(std::log(kGemmBias)).margin(1e-4));
  CHECK(two[0] == Approx(std::log(kGemmBias)).margin(1e-4));
}

TEST_CASE("alignment by ops lays matched starts together, by steps only the first", "[gui]") {
  Biased b = biased();
  const Document main{std::move(b.predicted), "p"};
  const auto c = compare_documents(main, Document{std::move(b.measured), "m"}, {.alignment = Alignment::Op});
  CHECK(c->residual_ns == Approx(0).margin(0.01));
  for (EventIndex e = 0; e < 600; ++e) CHECK(c->document.start(c->matching.partner_of_main[e]) == main.start(e));
  realign(main, *c, {.alignment = Alignment::Step});
  CHECK(c->residual_ns > 1000);
  CHECK(c->document.start(0) == main.start(0));
  realign(main, *c, {.alignment = Alignment::Manual, .manual_ps = 5 * kMicrosecond});
  CHECK(c->document.start(0) == main.start(0) + 5 * kMicrosecond);
}

TEST_CASE("ops that overlap in the second timeline only are drawn and hit beside those of the first", "[gui]") {
  SmallPlan p;
  const OpId a = p.add("a", gemm()), b = p.add("b", gemm());
  Trace predicted, measured;
  ran(predicted.timeline, a, 0, 0, 50);
  ran(predicted.timeline, b, 0, 50, 100);
  ran(measured.timeline, a, 0, 0, 60);
  ran(measured.timeline, b, 0, 40, 100);  // began before the end of the other one
  predicted.plans = measured.plans = describe(p.plan);
  Explorer e;
  e.open(Document{std::move(predicted), "p"});
  auto c = compare_documents(e.document(), Document{std::move(measured), "m"}, {});
  REQUIRE(c->lanes_of[0].size() == 2);
  e.compare(std::move(c));
  constexpr Rect kPicture{0, 0, 1000, 600};
  const Regions parts = regions(kPicture, e.view(), e.layout());
  std::set<EventIndex> hit;
  for (const Row& row : e.layout().rows) {
    if (row.kind != RowKind::OtherLane) continue;
    const Rect r = rect_of(row, false, parts, e.view());
    const int x = static_cast<int>(x_of(parts, e.view(), 50 * kMicrosecond));
    for (int y = r.y; y < r.bottom(); ++y) {
      const Hit h = hit_test(e.scene(), kPicture, x, y);
      REQUIRE(h.slice);
      CHECK(h.slice->side == Side::Other);
      hit.insert(h.slice->event);
    }
  }
  CHECK(hit == std::set<EventIndex>{0, 1});
}

TEST_CASE("clocks of ranks are put right from the ends of collectives", "[gui]") {
  Biased b = biased();
  constexpr double kSkew = 2e-5, kOffset = 7e6;
  for (Span& s : b.measured.timeline.spans)
    if (s.rank.value == 1)
      for (std::int64_t* t : {&s.start_ps, &s.end_ps})
        *t = static_cast<std::int64_t>(double(*t) * (1 + kSkew) + kOffset);
  b.measured.timeline.makespan_ps += 100'000'000;
  const auto clocks = fit_clocks(Document{std::move(b.measured), "m"});
  REQUIRE(clocks.contains(1));
  CHECK(clocks.at(1).skew == Approx(-kSkew).epsilon(0.01));
  CHECK(clocks.at(1).offset_ps == Approx(-kOffset).epsilon(0.01));
  CHECK(clocks.at(1).residual_ns < 1);
}

TEST_CASE("an overlay is the measured one under frames of the predicted one, whichever is the first", "[gui]") {
  for (const bool is_measured_first : {false, true}) {
    Biased b = biased();
    Explorer e;
    e.open(Document{std::move(is_measured_first ? b.measured : b.predicted), "first"});
    e.compare(compare_documents(e.document(),
                                Document{std::move(is_measured_first ? b.predicted : b.measured), "second"},
                                {.alignment = Alignment::Op}));
    e.view().compare_mode = CompareMode::Overlay;
    e.refresh();
    CHECK(filled_side(e.scene()) == (is_measured_first ? Side::Main : Side::Other));
    constexpr Rect kPicture{0, 0, 1000, 600};
    const Regions parts = regions(kPicture, e.view(), e.layout());
    const Row& lane = *std::find_if(e.layout().rows.begin(), e.layout().rows.end(),
                                    [](const Row& r) { return r.kind == RowKind::Lane; });
    const Rect r = rect_of(lane, false, parts, e.view());
    const int x = static_cast<int>(x_of(parts, e.view(), e.document().start(0) + kMicrosecond));
    const Hit hit = hit_test(e.scene(), kPicture, x, r.y + 5);
    REQUIRE(hit.slice);
    CHECK(hit.slice->side == filled_side(e.scene()));
  }
}

TEST_CASE("a comparison is the same bytes each time, in every mode, as PNG and as SVG", "[gui]") {
  std::vector<std::string> all[2];
  for (std::vector<std::string>& pictures : all) {
    Biased b = biased();
    Explorer e;
    Font font;
    e.open(Document{std::move(b.predicted), "p"});
    e.find_insight();
    e.compare(compare_documents(e.document(), Document{std::move(b.measured), "m"}, {}));
    e.view().colour_by = ColourBy::Error;
    for (const EnumName<CompareMode>& mode : enum_names(CompareMode{})) {
      e.view().compare_mode = mode.value;
      e.refresh();
      pictures.push_back(write_png(render_image(e, 700, 400, font)));
      pictures.push_back(render_svg(e, 700, 400, font));
    }
  }
  CHECK(all[0] == all[1]);
  CHECK(std::set<std::string>{all[0].begin(), all[0].end()}.size() == all[0].size());
}

TEST_CASE("error buckets keep mean, mean size and the worst op apart", "[gui]") {
  // +25 % and −25 % cancel in the mean.
  Columns columns;
  EventErrors errors;
  for (int i = 0; i < 1000; ++i) {
    columns.add(i * 100, i * 100 + 100, static_cast<EventIndex>(i));
    errors.push_back(i == 500 ? 0.9f : i % 2 == 0 ? 0.25f : -0.25f);
  }
  const ErrorBuckets buckets = error_buckets(columns, errors);
  const ErrorBuckets::Level level = buckets.level(1e9);
  REQUIRE(level.cells.size() == 1);
  const ErrorCell& c = level.cells.front();
  CHECK(std::abs(c.sum / c.time) < 0.01);
  CHECK(c.absolute / c.time == Approx(0.25).margin(0.01));
  CHECK(c.worst_slice == 500);
}
