// SPDX-License-Identifier: Apache-2.0
// Stages on devices of different speed and memory, against all partitions there are.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "sim/base/random.hpp"
#include "sim/search/stage_partition.hpp"

using namespace orrery;

namespace {

struct Drawn {
  std::vector<LayerCost> layers;
  std::vector<StageDevice> devices;
};

Drawn drawn(Random& random) {
  Drawn d;
  for (std::size_t i = 1 + random.below(8); i-- > 0;)
    d.layers.push_back({random.below(5) == 0 ? 0 : random.uniform(), static_cast<std::int64_t>(random.below(10))});
  for (std::size_t i = 1 + random.below(5); i-- > 0;)
    d.devices.push_back(
        {1 + double(random.below(6)), static_cast<std::int64_t>(5 + random.below(40)), 0.5 * double(random.below(4))});
  return d;
}

/// Seconds of a partition.
struct StageSeconds {
  double slowest = 0, total = 0;

  bool is_better_than(const StageSeconds& o) const {
    return slowest < o.slowest - 1e-12 || (slowest < o.slowest + 1e-12 && total < o.total);
  }
};

/// Nothing where a stage takes too much.
std::optional<StageSeconds> seconds_of(const Drawn& d, const std::vector<std::int64_t>& sizes) {
  StageSeconds out;
  auto layer = d.layers.begin();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    double seconds = 0;
    std::int64_t bytes = 0;
    for (std::int64_t n = 0; n < sizes[i]; ++n, ++layer) seconds += layer->seconds, bytes += layer->bytes;
    if (bytes > d.devices[i].room) return {};
    const double taken = d.devices[i].beside + d.devices[i].slowness * seconds;
    out.slowest = std::max(out.slowest, taken);
    out.total += taken;
  }
  return out;
}

/// Asks `tell` for each partition of so many layers onto the devices behind those in `sizes`.
void for_all(const Drawn& d, std::int64_t layers, std::int64_t least, std::vector<std::int64_t>& sizes,
             const std::function<void(const StageSeconds&)>& tell) {
  const bool is_last = sizes.size() + 1 == d.devices.size();
  for (std::int64_t n = is_last ? std::max(least, layers) : least; n <= layers; ++n) {
    sizes.push_back(n);
    if (!is_last)
      for_all(d, layers - n, least, sizes, tell);
    else if (const std::optional<StageSeconds> s = seconds_of(d, sizes))
      tell(*s);
    sizes.pop_back();
  }
}
std::optional<StageSeconds> best_of_all(const Drawn& d, std::int64_t least) {
  std::vector<std::int64_t> none;
  std::optional<StageSeconds> best;
  for_all(d, std::ssize(d.layers), least, none, [&](const StageSeconds& s) {
    if (!best || s.is_better_than(*best)) best = s;
  });
  return best;
}

}  // namespace

TEST_CASE("no partition into stages has a faster slowest stage, nor of those that have none takes one less in all") {
  Random random{3};
  int found = 0, impossible = 0;
  for (int i = 0; i < 400; ++i) {
    const Drawn d = drawn(random);
    const std::int64_t least = i % 2;
    const std::optional<StageSeconds> best = best_of_all(d, least);
    const std::optional<StagePartition> p = partition_stages(d.layers, d.devices, least);
    CAPTURE(i, least);
    REQUIRE(p.has_value() == best.has_value());
    if (!p) {
      ++impossible;
      continue;
    }
    ++found;
    CHECK(std::accumulate(p->sizes.begin(), p->sizes.end(), std::int64_t{0}) == std::ssize(d.layers));
    CHECK(*std::min_element(p->sizes.begin(), p->sizes.end()) >= least);
    const StageSeconds s = seconds_of(d, p->sizes).value();
    CHECK(p->slowest == Approx(best->slowest).margin(1e-12));
    CHECK(s.slowest == Approx(best->slowest).margin(1e-12));
    CHECK(s.total == Approx(best->total).margin(1e-9));
  }
  CHECK(found > 100);
  CHECK(impossible > 50);
}

TEST_CASE("whatever the slowest stage counts beside all of them, no partition is better than one of the trade-offs") {
  Random random{4};
  std::size_t several = 0;
  for (int i = 0; i < 200; ++i) {
    const Drawn d = drawn(random);
    const std::vector<StagePartition> found = stage_tradeoffs(d.layers, d.devices, i % 2);
    several += found.size() > 2;
    for (const double weight : {0.0, 0.5, 3.0, 100.0}) {
      double best = std::numeric_limits<double>::infinity(), ours = best;
      std::vector<std::int64_t> none;
      for_all(d, std::ssize(d.layers), i % 2, none,
              [&](const StageSeconds& s) { best = std::min(best, s.total + weight * s.slowest); });
      for (const StagePartition& p : found) {
        const StageSeconds s = seconds_of(d, p.sizes).value();
        CHECK(p.slowest == Approx(s.slowest));
        CHECK(p.total == Approx(s.total));
        ours = std::min(ours, s.total + weight * s.slowest);
      }
      CAPTURE(i, weight);
      REQUIRE(found.empty() == std::isinf(best));
      if (!found.empty()) CHECK(ours == Approx(best));
    }
  }
  CHECK(several > 20);
}

// 1/1 + 1/2 + 1/4 = 1.75 layers per second: 7 layers take 4 seconds everywhere.
TEST_CASE("equal layers go to devices in inverse proportion to how slow they are, unless memory forbids") {
  const std::vector<LayerCost> layers(7, {1.0, 10});
  std::vector<StageDevice> devices{{1}, {2}, {4}};
  CHECK(partition_stages(layers, devices)->sizes == std::vector<std::int64_t>{4, 2, 1});
  CHECK(partition_stages(layers, devices)->slowest == 4);
  devices[0].room = 35;
  CHECK(partition_stages(layers, devices)->sizes == std::vector<std::int64_t>{3, 3, 1});
  devices[1].room = devices[2].room = 19;
  CHECK(!partition_stages(layers, devices));
  CHECK(!partition_stages(layers, std::vector<StageDevice>(8)));
  CHECK(partition_stages(layers, std::vector<StageDevice>(8), 0)->slowest == 1);
}
