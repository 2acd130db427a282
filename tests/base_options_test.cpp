// SPDX-License-Identifier: Apache-2.0
#include "sim/base/options.hpp"

#include <catch2/catch.hpp>

#include <cmath>

#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::literals;

namespace {

enum class Schedule { OneForwardOneBackward, Interleaved };
constexpr EnumName<Schedule> kSchedules[] = {{Schedule::OneForwardOneBackward, "1f1b"},
                                             {Schedule::Interleaved, "interleaved"}};
std::span<const EnumName<Schedule>> enum_names(Schedule) { return kSchedules; }

struct LinkOptions {
  Seconds latency = 2.0_us;
  BytesPerSecond bandwidth = 50.0_GBps;

  template <class V>
  void visit(V& v) {
    v.field("latency", latency, "time of the first byte", at_least(0.0_s));
    v.field("bandwidth", bandwidth, "of one direction", more_than(0.0_GBps));
  }
};

struct PipelineOptions {
  std::int64_t stages = 1;
  int microbatches = 8;
  double efficiency = 0.5;
  bool flush = true;
  std::string name = "on";
  Bytes send_buffer = 64.0_MB;
  Schedule schedule = Schedule::OneForwardOneBackward;
  std::optional<double> skew;
  std::vector<std::int64_t> cuts;
  LinkOptions link;
  std::map<std::string, LinkOptions> links;

  template <class V>
  void visit(V& v) {
    v.required("stages", stages, "pipeline stages; must divide the number of layers", at_least(1));
    v.field("microbatches", microbatches, "microbatches in flight per step", at_least(1));
    v.field("efficiency", efficiency, "share of the peak", between(0, 1));
    v.field("flush", flush, "wait for all microbatches at the end of a step");
    v.field("name", name, "name of the group");
    v.field("send_buffer", send_buffer, "memory kept per stage", between(1.0_KB, 1.0_GB));
    v.field("schedule", schedule, "order of the microbatches");
    v.field("skew", skew, "relative skew of the stages");
    v.field("cuts", cuts, "first layer of each stage", at_least(0));
    v.field("link", link, "between neighbours");
    v.field("links", links, "exceptions by name");
  }
};

PipelineOptions read(std::string_view yaml) {
  PipelineOptions options;
  read_options(parse_yaml(yaml, "s.yaml"), options);
  return options;
}

std::string read_error(std::string_view yaml) {
  return user_error([&] { read(yaml); });
}

}  // namespace

TEST_CASE("options are filled from a map and keep their defaults", "[base][options]") {
  const PipelineOptions o = read(
      "stages: 4\nsend_buffer: 1 MB\nschedule: interleaved\nskew: 0.25\ncuts: [0, 8]\nflush: false\nname: no\n"
      "link: {latency: 3 us}\nlinks: {a: {bandwidth: 400 Gb/s}, b: {}}\n");
  CHECK(o.stages == 4);
  CHECK(o.microbatches == 8);
  CHECK(o.send_buffer == 1.0_MB);
  CHECK(o.schedule == Schedule::Interleaved);
  CHECK(o.skew == 0.25);
  CHECK(o.cuts == std::vector<std::int64_t>{0, 8});
  CHECK_FALSE(o.flush);
  CHECK(o.name == "no");  // a text is never silently false
  CHECK(o.link.latency == 3.0_us);
  CHECK(o.link.bandwidth == 50.0_GBps);
  CHECK(o.links.at("a").bandwidth == 50.0_GBps);  // 400 Gb/s / 8
  CHECK(o.links.at("b").latency == 2.0_us);
}

TEST_CASE("an empty value is an empty map, list or optional", "[base][options]") {
  const PipelineOptions o = read("stages: 4\nskew:\ncuts:\nlink:\nlinks:\n");
  CHECK_FALSE(o.skew);
  CHECK(o.link.latency == 2.0_us);
}

TEST_CASE("all problems of a file are reported together, from top to bottom", "[base][options][error]") {
  CHECK(read_error("microbatches: many\nstagess: 7\nlink:\n  latenzy: 1 us\n") ==
        "s.yaml:1:1: missing key 'stages'\n  microbatches: many\n  ^\n"
        "  hint: stages: pipeline stages; must divide the number of layers (integer, at least 1)\n"
        "s.yaml:1:15: expected an integer, got 'many'\n  microbatches: many\n                ^\n"
        "s.yaml:2:1: unknown key 'stagess'\n  stagess: 7\n  ^\n"
        "  hint: did you mean 'stages'? known keys: stages, microbatches, efficiency, flush, name, send_buffer, "
        "schedule, skew, cuts, link, links\n"
        "s.yaml:4:3: unknown key 'latenzy'\n  latenzy: 1 us\n  ^\n"
        "  hint: did you mean 'latency'? known keys: latency, bandwidth");
}

TEST_CASE("a value of another type is refused", "[base][options][error]") {
  const auto with = [](std::string_view line) { return read_error("stages: 4\n" + std::string{line}); };
  CHECK(with("flush: no") == "s.yaml:2:8: expected true or false, got 'no'\n  flush: no\n         ^");
  CHECK(with("microbatches: 1.5") ==
        "s.yaml:2:15: expected an integer, got '1.5'\n  microbatches: 1.5\n                ^");
  CHECK(with("microbatches: \"8\"") ==
        "s.yaml:2:15: expected an integer, got the text '8'\n  microbatches: \"8\"\n                ^");
  CHECK(with("microbatches: 99999999999999999999") ==
        "s.yaml:2:15: expected an integer of 64 bits, got '99999999999999999999'\n"
        "  microbatches: 99999999999999999999\n                ^");
  CHECK(with("skew: .nan") == "s.yaml:2:7: expected a number, got '.nan'\n  skew: .nan\n        ^");
  CHECK(with("skew: 8 %") ==
        "s.yaml:2:7: expected a number, got '8 %'\n  skew: 8 %\n        ^\n  hint: ratios are numbers: 0.08 is 8 %");
  CHECK(with("name: [a]") == "s.yaml:2:7: expected a text, got a list\n  name: [a]\n        ^");
  CHECK(with("name:") == "s.yaml:2:1: expected a text, got nothing\n  name:\n  ^");
  CHECK(with("cuts: 3") == "s.yaml:2:7: expected a list, got '3'\n  cuts: 3\n        ^\n  hint: [3]");
  CHECK(with("cuts: {a: 3}") == "s.yaml:2:7: expected a list, got a map\n  cuts: {a: 3}\n        ^");
  CHECK(with("link: 3") == "s.yaml:2:7: expected a map of options, got '3'\n  link: 3\n        ^");
  CHECK(
      with("schedule: gpipe") ==
      "s.yaml:2:11: unknown value 'gpipe'\n  schedule: gpipe\n            ^\n  hint: known values: 1f1b, interleaved");
}

TEST_CASE("a quantity without its unit is refused with its place", "[base][options][error]") {
  CHECK(read_error("stages: 4\nsend_buffer: 64") ==
        "s.yaml:2:14: a size in bytes needs a unit\n  send_buffer: 64\n               ^\n"
        "  hint: \"64 GiB\" (2^30 bytes) or \"64 GB\" (10^9 bytes)");
  CHECK(read_error("stages: 4\nsend_buffer: [1]") ==
        "s.yaml:2:14: expected a size in bytes, got a list\n  send_buffer: [1]\n               ^\n"
        "  hint: for example \"80 GiB\"");
}

TEST_CASE("a value out of range is refused with the legal range", "[base][options][error]") {
  const auto with = [](std::string_view line) { return read_error("stages: 4\n" + std::string{line}); };
  CHECK(read_error("stages: 0") == "s.yaml:1:9: 0 is out of range\n  stages: 0\n          ^\n  hint: at least 1");
  CHECK(with("efficiency: 1.5") ==
        "s.yaml:2:13: 1.5 is out of range\n  efficiency: 1.5\n              ^\n  hint: from 0 to 1");
  CHECK(with("send_buffer: 2 GB") ==
        "s.yaml:2:14: 2 GB is out of range\n  send_buffer: 2 GB\n               ^\n  hint: from 1 KB to 1 GB");
  CHECK(with("link: {bandwidth: 0 GB/s}") ==
        "s.yaml:2:19: 0 GB/s is out of range\n  link: {bandwidth: 0 GB/s}\n                    ^\n"
        "  hint: more than 0 B/s");
  CHECK(with("cuts: [0, -1]") == "s.yaml:2:11: -1 is out of range\n  cuts: [0, -1]\n            ^\n  hint: at least 0");
  CHECK(with("microbatches: 3000000000") ==  // an int has 31 bits and a sign
        "s.yaml:2:15: 3000000000 is out of range\n  microbatches: 3000000000\n                ^\n"
        "  hint: from -2147483648 to 2147483647");
}

TEST_CASE("ranges with an open lower end are named", "[base][options]") {
  CHECK(detail::range_text({.min = 0, .max = 1, .above_min = true}) == "more than 0 and at most 1");
  CHECK(detail::range_text(less_than(1)) == "at least 0 and less than 1");
  CHECK(detail::contains(less_than(1), 0));
  CHECK_FALSE(detail::contains(less_than(1), 1));
  CHECK(detail::range_text({.max = 1}) == "at most 1");
  CHECK(detail::range_text({}).empty());
}

TEST_CASE("written options read back as exactly the same options", "[base][options]") {
  PipelineOptions o = read("stages: 3\nefficiency: 0.1\nlinks: {x: {latency: 1.7 us}}\ncuts: [1, 2]\nskew: 0.3\n");
  o.link.bandwidth = BytesPerSecond{1e12 / 3};
  o.name = "yes: [odd]\n";
  const std::string text = to_yaml(write_options(o));
  const PipelineOptions back = read(text);
  CHECK(to_yaml(write_options(back)) == text);
  CHECK(back.link.bandwidth == o.link.bandwidth);
  CHECK(back.name == o.name);
}

TEST_CASE("the resolved options show every default with its unit", "[base][options]") {
  CHECK(to_yaml(write_options(read("stages: 4"))) ==
        "stages: 4\nmicrobatches: 8\nefficiency: 0.5\nflush: true\nname: \"on\"\nsend_buffer: 64 MB\n"
        "schedule: 1f1b\nskew: null\ncuts: []\nlink:\n  latency: 2 us\n  bandwidth: 50 GB/s\nlinks: {}\n");
}

TEST_CASE("options describe themselves", "[base][options]") {
  const auto options = describe_options<PipelineOptions>("strategy");
  REQUIRE(options.size() == 14);
  CHECK(options[0].path == "strategy.stages");
  CHECK(options[0].default_value.empty());
  CHECK(options[5].type == "size in bytes, from 1 KB to 1 GB");
  CHECK(options[5].default_value == "64 MB");
  CHECK(options[6].type == "one of: 1f1b, interleaved");
  CHECK(options[8].type == "list of: integer, at least 0");
  CHECK(options[9].path == "strategy.link.latency");
  CHECK(options[11].path == "strategy.links");
  CHECK(options[12].path == "strategy.links.<name>.latency");
}

TEST_CASE("help and manual derive from the declaration", "[base][options]") {
  const auto options = describe_options<LinkOptions>();
  CHECK(help_text(options) ==
        "option     default  meaning\n"
        "---------  -------  -----------------------------------------------\n"
        "latency    2 us     time of the first byte (duration, at least 0 s)\n"
        "bandwidth  50 GB/s  of one direction (bandwidth, more than 0 B/s)\n");
}

TEST_CASE("meanings are wrapped, so that options fit the width of help", "[base][options]") {
  // "option" takes 6 columns, "(required)" 10, the gaps 4: 100 are left of 120, and 20 words are 99 wide.
  const std::string words =
      "word word word word word word word word word word word word word word word word word word word word word";
  CHECK(help_text({{"a", "text", "", words}}) ==
        "option  default     meaning\n"
        "------  ----------  "
        "---------------------------------------------------------------------------------------------------\n"
        "a       (required)  word word word word word word word word word word word word word word word word word word "
        "word word\n"
        "                    word (text)\n");
}

TEST_CASE("a number without a declared most has one all the same", "[base][options][error]") {
  // 10^12 of what is counted, 10^18 of anything else; a seed, which has no least, may be any integer.
  const auto with = [](std::string_view line) { return read_error("stages: 4\n" + std::string{line}); };
  CHECK_THAT(read_error("stages: 1000000000001"), Catch::EndsWith("hint: from 1 to 1000000000000"));
  CHECK(read("stages: 1000000000000").stages == 1'000'000'000'000);
  CHECK_THAT(with("skew: 1e300"), Catch::EndsWith("hint: from -1e+18 to 1e+18"));
  CHECK_THAT(with("skew: -1e300"), Catch::EndsWith("hint: from -1e+18 to 1e+18"));
  CHECK_THAT(with("link: {latency: 1e300 s}"),
             Catch::Contains("1e300 s is out of range") && Catch::Contains("from 0 s to"));
}

TEST_CASE("options that no file filled are checked by the same ranges", "[base][options][error]") {
  const auto error = [](auto change) {
    PipelineOptions o;
    change(o);
    return user_error([&] { check_ranges(o); });
  };
  CHECK(error([](PipelineOptions& o) { o.stages = -4; }) == "stages is -4, it must be at least 1");
  CHECK(error([](PipelineOptions& o) { o.efficiency = std::nan(""); }) == "efficiency is nan, it must be from 0 to 1");
  CHECK(error([](PipelineOptions& o) { o.cuts = {0, -1}; }) == "cuts is -1, it must be at least 0");
  CHECK(error([](PipelineOptions& o) { o.link.latency = Seconds{-1}; }) == "latency is -1 s, it must be at least 0 s");
}
