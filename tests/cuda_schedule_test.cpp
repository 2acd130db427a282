// SPDX-License-Identifier: Apache-2.0
// What the cuda device asks of streams, events and memory: with GPUs that do whatever was not forbidden.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "runtime/cuda/families.hpp"
#include "runtime/cuda/gpu_executor.hpp"
#include "sim/base/error.hpp"
#include "tests/emulated_gpu.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr std::int64_t kCols = 64;

TensorId matrix(PlanBuilder& b, const std::string& name, bool persistent = false) {
  return b.tensor(name, Shape{1, kCols}, {.persistent = persistent});
}

/// Two streams that hand tensors to each other, each of which is taken, read by the other stream and given back: a
/// stream that does not wait for the other reads or overwrites the wrong numbers.
Plan ping_pong() {
  PlanBuilder b{"ping pong"};
  const ScaleRows twice{.rows = 1, .cols = kCols, .factor = 2};
  const Add add{1, kCols};
  TensorId x = matrix(b, "x", true);
  b.port("x", x);
  for (int i = 0; i < 6; ++i) {
    const TensorId left = matrix(b, "left" + std::to_string(i)), right = matrix(b, "right" + std::to_string(i));
    const TensorId sum = matrix(b, "sum" + std::to_string(i), i == 5);
    b.add("left", twice, {reads(x), writes(left)}, Stream::Compute);
    b.add("right", twice, {reads(x), writes(right)}, Stream::Comm);
    b.add("sum", add, {reads(left), reads(right), writes(sum)}, i % 2 == 0 ? Stream::Compute : Stream::Comm);
    x = sum;
  }
  b.port("y", x);
  return b.take(&gpu_workspaces());
}

std::vector<double> counting() {
  std::vector<double> x;
  for (std::int64_t i = 0; i < kCols; ++i) x.push_back(double(i + 1));
  return x;
}

/// Runs the plan some times; the largest difference of y from 4^6·x.
double worst(Executor& executor, const Plan& plan) {
  executor.write(plan, plan.find_port("x"), RankId{0}, counting());
  double most = 0;
  for (int run = 0; run < 3; ++run) {
    executor.execute(plan, {});
    const auto y = executor.read(plan, plan.find_port("y"), RankId{0});
    for (std::size_t i = 0; i < y.size(); ++i) most = std::max(most, std::abs(y[i] - 4096 * double(i + 1)));
  }
  return most;
}

/// Sums what all ranks of a line hold, by an algorithm, and sends it round.
Plan exchange(std::int64_t ranks, CollectiveKind kind) {
  PlanBuilder b{"exchange", Mesh{{{"dp", ranks}}}};
  const std::int8_t axis = 0;
  const GroupId all = b.group_over({&axis, 1});
  const bool gathers = kind == CollectiveKind::AllGather, scatters = kind == CollectiveKind::ReduceScatter;
  const TensorId x = b.tensor("x", Shape{gathers ? kCols / ranks : kCols}, {.persistent = true});
  const TensorId y = b.tensor("y", Shape{scatters ? kCols / ranks : kCols}, {.persistent = true});
  b.add("exchange", Collective{.kind = kind, .group = all, .bytes = size_of(DType::F32, kCols)}, {reads(x), writes(y)},
        Stream::Comm);
  b.port("x", x);
  b.port("y", y);
  return b.take(&gpu_workspaces());
}

}  // namespace

TEST_CASE("streams wait for what they read and for the storage that they take, in any order of turns", "[cuda]") {
  const Plan plan = ping_pong();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.memory_bytes = 1 << 20, .seed = seed});
    CHECK(worst(*make_gpu_executor(gpu), plan) == 0.0);
  }
}

TEST_CASE("an executor gives back its streams, events and memory, also after an error", "[cuda]") {
  const Plan plan = ping_pong();
  const char* call = GENERATE("none", "launch", "synchronize");
  const auto gpu =
      std::make_shared<EmulatedGpu>(EmulationOptions{.memory_bytes = 1 << 20, .fails_at = call, .fails_after = 7});
  {
    const auto executor = make_gpu_executor(gpu);
    executor->prepare(plan);
    executor->write(plan, plan.find_port("x"), RankId{0}, counting());
    CHECK(gpu->streams() == 2);
    int errors = 0;
    for (int run = 0; run < 6; ++run) try {
        executor->execute(plan, {});
      } catch (const DeviceError& e) {
        ++errors;
        CHECK(std::string{e.what()} == std::string{call} + ": an error that the test asked for");
      }
    CHECK(errors == (std::string{call} == "none" ? 0 : 1));
    CHECK(worst(*executor, plan) == 0.0);  // what failed has left nothing behind
  }
  CHECK(gpu->streams() == 0);
  CHECK(gpu->events() == 0);
  CHECK(gpu->bytes_in_use(0) == 0);
}

TEST_CASE("a device without room says who needed how much", "[cuda]") {
  PlanBuilder b{"large"};
  const TensorId x = b.tensor("x", Shape{1 << 20}, {.persistent = true}), y = b.tensor("y", Shape{1 << 20}, {});
  b.add("fill", Fill{.elements = 1 << 20}, {writes(y)});
  b.add("keep", CopyRows{1, 1 << 20}, {reads(y), writes(x)});
  const Plan plan = b.take(&gpu_workspaces());
  const auto executor = make_gpu_executor(std::make_shared<EmulatedGpu>(EmulationOptions{.memory_bytes = 6 << 20}));
  executor->prepare(plan);
  CHECK_THROWS_WITH(executor->execute(plan, {}),
                    "out of memory on rank 0: 'y' needs 4 MiB, 4 MiB of 6 MiB are in use at op 0 'fill'");
}

TEST_CASE("ranks on one device exchange by the steps of the algorithm", "[cuda]") {
  const auto algorithm = GENERATE(CollectiveAlgorithm::Direct, CollectiveAlgorithm::Ring, CollectiveAlgorithm::Halving);
  const int devices = GENERATE(1, 4);
  HostOptions options;
  options.collectives.all_reduce = options.collectives.all_gather = options.collectives.reduce_scatter = algorithm;
  const auto reduced = exchange(4, CollectiveKind::AllReduce), scattered = exchange(4, CollectiveKind::ReduceScatter);
  const auto gathered = exchange(4, CollectiveKind::AllGather);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const auto gpu = std::make_shared<EmulatedGpu>(
        EmulationOptions{.devices = devices, .memory_bytes = 1 << 20, .seed = seed, .has_library = seed == 5});
    const auto run = [&](const Plan& plan) {
      const auto executor = make_gpu_executor(gpu, options);
      executor->prepare(plan);
      for (std::size_t r = 0; r < 4; ++r) {
        std::vector<double> x(static_cast<std::size_t>(plan.shape(plan.find_port("x")).elements()));
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = double(100 * r + i);
        executor->write(plan, plan.find_port("x"), RankId{r}, x);
      }
      executor->execute(plan, {});
      std::vector<std::vector<double>> y;
      for (std::size_t r = 0; r < 4; ++r) y.push_back(executor->read(plan, plan.find_port("y"), RankId{r}));
      return y;
    };
    const auto sums = run(reduced), parts = run(scattered), all = run(gathered);
    for (std::size_t r = 0; r < 4; ++r) {
      CHECK(sums[r][63] == 600 + 4 * 63);
      CHECK(parts[r][15] == 600 + 4 * (16 * double(r) + 15));
      CHECK(all[r][17] == 101);
    }
    CHECK(gpu->collectives() == (seed == 5 && devices == 4 ? 1 : 0));
  }
}

TEST_CASE("what a device cannot run is refused before anything runs", "[cuda]") {
  PlanBuilder b{"trial"};
  const TensorSpec small{.dtype = DType::BF16, .persistent = true};
  const TensorId a = b.tensor("a", Shape{2, 2}, small), l = b.tensor("l", Shape{2, 2}, small);
  b.add("factor", Cholesky{2, DType::BF16}, {reads(a), writes(l)});
  const Plan plan = b.take(&gpu_workspaces());
  const auto executor = make_gpu_executor(std::make_shared<EmulatedGpu>());
  CHECK_THROWS_WITH(executor->prepare(plan),
                    Catch::StartsWith("op 'factor' of plan 'trial' cannot run on a cuda device"));
}

TEST_CASE("kernels do not reach pageable memory, copies do", "[cuda]") {
  PlanBuilder b{"trial"};
  const TensorId x = b.tensor("x", Shape{4}, {.tier = Tier::Host, .persistent = true}), y = b.tensor("y", Shape{4}, {});
  b.add("fill", Fill{.elements = 4}, {writes(x)});
  b.add("up", Copy{size_of(DType::F32, 4), Tier::Host, Tier::Device}, {reads(x), writes(y)}, Stream::CopyIn);
  const Plan plan = b.take(&gpu_workspaces());
  const auto executor = make_gpu_executor(std::make_shared<EmulatedGpu>());
  CHECK_THROWS_WITH(executor->prepare(plan),
                    "op 'fill' of plan 'trial' uses 'x' on tier host, which a cuda device does not reach\n"
                    "  hint: copy it to the device first");
}

TEST_CASE("a file that cannot grow is one error, and nothing is left behind", "[cuda]") {
  PlanBuilder b{"full disk"};
  constexpr std::int64_t kElements = 1 << 20;
  const TensorId x = b.tensor("x", Shape{kElements}, {.persistent = true});
  const TensorId y = b.tensor("y", Shape{kElements}, {.tier = Tier::Disk}), z = b.tensor("z", Shape{kElements}, {});
  const Bytes bytes = size_of(DType::F32, kElements);
  b.add("down", Copy{bytes, Tier::Device, Tier::Disk}, {reads(x), writes(y)}, Stream::CopyOut);
  b.add("up", Copy{bytes, Tier::Disk, Tier::Device}, {reads(y), writes(z)}, Stream::CopyIn);
  const Plan plan = b.take(&gpu_workspaces());
  const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.memory_bytes = 32 << 20});
  {
    const auto executor = make_gpu_executor(gpu);
    executor->prepare(plan);
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{1 << 20, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    CHECK_THROWS_WITH(executor->execute(plan, {}), "pwrite: File too large");
    setrlimit(RLIMIT_FSIZE, &before);
    executor->execute(plan, {});  // there is room now
  }
  CHECK(gpu->streams() == 0);
  CHECK(gpu->events() == 0);
  CHECK(gpu->bytes_in_use(0) == 0);
}
