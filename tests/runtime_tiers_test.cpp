// SPDX-License-Identifier: Apache-2.0
// Tiers of the host runtime: capacities, counters, links that stand for others, and disks that fail.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <numeric>

#include "runtime/disk_file.hpp"
#include "runtime/executor.hpp"
#include "sim/base/error.hpp"

using namespace orrery;

namespace {

constexpr std::int64_t kElements = 300'000;  // 1.2 MB: several pieces of a paced copy, blocks of a disk that end oddly

/// device → pinned → disk → pinned → device.
struct RoundTrip {
  Plan plan;
  TensorId first, last;
};

RoundTrip round_trip(std::int64_t elements = kElements) {
  PlanBuilder b{"round_trip"};
  const auto on = [&](Tier tier, std::string_view name, bool persistent) {
    return b.tensor(name, Shape{elements}, {.dtype = DType::F32, .tier = tier, .persistent = persistent});
  };
  const TensorId first = on(Tier::Device, "first", true), down = on(Tier::Pinned, "down", false),
                 disk = on(Tier::Disk, "disk", true), up = on(Tier::Pinned, "up", false),
                 last = on(Tier::Device, "last", true);
  const Bytes bytes = size_of(DType::F32, elements);
  b.add("down", Copy{bytes, Tier::Device, Tier::Pinned}, {reads(first), writes(down)}, Stream::CopyOut);
  b.add("write", Copy{bytes, Tier::Pinned, Tier::Disk}, {reads(down), writes(disk)}, Stream::Disk);
  b.add("read", Copy{bytes, Tier::Disk, Tier::Pinned}, {reads(disk), writes(up)}, Stream::Disk);
  b.add("up", Copy{bytes, Tier::Pinned, Tier::Device}, {reads(up), writes(last)}, Stream::CopyIn);
  return {b.take(nullptr), first, last};
}

std::vector<double> numbers(std::int64_t n = kElements) {
  std::vector<double> out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), 1.0);
  return out;
}

PacedCopy paced(Tier from, Tier to, BytesPerSecond rate, PacedCopy::Link link) {
  return {from, to, Seconds{1e-4}, rate, {{link, rate}}};
}

template <class F>
std::string device_error(F&& f) {
  try {
    f();
  } catch (const DeviceError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("what goes over all tiers comes back, and is counted", "[runtime]") {
  const RoundTrip trip = round_trip();
  const auto e = make_host_executor();
  e->prepare(trip.plan);
  e->write(trip.plan, trip.first, RankId{0}, std::span<const double>{numbers()});
  for (int i = 0; i < 3; ++i) e->execute(trip.plan, {});
  CHECK(e->read(trip.plan, trip.last, RankId{0}) == numbers());
  const std::int64_t bytes = 3 * 4 * kElements;
  const std::vector<Transfers> expected{{RankId{0}, Tier::Device, Tier::Pinned, 3, bytes},
                                        {RankId{0}, Tier::Pinned, Tier::Device, 3, bytes},
                                        {RankId{0}, Tier::Pinned, Tier::Disk, 3, bytes},
                                        {RankId{0}, Tier::Disk, Tier::Pinned, 3, bytes}};
  CHECK(e->take().transfers == expected);
}

TEST_CASE("a paced copy takes no less than its link would", "[runtime]") {
  const RoundTrip trip = round_trip();
  HostOptions o;
  o.paced = {paced(Tier::Device, Tier::Pinned, 0.1_GBps, PacedCopy::Link::ToHost),
             paced(Tier::Pinned, Tier::Disk, 0.05_GBps, PacedCopy::Link::Disk)};
  const auto e = make_host_executor(o);
  e->prepare(trip.plan);
  e->write(trip.plan, trip.first, RankId{0}, std::span<const double>{numbers()});
  e->execute(trip.plan, {});
  CHECK(e->read(trip.plan, trip.last, RankId{0}) == numbers());
  const Timeline t = e->take();
  // 1.2 MB at 100 MB/s are 12 ms, at 50 MB/s 24 ms, and 0.1 ms for the first byte.
  CHECK(double(t.spans[0].end_ps - t.spans[0].start_ps) * 1e-12 >= 0.0121);
  CHECK(double(t.spans[1].end_ps - t.spans[1].start_ps) * 1e-12 >= 0.0241);
}

TEST_CASE("copies of two ranks over one link take as long as both one after the other", "[runtime]") {
  PlanBuilder b{"shared", Mesh{{{"dp", 2}}}};
  const TensorId from = b.tensor("from", Shape{kElements}, {.tier = Tier::Device, .persistent = true});
  const TensorId to = b.tensor("to", Shape{kElements}, {.tier = Tier::Pinned, .persistent = true});
  b.add("down", Copy{size_of(DType::F32, kElements), Tier::Device, Tier::Pinned}, {reads(from), writes(to)});
  const Plan plan = b.take(nullptr);
  const auto seconds = [&](std::int64_t ranks_per_switch) {
    HostOptions o;
    o.paced = {paced(Tier::Device, Tier::Pinned, 0.1_GBps, PacedCopy::Link::ToHost)};
    o.ranks_per_switch = ranks_per_switch;
    const auto e = make_host_executor(o);
    e->execute(plan, {});
    return e->take().makespan().base();
  };
  CHECK(seconds(1) >= 0.012);
  CHECK(seconds(2) >= 0.024);
}

TEST_CASE("a tier that is full says so", "[runtime]") {
  const RoundTrip trip = round_trip();
  const Tier tier = GENERATE(Tier::Device, Tier::Pinned, Tier::Disk);
  HostOptions o;
  o.tier_bytes[static_cast<std::size_t>(tier)] = 1'000'000;
  const auto e = make_host_executor(o);
  CHECK_THAT(device_error([&] { e->execute(trip.plan, {}); }), Catch::Contains("out of memory on rank 0"));
}

TEST_CASE("a disk that takes no more is an error, not a wrong number", "[runtime]") {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{500'000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const RoundTrip trip = round_trip();
  const auto e = make_host_executor();
  const std::string text = device_error([&] { e->execute(trip.plan, {}); });
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK_THAT(text, Catch::Contains("pwrite: File too large"));
}

TEST_CASE("a disk file reads back what was written, in any pieces", "[runtime]") {
  DiskFile file{GENERATE(PageCache::Used, PageCache::Passed)};
  std::vector<unsigned char> expected(300'000), got(300'000);
  const auto write = [&](std::int64_t first, std::int64_t n, unsigned char seed) {
    for (std::int64_t i = 0; i < n; ++i)
      expected[static_cast<std::size_t>(first + i)] = static_cast<unsigned char>(seed + i * 7);
    file.write(first, expected.data() + first, n);
  };
  write(0, 300'000, 1);
  write(1000, 64, 2);
  write(65'000, 70'000, 3);
  write(299'999, 1, 4);
  for (const auto& [first, n] : {std::pair<std::int64_t, std::int64_t>{0, 300'000}, {65'530, 12}, {131'072, 65'536}}) {
    file.read(first, got.data(), n);
    CHECK(std::equal(got.begin(), got.begin() + n, expected.begin() + first));
  }
}

TEST_CASE("a disk file that was cut or changed is not read", "[runtime]") {
  DiskFile file{GENERATE(PageCache::Used, PageCache::Passed)};
  const std::int64_t block = file.block_bytes();
  std::vector<unsigned char> data(200'000, 5);
  file.write(0, data.data(), 200'000);
  const auto read = [&](std::int64_t first, std::int64_t n) {
    return device_error([&] { file.read(first, data.data(), n); });
  };
  CHECK(read(0, 200'000) == "no error");
  const unsigned char wrong = 6;
  REQUIRE(fcntl(file.descriptor(), F_SETFL, fcntl(file.descriptor(), F_GETFL) & ~O_DIRECT) == 0);  // for a single byte
  REQUIRE(pwrite(file.descriptor(), &wrong, 1, 100'000) == 1);
  if (block == 65536) CHECK(read(0, 1000) == "no error");  // another block
  CHECK_THAT(read(131'000, 10), Catch::Contains(block == 65536 ? "has changed between bytes 65536 and 131072"
                                                               : "has changed between bytes 0 and 200000"));
  CHECK_THAT(device_error([&] { file.write(66'000, data.data(), 10); }), Catch::Contains("has changed"));
  REQUIRE(ftruncate(file.descriptor(), 150'000) == 0);
  CHECK_THAT(read(140'000, 30'000), Catch::Contains("ends at byte 150000"));
  CHECK_THAT(read(200'000, 1), Catch::Contains("nothing was written there"));
}
