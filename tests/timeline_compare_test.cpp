// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "sim/timeline/compare.hpp"
#include "tests/timeline_testing.hpp"

using namespace orrery;

namespace {

/// Predicted a [0,10] sum [10,20]; measured a [0,8] sum [8,24].
struct Pair {
  SmallPlan p;
  OpId a = p.add("layers.0.up", gemm());
  OpId sum = p.add("layers.0.sum", all_reduce(), Stream::Comm, {a});
  Timeline predicted, measured;
  Pair() {
    ran(predicted, a, 0, 0, 10);
    ran(predicted, sum, 0, 10, 20);
    measured.source = TimelineSource::Measured;
    ran(measured, a, 0, 0, 8);
    ran(measured, sum, 0, 8, 24);
  }
};

const ErrorRow& row(const std::vector<ErrorRow>& rows, std::string_view name) {
  for (const ErrorRow& r : rows)
    if (r.name == name) return r;
  throw std::runtime_error{"no row " + std::string{name}};
}

}  // namespace

TEST_CASE("a prediction is joined with its measurement and the worst contributor comes first", "[timeline]") {
  const Pair f;
  const PlanDigests plans = describe(f.p.plan);
  const Comparison c = compare(f.measured, plans, f.predicted, plans);
  CHECK(c.joined);
  CHECK(c.matched == 2);
  CHECK(c.error == Approx(20.0 / 24 - 1));
  CHECK(c.by_class.front().name == "collective");
  CHECK(c.by_class.front().error() == Approx(-6.0 / 16));
  CHECK(row(c.by_op, "layers.0.up").difference() == Approx(2e-6));
  CHECK(row(c.by_pattern, "layers.*.sum").reference == Approx(16e-6));
  CHECK(row(c.by_kind, "all_reduce").count == 1);
}

TEST_CASE("differences of exposed times add up to the error of the makespan", "[timeline]") {
  const Pair f;
  const PlanDigests plans = describe(f.p.plan);
  const Comparison c = compare(f.measured, plans, f.predicted, plans);
  double sum = 0;
  for (const ErrorRow& r : c.exposed) sum += r.difference();
  CHECK(sum == Approx(-4e-6));
}

TEST_CASE("spans without a partner are counted on their side", "[timeline]") {
  Pair f;
  f.measured.spans.pop_back();
  const PlanDigests plans = describe(f.p.plan);
  const Comparison c = compare(f.measured, plans, f.predicted, plans);
  CHECK(c.matched == 1);
  CHECK(c.only_reference.spans == 0);
  CHECK(c.only_candidate.spans == 1);
  CHECK(c.only_candidate.seconds == Approx(10e-6));
}

TEST_CASE("a folded prediction is compared with all measured ranks of the class", "[timeline]") {
  SmallPlan p{2};
  const OpId a = p.add("a", gemm());
  Timeline predicted, measured;
  ran(predicted, a, 0, 0, 10);
  ran(measured, a, 0, 0, 8);
  ran(measured, a, 1, 0, 10);
  const PlanDigests plans = describe(p.plan);
  const Comparison c = compare(measured, plans, predicted, plans);
  CHECK(c.matched == 2);
  CHECK(c.only_reference.spans == 0);
  CHECK(c.by_class.front().reference == Approx(9e-6));  // the mean of 8 and 10
  CHECK(c.by_class.front().candidate == Approx(10e-6));
}

TEST_CASE("predictions of different plans are added up by name", "[timeline]") {
  const Pair f;
  SmallPlan other;
  const OpId up = other.add("layers.0.up", gemm());
  const OpId more = other.add("layers.1.up", gemm());
  Timeline t;
  ran(t, up, 0, 0, 7);
  ran(t, more, 0, 7, 14);
  const Comparison c = compare(f.predicted, describe(f.p.plan), t, describe(other.plan));
  CHECK_FALSE(c.joined);
  CHECK(row(c.by_pattern, "layers.*.up").candidate == Approx(14e-6));
  CHECK(row(c.by_op, "layers.0.sum").candidate == 0);
}

TEST_CASE("peaks are compared per rank and tier", "[timeline]") {
  Pair f;
  f.measured.peaks.push_back({RankId{0}, Tier::Device, 100, 0, {}, 0, {}});
  f.predicted.peaks.push_back({RankId{0}, Tier::Device, 90, 0, {}, 0, {}});
  f.predicted.peaks.push_back({RankId{0}, Tier::Host, 64, 0, {}, 0, {}});
  const PlanDigests plans = describe(f.p.plan);
  const Comparison c = compare(f.measured, plans, f.predicted, plans);
  REQUIRE(c.peaks.size() == 2);
  CHECK(c.peaks[0].tier == Tier::Host);  // 64 B apart, the other 10 B
  CHECK(c.peaks[1].candidate == 90);
  f.predicted.peaks.clear();  // as where it was read from a format without memory
  CHECK(compare(f.measured, plans, f.predicted, plans).peaks.empty());
}

TEST_CASE("layer numbers are replaced in patterns of op names", "[timeline]") {
  CHECK(name_pattern("layers.12.mlp.up") == "layers.*.mlp.up");
  CHECK(name_pattern("7") == "*");
  CHECK(name_pattern("conv2d.weight") == "conv2d.weight");
  CHECK(name_pattern("") == "");
}

TEST_CASE("a comparison has a report for people and one for programs", "[timeline]") {
  const Pair f;
  const PlanDigests plans = describe(f.p.plan);
  const Comparison c = compare(f.measured, plans, f.predicted, plans);
  CHECK_THAT(to_text(c), Catch::Contains("2 spans matched") && Catch::Contains("-37.50 %"));
  CHECK_THAT(to_text(c), Catch::Contains(" measured  predicted  difference"));
  CHECK_THAT(to_text(compare(f.predicted, plans, f.predicted, plans)),
             Catch::Contains(" reference  candidate  difference"));
  const nlohmann::json j = to_json(c);
  CHECK(j["schema_version"] == 1);
  CHECK(j["reference"]["source"] == "measured");
  CHECK(j["by_class"][0]["error"].get<double>() == Approx(-0.375));
}
