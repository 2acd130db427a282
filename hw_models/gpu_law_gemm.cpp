// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "hw_models/gpu_laws.hpp"

namespace orrery {
namespace {

struct Tile {
  double m, n;
};
constexpr Tile kTiles[] = {{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}};
constexpr double kSplits[] = {1, 2, 3, 4, 6, 8, 16};
constexpr std::size_t kNumTiles = std::size(kTiles);
enum : std::size_t {
  kLaunch = kNumTiles,
  kWave,
  kMemory,
  kLatency,
  kPartial,
  kFill,
  kHeat,
  kConvert,
  kConvertRate,
  kConvertK
};

constexpr LawParameter kParameters[] = {
    {"tile_256x128", 0.75, 0.3}, {"tile_128x256", 0.75, 0.3}, {"tile_128x128", 0.75, 0.3}, {"tile_128x64", 0.7, 0.3},
    {"tile_64x128", 0.7, 0.3},   {"tile_64x64", 0.6, 0.3},    {"launch", 2e-6, 0.3},       {"wave", 0.5e-6, 0.3},
    {"memory", 0.85, 1},         {"latency", 0.5e-6, 0.3},    {"partial", 0.5, 0.3},       {"fill", 0.4, 0.3},
    {"heat", 0.02, 0.3},         {"convert", 8e-6, 0.3},      {"convert_rate", 0.5, 0.3},  {"convert_k", 1e-10, 0.3}};
constexpr double kKnots[] = {0, 3, 5, 7, 9, 11, 13, 16}, kBatchKnots[] = {0, 4, 8, 12};
/// In m where tables have rows: between them a correction swings.
constexpr double kRowKnots[] = {0, 4, 6, 8, 10, 12, 14, 16};
constexpr LawAxis kAxes[] = {{"m", kRowKnots}, {"n", kKnots}, {"k", kKnots}, {"batch", kBatchKnots}};
constexpr std::string_view kMarks[] = {"balance", "near_balance", "knee", "filled", "filled_squared"};
constexpr double kHeatAfter = 0.2e-3;
constexpr double kLeastSide = 64, kLane = 8;  // of a tile; of what vector units leave out of one

double power4(double x) { return x * x * x * x; }

struct Choice {
  double fourth = HUGE_VAL;  // (math⁴ + memory⁴)
  double math = 0, memory = 0, filled = 1, busy = 1;
};

/// Side of the tile for a product of fewer rows or columns than the smallest tile: matrix units multiply all of it,
/// kernels for vector units have smaller ones.
double side_of(double side, std::int64_t size, DType type) {
  const bool vector_units = type == DType::F32 || type == DType::F64;
  return vector_units && side == kLeastSide ? std::min(side, kLane * std::ceil(double(size) / kLane)) : side;
}

/// One tile and split of k; keeps the better.
void consider(const double* p, std::size_t t, const Tile& tile, double split, double tiles, double k, double bytes,
              const GpuFacts& g, Choice& best) {
  const double units = tiles * split, waves = std::ceil(units / g.sms);
  const double math = waves * (2 * tile.m * tile.n * std::ceil(k / split) * g.sms / (g.peak * p[t]) + p[kWave]);
  const double sums = split > 1 ? 8 * split * tile.m * tile.n * tiles * p[kPartial] : 0;
  const double busy = std::min(1.0, units / g.sms), streams = std::min(1.0, busy / p[kFill]);
  const double memory = (bytes / streams + sums) / (g.bandwidth * p[kMemory]) + p[kLatency];
  const double fourth = power4(math) + power4(memory);
  if (fourth < best.fourth) best = {fourth, math, memory, units / (waves * g.sms), busy};
}

Choice choose(const double* p, const Gemm& g, double bytes, const GpuFacts& gpu) {
  Choice best;
  for (std::size_t t = 0; t < kNumTiles; ++t) {
    const double tiles = double(g.batch) * std::ceil(double(g.m) / kTiles[t].m) * std::ceil(double(g.n) / kTiles[t].n);
    const Tile tile{side_of(kTiles[t].m, g.m, g.arithmetic()), side_of(kTiles[t].n, g.n, g.arithmetic())};
    for (const double split : kSplits) {
      if (split > 1 && (tiles * split > 8 * gpu.sms || split > double(g.k) / 64)) break;
      consider(p, t, tile, split, tiles, double(g.k), bytes, gpu, best);
    }
  }
  return best;
}

/// Time of C[m,n] = A[m,k]·B[k,n], `batch` of them:
///
///   t = launch + min over tiles and splits s of k of ( math⁴ + memory⁴ )^¼
///   math   = ⌈tiles·s / SMs⌉ · ( 2·tm·tn·⌈k/s⌉ / (peak/SMs · eff(tile)) + wave )
///   memory = ( bytes / min(1, busy SMs / (fill·SMs)) + partial sums · partial ) / (bandwidth · memory) + latency
///
/// On vector units (32 and 64 bits) tm or tn of 64 is no more than m or n, to the next 8: tables have 64 and more.
/// math grows by 1 + heat·ln(1 + math / 0.2 ms): clocks fall while a kernel lasts, where the op stands alone; in a plan
/// by 1/sustained. Weights that are stored in fewer bits than they are multiplied in cost their bytes only. Leaves out
/// the order in which tiles use L2. Parameters: fits of tables of kernels.
LawTime time_of(const double* p, const Work& work, const Bindings&, const GpuFacts& gpu) {
  const Gemm& g = std::get<Gemm>(work);
  const double element = bits(g.arithmetic()) / 8.0, result = std::max(2.0, bits(g.output()) / 8.0);
  const double rows = double(g.batch) * double(g.m) * double(g.k) * element;
  const double weights = size_quantised(g.weights, g.arithmetic(), g.batch * g.k * g.n).base();
  const double outputs = double(g.batch) * double(g.m) * double(g.n) * (g.accumulate ? 2 : 1);
  const double bytes = rows + weights + outputs * result;
  const Choice c = choose(p, g, bytes, gpu);
  const double slow = gpu.sustained > 0 ? 1 / gpu.sustained : 1 + p[kHeat] * std::log1p(c.math / kHeatAfter);
  const double math = c.math * slow;
  LawTime t;
  t.launch = p[kLaunch] * gpu.launch;
  t.math = math;
  t.memory = c.memory;
  t.sm_share = c.busy;
  t.seconds = t.launch + std::sqrt(std::sqrt(power4(math) + power4(c.memory)));
  const double balance = std::clamp(std::log(c.math / c.memory), -3.0, 3.0), near = std::clamp(balance, -1.0, 1.0);
  t.axes = {std::log2(double(g.m)), std::log2(double(g.n)), std::log2(double(g.k)), std::log2(double(g.batch))};
  t.marks = {balance, near, std::abs(near), c.filled, c.filled * c.filled};
  return t;
}

/// The same with the conversion of A from 16 bits, as inference does it before each product:
///
///   t += convert + m·k·(2 + bytes of an element) / (bandwidth · convert_rate) + k · convert_k
///
/// the last for the one block that scales a row. A product that casts both operands (`narrow`) adds n·k likewise.
/// All three times GpuFacts::conversion: engines that know the scales beforehand convert in the op before.
LawTime narrow_time_of(const double* p, const Work& work, const Bindings& b, const GpuFacts& gpu) {
  const Gemm& g = std::get<Gemm>(work);
  LawTime t = time_of(p, work, b, gpu);
  const double converted = double(g.batch) * double(g.k) * double(g.narrow != Narrow::None ? g.m + g.n : g.m);
  const double traffic = converted * (2 + bits(g.arithmetic()) / 8.0);
  const double convert = gpu.conversion * (traffic / (gpu.bandwidth * p[kConvertRate]) + double(g.k) * p[kConvertK]);
  const double launch = gpu.conversion * p[kConvert] * gpu.launch;
  t.launch += launch;
  t.memory += convert;
  t.seconds += launch + convert;
  return t;
}

}  // namespace

const GpuLawForm& gemm_law() {
  static constexpr GpuLawForm kForm{"gemm", {kParameters, kConvert}, kAxes, kMarks, time_of};
  return kForm;
}

const GpuLawForm& narrow_gemm_law() {
  static constexpr GpuLawForm kForm{"narrow_gemm", kParameters, kAxes, kMarks, narrow_time_of};
  return kForm;
}

}  // namespace orrery
