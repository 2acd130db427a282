// SPDX-License-Identifier: Apache-2.0
#include "sim/search/stage_partition.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

namespace orrery {
namespace {

class StagePartitioner {
 public:
  StagePartitioner(std::span<const LayerCost> layers, std::span<const StageDevice> devices, std::int64_t least)
      : devices_{devices}, least_{static_cast<std::size_t>(least)}, seconds_{0}, bytes_{0} {
    for (const LayerCost& l : layers) {
      seconds_.push_back(seconds_.back() + l.seconds);
      bytes_.push_back(bytes_.back() + l.bytes);
    }
  }

  std::optional<StagePartition> best() const {
    std::optional<StagePartition> best = within(kNever);
    if (!best) return {};
    for (double impossible = 0;;) {
      const double bound = impossible + (best->slowest - impossible) / 2;
      if (bound <= impossible || bound >= best->slowest) return best;
      if (std::optional<StagePartition> p = within(bound))
        best = std::move(p);
      else
        impossible = bound;
    }
  }

  std::vector<StagePartition> tradeoffs() const {
    std::vector<StagePartition> out;
    for (std::optional<StagePartition> p = within(kNever); p; p = within(std::nextafter(p->slowest, -kNever)))
      out.push_back(*p);
    return out;
  }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  double seconds(std::size_t device, std::size_t first, std::size_t end) const {
    return devices_[device].beside + devices_[device].slowness * (seconds_[end] - seconds_[first]);
  }

  /// Of the partitions in which no stage takes longer, the one that takes least in all. For each device and each end of
  /// its layers, where it starts then: where the devices before it and what it saves by starting late take least. The
  /// later a stage starts, the later it may end, so candidates leave from the front as the end moves on.
  std::optional<StagePartition> within(double bound) const {
    const std::size_t layers = seconds_.size() - 1;
    std::vector<std::vector<std::size_t>> starts(devices_.size(), std::vector<std::size_t>(layers + 1, kNone));
    std::vector<double> before(layers + 1, kNever);  // seconds of all devices before, up to each layer
    before[0] = 0;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      std::vector<double> total(layers + 1, kNever);
      std::deque<std::size_t> candidates;  // the best first, each later one the best without those before it
      const auto left = [&](std::size_t first) { return before[first] - devices_[d].slowness * seconds_[first]; };
      for (std::size_t end = least_; end <= layers; ++end) {
        if (const std::size_t first = end - least_; before[first] < kNever) {
          while (!candidates.empty() && left(candidates.back()) >= left(first)) candidates.pop_back();
          candidates.push_back(first);
        }
        while (!candidates.empty() && !holds(d, candidates.front(), end, bound)) candidates.pop_front();
        if (candidates.empty()) continue;
        starts[d][end] = candidates.front();
        total[end] = devices_[d].beside + left(candidates.front()) + devices_[d].slowness * seconds_[end];
      }
      before = std::move(total);
    }
    return devices_.empty() || before[layers] == kNever ? std::nullopt : std::optional{partition(starts)};
  }

  bool holds(std::size_t device, std::size_t first, std::size_t end, double bound) const {
    return seconds(device, first, end) <= bound && bytes_[end] - bytes_[first] <= devices_[device].room;
  }

  StagePartition partition(const std::vector<std::vector<std::size_t>>& starts) const {
    StagePartition out{std::vector<std::int64_t>(devices_.size())};
    std::size_t end = seconds_.size() - 1;
    for (std::size_t d = devices_.size(); d-- > 0;) {
      const std::size_t first = starts[d][end];
      out.sizes[d] = static_cast<std::int64_t>(end - first);
      out.slowest = std::max(out.slowest, seconds(d, first, end));
      out.total += seconds(d, first, end);
      end = first;
    }
    return out;
  }

  std::span<const StageDevice> devices_;
  std::size_t least_;
  std::vector<double> seconds_;  // of all layers before each
  std::vector<std::int64_t> bytes_;
};

}  // namespace

std::optional<StagePartition> partition_stages(std::span<const LayerCost> layers, std::span<const StageDevice> devices,
                                               std::int64_t least) {
  return StagePartitioner{layers, devices, least}.best();
}

std::vector<StagePartition> stage_tradeoffs(std::span<const LayerCost> layers, std::span<const StageDevice> devices,
                                            std::int64_t least) {
  return StagePartitioner{layers, devices, least}.tradeoffs();
}

}  // namespace orrery
