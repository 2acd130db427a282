// SPDX-License-Identifier: Apache-2.0
// The parts of a sweep: values, who gets which point, workers that crash, hang or leave.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "sim/app/sweep/sweep_axis.hpp"
#include "sim/app/sweep/sweep_dispatcher.hpp"
#include "sim/app/sweep/sweep_server.hpp"
#include "sim/base/random.hpp"
#include "tests/app_testing.hpp"
#include "tests/forked.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

std::vector<std::string> values_of(const std::string& text) {
  std::vector<std::string> out;
  for (const auto& row : parse_axis(text).rows) out.push_back(row.at(0));
  return out;
}

/// Squares the number of a point, but does what it is told to first.
class Squares final : public PointComputer {
 public:
  json compute(const json& point) override {
    const std::string what = point.value("do", "");
    if (what == "abort") {
      std::fputs("a bug of the point\n", stderr);
      std::fflush(stderr);
      std::abort();
    }
    if (what == "hang") std::this_thread::sleep_for(std::chrono::hours{1});
    if (what == "refuse") throw UserError{"not a point"};
    if (what == "throw") throw DeviceError{"no memory"};
    if (what == "kill parent") kill(getppid(), SIGKILL);
    if (what == "slow") std::this_thread::sleep_for(std::chrono::milliseconds{point.value("ms", 50)});
    const int n = point.at("n");
    return {{"square", n * n}};
  }
};

PointComputerOf squares() {
  return [](const json&) { return std::make_unique<Squares>(); };
}

std::vector<SweepTask> tasks_of(int n, const std::map<int, std::string>& deeds = {}) {
  std::vector<SweepTask> tasks;
  for (int i = 0; i < n; ++i) {
    tasks.push_back({fmt::format("id{}", i), "s", {{"n", i}}, 1});
    if (deeds.contains(i)) tasks.back().message["do"] = deeds.at(i);
  }
  return tasks;
}

/// A sweep of squares that runs to its end, and how each task ended.
struct Swept {
  std::map<std::size_t, SweepRecord> records;
  SweepOutcome outcome;
  std::size_t told = 0;
};
Swept sweep(const std::vector<SweepTask>& tasks, SweepServerOptions options) {
  QuietApp app;
  Swept out;
  options.on_record = [&](std::size_t task, const SweepRecord& r) {
    ++out.told;
    out.records.emplace(task, r);
  };
  out.outcome = serve_sweep(json::object(), tasks, options, squares(), app.console, app.interrupt);
  return out;
}

void check_squares(const Swept& s, int n, const std::set<int>& without = {}) {
  CHECK(s.told == static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    if (without.contains(i)) continue;
    const SweepRecord& r = s.records.at(static_cast<std::size_t>(i));
    CHECK(r.status == PointStatus::Done);
    CHECK(r.result == json{{"square", i * i}});
  }
}

}  // namespace

TEST_CASE("values are listed, doubled or evenly spaced, with units and in step") {
  CHECK(values_of("a.b=1, 2,4") == std::vector<std::string>{"1", "2", "4"});
  CHECK(values_of("a=log2(1,64)") == std::vector<std::string>{"1", "2", "4", "8", "16", "32", "64"});
  CHECK(values_of("a=log2(50 GB/s,300 GB/s)") == std::vector<std::string>{"50 GB/s", "100 GB/s", "200 GB/s"});
  CHECK(values_of("a=lin(1,8,8)") == std::vector<std::string>{"1", "2", "3", "4", "5", "6", "7", "8"});
  CHECK(values_of("a=lin(0.5 us,1.5 us,3)") == std::vector<std::string>{"0.5 us", "1 us", "1.5 us"});
  CHECK(values_of("a=log2(x0.25,x2)") == std::vector<std::string>{"x0.25", "x0.5", "x1", "x2"});
  CHECK(values_of("a=lin(3,7,1)") == std::vector<std::string>{"3"});
  CHECK(values_of("s=[{ddp: {mesh: dp2, bucket: 1}}],'x,y'") ==
        std::vector<std::string>{"[{ddp: {mesh: dp2, bucket: 1}}]", "'x,y'"});
  const SweptAxis linked = parse_axis("a,b.c=1:{x: 2},3:4");
  CHECK(linked.keys == std::vector<std::string>{"a", "b.c"});
  CHECK(linked.rows == std::vector<std::vector<std::string>>{{"1", "{x: 2}"}, {"3", "4"}});
}

TEST_CASE("wrong values are refused by what is wrong with them") {
  const auto refusal = [](const std::string& text) { return user_error([&] { parse_axis(text); }); };
  CHECK(refusal("a") ==
        "--sweep 'a': there is no key with values\n  hint: write path=1,2,4, path=log2(1,64) or path=lin(1,8,8)");
  CHECK(refusal("a=1,,2") == "--sweep 'a=1,,2': a value is empty\n  hint: write a=1,2,4");
  CHECK(refusal("a=log2(1 GB/s,2 TB/s)") ==
        "--sweep 'a=log2(1 GB/s,2 TB/s)': '1 GB/s' and '2 TB/s' have different units\n"
        "  hint: write both bounds in one unit");
  CHECK(refusal("a=log2(0,2)") == "--sweep 'a=log2(0,2)': log2 starts at more than 0");
  CHECK(refusal("a=lin(4,2,2)") == "--sweep 'a=lin(4,2,2)': '4' is more than '2'");
  CHECK(refusal("a=lin(1,2,1.5)") ==
        "--sweep 'a=lin(1,2,1.5)': '1.5' is no count\n  hint: give an integer of at least 1");
  CHECK(refusal("a=lin(1)") ==
        "--sweep 'a=lin(1)': lin has 1 arguments\n  hint: write lin(from,to,count), or lin(from,to) with --sample");
  CHECK(refusal("a=log2(one,2)") == "--sweep 'a=log2(one,2)': 'one' is no number\n  hint: such as 8, x0.5 or 50 GB/s");
  CHECK(refusal("a,b=1:2,3") == "--sweep 'a,b=1:2,3': '3' has 1 values for 2 keys\n  hint: write a,b=1:2,3:4");
  CHECK(refusal("a,b=lin(1,2,2)") ==
        "--sweep 'a,b=lin(1,2,2)': a range is of one key\n  hint: list the values: a,b=1:2,3:4");
}

TEST_CASE("all combinations come with the last key fastest") {
  const auto points = product_of({parse_axis("a=1,2"), parse_axis("b,c=x:y,z:w"), parse_axis("d=0")});
  CHECK(points == std::vector<SweptValues>{
                      {"1", "x", "y", "0"}, {"1", "z", "w", "0"}, {"2", "x", "y", "0"}, {"2", "z", "w", "0"}});
  CHECK(user_error([] { product_of({parse_axis("a=lin(1,2)")}); }) ==
        "lin of 'a' says no count\n  hint: write lin(from,to,count), or give --sample");
  const SweptAxis many = parse_axis("a=lin(1,1001,1001)");
  CHECK(user_error([&] {
          product_of({many, many});
        }) == "there are more than a million points\n  hint: give --sample, or fewer values");
}

TEST_CASE("a Latin hypercube has one point in each part of each range") {
  const std::vector<SweptAxis> axes{parse_axis("a=lin(0.0,1)"), parse_axis("b=log2(1.0,1024)"), parse_axis("c=p,q")};
  const auto points = sample_of(axes, 10, 7);
  CHECK(points == sample_of(axes, 10, 7));
  CHECK(points != sample_of(axes, 10, 8));
  std::multiset<int> linear, powers;
  std::multiset<std::string> listed;
  for (const SweptValues& p : points) {
    linear.insert(static_cast<int>(10 * std::stod(p[0])));
    powers.insert(static_cast<int>(std::log2(std::stod(p[1]))));  // a tenth of log2 1 … log2 1024 is one doubling
    listed.insert(p[2]);
  }
  for (int part = 0; part < 10; ++part) {
    CHECK(linear.count(part) == 1);
    CHECK(powers.count(part) == 1);
  }
  CHECK(listed.count("p") == 5);
  for (const SweptValues& p : sample_of({parse_axis("n=lin(1,1000)")}, 50, 1))
    CHECK(p[0].find_first_not_of("0123456789") == std::string::npos);
}

TEST_CASE("longest points are given first, in chunks that shrink") {
  std::vector<double> work(200, 1);
  work[150] = 3, work[20] = 2;
  SweepDispatcher d{work, 3};
  d.join(0, 1);
  d.join(1, 1);
  // A worker of two with 200 points left: 200 / (4 · 2) = 25.
  std::vector<std::size_t> first = d.take(0, 1);
  REQUIRE(first.size() == 25);
  CHECK(first[0] == 150);
  CHECK(first[1] == 20);
  CHECK(first[2] == 0);
  CHECK(d.take(1, 1).size() == 21);  // 175 / 8
  std::size_t last = 21;
  for (std::vector<std::size_t> taken; last > 1; last = taken.size()) {
    taken = d.take(0, 1);
    CHECK(taken.size() <= last);
  }
}

TEST_CASE("a point that others have not finished is given again when nothing else is left") {
  SweepDispatcher d{{1, 1}, 3};
  d.join(0, 1);
  d.join(1, 1);
  CHECK(d.take(0, 2) == std::vector<std::size_t>{0, 1});
  CHECK(d.take(1, 1) == std::vector<std::size_t>{1});  // not begun yet
  CHECK(d.finish(1, 1));
  CHECK_FALSE(d.finish(0, 1));
  CHECK(d.take(1, 1) == std::vector<std::size_t>{0});
  CHECK(d.take(1, 1).empty());
  CHECK(d.finish(0, 0));
  CHECK(d.is_over());
}

TEST_CASE("whatever workers do, each point ends once") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random{seed};
    const std::size_t n = 1 + random.below(40);
    SweepDispatcher d{std::vector<double>(n, 1), 3};
    std::vector<int> ends(n, 0), failures(n, 0);
    std::map<int, std::vector<std::size_t>> held;
    int next = 0;
    for (int step = 0; step < 100'000 && !d.is_over(); ++step) {
      if (held.size() < 3) d.join(next, 2), held[next++] = {};
      auto at = held.begin();
      std::advance(at, random.below(held.size()));
      auto& [worker, points] = *at;
      const std::uint64_t what = random.below(20);
      if (what == 0) {
        for (const std::size_t p : d.leave(worker)) ++ends[p];
        held.erase(at);
      } else if (points.empty()) {
        points = d.take(worker, 1 + random.below(2));
      } else {
        const std::size_t p = points.front();
        points.erase(points.begin());
        ends[p] += what < 4 ? d.fail(worker, p) : d.finish(worker, p);
      }
    }
    REQUIRE(d.is_over());
    CHECK(std::all_of(ends.begin(), ends.end(), [](int e) { return e == 1; }));
  }
}

TEST_CASE("a sweep computes all points, with one process or several") {
  for (const std::size_t jobs : {1, 3}) check_squares(sweep(tasks_of(50), {.jobs = jobs}), 50);
  CHECK(sweep({}, {.jobs = 2}).told == 0);
}

TEST_CASE("points that crash, hang or fail are given up after three times, the others are computed") {
  const Swept s = sweep(tasks_of(20, {{3, "abort"}, {7, "hang"}, {11, "refuse"}, {13, "throw"}}),
                        {.jobs = 2, .point_timeout = 0.3});
  check_squares(s, 20, {3, 7, 11, 13});
  CHECK(s.records.at(3).status == PointStatus::Quarantined);
  CHECK(s.records.at(3).attempts == 3);
  CHECK(s.records.at(3).error == "killed by signal 6 (Aborted): a bug of the point\n");
  CHECK(s.records.at(7).status == PointStatus::Quarantined);
  CHECK(s.records.at(7).error == "not done after 300 ms");
  CHECK(s.records.at(11).status == PointStatus::Refused);
  CHECK(s.records.at(11).attempts == 1);
  CHECK(s.records.at(11).error == "not a point");
  CHECK(s.records.at(13).error == "no memory");
}

TEST_CASE("a worker that is killed in the middle is replaced, and its points are computed") {
  // The worker that computes point 5 is killed three times: then the point is given up, and nothing else.
  const Swept s = sweep(tasks_of(30, {{5, "kill parent"}}), {.jobs = 1});
  check_squares(s, 30, {5});
  CHECK(s.records.at(5).status == PointStatus::Quarantined);
  CHECK_THAT(s.records.at(5).error, Catch::EndsWith("ended while it was at this point"));
}

TEST_CASE("two workers over TCP compute what one computer does") {
  std::vector<SweepTask> tasks = tasks_of(40);
  for (SweepTask& t : tasks) t.message["do"] = "slow", t.message["ms"] = 10;
  SharedMailbox box;
  const std::vector<std::string> ends = in_processes(4, [&](int process) -> std::string {
    if (process == 0) {
      SweepServerOptions options{.jobs = 0, .listen = ListenAt{"127.0.0.1", 0}, .token = "secret", .version = "v"};
      options.on_listen = [&](std::uint16_t port) { box.leave("port", std::to_string(port)); };
      const Swept s = sweep(tasks, options);
      std::string all;
      for (const auto& [task, r] : s.records) all += r.result.at("square").dump() + " ";
      return fmt::format("{} workers: {}", s.outcome.workers, all);
    }
    std::optional<std::string> port;
    while (!(port = box.find("port"))) std::this_thread::sleep_for(std::chrono::milliseconds{5});
    std::optional<Socket> socket = connect_to("127.0.0.1", static_cast<std::uint16_t>(std::stoi(*port)));
    if (!socket) return "nobody listens";
    const WorkerEnd end = work_for_sweep(std::move(*socket), {1, process == 3 ? "wrong" : "secret", "v"}, squares());
    return end.why == WorkerEnd::Why::Over && end.done > 0 ? "worked" : end.text;
  });
  std::string expected = "2 workers: ";
  for (int i = 0; i < 40; ++i) expected += std::to_string(i * i) + " ";
  CHECK(ends[0] == expected);
  CHECK(ends[1] == "worked");
  CHECK(ends[2] == "worked");
  CHECK(ends[3] == "the token is another one");
}

TEST_CASE("strangers and workers of other versions are refused") {
  SharedMailbox box;
  const std::vector<std::string> ends = in_processes(3, [&](int process) -> std::string {
    if (process == 0) {
      SweepServerOptions options{.jobs = 1, .listen = ListenAt{"127.0.0.1", 0}, .token = "t", .version = "v1"};
      options.on_listen = [&](std::uint16_t port) { box.leave("port", std::to_string(port)); };
      return std::to_string(sweep(tasks_of(3, {{0, "slow"}, {1, "slow"}, {2, "slow"}}), options).told);
    }
    std::optional<std::string> port;
    while (!(port = box.find("port"))) std::this_thread::sleep_for(std::chrono::milliseconds{5});
    std::optional<Socket> socket = connect_to("127.0.0.1", static_cast<std::uint16_t>(std::stoi(*port)));
    if (!socket) return "nobody listens";
    if (process == 1) return work_for_sweep(std::move(*socket), {1, "t", "v2"}, squares()).text;
    (void)receive_message(*socket);  // the challenge
    (void)send_message(*socket, MessageKind::Data, std::string(1'000'000, 'x'));
    return receive_message(*socket) ? "answered" : "closed";
  });
  CHECK(ends == std::vector<std::string>{"3", "the sweep is of v1, the worker of 'v2'", "closed"});
}

TEST_CASE("where a sweep listens is this computer alone unless somebody says otherwise") {
  CHECK(parse_listen("--listen", "7000").host == "127.0.0.1");
  CHECK(parse_listen("--listen", ":7000").host == "127.0.0.1");
  CHECK(parse_listen("--listen", "0.0.0.0:7000").host == "0.0.0.0");
  CHECK(parse_listen("--listen", "a.b:7000").port == 7000);
  CHECK(user_error([] { parse_listen("--listen", "a:b"); }) == "option --listen is 'a:b'\n  hint: give HOST:PORT");
}
