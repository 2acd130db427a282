// SPDX-License-Identifier: Apache-2.0
// The strategy patrickstar: the same weights in a quarter of the memory; what engine and runtime move is what was
// planned.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <map>
#include <set>

#include "sim/strategy/offload/chunked_states.hpp"
#include "tests/offload_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Plan plain_plan(const Model& model, const TrainOptions& o) { return single()->train_step(model, o, nullptr); }

/// The most that lies on the device beside weights when all of these stay there.
std::int64_t beside_chunks(const Plan& base, std::int64_t chunk) {
  std::vector<ChunkCounts> counts;
  const ChunkOptions roomy{.chunk = chunk, .device_memory = Bytes{1e12}, .usable = 1, .reserve = 0, .hybrid = false};
  const Plan plan = chunk_states(base, roomy, &host_workspaces(), &counts);
  return peak_of(simulate_steps(plan, 1), Tier::Device) - counts.front().chunks * counts.front().chunk_bytes;
}

}  // namespace

TEST_CASE("chunks give the same weights in a quarter of the plain plan's memory", "[offload]") {
  const char* name = GENERATE("gpt2", "llama", "mixtral");
  CAPTURE(name);
  // A fifth is left for holes between chunks and activations, which are taken and given back in turns.
  const QuarterRun run = train_in_a_quarter(name, [](const Model& model, const TrainOptions& o, std::int64_t bytes) {
    return strategy_of("patrickstar", "{usable: 0.8, reserve: 0, device_memory: " + std::to_string(bytes) + " B}")
        ->train_step(model, o, &host_workspaces());
  });
  CHECK(run.difference < 1e-9);
  CHECK(peak_of(run.timeline, Tier::Device) <= run.quarter);
  CHECK(moves_of(run.timeline, Tier::Pinned, Tier::Device) > 0);
}

TEST_CASE("chunks of several ranks give the same weights", "[offload]") {
  const char* options = GENERATE(
      "{usable: 1, reserve: 0, device_memory: 700 kB, chunk: 4000, parallel: {mesh: fsdp2, data: {kind: zero3, bucket: "
      "4000}}}",
      "{device_memory: 1 GB, parallel: {mesh: dp2, data: {kind: zero3, bucket: 4000}}}",
      "{usable: 1, reserve: 0, device_memory: 600 kB, chunk: 4000, parallel: {mesh: fsdp2, data: {kind: zero3, bucket: "
      "1000000, part: 4000}}}",
      "{usable: 1, reserve: 0, device_memory: 600 kB, chunk: 4000, parallel: {mesh: fsdp4, data: {kind: zero3, owners: "
      "true, bucket: 1000000, part: 4000}}}",
      "{device_memory: 1 GB, hybrid: false}", "{device_memory: 1 GB}");
  CAPTURE(options);
  const Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  const Plan plan = strategy_of("patrickstar", options)->train_step(model, o, &host_workspaces());
  CHECK(difference(train_capped(model, o, plan).trained, train(model, o, *single())) < 1e-9);
}

TEST_CASE("chunks that the host has no room for stay on the device", "[offload]") {
  const double device = GENERATE(0.25, 0.5, 1.5);  // of the plain plan's memory: weights come and go, or stay
  CAPTURE(device);
  const Model model = deep_model("gpt2");
  TrainOptions o = offload_options();
  o.batch = 1;
  o.recompute = Recompute::Full;
  const OffloadRun reference = train_capped(model, o, single()->train_step(model, o, &host_workspaces()));
  const auto cap = static_cast<std::int64_t>(device * double(peak_of(reference.timeline, Tier::Device)));
  const auto run = [&](const std::string& more) {
    const std::string options =
        "{usable: 0.9, reserve: 0, hybrid: false, device_memory: " + std::to_string(cap) + " B" + more + "}";
    const Plan plan = strategy_of("patrickstar", options)->train_step(model, o, &host_workspaces());
    return train_capped(model, o, plan, capped(Tier::Device, cap));
  };
  const std::int64_t all = peak_of(run("").timeline, Tier::Pinned);
  const std::int64_t host = all * 97 / 90;  // 0.9 of which chunks may take: 3 % less than they did
  const OffloadRun relieved = run(", host_memory: " + std::to_string(host) + " B");
  CHECK(difference(relieved.trained, reference.trained) < 1e-9);
  CHECK(peak_of(relieved.timeline, Tier::Pinned) < all);
  if (device < 1)
    CHECK_THAT(user_error([&] { run(", host_memory: 1 kB"); }), Catch::Contains("allow more memory, use more ranks"));
  const std::string reserve = ", host_memory: " + std::to_string(host) + " B, update_reserve: ";
  CHECK_NOTHROW(run(reserve + "0 B"));
  CHECK_THAT(user_error([&] { run(reserve + std::to_string(cap) + " B"); }), Catch::Contains("allow more memory"));
}

/// Three models, four caps, three chunk sizes, four policies: misses, evictions and bytes of the plan are those that
/// engine and runtime count; no policy misses less often than belady.
TEST_CASE("planned, simulated and counted moves are the same", "[offload]") {
  const char* name = GENERATE("gpt2", "llama", "tied");
  const double spare = GENERATE(2.2, 4.0, 8.0, 1000.0);  // chunks of room beside the largest op
  const double larger = GENERATE(1.0, 1.5, 3.0);         // than the largest tensor
  CAPTURE(name, spare, larger);
  const Model model = small_model(name);
  TrainOptions o = offload_options();
  o.batch = 1;
  o.steps = 1;
  const Plan base = plain_plan(model, o);
  const auto chunk = static_cast<std::int64_t>(larger * double(least_chunk(base)));
  const std::int64_t most = beside_chunks(base, chunk);
  std::int64_t belady = 0;
  for (const Eviction policy : {Eviction::Belady, Eviction::Lru, Eviction::Fifo, Eviction::Static}) {
    std::vector<ChunkCounts> counts;
    const ChunkOptions options{.chunk = chunk,
                               .device_memory = Bytes{double(most) + spare * 8 * double(chunk)},
                               .usable = 1,
                               .reserve = 0,
                               .eviction = policy};
    const Plan plan = chunk_states(base, options, &host_workspaces(), &counts);
    REQUIRE(counts.size() == 1);
    const ChunkCounts& planned = counts.front();
    const Timeline simulated = simulate_steps(plan, 1);
    const OffloadRun run = train_capped(model, o, plan);
    CHECK(simulated.transfers == run.timeline.transfers);
    CHECK(peak_of(simulated, Tier::Device) == peak_of(run.timeline, Tier::Device));
    CHECK(peak_of(run.timeline, Tier::Device) <= static_cast<std::int64_t>(options.device_memory.base()));
    if (!planned.cached) continue;
    CHECK(moves_of(run.timeline, Tier::Pinned, Tier::Device) == planned.cache.misses);
    CHECK(moves_of(run.timeline, Tier::Device, Tier::Pinned) == planned.cache.evictions + planned.cache.returned);
    if (policy == Eviction::Belady) belady = planned.cache.misses;
    CHECK(planned.cache.misses >= belady);
  }
}

/// Beside the passes copies take no other memory, and chunks no other ways.
TEST_CASE("chunks that move beside the passes give the same weights in the same memory", "[offload]") {
  const char* name = GENERATE("gpt2", "llama", "mixtral");
  const double spare = GENERATE(3.2, 6.0, 1000.0);
  CAPTURE(name, spare);
  const Model model = small_model(name);
  TrainOptions o = offload_options();
  const Plan base = plain_plan(model, o);
  const std::int64_t chunk = least_chunk(base);
  const double memory = double(beside_chunks(base, chunk)) + spare * 8 * double(chunk);
  std::vector<ChunkCounts> counts;
  ChunkOptions options{.chunk = chunk, .device_memory = Bytes{memory}, .usable = 1, .reserve = 0, .asynchronous = true};
  const Plan plan = chunk_states(base, options, &host_workspaces(), &counts);
  // Which gaps are left depends on how copies meet the passes; the bytes in use do not.
  const OffloadRun run = train_capped(model, o, plan);
  CHECK(double(peak_of(run.timeline, Tier::Device)) <= memory);
  CHECK(difference(run.trained, train(model, o, *single())) < 1e-9);
  CHECK(simulate_steps(plan, o.steps).transfers == run.timeline.transfers);
  CHECK(planned_moves(plan, "come.") == counts.front().cache.misses);
  for (const Op& op : plan.ops)
    if (std::holds_alternative<Copy>(plan.work(op))) CHECK(op.stream != Stream::Compute);
}

TEST_CASE("a chunk below the largest tensor and a cap below an op's needs are refused") {
  const Model model = small_model("gpt2");
  const TrainOptions o = offload_options();
  const auto refusal = [&](const char* options) {
    return user_error([&] { strategy_of("patrickstar", options)->train_step(model, o, &host_workspaces()); });
  };
  CHECK_THAT(refusal("{chunk: 10, device_memory: 1 GB}"), Catch::Contains("use chunks of at least"));
  TrainOptions wide = o;
  wide.dtype = Precision::BF16;
  wide.wide_gradients = true;
  CHECK_THAT(user_error([&] { strategy_of("patrickstar", "{device_memory: 1 GB}")->train_step(model, wide, nullptr); }),
             Catch::Contains("leave out `wide_gradients`"));
  CHECK_THAT(refusal("{device_memory: 10 kB}"), Catch::Contains("allow more device memory"));
  CHECK_THAT(refusal("{device_memory: 1 GB, parallel: {mesh: dp2, data: {kind: zero1}}}"), Catch::Contains("zero3"));
}

/// As many chunks as fit beside the passes of a step on one sample.
struct Tight {
  Model model = small_model("gpt2");
  TrainOptions o = offload_options();
  std::vector<ChunkCounts> counts;
  double memory = 0;

  Plan plan(Precision dtype, bool asynchronous, WriteBuffer buffer = WriteBuffer::None) {
    o.batch = 1;
    o.dtype = dtype;
    const Plan base = plain_plan(model, o);
    const std::int64_t chunk = least_chunk(base), width = dtype == Precision::F64 ? 8 : 2;
    memory = double(beside_chunks(base, chunk)) + double((asynchronous ? 6 : 5) * width * chunk);
    const ChunkOptions options{.chunk = chunk,
                               .device_memory = Bytes{memory},
                               .usable = 1,
                               .reserve = 0,
                               .write_buffer = buffer,
                               .asynchronous = asynchronous};
    return chunk_states(base, options, &host_workspaces(), &counts);
  }
};

/// The tensor that master copies come through; none: there is none.
TensorId write_buffer_of(const Plan& plan) {
  for (std::size_t t = 0; t < plan.tensors.size(); ++t)
    if (plan.tensors[t].base.is_none() && plan.names[plan.tensors[t].name] == "chunk.buffer") return TensorId{t};
  return {};
}

/// The reference's loop over chunks copies a gradient, updates, and copies the weights back, one after the other.
TEST_CASE("what comes from and goes to the device waits for the host's updates and these for it", "[offload]") {
  Tight tight;
  const Plan plan = tight.plan(Precision::F64, false);
  REQUIRE(tight.counts.front().cached);
  std::vector<Span> copies, updates;
  for (const Span& s : simulate_steps(plan, 1).spans)
    if (std::holds_alternative<Copy>(plan.work(plan[s.op])))
      copies.push_back(s);
    else if (plan[s.op].stream == Stream::Host)
      updates.push_back(s);
  REQUIRE(updates.size() > 10);
  for (const Span& u : updates)
    for (const Span& c : copies) CHECK((u.end_ps <= c.start_ps || c.end_ps <= u.start_ps));
}

/// Of a chunk that was on the device when its update began, 2 bytes of gradient per element went down, and its master
/// copy comes back, which the device rounds; others come as they lie on the host.
TEST_CASE("chunks that are on the device until their update come back as master copies", "[offload]") {
  const bool asynchronous = GENERATE(false, true);
  CAPTURE(asynchronous);
  Tight exact;
  const Plan executed = exact.plan(Precision::F64, asynchronous);
  CHECK(exact.counts.front().came_wide > 0);
  const OffloadRun run = train_capped(exact.model, exact.o, executed);
  CHECK(simulate_steps(executed, exact.o.steps).transfers == run.timeline.transfers);
  CHECK(difference(run.trained, train(exact.model, exact.o, *single())) < 1e-9);

  Tight tight;
  const Plan plan = tight.plan(Precision::BF16, asynchronous);
  const ChunkCounts& counts = tight.counts.front();
  std::set<std::string> left;       // chunks that left behind the last product
  std::map<std::string, int> wide;  // how often a chunk came as 4 bytes per element
  for (const Op& op : plan.ops) {
    const std::string name{plan.name_of(op)};
    if (std::holds_alternative<Gemm>(plan.work(op))) left.clear();
    if (name.starts_with("leave.")) left.insert(name.substr(6));
    if (!name.starts_with("come.")) continue;
    const auto bytes = static_cast<std::int64_t>(std::get<Copy>(plan.work(op)).bytes.base());
    wide[name.substr(5)] += bytes == 4 * plan.shape(plan.operands_of(op)[0].tensor()).elements();
  }
  std::int64_t arrivals = 0;
  for (const auto& [chunk, count] : wide) {
    CHECK(count == int(left.contains(chunk)));
    arrivals += count;
  }
  CHECK(arrivals == counts.came_wide);
  CHECK(arrivals > 0);
  CHECK(arrivals < counts.chunks);
  CHECK(double(peak_of(simulate_steps(plan, 1), Tier::Device)) <= tight.memory);
}

/// All master copies come through one tensor that stays on the device: beside the room of chunks, so that these move as
/// if it were not there, or within it.
TEST_CASE("master copies come back through a buffer that stays on the device", "[offload]") {
  const bool asynchronous = GENERATE(false, true);
  const Precision dtype = GENERATE(Precision::F64, Precision::BF16);
  const WriteBuffer buffer = GENERATE(WriteBuffer::Beside, WriteBuffer::Within);
  CAPTURE(asynchronous, int(dtype), int(buffer));
  Tight tight;
  const Plan plan = tight.plan(dtype, asynchronous, buffer);
  const TensorId room = write_buffer_of(plan);
  REQUIRE_FALSE(room.is_none());
  CHECK(plan.tensors[room.index()].persistent);
  CHECK(plan.tensors[room.index()].tier == Tier::Device);
  CHECK(plan.size(room).base() == (dtype == Precision::F64 ? 8.0 : 4.0) * double(plan.shape(room).elements()));
  std::int64_t through = 0;
  for (const Op& op : plan.ops)
    through += std::holds_alternative<Copy>(plan.work(op)) && plan.owner(plan.operands_of(op)[1].tensor()) == room;
  const ChunkCounts& counts = tight.counts.front();
  CHECK(through == counts.came_wide);
  CHECK(through > 0);
  const double beside = buffer == WriteBuffer::Beside ? plan.size(room).base() : 0;
  const Timeline simulated = simulate_steps(plan, tight.o.steps);
  CHECK(double(peak_of(simulated, Tier::Device)) <= tight.memory + beside);
  if (dtype != Precision::F64) return;
  const OffloadRun run = train_capped(tight.model, tight.o, plan);
  CHECK(simulated.transfers == run.timeline.transfers);
  const std::int64_t peak = peak_of(run.timeline, Tier::Device);
  if (asynchronous)  // what is there together is up to how copies and ops happen to overlap
    CHECK(double(peak) <= tight.memory + beside);
  else
    CHECK(peak == peak_of(simulated, Tier::Device));
  CHECK(difference(run.trained, train(tight.model, tight.o, *single())) < 1e-9);
  Tight other;
  CHECK(write_buffer_of(other.plan(dtype, asynchronous)).is_none());
  if (buffer == WriteBuffer::Within)
    CHECK(counts.cache.misses > other.counts.front().cache.misses);
  else
    CHECK(counts.cache.misses == other.counts.front().cache.misses);
}

TEST_CASE("in 16 bits there is one master copy") {
  const char* options = GENERATE("{device_memory: 1 GB}", "{device_memory: 1 GB, hybrid: false}",
                                 "{device_memory: 1 GB, parallel: {mesh: fsdp2, data: {kind: zero3, bucket: 4000}}}");
  CAPTURE(options);
  TrainOptions o = offload_options();
  o.dtype = Precision::BF16;
  const Plan plan = strategy_of("patrickstar", options)->train_step(small_model("gpt2"), o, &host_workspaces());
  for (const Op& op : plan.ops)
    if (const auto* adam = std::get_if<AdamW>(&plan.work(op)))
      CHECK(plan.operands_of(op).size() == 5 + (adam->max_norm > 0 ? 1u : 0u) + (adam->partly ? 1u : 0u));
}

TEST_CASE("the cache evicts by the rules of its policies") {
  // Room for two of three chunks of size 1; 0 1 2 0 1 2: belady keeps 0 when 2 comes (it is next), so 1 leaves; then 2
  // or 0 leaves for 1, and 2 is there or comes again: 4 misses. LRU and FIFO evict what is needed next each time: 6.
  const std::vector<std::int64_t> bytes(3, 1);
  std::vector<CacheStep> steps;
  for (const std::uint32_t c : {0u, 1u, 2u, 0u, 1u, 2u}) steps.push_back({{c}, {}, 2});
  CHECK(plan_cache(bytes, steps, Eviction::Belady).misses == 4);
  CHECK(plan_cache(bytes, steps, Eviction::Lru).misses == 6);
  CHECK(plan_cache(bytes, steps, Eviction::Fifo).misses == 6);
  // static: chunk 0 stays beside the largest step, the others come for each of their uses: 1 + 2 + 2.
  CHECK(plan_cache(bytes, steps, Eviction::Static).misses == 5);
}

TEST_CASE("chunks come before the first step where there is room for them until they are needed") {
  // Room for two of three chunks of size 1, needed one after another: 1 comes with 0; 2 not, it takes the place of 0.
  const std::vector<std::int64_t> bytes(3, 1);
  std::vector<CacheStep> steps;
  for (const std::uint32_t c : {0u, 1u, 2u}) steps.push_back({{c}, {}, 2});
  const auto arrivals = [&](const std::vector<bool>& marked) {
    CachePlan plan = plan_cache(bytes, steps, Eviction::Belady);
    come_first(plan, bytes, steps, marked);
    std::vector<std::uint32_t> out;
    for (const CacheEvent& e : plan.events)
      if (e.comes) out.push_back(e.step);
    return out;
  };
  CHECK(arrivals({true, true, true}) == std::vector<std::uint32_t>{0, 0, 2});
  CHECK(arrivals({true, false, true}) == std::vector<std::uint32_t>{0, 1, 2});
}

TEST_CASE("weights that are gathered no bucket ahead take no more room than those that are", "[offload]") {
  const Model model = deep_model("gpt2");
  TrainOptions o = offload_options();
  std::int64_t before = 0;
  for (const int prefetch : {0, 1, 3}) {
    const Plan plan =
        strategy_of("parallel",
                    "{mesh: fsdp2, data: {kind: zero3, bucket: 0, prefetch: " + std::to_string(prefetch) + "}}")
            ->train_step(model, o, &host_workspaces());
    const std::int64_t peak = peak_of(simulate_steps(plan, 1), Tier::Device);
    CHECK(peak >= before);
    before = peak;
  }
}

/// Chunks go around one by one: less is on the device than with whole blocks, and no gradient waits for its block. What
/// is planned is what runs, also where chunks come and go.
TEST_CASE("weights that are gathered in parts take less room, and what is planned runs", "[offload]") {
  const char* name = GENERATE("gpt2", "llama");
  const auto recompute = GENERATE(Recompute::None, Recompute::Full, Recompute::Whole);
  CAPTURE(name, int(recompute));
  const Model model = deep_model(name);
  TrainOptions o = offload_options();
  o.batch = 2;
  o.steps = 1;
  o.recompute = recompute;
  const Trained reference = train(model, o, *single());
  constexpr std::int64_t kRoomy = 1'000'000'000, kMatrix = 16 * 64 * 8;  // bytes of the largest matrix of gpt2
  const auto lowered = [&](int part, std::int64_t memory) {
    return strategy_of(
               "patrickstar",
               fmt::format("{{usable: 1, reserve: 0, hybrid: false, chunk: 4000, device_memory: {} B, "
                           "parallel: {{mesh: fsdp2, data: {{kind: zero3, bucket: 0, prefetch: 0, part: {}}}}}}}",
                           memory, part))
        ->train_step(model, o, &host_workspaces());
  };
  const auto peak = [&](int part, std::int64_t memory) {
    const Plan plan = lowered(part, memory);
    const Timeline simulated = simulate_steps(plan, 1);
    const OffloadRun run = train_capped(model, o, plan);
    CHECK(difference(run.trained, reference) < 1e-9);
    for (Transfers counted : run.timeline.transfers) {
      counted.rank = RankId{0};  // one class stands for both ranks
      CHECK(std::count(simulated.transfers.begin(), simulated.transfers.end(), counted) == 1);
    }
    CHECK(peak_of(simulated, Tier::Device) == peak_of(run.timeline, Tier::Device));
    CHECK(peak_of(simulated, Tier::Device) <= memory);
    CHECK(peak_of(run.timeline, Tier::Device) <= memory);
    return std::pair{peak_of(simulated, Tier::Device), planned_moves(plan, "come.")};
  };
  const auto [in_parts, stays] = peak(1200, kRoomy);
  CHECK(in_parts + kMatrix < peak_of(simulate_steps(lowered(0, kRoomy), 1), Tier::Device));
  CHECK(stays == 0);
  for (const int less : {1, 5, 12, 20, 24}) {
    CAPTURE(less);
    const auto [tight, comes] = peak(1200, in_parts - less * 4000);
    CHECK(tight < in_parts);
    CHECK(comes > 0);
  }
}
