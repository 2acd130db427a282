// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "sim/base/yaml.hpp"
#include "sim/timeline/compare.hpp"
#include "sim/timeline/native.hpp"
#include "sim/timeline/trace_file.hpp"
#include "tests/timeline_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

/// Two ranks, two plans, a dependency, a detailed collective, memory and a peak; times that are no whole nanoseconds.
Trace sample_trace() {
  SmallPlan prefill{2}, decode{2};
  prefill.plan.name = "prefill";
  const OpId a = prefill.add("layers.0.\"up\"", gemm());
  const OpId sum = prefill.add("layers.0.sum", all_reduce(), Stream::Comm, {a});
  prefill.plan.ops[1].layer = 3;
  prefill.plan.ops[1].microbatch = 2;
  prefill.plan.ops[1].phase = Phase::Decode;
  prefill.plan.groups[0].only = {{0, 1}};
  prefill.plan.layouts.push_back(Layout::contiguous({16}));
  prefill.plan.tensors.push_back(
      {prefill.plan.names.intern("kv"), LayoutId{0}, {}, DType::F32, TensorRole::KvCache});
  prefill.plan.purpose = {512, Flops{1e12}};
  decode.plan.name = "decode";
  const OpId b = decode.add("b", gemm());
  Trace trace;
  Timeline& t = trace.timeline;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ran(t, a, rank, 0, 10);
    ran(t, sum, rank, 10, 20);
    ran(t, sum, rank, 10, 16, 0, 1);
    ran(t, sum, rank, 12, 20, 0, 2);
    ran(t, b, rank, 21, 30, 1);
  }
  t.spans[0].end_ps -= 1234;
  t.source = TimelineSource::Measured;
  t.plan_name = "prefill";
  t.machine = "two \xC2\xB5-GPUs";
  t.instance_plans = {0, 1};
  t.memory = {{0, RankId{0}, Tier::Device, 64}, {10 * kMicrosecond, RankId{1}, Tier::Host, 128}};
  t.peaks.push_back({RankId{0}, Tier::Device, 64, 128, sum, 0, {{TensorId{0}, 64}}});
  const Plan* plans[] = {&prefill.plan, &decode.plan};
  trace.plans = describe(plans);
  trace.plans[0].storage = {{a, TensorId{0}, true}, {sum, TensorId{0}, false}};
  trace.metadata = {{"scenario_hash", "ab12"}, {"tool_version", "0.1"}};
  return trace;
}

/// Spans as text, in an order of their own, in units of `unit_ps`.
std::vector<std::string> spans_text(const Trace& trace, std::int64_t unit_ps) {
  std::vector<std::string> out;
  for (const Span& s : trace.timeline.spans) {
    const PlanDigest& plan = plan_of(trace.timeline, trace.plans, s);
    const Op& op = plan[s.op];
    const WorkDigest& work = plan.work(s.op);
    std::string text = std::string{plan.name} + " " + std::string{plan.name_of(s.op)} + " " +
                       std::string{plan.names[work.text]} + " " + std::string{plan.names[work.kind]} + " " +
                       std::string{name_of(work.op_class)} + " " + std::string{name_of(op.stream)} + " " +
                       std::string{name_of(op.phase)};
    for (const std::int64_t n :
         {s.start_ps / unit_ps, s.end_ps / unit_ps, std::int64_t{s.op.value}, std::int64_t{s.rank.value},
          std::int64_t{s.instance}, std::int64_t{s.part}, std::int64_t{op.layer}, std::int64_t{op.microbatch}})
      text += " " + std::to_string(n);
    for (const OpId dep : plan.deps_of(s.op)) text += " after " + std::to_string(dep.value);
    out.push_back(text);
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// A folder for the files of one test.
class Folder {
 public:
  Folder() : path_{std::filesystem::temp_directory_path() / ("orrery_timeline_" + std::to_string(::getpid()))} {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("the native format loses nothing", "[timeline]") {
  const Trace trace = sample_trace();
  const Trace back = read_native(write_native(trace, "x.orrery"), "x.orrery");
  CHECK(spans_text(back, 1) == spans_text(trace, 1));
  CHECK(back.metadata == trace.metadata);
  CHECK(back.timeline.machine == trace.timeline.machine);
  CHECK(back.timeline.source == TimelineSource::Measured);
  CHECK(back.timeline.makespan_ps == trace.timeline.makespan_ps);
  CHECK(back.timeline.instance_ends_ps == trace.timeline.instance_ends_ps);
  CHECK(back.timeline.instance_plans == trace.timeline.instance_plans);
  REQUIRE(back.timeline.peaks.size() == 1);
  CHECK(back.timeline.peaks[0].owners == trace.timeline.peaks[0].owners);
  CHECK(back.timeline.peaks[0].arena_bytes == 128);
  REQUIRE(back.timeline.memory.size() == 2);
  CHECK(back.timeline.memory[1].tier == Tier::Host);
  CHECK(back.plans[0].tensors[0].role == TensorRole::KvCache);
  REQUIRE(back.plans[0].storage.size() == 2);
  CHECK(back.plans[0].storage[0].takes);
  CHECK(back.plans[0].storage[1].op == OpId{1u});
  CHECK_FALSE(back.plans[0].storage[1].takes);
  CHECK(back.plans[0].groups[0].only == trace.plans[0].groups[0].only);
  CHECK(back.plans[0].purpose.model_flops == Flops{1e12});
  CHECK(back.plans[0].classes[0].ranges == trace.plans[0].classes[0].ranges);
}

TEST_CASE("equal traces give equal native bytes", "[timeline]") {
  CHECK(write_native(sample_trace(), "x") == write_native(sample_trace(), "x"));
}

TEST_CASE("tables longer than a chunk are put together again", "[timeline]") {
  SmallPlan p;
  const OpId a = p.add("a", gemm());
  Trace trace;
  trace.plans = describe(p.plan);
  for (std::uint32_t i = 0; i < kNativeChunk + 10; ++i) ran(trace.timeline, a, 0, i, i + 1, 0, i);
  const Trace back = read_native(write_native(trace, "x"), "x");
  REQUIRE(back.timeline.spans.size() == kNativeChunk + 10);
  CHECK(back.timeline.spans.back().end_ps == trace.timeline.spans.back().end_ps);
}

TEST_CASE("columns hold every integer", "[timeline]") {
  const std::vector<std::int64_t> values{0, -1, 1, INT64_MAX, INT64_MIN, 5};
  CHECK(decode_column(encode_column(values), values.size()) == values);
  // 0, +1 and −1 are one byte each: zigzag 0, 2, 1.
  CHECK(encode_column(std::vector<std::int64_t>{0, 1, 0}) == std::string("\0\2\1", 3));
  CHECK_FALSE(decode_column(encode_column(values), values.size() - 1));
  CHECK_FALSE(decode_column("\x80", 1));
}

TEST_CASE("truncated and altered native files are user errors, or still sound traces", "[timeline]") {
  const std::string bytes = write_native(sample_trace(), "x");
  const auto survives = [](const std::string& damaged) {
    try {
      const Trace t = read_native(damaged, "x");
      return check_trace(t).empty();
    } catch (const UserError& e) {
      return std::string{e.what()}.find("cannot read 'x' as a trace") != std::string::npos;
    }
  };
  for (std::size_t i = 0; i < 64; ++i) CHECK(survives(bytes.substr(0, bytes.size() * i / 64)));
  for (std::size_t i = 0; i < 400; ++i) {
    std::string damaged = bytes;
    damaged[i * 7919 % bytes.size()] ^= static_cast<char>(1 + i % 255);
    INFO("alteration " << i);
    CHECK(survives(damaged));
  }
}

TEST_CASE("a file that is no database is refused with its name", "[timeline]") {
  CHECK_THAT(user_error([] { read_native("hello", "a.orrery"); }),
             Catch::StartsWith("cannot read 'a.orrery' as a trace: it is no database"));
}

TEST_CASE("a trace with ids out of range is refused", "[timeline]") {
  Trace trace = sample_trace();
  trace.timeline.spans[0].op = OpId{std::size_t{99}};
  const std::string bytes = write_native(trace, "x");
  CHECK(user_error([&] { read_native(bytes, "x"); }) ==
        "cannot read 'x' as a trace: instance, op, rank or times out of range in span 0");
}

TEST_CASE("Perfetto and Chrome files keep spans to the nanosecond, names, dependencies and memory", "[timeline]") {
  const Folder folder;
  const std::string extension = GENERATE(as<std::string>{}, "x.pftrace", "x.json");
  const Trace trace = sample_trace();
  write_trace(trace, folder.file(extension));
  const Trace back = read_trace(folder.file(extension));
  CHECK(spans_text(back, 1000) == spans_text(trace, 1000));
  CHECK(back.metadata == trace.metadata);
  CHECK(back.timeline.machine == trace.timeline.machine);
  CHECK(back.timeline.source == TimelineSource::Measured);
  CHECK(back.timeline.instance_plans == trace.timeline.instance_plans);
  REQUIRE(back.timeline.memory.size() == 2);
  CHECK(back.timeline.memory[1].rank == RankId{1});
  CHECK(back.timeline.memory[1].tier == Tier::Host);
  CHECK(back.timeline.memory[1].bytes == 128);
}

TEST_CASE("a converted trace joins with its origin", "[timeline]") {
  const Folder folder;
  const Trace trace = sample_trace();
  write_trace(trace, folder.file("a.orrery"));
  convert_trace(folder.file("a.orrery"), folder.file("b.pftrace"));
  convert_trace(folder.file("b.pftrace"), folder.file("c.json"));
  convert_trace(folder.file("c.json"), folder.file("d.orrery"));
  const Comparison c = compare(trace, read_trace(folder.file("d.orrery")));
  CHECK(c.joined);
  CHECK(c.matched == trace.timeline.spans.size());
}

TEST_CASE("an unknown ending of a trace's name lists the known ones", "[timeline]") {
  CHECK(user_error([] { convert_trace("a.orrery", "b.txt"); }) ==
        "cannot tell the format of the trace 'b.txt' by its name\n  hint: names of traces end with .orrery, .pftrace "
        "or .json");
}

TEST_CASE("digests of plans with the same ops are the same, others not", "[timeline]") {
  const Trace trace = sample_trace();
  CHECK(same_ops(trace.plans[0], trace.plans[0]));
  CHECK_FALSE(same_ops(trace.plans[0], trace.plans[1]));
}
