// SPDX-License-Identifier: Apache-2.0
// Laws of matrix products. The numbers below are the blocking of the host kernels: the shape of the time, not its size.
#include <algorithm>
#include <cmath>

#include "hw_models/host_laws.hpp"

namespace orrery {
namespace {

constexpr double kTileRows = 8, kRowsAtOnce = 32, kHeight = 128, kWidth = 1024, kDepth = 256, kFewDepth = 8, kLine = 64,
                 kRowsInCache = 16384;
constexpr double kAliased = 4096;  // bytes between rows of C that lie in the same sets of a core's first cache
constexpr double kMillion = 1e6, kLeast = 1e-12;

double round_up(double a, double b) { return std::ceil(a / b) * b; }
/// Columns of a register tile: two vectors.
double tile_cols(DType t) { return t == DType::F64 ? 16 : 32; }

Gemm product(const Work& work) {
  if (const auto* g = std::get_if<GroupedGemm>(&work)) return even_groups(*g);
  return std::get<Gemm>(work);
}

/// Matrices of a batch that the kernel computes as one: rows of A and C follow each other and B is the same.
constexpr Feature kGemmFeatures[] = {
    {"call", Spends::Overhead, "op"},
    {"matrix", Spends::Overhead, "matrix of the batch"},
    {"math", Spends::Math, "10^6 FLOP of whole tiles"},
    {"pack_a", Spends::Math, "10^6 elements of A, each time they are packed"},
    {"pack_b", Spends::Math, "10^6 elements of B"},
    {"panel", Spends::Memory, "10^6 packed elements of B, each time a block of rows reads them"},
    {"panel_far", Spends::Memory, "MB of packed B, each time a block of rows reads them, beyond the second-level cache",
     kMostPerMegabyte},
    {"tile", Spends::Math, "10^6 tiles, each time"},
    {"edge", Spends::Math, "10^6 tiles that are not whole, each time"},
    {"result", Spends::Memory, "10^6 elements of C, each time they are read or written"},
    {"aliased", Spends::Memory, "the same, of rows that are a multiple of 4 KB apart"},
    {"a_far", Spends::Memory, "MB of A beyond the second-level cache, each time", kMostPerMegabyte},
    {"b_far", Spends::Memory, "MB of B beyond the second-level cache", kMostPerMegabyte},
    {"c_far", Spends::Memory, "MB of C beyond the second-level cache, each time", kMostPerMegabyte},
    {"c_again", Spends::Memory, "MB of C, each time a block of k comes back to them, beyond the second-level cache",
     kMostPerMegabyte},
    {"c_warm", Spends::Memory, "MB of C that have left the second-level cache since their last use", kMostPerMegabyte},
    {"warm", Spends::Memory, "MB of B that have left the second-level cache since their last use", kMostPerMegabyte},
    {"a_warm", Spends::Memory, "MB of A that have left the second-level cache since their last use", kMostPerMegabyte},
    {"cold", Spends::Memory, "MB of B that have left the last cache since their last use", kMostPerMegabyte, 1},
    {"cold_first", Spends::Memory, "the same, of the first block of k (B transposed)", kMostPerMegabyte},
    {"a_cold", Spends::Memory, "MB of A that have left the last cache since their last use", kMostPerMegabyte, 1},
    {"c_cold", Spends::Memory, "MB of C that have left the last cache since their last use", kMostPerMegabyte, 2},
    {"dram", Spends::Memory, "MB of all operands beyond the last cache", kMostPerMegabyte},
    {"call_cold", Spends::Overhead, "op, as far as its step does not fit into the second-level cache",
     kMostPerColdCall}};
constexpr std::string_view kGemmAxes[] = {"m", "n", "k", "mflop"};

/// Time of a packed product C[m,n] (+)= op(A)·op(B), batch of b, with tiles of 8 × 32, blocks of k by 256 and of n by
/// 1024:
///
///   t = call + b·matrix + math·2·b·⌈m⌉₈·⌈n⌉₃₂·k + pack_a·b·m·k·⌈n/1024⌉ + pack_b·b·k·n
///     + (panel + panel_far, as far as the near cache does not hold what passes between)·b·k·n·⌈m/128⌉
///     + (tile·tiles + edge·cut tiles)·⌈k/256⌉ + (result + aliased, of some n)·b·m·n·(2·⌈k/256⌉ − 1 + acc)
///     + what misses caches of A, B, C and of all
///
/// ⌈x⌉ᵣ rounds up to a multiple of r. All of the packed block of B, up to 1 MB, is read for each 32 rows, between which
/// these rows of A and C pass, too: where that fills the second-level cache (2 MB of an Emerald Rapids), products of
/// 1,024 columns and more were predicted 3 to 8 % too fast and those of 128 1 to 2 % too slow without panel_far. Rows
/// of C that are a multiple of 4 KB apart meet in a few sets of the first cache: 3 to 5 % more. A is fetched while the
/// block before it is multiplied, B is not: hence a_warm apart from warm (an element of B took 0.2 ns longer from the
/// last cache; in one term with A, products of 16 to 64 rows whose B is near were predicted 8 to 15 % too slow). What a
/// row of Bᵀ has beyond the first block is fetched ahead while that is read: hence cold_first (rows of 64, 256, 512 and
/// 1,024 elements took 0.42, 0.30, 0.20 and 0.16 ns per element longer from memory than from a cache). Leaves out that
/// a row of C takes 10 to 17 ns longer from the last cache, however long it is, other conflicts of power-of-two
/// strides, and the shorter last block of k. Coefficients, one set for each pair of
/// transposes: `gemm.*` of the host's parameter file, fitted by calibrate.
FeatureRow gemm_values(const LawInput& in, const Caches& caches) {
  const Gemm g = product(in.work);
  const double b = double(g.batch), m = double(g.m), n = double(g.n), k = double(g.k), item = bits(g.dtype) / 8.0;
  const double passes_n = std::ceil(n / kWidth), passes_k = std::ceil(k / kDepth);
  const double c_passes = 2 * passes_k - 1 + (g.accumulate ? 1 : 0);
  const double tiles = std::ceil(m / kTileRows) * std::ceil(n / tile_cols(g.dtype));
  const double whole = std::floor(m / kTileRows) * std::floor(n / tile_cols(g.dtype));
  const Bytes a_size{m * k * item}, b_size{k * n * item}, c_size{m * n * item};
  const double mb = b * item / kMillion;
  // Between two blocks of k all rows of C and A pass, and the block of B, of as many columns as are done at once;
  // between two readings of that block a few rows.
  const double wide = std::min(n, kWidth), deep = std::min(k, kDepth);
  const auto passing = [&](double rows) { return Bytes{item * (rows * wide + rows * deep + deep * wide)}; };
  const double panels = k * n * std::ceil(m / kHeight), results = b * m * n * c_passes / kMillion;
  const double cold = lost(in, caches, CacheLevel::Last, {mb * k * n}, {1, 2}).read;
  return {1,
          b,
          2 * b * round_up(m, kTileRows) * round_up(n, tile_cols(g.dtype)) * k / kMillion,
          b * m * k * passes_n / kMillion,
          b * k * n / kMillion,
          b * panels / kMillion,
          mb * panels * spill(passing(std::min(m, kRowsAtOnce)), caches.l2),
          b * tiles * passes_k / kMillion,
          b * (tiles - whole) * passes_k / kMillion,
          results,
          std::fmod(n * item, kAliased) == 0 ? results : 0,
          mb * m * k * passes_n * spill(a_size, caches.l2),
          mb * k * n * spill(b_size, caches.l2),
          mb * m * n * c_passes * spill(c_size, caches.l2),
          2 * mb * m * n * (passes_k - 1) * spill(passing(m), caches.l2),
          lost(in, caches, CacheLevel::Second, {0, mb * m * n}, {2}).written,
          lost(in, caches, CacheLevel::Second, {mb * k * n}, {1, 2}).read,
          lost(in, caches, CacheLevel::Second, {mb * m * k}, {0, 1}).read,
          cold,
          g.transpose_b ? cold * std::min(1.0, kDepth / k) : 0,
          lost(in, caches, CacheLevel::Last, {mb * m * k}, {0, 1}).read,
          lost(in, caches, CacheLevel::Last, {0, mb * m * n}, {2}).written,
          mb * (m * k + k * n + m * n) * spill(b * (a_size + b_size + c_size), caches.l3),
          evicted(reuse_distance(in, b * (a_size + b_size + c_size)), caches, CacheLevel::Second)};
}

AxisRow gemm_sizes(const LawInput& in) {
  const Gemm g = product(in.work);
  return {double(g.m), double(g.n), double(g.k),
          2 * double(g.batch) * double(g.m) * double(g.n) * double(g.k) / kMillion};
}

constexpr Feature kFewFeatures[] = {
    {"call", Spends::Overhead, "op"},
    {"matrix", Spends::Overhead, "matrix of the batch"},
    {"math", Spends::Math, "10^6 FLOP"},
    {"pack_a", Spends::Math, "10^6 elements of A"},
    {"stream_b", Spends::Memory, "10^6 elements of B"},
    {"few", Spends::Memory, "10^6 elements of B, with one row of A; with two half as much"},
    {"split", Spends::Memory, "10^6 elements of B whose rows do not begin with a cache line"},
    {"result", Spends::Memory, "10^6 elements of C, each time they are read or written (B straight)"},
    {"column", Spends::Math, "10^6 sums over k, each time as much of A as stays near is used up (B transposed)"},
    {"reload", Spends::Math, "10^6 elements of A, each time they are read (B transposed)"},
    {"tail", Spends::Math, "10^6 multiplications (B straight) or sums (B transposed) of what does not fill a vector"},
    {"b_warm", Spends::Memory, "MB of B that have left the second-level cache since their last use", kMostPerMegabyte},
    {"b_cold_2", Spends::Memory, "MB of B that have left the last cache since their last use, of one or two rows of A",
     kMostPerMegabyte, 1},
    {"b_cold_4", Spends::Memory, "the same, of three or four rows", kMostPerMegabyte, 1},
    {"b_cold_8", Spends::Memory, "the same, of five to eight rows", kMostPerMegabyte, 1},
    {"run_cold", Spends::Memory, "10^6 pieces of B that lie together, as far as B has left the last cache",
     kMostPerMillionRows},
    {"b_wide", Spends::Memory, "MB of B that have left the last cache, as far as their step passes over 128 MiB",
     kMostPerMegabyte},
    {"call_cold", Spends::Overhead, "op, as far as its step does not fit into the second-level cache",
     kMostPerColdCall}};

/// Time of a product with at most 8 rows, which reads B once where it lies:
///
///   t = call + b·matrix + math·2·b·m·n·k + pack_a·b·m·k
///     + (stream_b + few·(3 − m)⁺/2 + split, of rows that do not begin with a cache line)·b·k·n
///     + result·b·m·n·k/8 + tail·b·m·k·(n mod lanes) (B straight)
///     or column·b·m·n·⌈A / 16 KB⌉ + reload·b·m·n·k/c + tail·b·m·n if k does not fill vectors (B transposed; c columns
///     at once: 4, of seven and eight rows 2)
///     + (b_warm, b_cold_2, b_cold_4 or b_cold_8) · what of B has left a cache + run_cold·rows of it
///     + b_wide·what of B has left the last cache·x²/(1 + x²), x = W / 128 MiB + call_cold
///
/// Rows are multiplied while B is fetched: more than two take longer than loads from a near cache, eight nearly as long
/// as loads from memory. So what is left to wait for falls with m: few and b_cold_*, in steps, as where it ends is up
/// to the processor. What fetches ahead by itself starts anew with each row of B: hence run_cold. The more a step
/// passes over, the longer the way to what tells where its pages are, the more so for a virtual machine: hence b_wide
/// (one or two rows read B at 35 GB/s where steps pass over 28 to 56 MB of a Zen 5 of 32 MB of last cache, at 29 and 23
/// GB/s, B straight and transposed, where 112, at 27 and 18 where 160; at 28, 20 and 14 where 40, 80 and 112 MB on an
/// Intel Xeon). Coefficients: `gemm.few_*`.
FeatureRow few_rows_values(const LawInput& in, const Caches& caches) {
  const Gemm g = product(in.work);
  const double b = double(g.batch), m = double(g.m), n = double(g.n), k = double(g.k), item = bits(g.dtype) / 8.0;
  const double lanes = tile_cols(g.dtype) / 2, columns = m > 6 ? 2 : 4;
  const double row = g.transpose_b ? k : n, left = std::fmod(row, lanes);
  const double tail = g.transpose_b ? n * (left > 0 ? 1 : 0) : k * left;
  const Bytes size{b * k * n * item}, step = reuse_distance(in, size);
  const Moved moved{size.base() / kMillion};
  const double cold = lost(in, caches, CacheLevel::Last, moved, {1, 2}).read, elements = b * k * n / kMillion;
  return {1,
          b,
          2 * b * m * n * k / kMillion,
          b * m * k / kMillion,
          elements,
          elements * std::max(0.0, (3 - m) / 2),
          std::fmod(row * item, kLine) > 0 ? elements : 0,
          g.transpose_b ? 0 : b * m * n * std::ceil(k / kFewDepth) / kMillion,
          g.transpose_b ? b * m * n * std::ceil(m * k * item / kRowsInCache) / kMillion : 0,
          g.transpose_b ? b * m * n * k / columns / kMillion : 0,
          b * m * tail / kMillion,
          lost(in, caches, CacheLevel::Second, moved, {1, 2}).read,
          m <= 2 ? cold : 0,
          m > 2 && m <= 4 ? cold : 0,
          m > 4 ? cold : 0,
          b * (g.transpose_b ? n : k) / kMillion * cold / std::max(moved.read, kLeast),
          cold * spill(step, kTranslated),
          evicted(step, caches, CacheLevel::Second)};
}

}  // namespace

const LawForm& gemm_form() {
  static constexpr LawForm kForm{
      "gemm", "packed matrix product", Knob::GemmRate, kGemmFeatures, gemm_values, kGemmAxes, gemm_sizes};
  return kForm;
}

const LawForm& few_rows_form() {
  static constexpr LawForm kForm{
      "few_rows", "matrix product with at most 8 rows", Knob::GemmRate, kFewFeatures, few_rows_values, kGemmAxes,
      gemm_sizes};
  return kForm;
}

}  // namespace orrery
