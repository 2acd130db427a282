// SPDX-License-Identifier: Apache-2.0
// Storage of plans in execution: peaks by hand, full arenas, names shared by plans, what is not allocated.
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <new>

#include "runtime/executor.hpp"
#include "sim/base/error.hpp"

using namespace orrery;

namespace {

std::atomic<std::int64_t> allocations{0};  // of this test program, by the operators below

}  // namespace

#ifdef ORRERY_SANITIZED
constexpr double kShadow = 1.0 / 8;  // bytes that AddressSanitizer keeps for each; some kernels take them at a look
#else
constexpr double kShadow = 0;
// Sanitizers bring their own. Inlined by halves these look like pairs that do not match.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

namespace {

using List = std::vector<double>;
constexpr TensorSpec kKept{.dtype = DType::F32, .persistent = true};
constexpr TensorSpec kPassing{.dtype = DType::F32};

/// w (100 floats: 448 B) stays; a, b, c of 1000, 2000 and 3000 floats (4032, 8000, 12032 B) follow one another: a and b
/// live at op 1, b and c at op 2, which is the last use of both.
Plan chain() {
  PlanBuilder p{"chain"};
  const TensorId w = p.tensor("w", Shape{100}, kKept), a = p.tensor("a", Shape{1000}, kPassing),
                 b = p.tensor("b", Shape{2000}, kPassing), c = p.tensor("c", Shape{3000}, kPassing);
  p.add("fill_a", Fill{.elements = 1000, .value = 1}, {writes(a)});
  p.add("fill_b", HostWork{.flops = Flops{100}}, {reads(a), writes(b)});
  p.add("fill_c", HostWork{.flops = Flops{100}}, {reads(b), writes(c)});
  p.add("end", Fill{.elements = 100, .value = 2}, {writes(w)});
  return p.take(nullptr);
}

/// Pages of this process that are in memory, in bytes.
std::int64_t resident_bytes() {
  std::ifstream in{"/proc/self/statm"};
  std::int64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("the peak is what lives at once, with the op and the owners of it", "[runtime]") {
  const bool null = GENERATE(false, true);
  CAPTURE(null);
  const Plan plan = chain();
  const auto e = null ? make_null_executor() : make_host_executor();
  for (int i = 0; i < 3; ++i) e->execute(plan, {});
  const Timeline t = e->take();
  CHECK(t.spans.size() == 12);
  REQUIRE(t.peaks.size() == 1);
  const Peak& peak = t.peaks.front();
  CHECK(peak.bytes == 448 + 8000 + 12032);
  CHECK(peak.op == OpId{2});
  CHECK(peak.instance == 0);
  using Owners = std::vector<std::pair<TensorId, std::int64_t>>;
  CHECK(peak.owners == Owners{{TensorId{3}, 12032}, {TensorId{2}, 8000}, {TensorId{0}, 448}});
  // w at 0, a behind it, b behind a; a's gap is too small for c, which goes behind b.
  CHECK(peak.arena_bytes == 448 + 4032 + 8000 + 12032);
  std::vector<std::int64_t> samples;
  for (const MemorySample& s : t.memory)
    if (s.at_ps < t.instance_ends_ps.front()) samples.push_back(s.bytes);
  CHECK(samples == std::vector<std::int64_t>{448 + 4032, 448 + 12032, 448 + 8000, 448 + 20032, 448});
}

TEST_CASE("a full arena says which tensor, how much of what, and where; the executor lives on", "[runtime]") {
  const Plan plan = chain();
  const auto e = make_host_executor({.arena_bytes = 16384});
  for (int i = 0; i < 3; ++i)
    CHECK_THROWS_WITH(e->execute(plan, {}),
                      "out of memory on rank 0: 'c' needs 11.8 KiB, 8.25 KiB of 16 KiB are in use at op 2 'fill_c'");
}

TEST_CASE("plans share persistent tensors by name and must agree on their sizes", "[runtime]") {
  const auto plan_with = [](std::string name, std::int64_t elements, double value) {
    PlanBuilder b{std::move(name)};
    const TensorId w = b.tensor("w", Shape{elements}, kKept), out = b.tensor("out", Shape{elements}, kKept);
    b.add("use", ScaleRows{.rows = 1, .cols = elements, .factor = value}, {reads(w), writes(out)});
    return b.take(nullptr);
  };
  const Plan one = plan_with("one", 4, 2), other = plan_with("other", 4, 3), larger = plan_with("larger", 100, 1);
  const auto e = make_host_executor();
  e->prepare(one);
  e->prepare(other);
  e->write(one, TensorId{0}, RankId{0}, List{1, 2, 3, 4});
  e->execute(one, {});
  CHECK(e->read(other, TensorId{1}, RankId{0}) == List{2, 4, 6, 8});
  e->execute(other, {});
  CHECK(e->read(one, TensorId{1}, RankId{0}) == List{3, 6, 9, 12});
  CHECK_THROWS_WITH(
      e->prepare(larger),
      Catch::Contains(
          "persistent tensor 'w' on tier device takes 448 B in plan 'larger' and 64 B in a plan before it"));
}

TEST_CASE("an execution of a plan of one rank allocates nothing once it has run", "[runtime]") {
  PlanBuilder b{"steady"};
  const TensorId x = b.tensor("x", Shape{64, 32}, kKept), w = b.tensor("w", Shape{32, 32}, kKept),
                 out = b.tensor("out", Shape{64, 32}, kKept);
  TensorId last = x;
  for (int i = 0; i < 20; ++i) {
    const TensorId next = b.tensor("h" + std::to_string(i), Shape{64, 32}, kPassing),
                   act = b.tensor("a" + std::to_string(i), Shape{64, 32}, kPassing);
    b.add("gemm", Gemm{.m = 64, .n = 32, .k = 32}, {reads(last), reads(w), writes(next)});
    b.add("act", ActivationForward{.rows = 64, .cols = 32}, {reads(next), writes(act)});
    last = act;
  }
  b.add("copy", CopyRows{64, 32}, {reads(last), writes(out)});
  b.add("look", HostWork{.flops = Flops{100}}, {reads(out)}, Stream::Host);
  const Plan plan = b.take(&host_workspaces());
  const auto e = make_host_executor();
  e->execute(plan, {});
  e->execute(plan, {});
  e->take();
  e->execute(plan, {});
  const std::int64_t before = allocations;
  const auto heap_before = mallinfo2().uordblks;
  e->execute(plan, {});
  const auto heap_after = mallinfo2().uordblks;
  CHECK(allocations - before == 0);
  CHECK(heap_after == heap_before);
}

TEST_CASE("the process grows by what the arena needed", "[runtime]") {
  // Ten tensors of 20 MB, all live before the last op; every page of them is written.
  PlanBuilder b{"large"};
  const std::int64_t n = 5'000'000;
  std::vector<Operand> all;
  for (int i = 0; i < 10; ++i) {
    const TensorId t = b.tensor("t" + std::to_string(i), Shape{n}, kPassing);
    b.add("fill", Fill{.elements = n, .value = 1}, {writes(t)});
    all.push_back(reads(t));
  }
  b.add("use", HostWork{.flops = Flops{100}}, all);
  const Plan plan = b.take(nullptr);
  const auto e = make_host_executor();
  e->prepare(plan);
  const std::int64_t before = resident_bytes();
  e->execute(plan, {});
  const auto grown = static_cast<double>(resident_bytes() - before),
             needed = static_cast<double>(e->take().peaks.front().arena_bytes);
  CHECK(grown >= 0.97 * needed);
  CHECK(grown <= (1.03 + kShadow) * needed);
}

TEST_CASE("types that the host cannot compute in are named with the legal ones", "[runtime][error]") {
  PlanBuilder b{"half"};
  const TensorId x = b.tensor("x", Shape{4}, {.dtype = DType::BF16, .persistent = true});
  b.add("fill", Fill{.elements = 4, .dtype = DType::BF16}, {writes(x)});
  const Plan plan = b.take(nullptr);
  CHECK_THROWS_WITH(make_host_executor()->prepare(plan),
                    "tensor 'x' of plan 'half' has type bf16, which the host executor cannot hold\n  hint: legal "
                    "types: f32, f64; i32 and i64 for indices");
  CHECK_NOTHROW(make_null_executor()->execute(plan, {}));
}

TEST_CASE("reading what is not persistent and computing in the wrong type are errors", "[runtime][error]") {
  const Plan plan = chain();
  const auto e = make_host_executor();
  e->prepare(plan);
  CHECK_THROWS_WITH(e->read(plan, TensorId{1}, RankId{0}),
                    Catch::Contains("'a' is not a persistent tensor of rank 0 in plan 'chain'"));
  CHECK_THROWS_WITH(e->read(plan, TensorId{0}, RankId{1}), Catch::Contains("plan 'chain' has no rank 1"));
  CHECK_THROWS_WITH(e->write(plan, TensorId{0}, RankId{0}, List{1, 2}),
                    Catch::Contains("'w' has 100 elements, 2 values are given"));
  PlanBuilder bare{"bare"};
  const TensorId m = bare.tensor("m", Shape{8, 8}, kKept);
  bare.add("square", Gemm{.m = 8, .n = 8, .k = 8, .accumulate = true}, {reads(m), reads(m), updates(m)});
  const Plan without_scratch = bare.take(nullptr);
  CHECK_THROWS_WITH(e->prepare(without_scratch), Catch::Contains("op 'square' of plan 'bare' needs") &&
                                                     Catch::Contains("the plan gives its stream 0 B"));
  PlanBuilder b{"mixed"};
  const TensorId x = b.tensor("x", Shape{4}, kKept);
  b.add("fill", Fill{.elements = 4, .dtype = DType::F64}, {writes(x)});
  const Plan mixed = b.take(nullptr);
  CHECK_THROWS_WITH(e->prepare(mixed),
                    Catch::Contains("op 'fill' of plan 'mixed' computes in f64, but its operand 'x' is f32"));
}
