// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "hw_models/gpu_laws.hpp"

namespace orrery {
namespace {

enum : std::size_t { kLaunch, kRate, kWave, kMemory, kRouting, kLoop };
constexpr LawParameter kParameters[] = {{"launch", 1.5e-5, 0.1}, {"rate", 0.6, 0.1},    {"wave", 1e-6, 0.1},
                                        {"memory", 0.8, 0.5},    {"routing", 0.5, 0.1}, {"loop", 50, 0.1}};
struct Tile {
  double m, n, share;  // share of the rate of the largest
};
constexpr Tile kTiles[] = {{128, 128, 1.0}, {64, 128, 0.85}, {32, 128, 0.6}, {16, 128, 0.4}};
constexpr double kRowKnots[] = {-6, -3, -1, 1, 3, 5, 7, 9, 12, 15}, kGroupKnots[] = {0, 2, 4, 6, 8},
                 kWidthKnots[] = {6, 9, 11, 13, 16}, kSkewKnots[] = {2, 3, 4};
constexpr LawAxis kAxes[] = {
    {"rows_per_group", kRowKnots}, {"groups", kGroupKnots}, {"narrow_side", kWidthKnots}, {"skew", kSkewKnots}};
constexpr std::size_t kQuantiles = 8;

double power4(double x) { return x * x * x * x; }

/// Rows of groups at equally spaced quantiles: even, or log-uniform with `skew` = most / mean = X·ln X / (X − 1).
std::array<double, kQuantiles> loads(double mean, double skew) {
  std::array<double, kQuantiles> out;
  double ratio = std::exp(skew);
  for (int i = 0; i < 3 && skew > 1.01; ++i) ratio = std::exp(skew * (1 - 1 / ratio));
  double sum = 0;
  for (std::size_t i = 0; i < kQuantiles; ++i)
    sum += out[i] = skew > 1.01 ? std::pow(ratio, (double(i) + 0.5) / kQuantiles) : 1.0;
  for (double& x : out) x *= mean * kQuantiles / sum;
  return out;
}

/// Time of one product per group over its rows. Groups without rows cost nothing; their number and that of the tiles
/// follow from the loads' quantiles xᵤ:
///
///   active = groups · mean(1 − e^−xᵤ),   tiles(tm) = groups · mean(xᵤ/tm + ½, or 1 − e^−xᵤ below one tile) · ⌈n/tn⌉
///   t = launch + min over tiles ( math⁴ + memory⁴ )^¼ + ( rows routed in and out · routing + casts ) / bandwidth
///   math = max(1, tiles/SMs + ½) · ( 2·tm·tn·(k + loop) / (peak/SMs·rate) + wave )
///   memory = ( weights of active groups + rows ) / ( bandwidth·memory·min(1, 2·tiles/SMs) )
///
/// Tiles of few rows lose rate, but for weights in fewer bits: kernels for these lay the rows along the side of the
/// tensor cores that may be narrow.
/// A product of weight gradients (k summed over rows) is taken as groups of [k, n] over the rows. Leaves out the order
/// of groups. Parameters: fits of tables of kernels.
LawTime time_of(const double* p, const Work& work, const Bindings&, const GpuFacts& gpu) {
  const GroupedGemm& g = std::get<GroupedGemm>(work);
  const bool gradient = g.mode == GroupedMode::WeightGradient;
  const double groups = double(g.groups), mean = double(g.rows) / groups, element = bits(g.arithmetic()) / 8.0;
  const double n = double(g.mode == GroupedMode::InputGradient ? g.k : g.n);
  const double k = double(g.mode == GroupedMode::InputGradient ? g.n : g.k);
  const auto x = loads(gradient ? k : mean, gradient ? 1.0 : std::max(1.0, g.skew));
  double active = 0;
  for (const double v : x) active += groups * (1 - std::exp(-v)) / kQuantiles;
  const double weight = size_quantised(g.weights, g.arithmetic(), kScaledRun).base() / double(kScaledRun);
  const double bytes = weight * active * n * k + element * double(g.rows) * (n + k);
  LawTime t;
  const bool swapped = g.weights != Quantised::None;
  double best = HUGE_VAL;
  for (const Tile& tile : kTiles) {
    double rows = 0;
    for (const double v : x) rows += v > tile.m ? v / tile.m + 0.5 : 1 - std::exp(-v);
    const double tiles = groups * rows / kQuantiles * std::ceil(n / tile.n), filled = tiles / gpu.sms;
    const double inner = gradient ? mean : k;
    const double rate = gpu.peak * p[kRate] * (swapped ? 1.0 : tile.share);
    const double math = std::max(1.0, filled > 1 ? filled + 0.5 : 1.0) *
                        (2 * tile.m * tile.n * (inner + p[kLoop]) * gpu.sms / rate + p[kWave]);
    const double memory = bytes / (gpu.bandwidth * p[kMemory] * std::min(1.0, 2 * filled));
    const double fourth = power4(math) + power4(memory);
    if (fourth < best) best = fourth, t.math = math, t.memory = memory, t.sm_share = std::min(1.0, filled);
  }
  if (gpu.sustained > 0) t.math /= gpu.sustained;
  t.launch = p[kLaunch] * gpu.launch;
  const double routed = (double(g.rows) * (n + k) * element * p[kRouting] + g.casts().base()) / gpu.bandwidth;
  t.seconds = t.launch + std::sqrt(std::sqrt(power4(t.math) + power4(t.memory))) + routed;
  t.memory += routed;
  t.axes = {std::log2(mean), std::log2(groups), std::log2(std::min(n, k)), std::log2(std::max(1.0, g.skew))};
  return t;
}

}  // namespace

const GpuLawForm& grouped_gemm_law() {
  static constexpr GpuLawForm kForm{"grouped_gemm", kParameters, kAxes, {}, time_of};
  return kForm;
}

}  // namespace orrery
