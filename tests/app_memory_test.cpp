// SPDX-License-Identifier: Apache-2.0
// `orrery memory`: steps and snapshots of PyTorch under several allocators.
#include <nlohmann/json.hpp>

#include "sim/app/accuracy/memory_fit.hpp"
#include "sim/app/memory_snapshot.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

/// What PyTorch records when 8 MiB, 4 MiB and 30 MiB are taken on a fresh device, the first given back, and 6 MiB
/// taken: the first two share a segment of 20 MiB, whose front serves the last.
json snapshot() {
  const std::int64_t base = 0x7f0000000000, other = base + 64 * kMiB;
  const auto event = [](const char* action, std::int64_t at, std::int64_t size, std::int64_t time) {
    return json{{"action", action}, {"addr", at}, {"size", size}, {"stream", 0}, {"time_us", time}};
  };
  json alloc = event("alloc", base, 8 * kMiB, 1001);
  alloc["frames"] = {{{"filename", "/usr/lib/python3/torch/nn/functional.py"}, {"line", 1}, {"name", "linear"}},
                     {{"filename", "/home/someone/train.py"}, {"line", 42}, {"name", "forward"}}};
  const json block = {{"size", 6 * kMiB}, {"requested_size", 6 * kMiB}, {"state", "active_allocated"}};
  const auto of = [&](std::int64_t size, const char* state) {
    return json{{"size", size}, {"requested_size", size}, {"state", state}};
  };
  return {{"segments",
           {{{"device", 0},
             {"address", base},
             {"total_size", 20 * kMiB},
             {"stream", 0},
             {"blocks", {block, of(2 * kMiB, "inactive"), of(4 * kMiB, "active_allocated"), of(8 * kMiB, "inactive")}}},
            {{"device", 0},
             {"address", other},
             {"total_size", 30 * kMiB},
             {"stream", 0},
             {"blocks", {of(30 * kMiB, "active_allocated")}}}}},
          {"device_traces",
           {{event("segment_alloc", base, 20 * kMiB, 1000), alloc, event("alloc", base + 8 * kMiB, 4 * kMiB, 1002),
             event("segment_alloc", other, 30 * kMiB, 1003), event("alloc", other, 30 * kMiB, 1004),
             event("free_requested", base, 8 * kMiB, 1005), event("free_completed", base, 8 * kMiB, 1006),
             event("alloc", base, 6 * kMiB, 1007), event("snapshot", 0, 0, 1008)}}}};
}

}  // namespace

TEST_CASE("an allocator that there is none of is told with the option and those there are", "[memory]") {
  const CommandResult r = orrery::testing::orrery({"memory", "gpt2_tiny_train", "--allocator", "slab"});
  CHECK(r.code == 2);
  CHECK(r.err ==
        "orrery: --allocator: unknown value 'slab'\n"
        "  hint: known values: best-fit, buddy, pytorch\n");
}

TEST_CASE("a snapshot replayed through our allocator comes to what PyTorch recorded", "[memory]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("snapshot.json", snapshot().dump());
  const MemorySnapshot s = read_memory_snapshot(path, 0);
  CHECK(s.live_before == 0);
  CHECK(s.reserved == 50 * kMiB);
  CHECK(s.allocated == 40 * kMiB);
  CHECK(s.peak_requested == 42 * kMiB);
  CHECK(s.trace.labels.front() == "train.py:42 forward");
  const AllocationReplay ours = replay(s.trace, {.allocator = AllocatorKind::PyTorch}, INT64_MAX);
  CHECK(ours.stats.reserved == s.reserved);
  CHECK(ours.stats.allocated == s.allocated);
  CHECK(ours.stats.peak_reserved == s.peak_reserved);
  CHECK(ours.stats.peak_requested == s.peak_requested);
  CHECK(ours.stats.inactive_split == 10 * kMiB);

  const CommandResult r = orrery::testing::orrery({"memory", "--snapshot", path, "--allocator", "pytorch",
                                                   "--allocator", "best-fit", "--svg", folder / "m.svg", "--json"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const json document = json::parse(r.out);
  CHECK(document["recorded"]["peak_reserved"] == 50 * kMiB);
  CHECK(document["allocators"][0]["peak_reserved"] == 50 * kMiB);
  CHECK(document["allocators"][1]["peak_reserved"] == 42 * kMiB);  // 8 + 4 + 30, and 6 where 8 were
  const std::string picture = read_file(folder / "m.svg");
  CHECK_THAT(picture, Catch::StartsWith("<svg") && Catch::Contains("as recorded") && Catch::EndsWith("</svg>\n"));
}

TEST_CASE("a trace that begins late, loses events or waits for other streams is followed", "[memory]") {
  json s = snapshot();
  json& events = s["device_traces"][0];
  events.erase(events.begin(), events.begin() + 4);  // begins before 30 MiB are taken
  const TemporaryFolder folder;
  const MemorySnapshot late = read_memory_snapshot(folder.file("late.json", s.dump()), 0);
  CHECK(late.live_before == 2);
  CHECK(late.peak_requested == 42 * kMiB);
  CHECK(replay(late.trace, {.allocator = AllocatorKind::PyTorch}, INT64_MAX).stats.allocated == 40 * kMiB);
  events.erase(2);  // the free of the first is never completed
  const MemorySnapshot open = read_memory_snapshot(folder.file("open.json", s.dump()), 0);
  CHECK_NOTHROW(replay(open.trace, {.allocator = AllocatorKind::PyTorch}, INT64_MAX));
}

TEST_CASE("what is no snapshot is refused with its place", "[memory][error]") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(read_memory_snapshot(folder.file("a.json", "{}"), 0),
                    Catch::Contains("a memory snapshot has `segments` here"));
  json s = snapshot();
  CHECK_THROWS_WITH(read_memory_snapshot(folder.file("b.json", s.dump()), 3),
                    Catch::Contains("the snapshot has no device 3"));
  json negative = s;
  negative["device_traces"][0][1]["size"] = -1;
  CHECK_THROWS_WITH(read_memory_snapshot(folder.file("d.json", negative.dump()), 0),
                    Catch::Contains("a size in a memory snapshot that no memory has"));
  json huge = s;  // more than any memory: refused, not placed
  huge["device_traces"][0][1]["size"] = std::int64_t{1} << 49;
  for (const bool expandable : {false, true})
    CHECK(replay(read_memory_snapshot(folder.file("e.json", huge.dump()), 0).trace,
                 {.allocator = AllocatorKind::PyTorch, .expandable_segments = expandable}, INT64_MAX)
              .refused.size() == 1);
  s["device_traces"][0][0]["action"] = "moved";
  CHECK_THROWS_WITH(read_memory_snapshot(folder.file("c.json", s.dump()), 0),
                    Catch::Contains("unknown action 'moved' in a memory snapshot"));
}

TEST_CASE("the memory of a step under every allocator, and its fixed places", "[memory]") {
  const CommandResult r =
      orrery::testing::orrery({"memory", "--model", "gpt2-tiny", "--set", "workload={train: {batch: 2, sequence: 64}}",
                               "--allocator", "best-fit", "--allocator", "buddy", "--allocator", "pytorch",
                               "--allocator", "pytorch {expandable_segments: true}", "--plan", "--json"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const json d = json::parse(r.out);
  REQUIRE(d["allocators"].size() == 4);
  const std::int64_t asked = d["allocators"][0]["peak_requested"];
  for (const json& a : d["allocators"]) {
    INFO(a.dump());
    CHECK(a["peak_requested"] == asked);
    CHECK(a["peak_allocated"] >= asked);
    CHECK(a["peak_reserved"] >= a["peak_allocated"]);
    CHECK(a["refused"] == 0);
    CHECK_FALSE(a["owners"].empty());
  }
  CHECK(d["plan"]["most_live"] == d["allocators"][0]["peak_allocated"]);
  CHECK(d["plan"]["height"] >= d["plan"]["most_live"]);
  CHECK(d["plan"]["height"] <= d["allocators"][1]["peak_reserved"]);  // no worse than buddies
  CHECK(d["plan"]["kinds"] < d["plan"]["passes"]);
}

TEST_CASE("a device that is too small is a result", "[memory]") {
  const CommandResult r =
      orrery::testing::orrery({"memory", "--model", "gpt2-tiny", "--set", "workload={train: {batch: 2, sequence: 64}}",
                               "--allocator", "pytorch", "--capacity", "8 MiB", "--json"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const json d = json::parse(r.out);
  CHECK(d["allocators"][0]["refused"] == 1);  // from there on as if there were more
  CHECK(d["allocators"][0]["num_alloc_retries"] >= 1);
}

TEST_CASE("a scenario chooses the allocator, and settings that it lacks are refused", "[memory]") {
  const std::vector<std::string> tiny{"simulate", "--model", "gpt2-tiny", "--set",
                                      "workload={train: {batch: 1, sequence: 16}}"};
  const auto with = [&](const std::string& memory) {
    std::vector<std::string> all = tiny;
    all.insert(all.end(), {"--set", "memory=" + memory, "--json"});
    return orrery::testing::orrery(all);
  };
  const CommandResult plain = with("{allocator: best-fit}"), cached = with("{allocator: pytorch}");
  REQUIRE(plain.code == 0);
  REQUIRE(cached.code == 0);
  const json a = json::parse(plain.out)["peak_memory"], b = json::parse(cached.out)["peak_memory"];
  CHECK(a["bytes"] == b["bytes"]);
  CHECK(b["arena_bytes"] > a["arena_bytes"]);
  const CommandResult wrong = with("{allocator: buddy, expandable_segments: true}");
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, Catch::Contains("the allocator 'buddy' has no settings"));
  CHECK(with("{allocator: slab}").code == 2);
}

TEST_CASE("what a software takes of the memory beside its tensors is found again", "[memory]") {
  // 3 GB, 4 B per parameter, 6 B per one that is updated and a fifth of what comes and goes, on rows that tell them
  // apart: of half of them the first stage is fuller. The fit sees at most 30 % of them.
  std::vector<MemoryCase> cases;
  for (int i = 0; i < 60; ++i) {
    MemoryCase c{.row_id = "row-" + std::to_string(i), .model = i % 5 == 0 ? "a" : "b"};
    const MemoryShape first{.live = 1e10 + 1e8 * i,
                            .parameters = 1e9 * (1 + i % 3),
                            .states = 1e8 * (1 + i % 7),
                            .passing = 1e9 * (1 + i % 4)};
    MemoryShape last = first;
    last.live -= 2e9;
    last.passing += i % 2 * 4e10;
    c.stages = {first, last};
    c.measured = 3e9 + 4 * first.parameters + 6 * first.states +
                 std::max(first.live + 0.2 * first.passing, last.live + 0.2 * last.passing);
    cases.push_back(c);
  }
  const MemoryFit fit = fit_memory({}, cases);
  CHECK(fit.fitted <= 18);
  CHECK(fit.held_out.size() == 1);
  CHECK(fit.profile.memory_fixed.base() == Approx(3e9).epsilon(0.01));
  CHECK(fit.profile.memory_per_state == Approx(6).epsilon(0.01));
  CHECK(fit.profile.memory_per_parameter == Approx(4).epsilon(0.01));
  CHECK(fit.profile.memory_fragments == Approx(0.2).epsilon(0.01));
  CHECK(fit.error_held_out < 0.001);
  // Where parameters and updated ones go together, steps that ran tell which of them takes memory: whole parameters
  // would not have fitted.
  std::vector<MemoryCase> alike;
  for (int i = 0; i < 20; ++i) {
    const double parameters = 1e9 * (1 + i % 5);
    const MemoryShape together{.live = 2e10, .parameters = parameters, .states = parameters};
    alike.push_back({.row_id = "peak-" + std::to_string(i), .model = i % 5 == 0 ? "a" : "b", .room = 9e10});
    alike.back().stages = {together};
    alike.back().measured = 2e10 + 10 * parameters;
  }
  CHECK(fit_memory({}, alike).ran == 0);
  for (int i = 0; i < 20; ++i) {
    alike.push_back({.row_id = "ran-" + std::to_string(i), .model = i % 5 == 0 ? "a" : "b", .room = 9e10});
    alike.back().stages = {{.live = 7e10, .parameters = 1e10, .states = 1e9}};
  }
  const MemoryFit told = fit_memory({}, alike);
  CHECK(told.ran == 20);
  CHECK(told.refused == 0);
  CHECK(told.fitted <= 6);
  CHECK(told.profile.memory_per_parameter + told.profile.memory_per_state == Approx(10).epsilon(0.02));
  CHECK(told.profile.memory_per_parameter < 1.5);
  // A step whose tensors alone have no room kept some of them elsewhere, and tells nothing.
  for (MemoryCase& c : alike)
    if (c.measured <= 0) c.stages = {{.live = 9.5e10}};
  CHECK(fit_memory({}, alike).refused == 20);
  CHECK(fit_memory({}, alike).error_fitted < 0.01);

  // What is less than the tensors cannot be told by more: nothing is negative.
  for (MemoryCase& c : cases) c.measured = 0.5 * c.stages.back().live;
  const MemoryFit none = fit_memory({}, cases);
  CHECK(none.profile.memory_fixed.base() == 0);
  CHECK(none.profile.memory_per_state == 0);
}
