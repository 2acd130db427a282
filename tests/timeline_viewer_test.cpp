// SPDX-License-Identifier: Apache-2.0
// The structure of the files that other viewers read.
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/timeline/chrome.hpp"
#include "sim/timeline/lanes.hpp"
#include "sim/timeline/perfetto.hpp"
#include "sim/timeline/protobuf.hpp"
#include "tests/timeline_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
namespace pf = orrery::perfetto;

namespace {

Trace small_trace() {
  SmallPlan p;
  const OpId a = p.add("a", gemm());
  const OpId sum = p.add("sum", all_reduce(), Stream::Comm, {a});
  Trace trace;
  ran(trace.timeline, a, 0, 0, 10);
  ran(trace.timeline, sum, 0, 10, 20);
  ran(trace.timeline, sum, 0, 10, 16, 0, 1);
  ran(trace.timeline, sum, 0, 12, 20, 0, 2);
  trace.timeline.memory = {{5 * kMicrosecond, RankId{0}, Tier::Device, 4096}};
  trace.plans = describe(p.plan);
  return trace;
}

using Message = std::multimap<std::uint32_t, ProtoReader::Field>;

Message fields(std::string_view bytes) {
  Message out;
  ProtoReader reader{bytes};
  for (ProtoReader::Field f; reader.next(f);) out.emplace(f.number, f);
  REQUIRE_FALSE(reader.is_damaged());
  return out;
}

std::uint64_t integer(const Message& m, std::uint32_t field) {
  const auto it = m.find(field);
  return it == m.end() ? 0 : it->second.integer;
}

std::string_view bytes(const Message& m, std::uint32_t field) {
  const auto it = m.find(field);
  return it == m.end() ? std::string_view{} : it->second.bytes;
}

}  // namespace

TEST_CASE("a protocol buffer is written as its specification says", "[timeline]") {
  // Field 1 as varint 150 is 08 96 01 and field 2 as "testing" 12 07 …: the examples of the specification.
  std::string out;
  ProtoWriter w{out};
  w.integer(1, 150);
  w.bytes(2, "testing");
  w.fixed64(3, 1);
  CHECK(out == std::string("\x08\x96\x01\x12\x07testing\x19\x01\0\0\0\0\0\0\0", 21));
}

TEST_CASE("damaged protocol buffers are noticed", "[timeline]") {
  for (const std::string_view damaged : {"\x12\x07test", "\x08", "\x08\x80", "\x19\x01", "\x0b"}) {
    ProtoReader reader{damaged};
    ProtoReader::Field f;
    while (reader.next(f)) {
    }
    CHECK(reader.is_damaged());
  }
}

TEST_CASE("Perfetto slices begin and end in pairs on tracks that were described before", "[timeline]") {
  const std::string trace = write_perfetto(small_trace());
  std::set<std::uint64_t> tracks;
  std::map<std::uint64_t, int> open;
  int begins = 0, flows = 0, counters = 0;
  for (const auto& [number, packet] : fields(trace)) {
    const Message p = fields(packet.bytes);
    CHECK(integer(p, pf::packet::kSequenceId) == 1);
    if (const auto t = bytes(p, pf::packet::kTrackDescriptor); !t.empty())
      tracks.insert(integer(fields(t), pf::track::kUuid));
    const std::string_view event = bytes(p, pf::packet::kTrackEvent);
    if (event.empty()) continue;
    const Message e = fields(event);
    const std::uint64_t track = integer(e, pf::event::kTrack);
    CHECK(tracks.contains(track));
    begins += integer(e, pf::event::kType) == pf::event::kBegin ? 1 : 0;
    open[track] += integer(e, pf::event::kType) == pf::event::kBegin ? 1
                   : integer(e, pf::event::kType) == pf::event::kEnd ? -1
                                                                     : 0;
    CHECK((open[track] == 0 || open[track] == 1));
    flows += static_cast<int>(e.count(pf::event::kFlowIds) + e.count(pf::event::kTerminatingFlowIds));
    counters +=
        integer(e, pf::event::kType) == pf::event::kCounter && integer(e, pf::event::kCounterValue) == 4096 ? 1 : 0;
  }
  CHECK(begins == 4);
  CHECK(flows == 2);  // one dependency: it leaves a and arrives at sum
  CHECK(counters == 1);
}

TEST_CASE("the first Perfetto packet clears the interned texts of the sequence", "[timeline]") {
  const std::string trace = write_perfetto(small_trace());
  ProtoReader reader{trace};
  ProtoReader::Field first;
  REQUIRE(reader.next(first));
  CHECK(integer(fields(first.bytes), pf::packet::kSequenceFlags) ==
        (pf::packet::kStateCleared | pf::packet::kNeedsState));
}

TEST_CASE("pieces of a collective that overlap get lanes of their own", "[timeline]") {
  const std::vector<Lane> lanes = lanes_of(small_trace());
  // compute; comm with the op; one lane per overlapping piece.
  REQUIRE(lanes.size() == 4);
  CHECK(name_of(lanes[1]) == "comm");
  CHECK(name_of(lanes[3]) == "comm 3");
}

TEST_CASE("lanes are used again when their last piece has ended", "[timeline]") {
  Trace trace = small_trace();
  trace.timeline.spans[3].start_ps = 16 * kMicrosecond;  // after the first piece
  CHECK(lanes_of(trace).size() == 3);
}

TEST_CASE("Chrome events are JSON with exact times, names and arrows", "[timeline]") {
  Trace trace = small_trace();
  trace.timeline.spans[0].end_ps = 1'234'567;  // 1.234567 us: whole nanoseconds are 1.234
  const nlohmann::json j = nlohmann::json::parse(write_chrome(trace));
  int slices = 0, arrows = 0;
  for (const nlohmann::json& e : j["traceEvents"]) {
    slices += e["ph"] == "X" ? 1 : 0;
    arrows += e["ph"] == "s" || e["ph"] == "f" ? 1 : 0;
    if (e["ph"] != "X" || e["name"] != "a") continue;
    CHECK(e["dur"].get<double>() == 1.234);
    CHECK(e["cat"] == "gemm,gemm");
    CHECK(e["args"]["op"] == 0);
  }
  CHECK(slices == 4);
  CHECK(arrows == 2);
}

TEST_CASE("files of other programs are refused", "[timeline]") {
  CHECK(user_error([] { read_chrome(R"({"traceEvents":[]})", "k.json"); }) ==
        "cannot read 'k.json' as a trace: it was not written by orrery; only such .json files can be read");
  CHECK(user_error([] { read_chrome("[1, 2", "k.json"); }) ==
        "cannot read 'k.json' as a trace: it is no complete JSON document");
  CHECK(user_error([] { read_perfetto("\x12\x07test", "k.pftrace"); }) ==
        "cannot read 'k.pftrace' as a trace: its bytes are no protocol buffer");
  CHECK(user_error([] { read_perfetto("", "k.pftrace"); }) ==
        "cannot read 'k.pftrace' as a trace: it was not written by orrery; only such .pftrace files can be read");
}

TEST_CASE("truncated and altered files of viewers are user errors, or sound traces", "[timeline]") {
  const Trace trace = small_trace();
  const bool is_chrome = GENERATE(true, false);
  const std::string whole = is_chrome ? write_chrome(trace) : write_perfetto(trace);
  for (std::size_t i = 0; i < 2000; ++i) {
    std::string damaged = whole;
    damaged[i * 7919 % damaged.size()] ^= static_cast<char>(1 + i % 255);
    if (i % 4 == 0) damaged.resize(i * 31 % damaged.size());
    INFO("alteration " << i);
    const std::string error = user_error([&] {
      const Trace t = is_chrome ? read_chrome(damaged, "x") : read_perfetto(damaged, "x");
      CHECK(check_trace(t).empty());
    });
    CHECK((error == "no error" || error.find("cannot read 'x' as a trace: ") == 0));
  }
}
