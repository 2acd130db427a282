// SPDX-License-Identifier: Apache-2.0
// Traces of other programs: every event is kept, damage is counted and never fatal.
#include <fmt/format.h>
#include <zlib.h>

#include <catch2/catch.hpp>

#include "gui/core/explorer.hpp"
#include "sim/base/random.hpp"
#include "sim/timeline/foreign_readers.hpp"
#include "sim/timeline/perfetto.hpp"
#include "sim/timeline/protobuf.hpp"
#include "sim/timeline/sqlite.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::gui;

namespace {

/// As the PyTorch profiler writes: two kernels that overlap on one stream, a launch with its arrow, a marked step.
const char* kKineto = R"({"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": 1000,
"distributedInfo": {"rank": 0}, "traceEvents": [
{"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}},
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 7, "tid": 7, "ts": 0.000, "dur": 100.5},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": 1.250, "dur": 2, "args": {"correlation": 5}},
{"ph": "s", "id": 5, "pid": 7, "tid": 7, "ts": 1.250, "cat": "ac2g", "name": "ac2g"},
{"ph": "X", "cat": "kernel", "name": "sm90_xmma_gemm_bf16", "pid": 0, "tid": 20, "ts": 10.001, "dur": 20.123, "args": {"stream": 20, "grid": [64, 1, 1], "correlation": 5}},
{"ph": "f", "id": 5, "pid": 0, "tid": 20, "ts": 10.001, "cat": "ac2g", "name": "ac2g", "bp": "e"},
{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 20, "ts": 25, "dur": 30, "args": {"Process Group Name": "0", "Seq": 4}},
{"ph": "X", "cat": "kernel", "name": "zero", "pid": 0, "tid": "20", "ts": 60, "dur": 0},
{"ph": "C", "name": "memory", "pid": 0, "ts": 12, "args": {"bytes": 1024}},
{"ph": "i", "name": "instant", "pid": 7, "tid": 7, "ts": 50}
]})";

std::string perfetto_bytes() {
  std::string out;
  const auto packet = [&](auto fill) {
    std::string bytes;
    ProtoWriter w{bytes};
    fill(w);
    ProtoWriter{out}.bytes(perfetto::trace::kPacket, bytes);
  };
  packet([](ProtoWriter& w) {
    std::string track, process;
    ProtoWriter{process}.integer(perfetto::process::kPid, 9);
    ProtoWriter t{track};
    t.integer(perfetto::track::kUuid, 1);
    t.bytes(perfetto::track::kProcess, process);
    w.bytes(perfetto::packet::kTrackDescriptor, track);
  });
  const auto event = [&](std::uint64_t type, std::uint64_t at, std::string_view name) {
    packet([&](ProtoWriter& w) {
      std::string e;
      ProtoWriter v{e};
      v.integer(perfetto::event::kType, type);
      v.integer(perfetto::event::kTrack, 1);
      if (!name.empty()) v.bytes(perfetto::event::kName, name);
      w.integer(perfetto::packet::kTimestamp, at);
      w.bytes(perfetto::packet::kTrackEvent, e);
    });
  };
  event(perfetto::event::kBegin, 100, "outer");
  event(perfetto::event::kBegin, 120, "inner");
  event(perfetto::event::kEnd, 150, "");
  event(perfetto::event::kEnd, 200, "");
  event(perfetto::event::kEnd, 210, "");
  event(perfetto::event::kBegin, 220, "open");
  return out;
}

std::string nsight_bytes(bool is_new) {
  Database d{"x.sqlite"};
  d.execute(
      "CREATE TABLE StringIds(id INTEGER, value TEXT); INSERT INTO StringIds "
      "VALUES(1,'gemm_kernel'),(2,'cudaLaunchKernel');"
      "CREATE TABLE META_DATA_EXPORT(name TEXT, value TEXT); INSERT INTO META_DATA_EXPORT "
      "VALUES('EXPORT_SCHEMA_VERSION','3.15.1');");
  d.execute(is_new ? "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, \"end\" INT, deviceId INT, greenContextId "
                     "INT, streamId INT, correlationId INT, demangledName INT);"
                     "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(2000,3000,0,0,7,5,1),(1000,1500,0,0,7,4,1);"
                   : "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, \"end\" INT, streamId INT, correlationId INT, "
                     "shortName INT);"
                     "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(2000,3000,7,5,1),(1000,1500,7,4,1);");
  d.execute(
      "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT, \"end\" INT, globalTid INT, correlationId INT, nameId INT);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(500,600,16777217,4,2);"
      "CREATE TABLE NVTX_EVENTS(start INT, \"end\" INT, text TEXT, globalTid INT); INSERT INTO NVTX_EVENTS "
      "VALUES(400,3500,'step 1',16777217);");
  return d.bytes();
}

std::uint64_t repairs(const ForeignTrace& t) {
  std::uint64_t n = 0;
  for (const Repair& r : t.repairs) n += r.count;
  return n;
}

/// A trace that was read has to be drawable, whatever was in it.
void draw(ForeignTrace trace) {
  static Font font;
  Explorer e;
  e.open(Document{std::move(trace), "x"});
  render_image(e, 300, 200, font);
  statistics_by_name(e.document(), e.whole());
}

template <class Read>
void survives_damage(const std::string& good, Read read) {
  Random random{17};
  for (int i = 0; i < 400; ++i) {
    std::string bytes = good;
    if (i % 3 == 0) bytes.resize(random.below(bytes.size()));
    for (std::uint64_t k = random.below(6); k > 0 && !bytes.empty(); --k)
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    try {
      draw(read(bytes));
    } catch (const UserError& e) {
      CHECK(std::string_view{e.what()}.find("'x") != std::string_view::npos);
    }
  }
}

}  // namespace

TEST_CASE("times of a Chrome trace are read exactly", "[gui]") {
  std::int64_t ps = 0;
  REQUIRE(picoseconds_of("173000000000.123456", ps));  // 18 digits: no double holds them
  CHECK(ps == 173'000'000'000'123'456);
  REQUIRE(picoseconds_of("-0.5", ps));
  CHECK(ps == -500'000);
  REQUIRE(picoseconds_of("1e3", ps));
  CHECK(ps == 1'000'000'000);
  CHECK_FALSE(picoseconds_of("abc", ps));
}

TEST_CASE("a trace of the PyTorch profiler keeps every event", "[gui]") {
  const ForeignTrace t = read_chrome_events(kKineto, "x.json");
  CHECK(t.program == "PyTorch profiler");
  CHECK(t.events.size() == 6);
  CHECK(t.repairs.empty());
  REQUIRE(t.flows.size() == 1);
  CHECK(t.names[t.events[t.flows[0].from].name] == "cudaLaunchKernel");
  CHECK(t.names[t.events[t.flows[0].to].name] == "sm90_xmma_gemm_bf16");
  CHECK(t.events[2].op_class == OpClass::Gemm);
  CHECK(t.events[2].start_ps == 10'001'000);
  CHECK(t.events[2].end_ps == 30'124'000);
  CHECK(t.argument(t.events[2], "grid") == "64, 1, 1");
  CHECK(t.events[3].op_class == OpClass::Collective);
  CHECK(t.events[0].is_marker);
}

TEST_CASE("marks of a recorded trace say step, layer, microbatch and phase of its kernels", "[gui]") {
  // A forward kernel that is launched in layer 4 of microbatch 2, and the gradient of the op that launched it.
  Document d{read_chrome_events(R"({"schemaVersion": 1, "traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 7, "tid": 7, "ts": 0, "dur": 10},
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "pid": 7, "tid": 7, "ts": 10, "dur": 90},
{"ph": "X", "cat": "user_annotation", "name": "microbatch 2", "pid": 7, "tid": 7, "ts": 11, "dur": 60},
{"ph": "X", "cat": "user_annotation", "name": "layer 4", "pid": 7, "tid": 7, "ts": 12, "dur": 30},
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 13, "dur": 8},
{"ph": "s", "id": 1, "pid": 7, "tid": 7, "ts": 14, "cat": "fwdbwd", "name": "fwdbwd"},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": 15, "dur": 2},
{"ph": "s", "id": 2, "pid": 7, "tid": 7, "ts": 15, "cat": "ac2g", "name": "ac2g"},
{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 20, "ts": 80, "dur": 5, "args": {"est. achieved occupancy %": 60}},
{"ph": "f", "id": 2, "pid": 0, "tid": 20, "ts": 80, "cat": "ac2g", "name": "ac2g", "bp": "e"},
{"ph": "X", "cat": "cpu_op", "name": "MmBackward0", "pid": 7, "tid": 8, "ts": 50, "dur": 8},
{"ph": "f", "id": 1, "pid": 7, "tid": 8, "ts": 51, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 8, "ts": 52, "dur": 2},
{"ph": "s", "id": 3, "pid": 7, "tid": 8, "ts": 52, "cat": "ac2g", "name": "ac2g"},
{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 21, "ts": 82, "dur": 5, "args": {"est. achieved occupancy %": "50"}},
{"ph": "f", "id": 3, "pid": 0, "tid": 21, "ts": 82, "cat": "ac2g", "name": "ac2g", "bp": "e"}
]})",
                                "x.json"),
             "x.json"};
  std::size_t kernels = 0;
  for (EventIndex e = 0; e < d.events().size(); ++e) {
    if (d.events().name(e) != "gemm") continue;
    const Facets f = d.events().facets(e);
    CHECK(f.instance == 1);  // the second of the recorded steps
    CHECK(f.layer == 4);
    CHECK(f.microbatch == 2);
    CHECK(f.phase == (d.start(e) == 80'000'000 ? Phase::Forward : Phase::Backward));
    ++kernels;
  }
  CHECK(kernels == 2);
  View view;
  view.colour_by = ColourBy::Layer;
  CHECK(colour(d, view, nullptr, nullptr).legend.back().name == "layer 4");
  // 60 % from 80 us, with 50 % more from 82: all; 50 % from 85, nothing from 87.
  REQUIRE(d.counters().size() == 1);
  CHECK(d.counters()[0].name == "SM occupancy");
  CHECK(d.counters()[0].at == std::vector<std::int64_t>{80'000'000, 82'000'000, 85'000'000, 87'000'000});
  CHECK(d.counters()[0].value == std::vector<double>{60, 100, 50, 0});
}

TEST_CASE("kernels that overlap on a stream get a lane more, and none is lost", "[gui]") {
  const Document d{read_chrome_events(kKineto, "x.json"), "x.json"};
  CHECK(d.num_slices() == 6);
  std::size_t overflow = 0;
  for (const Track& t : d.tracks()) overflow += t.is_overflow ? 1 : 0;
  CHECK(overflow >= 1);
  REQUIRE(d.counters().size() == 1);
  CHECK(d.counters()[0].unit == "B");
}

TEST_CASE("begin and end events, an array without its bracket, and odd times are read and counted", "[gui]") {
  const ForeignTrace t =
      read_chrome_events(R"([{"ph":"B","name":"a","pid":1,"tid":1,"ts":5},{"ph":"E","pid":1,"tid":1,"ts":9},
{"ph":"E","pid":1,"tid":1,"ts":10},{"ph":"X","name":"back","pid":1,"tid":1,"ts":20,"dur":-4},
{"ph":"X","name":"huge","pid":1,"tid":1,"ts":1,"dur":1e30},{"ph":"B","name":"open","pid":1,"tid":1,"ts":30})",
                         "x.json");
  CHECK(t.events.size() >= 4);
  CHECK(repairs(t) >= 3);
  CHECK_FALSE(repairs_text(t).empty());
  draw(t);
}

TEST_CASE("what is no trace is refused with the reason", "[gui]") {
  CHECK(user_error([] { read_chrome_events("{}", "x.json"); }) ==
        "cannot read 'x.json' as a trace: it has no 'traceEvents'");
  CHECK(user_error([] { read_chrome_events("", "x.json"); }) == "cannot read 'x.json' as a trace: it is no JSON");
  CHECK(user_error([] { read_perfetto_events("", "x.pftrace"); }) ==
        "cannot read 'x.pftrace' as a trace: its bytes are no protocol buffer");
  Database empty{"x"};
  empty.execute("CREATE TABLE a(b)");
  CHECK(user_error([&] { read_nsight(empty.bytes(), "x.sqlite"); }) ==
        "cannot read 'x.sqlite' as a trace: it has no table 'StringIds': it is no export of Nsight Systems");
}

TEST_CASE("a Perfetto trace keeps nested, open and stray events", "[gui]") {
  const ForeignTrace t = read_perfetto_events(perfetto_bytes(), "x.pftrace");
  CHECK(t.events.size() == 4);
  CHECK(repairs(t) == 2);
  CHECK(t.processes[0].name == "process 9");
  CHECK(t.events[1].end_ps - t.events[1].start_ps == 30'000);
  draw(t);
}

TEST_CASE("compressed packets of a Perfetto trace are read, damaged ones counted", "[gui]") {
  const std::string plain = perfetto_bytes();
  std::string deflated(::compressBound(plain.size()), '\0');
  uLongf size = deflated.size();
  REQUIRE(::compress(reinterpret_cast<Bytef*>(deflated.data()), &size, reinterpret_cast<const Bytef*>(plain.data()),
                     plain.size()) == Z_OK);
  deflated.resize(size);
  const auto packed = [](const std::string& bytes) {
    constexpr std::uint32_t kDeflated = 50;
    std::string packet, out;
    ProtoWriter{packet}.bytes(kDeflated, bytes);
    ProtoWriter{out}.bytes(perfetto::trace::kPacket, packet);
    return out;
  };
  const ForeignTrace t = read_perfetto_events(packed(deflated), "x.pftrace");
  CHECK(t.events.size() == 4);
  CHECK(repairs(t) == 2);
  const std::string cut = packed(deflated.substr(0, 20)), nested = packed(deflated) + cut;
  const ForeignTrace some = read_perfetto_events(nested, "x.pftrace");
  CHECK(some.events.size() == 4);
  CHECK(repairs_text(some).find("stand in compressed packets that are damaged") != std::string::npos);
}

TEST_CASE("readers tell how far they are and can be stopped", "[gui]") {
  std::string text = "[";
  for (int i = 0; i < 20'000; ++i)
    text += fmt::format(R"({}{{"ph":"X","name":"a","pid":1,"tid":1,"ts":{},"dur":1}})", i > 0 ? "," : "", i);
  text += "]";
  std::vector<double> shares;
  read_chrome_events(text, "x.json", [&](double share) { shares.push_back(share); });
  REQUIRE(shares.size() == 4);  // 20,000 / 4096
  CHECK(shares.front() == Approx(0.2).margin(0.02));
  CHECK(std::is_sorted(shares.begin(), shares.end()));
  CHECK(shares.back() < 1);
  const auto stop = [](double) { throw std::runtime_error{"stop"}; };
  CHECK_THROWS_WITH(read_chrome_events(text, "x.json", stop), "stop");
}

TEST_CASE("an export of Nsight Systems is read whatever columns its version has", "[gui]") {
  for (const bool is_new : {true, false}) {
    const ForeignTrace t = read_nsight(nsight_bytes(is_new), "x.sqlite");
    CHECK(t.events.size() == 4);
    CHECK(t.flows.size() == 1);
    CHECK(t.names[t.events[0].name] == "gemm_kernel");
    CHECK(t.events[0].start_ps < t.events[1].start_ps);  // rows come in any order
    draw(t);
  }
}

TEST_CASE("damaged traces of other programs are user errors, or drawable traces", "[gui]") {
  survives_damage(kKineto, [](const std::string& b) { return read_chrome_events(b, "x.json"); });
  survives_damage(perfetto_bytes(), [](const std::string& b) { return read_perfetto_events(b, "x.pftrace"); });
  survives_damage(nsight_bytes(true), [](const std::string& b) { return read_nsight(b, "x.sqlite"); });
}

TEST_CASE("kernels are put into classes by the words of their libraries", "[gui]") {
  CHECK(class_of_kernel("ampere_bf16_s16816gemm_bf16_128x128") == OpClass::Gemm);
  CHECK(class_of_kernel("ncclDevKernel_AllGather_RING_LL") == OpClass::Collective);
  CHECK(class_of_kernel("flash_fwd_kernel<...>") == OpClass::Attention);
  CHECK(class_of_kernel("Memcpy HtoD (Pageable -> Device)") == OpClass::Copy);
  CHECK(class_of_kernel("something else") == OpClass::Other);
}
