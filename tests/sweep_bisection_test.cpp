// SPDX-License-Identifier: Apache-2.0
// `orrery sweep --bisect`: boundaries against a look at every value, conditions, points that have no result.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/app/sweep/bisected_cases.hpp"
#include "sim/base/random.hpp"
#include "tests/sweep_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

/// A boundary that is looked for with so many values a round, and how many it looked at.
struct Found {
  Boundary boundary;
  std::size_t looks = 0;
};
Found find_boundary(const std::string& text, std::size_t most, const std::function<bool(double)>& holds) {
  Found f{Boundary{parse_bisection(text)}};
  while (f.boundary.state() == Boundary::State::Open) {
    std::map<double, bool> seen;
    for (const double v : f.boundary.next(most)) seen[v] = holds(v);
    REQUIRE_FALSE(seen.empty());
    f.looks += seen.size();
    REQUIRE(f.looks < 200);
    f.boundary.tell(seen);
  }
  return f;
}

/// A sweep whose points have what `result` says of the bisected key's value; null: refused.
SweepResults bisected(const std::string& key, const std::string& until, std::vector<BisectedCase>& cases,
                      const std::function<json(const SweptValues&)>& result) {
  const BisectedKey bisected = parse_bisection(key);
  if (cases.empty()) cases.push_back({0, {}, Boundary{bisected}});
  SweepResults sweep{.keys = {bisected.key}};
  if (!cases.front().values.empty()) sweep.keys.insert(sweep.keys.begin(), "a.other");
  bisect(bisected, parse_condition(until), 1, cases, sweep, [&](const std::vector<SweepPoint>& points) {
    for (const SweepPoint& p : points) {
      SweepRecord r;
      r.id = std::to_string(sweep.points.size());
      r.result = result(p.values);
      if (r.result.is_null()) r.status = PointStatus::Refused, r.error = "no such thing";
      sweep.points.push_back({r.id, "s", p.values});
      sweep.add(r);
    }
  });
  return sweep;
}

}  // namespace

TEST_CASE("of whole numbers the two neighbours are found wherever the boundary is") {
  for (const std::size_t most : {1u, 2u, 5u})
    for (int at = 1; at <= 40; ++at)
      for (const bool is_upper : {false, true}) {
        INFO(most << " at a time, boundary " << at << ", holds above " << is_upper);
        const Found f =
            find_boundary("n=1,41", most, [&](double v) { return is_upper ? v > double(at) : v <= double(at); });
        CHECK(f.boundary.state() == Boundary::State::Found);
        CHECK(f.boundary.holds() == (is_upper ? at + 1 : at));
        CHECK(f.boundary.fails() == (is_upper ? at : at + 1));
        CHECK_FALSE(f.boundary.changes_again());
        if (most == 1) CHECK(f.looks <= 2 + 6);  // 40 steps are halved at most six times
      }
}

TEST_CASE("values of a step are tried alone, and both ends as they are") {
  const Found f = find_boundary("n=8,1001,16", 3, [](double v) {
    CHECK((v == 1001 || std::fmod(v - 8, 16) == 0));
    return v < 500;
  });
  CHECK(f.boundary.holds() == 488);
  CHECK(f.boundary.fails() == 504);
  const Found last = find_boundary("n=8,1001,16", 1, [](double v) { return v < 1001; });
  CHECK(last.boundary.holds() == 1000);
  CHECK(last.boundary.fails() == 1001);
  // As doubles 0.1 + 2 · 0.1 and 0.1 + 6 · 0.1 are not 0.3 and 0.7.
  const Found tenths = find_boundary("n=0.1,2,0.1", 2, [](double v) { return v <= 0.65; });
  CHECK(tenths.boundary.holds() == 0.6);
  CHECK(tenths.boundary.fails() == 0.7);
}

TEST_CASE("without a step a boundary is told to 1 %, over decades and through zero") {
  Random random{5};
  for (int round = 0; round < 200; ++round) {
    const double at = std::pow(10, random.uniform(-2.9, 2.9));
    const Found f = find_boundary("x=0.001 GB/s,1000 GB/s", 1, [&](double v) { return v >= at; });
    CHECK(f.boundary.holds() >= at);
    CHECK(f.boundary.fails() < at);
    CHECK(f.boundary.holds() / f.boundary.fails() <= 1.0101);
    CHECK(f.looks <= 2 + 11);  // ln(10^6) is halved to 1 % by eleven
  }
  const Found f = find_boundary("x=-1.5,2.5", 1, [](double v) { return v <= 0.3; });
  CHECK((f.boundary.holds() <= 0.3 && f.boundary.fails() > 0.3));
  CHECK(f.boundary.fails() - f.boundary.holds() <= 0.04);
}

TEST_CASE("conditions that hold everywhere or nowhere end at once, those that change again say so") {
  CHECK(find_boundary("n=1,100", 1, [](double) { return true; }).boundary.state() == Boundary::State::Everywhere);
  CHECK(find_boundary("n=1,100", 1, [](double) { return false; }).boundary.state() == Boundary::State::Nowhere);
  const Found f = find_boundary("n=1,101", 9, [](double v) { return v < 30 || (v > 60 && v < 90); });
  CHECK(f.boundary.holds() == 29);
  CHECK(f.boundary.fails() == 30);
  CHECK(f.boundary.changes_again());
}

TEST_CASE("conditions are of values, of parts of the better end, and of fitting") {
  const json result{{"tokens_per_second", 95},
                    {"step_time", {{"seconds", 0.25}}},
                    {"ttft", {{"p99", 0.5}}},
                    {"peak_memory", {{"bytes", 70e9}, {"fits", true}}}};
  json large = result;
  large["peak_memory"]["fits"] = false;
  const auto holds = [&](const std::string& text, double better = 0) {
    CHECK_FALSE(meets(parse_condition(text), large, better));
    return meets(parse_condition(text), result, better);
  };
  CHECK(holds("fits"));
  CHECK(holds("tokens_per_second>=95"));
  CHECK_FALSE(holds("tokens_per_second>=95.1"));
  CHECK(holds("tokens_per_second >= 95%", 100));
  CHECK_FALSE(holds("tokens_per_second>=95 %", 101));
  CHECK(holds("step_time<=250 ms"));
  CHECK_FALSE(holds("step_time.seconds<=0.2"));
  CHECK(holds("ttft.p99<=500 ms"));
  CHECK(holds("peak_memory<=70 GB"));
  CHECK_FALSE(holds("peak_memory<=65 GiB"));
  const Condition rate = parse_condition("tokens_per_second>=95%"), time = parse_condition("step_time<=110%");
  json other = result;
  other["tokens_per_second"] = 60, other["step_time"]["seconds"] = 0.5;
  CHECK(better_of(rate, {&other, &result}) == 95);
  CHECK(better_of(time, {&other, &result}) == 0.25);
  CHECK(better_of(rate, {&other, &large}) == 60);  // what does not fit is no better end

  CHECK_THAT(user_error([] { parse_condition("tokens_per_second=95"); }), Catch::Contains("says neither >= nor <="));
  CHECK_THAT(user_error([] { parse_condition("step_time<=10 s,5"); }), Catch::Contains("'10 s,5' is no number"));
  CHECK_THAT(user_error([] { parse_condition("step_time<=soon"); }), Catch::Contains("'soon' is no number"));
  CHECK_THAT(user_error([&] { holds("tokens>=95"); }), Catch::Contains("results have no value 'tokens'"));
  CHECK_THAT(user_error([] { parse_bisection("a=1"); }), Catch::StartsWith("--bisect 'a=1': there is no key with two"));
  CHECK_THAT(user_error([] { parse_bisection("a=1 GB,2 TB"); }), Catch::Contains("'1 GB' and '2 TB' have different"));
  CHECK_THAT(user_error([] { parse_bisection("a=2,1"); }), Catch::StartsWith("--bisect 'a=2,1': '2' is more than '1'"));
  CHECK_THAT(user_error([] { parse_bisection("a=1,8,0"); }), Catch::StartsWith("--bisect 'a=1,8,0': '0' is no step"));
}

TEST_CASE("each case has its own boundary, and one without a result is told while the others go on") {
  const BisectedKey key = parse_bisection("b.size=1,64");
  std::vector<BisectedCase> cases;
  for (const char* other : {"10", "20", "30"}) cases.push_back({0, {other}, Boundary{key}});
  const SweepResults sweep = bisected("b.size=1,64", "time<=100%", cases, [](const SweptValues& v) {
    const double other = std::stod(v[0]), size = std::stod(v[1]);
    if (other == 30 && size > 20 && size < 64) return json();
    return json{{"time", other * (size < other + 3 ? 2 : 1)}};
  });
  CHECK(cases[0].boundary.holds() == 13);
  CHECK(cases[0].boundary.fails() == 12);
  CHECK(cases[1].boundary.holds() == 23);
  CHECK_FALSE(are_answered(cases));
  CHECK(cases[2].failure == "no result at 33: no such thing");
  const json document = to_json(cases, key, parse_condition("time<=100%"), sweep);
  CHECK(document["cases"][1]["holds"]["value"] == "23");
  CHECK(document["cases"][1]["values"]["a.other"] == "20");
  CHECK(document["cases"][1]["better"] == 20);
  CHECK(document["cases"][2]["holds"].is_null());
  CHECK(document["cases"][2]["error"] == "no result at 33: no such thing");
  for (const json& c : document["cases"])
    for (const json& point : c["points"])
      CHECK(sweep.points.at(point.get<std::size_t>()).values.front() == c["values"]["a.other"]);
}

TEST_CASE("a bisection finds what a sweep of all values finds, with few of them") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kSweptScenario);
  const std::string key = "cluster.device_link.bandwidth";
  const json all =
      parsed(swept({scenario, "--sweep", key + "=lin(1 GB/s,51 GB/s,51)", "--out", folder / "all", "--json"}));
  std::map<double, double> rates;  // by bandwidth
  double best = 0;
  for (const json& point : all["points"]) {
    const double rate = point["result"]["tokens_per_second"];
    rates[std::stod(point["values"][key].get<std::string>())] = rate;
    best = std::max(best, rate);
  }
  const auto at = std::find_if(rates.begin(), rates.end(), [&](const auto& r) { return r.second >= 0.9 * best; });
  REQUIRE((at != rates.begin() && at != rates.end()));

  const std::vector<std::string> words{
      scenario,       "--bisect", key + "=1 GB/s,51 GB/s,1 GB/s", "--until", "tokens_per_second>=90%", "--out",
      folder / "out", "--json"};
  const CommandResult r = swept(words);
  CHECK(r.code == 0);
  const json found = parsed(r);
  const json& boundary = found["bisection"]["cases"][0];
  CHECK(boundary["holds"]["value"] == fmt::format("{} GB/s", at->first));
  CHECK(boundary["fails"]["value"] == fmt::format("{} GB/s", std::prev(at)->first));
  CHECK(found["points"].size() <= 10);
  for (const json& point : found["points"])
    CHECK(point["result"]["tokens_per_second"] == rates.at(std::stod(point["values"][key].get<std::string>())));

  std::vector<std::string> again = words;
  again.push_back("--resume");
  const std::set<std::string> before = ids_in(folder / "out");
  CHECK(parsed(swept(again))["bisection"] == found["bisection"]);
  std::vector<std::string> lines = again;
  std::replace(lines.begin(), lines.end(), std::string{"--json"}, std::string{"--jsonl"});
  const std::string printed = swept(lines).out;
  CHECK(std::count(printed.begin(), printed.end(), '\n') == std::ssize(found["points"]) + 1);  // the answer comes last
  CHECK(json::parse(printed.substr(printed.rfind('\n', printed.size() - 2) + 1))["bisection"] == found["bisection"]);
  CHECK(ids_in(folder / "out") == before);  // nothing was computed twice

  const CommandResult none =
      swept({scenario, "--bisect", key + "=1 GB/s,51 GB/s", "--until", "step_time<=1 ns", "--out", folder / "none"});
  CHECK(none.code == 0);
  CHECK_THAT(none.out, Catch::Contains("holds at neither end"));
  const CommandResult refused = swept({scenario, "--bisect", "workload.train.batch=8,64,3", "--until", "fits",
                                       "--sweep", "workload.train.batch=8", "--out", folder / "no"});
  CHECK(refused.code == 2);
  CHECK(refused.err == "orrery: 'workload.train.batch' is swept and bisected\n");
  CHECK_THAT(swept({scenario, "--bisect", "workload.train.batch=8,64"}).err,
             Catch::Contains("--bisect and --until belong together"));
}
