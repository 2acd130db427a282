// SPDX-License-Identifier: Apache-2.0
// What is kept of a sweep: records that a crash cuts short, full disks, the points that none beats.
#include <signal.h>
#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "sim/app/sweep/sweep_record.hpp"
#include "sim/app/sweep/sweep_report.hpp"
#include "sim/base/crc32.hpp"
#include "sim/base/kept_files.hpp"
#include "sim/base/random.hpp"
#include "tests/app_testing.hpp"
#include "tests/forked.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

SweepRecord record(const std::string& id, double value) {
  SweepRecord r;
  r.id = id;
  r.scenario = "s";
  r.result = {{"value", value}};
  r.host = "here";
  return r;
}

}  // namespace

TEST_CASE("the check of records is CRC-32") {
  CHECK(crc32("123456789") == 0xCBF43926u);  // the check value that its definitions give
  CHECK(crc32("") == 0);
}

TEST_CASE("records come back as they were written, but for what is torn or damaged") {
  const std::string first = framed(record("a", 0.1)), second = framed(record("b", 1e300));
  const auto ids = [](const ShardContents& c) {
    std::string all;
    for (const SweepRecord& r : c.records) all += r.id;
    return all;
  };
  const ShardContents whole = parse_shard(first + second);
  CHECK(ids(whole) == "ab");
  CHECK(whole.records[0].result == json{{"value", 0.1}});
  CHECK(whole.records[1].result == json{{"value", 1e300}});
  for (std::size_t cut = 1; cut <= second.size(); ++cut) {
    const ShardContents torn = parse_shard((first + second).substr(0, first.size() + second.size() - cut));
    CHECK(ids(torn) == "a");
    CHECK(torn.torn == second.size() - cut);
  }
  for (std::size_t at = 0; at < first.size(); ++at) {
    std::string bad = first + second;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    const ShardContents damaged = parse_shard(bad);
    CHECK(ids(damaged) == "b");
    CHECK(damaged.damaged == first.size());
  }
}

TEST_CASE("a torn end is cut off, unless somebody is writing it") {
  const TemporaryFolder folder;
  std::string path;
  {
    ShardFile shard{folder / "shards"};
    path = shard.path();
    shard.append(record("a", 1));
    const std::string part = framed(record("b", 2)).substr(0, 20);
    std::FILE* file = std::fopen(path.c_str(), "ab");
    std::fwrite(part.data(), 1, part.size(), file);
    std::fclose(file);
    CHECK(recover_shard(path).torn == 20);
    CHECK(read_file(path).size() == framed(record("a", 1)).size() + 20);
  }
  CHECK(recover_shard(path).torn == 20);
  CHECK(read_file(path) == framed(record("a", 1)));
  CHECK(recover_shard(path).torn == 0);
  CHECK(shards_in(folder / "shards") == std::vector<std::string>{path});
}

TEST_CASE("a full disk is told, and what was written before is whole") {
  const TemporaryFolder folder;
  const std::string end = in_processes(1, [&](int) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit few{3000, 3000};
    setrlimit(RLIMIT_FSIZE, &few);
    ShardFile shard{folder / "shards"};
    for (int i = 0; i < 100; ++i) shard.append(record(std::to_string(i), i));
    return std::string{"all"};
  })[0];
  CHECK_THAT(end, Catch::StartsWith("error: cannot write '") && Catch::EndsWith("File too large"));
  const ShardContents left = recover_shard(shards_in(folder / "shards").at(0));
  REQUIRE(left.records.size() > 5);
  for (std::size_t i = 0; i < left.records.size(); ++i) CHECK(left.records[i].id == std::to_string(i));
}

TEST_CASE("a front has the points that none beats") {
  Random random{3};
  for (int round = 0; round < 50; ++round) {
    SweepResults all;
    std::vector<std::array<double, 3>> values;  // tokens/s are to be high, memory and time low
    for (std::size_t i = 0; i < 1 + random.below(40); ++i) {
      const auto draw = [&] { return double(random.below(8)); };
      values.push_back({draw(), draw(), draw()});
      SweepRecord r = record(std::to_string(i), 0);
      const bool does_fit = random.below(5) > 0;
      r.result = {{"tokens_per_second", values[i][0]},
                  {"peak_memory", {{"bytes", values[i][1]}, {"fits", does_fit}}},
                  {"step_time", {{"seconds", values[i][2]}}}};
      all.points.push_back({r.id, "s", {}});
      all.add(r);
    }
    std::vector<std::size_t> expected;
    const auto is_in = [&](std::size_t i) { return fits(all.records.at(std::to_string(i)).result); };
    for (std::size_t i = 0; i < values.size(); ++i) {
      bool is_beaten = false;
      for (std::size_t j = 0; j < values.size(); ++j) {
        const auto &a = values[j], &b = values[i];
        is_beaten |= is_in(j) && a != b && a[0] >= b[0] && a[1] <= b[1] && a[2] <= b[2];
      }
      if (is_in(i) && !is_beaten) expected.push_back(i);
    }
    CHECK(pareto_front(all, {"tokens_per_second", "peak_memory", "step_time"}) == expected);
    CHECK(pareto_front(all, {"tokens_per_second", "nothing"}).empty());
  }
}

TEST_CASE("files that are kept are read once, by all threads that use them, others each time") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.yaml", "x: 1\n");
  const auto x = [&] { return read_yaml(path).find("x")->scalar; };
  KeptFiles kept;
  {
    const KeptFiles::InUse reading{kept};
    CHECK(x() == "1");
    folder.file("a.yaml", "x: 2\n");
    CHECK(x() == "1");
    KeptFiles others;
    const KeptFiles::InUse inner{others};
    CHECK(x() == "2");
  }
  CHECK(x() == "2");
  std::string seen, seen_otherwise;
  std::thread{[&] {
    seen_otherwise = x();
    const KeptFiles::InUse reading{kept};
    seen = x();
  }}.join();
  CHECK(seen == "1");
  CHECK(seen_otherwise == "2");
}
