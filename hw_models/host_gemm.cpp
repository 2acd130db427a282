// SPDX-License-Identifier: Apache-2.0
// Laws of matrix products. The numbers below are the blocking of the host kernels: the shape of the time, not its size.
#include <algorithm>
#include <cmath>

#include "hw_models/host_laws.hpp"

namespace orrery {
namespace {

constexpr double kTileRows = 8, kHeight = 128, kWidth = 1024, kDepth = 256, kFewDepth = 8;
constexpr double kMillion = 1e6;

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
    {"tile", Spends::Math, "10^6 tiles, each time"},
    {"edge", Spends::Math, "10^6 tiles that are not whole, each time"},
    {"result", Spends::Memory, "10^6 elements of C, each time they are read or written"},
    {"a_far", Spends::Memory, "MB of A beyond the second-level cache, each time"},
    {"b_far", Spends::Memory, "MB of B beyond the second-level cache"},
    {"c_far", Spends::Memory, "MB of C beyond the second-level cache, each time"},
    {"cold", Spends::Memory, "MB of B that have left the last cache since their last use"},
    {"dram", Spends::Memory, "MB of all operands beyond the last cache"}};
constexpr std::string_view kGemmAxes[] = {"m", "n", "k", "mflop"};

/// Time of a packed product C[m,n] (+)= op(A)·op(B), batch of b, with tiles of 8 × 32, blocks of k by 256 and of n by
/// 1024:
///
///   t = call + b·matrix + math·2·b·⌈m⌉₈·⌈n⌉₃₂·k + pack_a·b·m·k·⌈n/1024⌉ + pack_b·b·k·n + panel·b·k·n·⌈m/128⌉
///     + (tile·tiles + edge·cut tiles)·⌈k/256⌉ + result·b·m·n·(2·⌈k/256⌉ − 1 + acc) + what misses caches of A, B, C and
///     of all
///
/// ⌈x⌉ᵣ rounds up to a multiple of r. Leaves out conflicts of power-of-two strides in caches, and the shorter last
/// block of k. Coefficients, one set for each pair of transposes: `gemm.*` of the host's parameter file, fitted by
/// calibrate.
FeatureRow gemm_values(const LawInput& in, const Caches& caches) {
  const Gemm g = product(in.work);
  const double b = double(g.batch), m = double(g.m), n = double(g.n), k = double(g.k), item = bits(g.dtype) / 8.0;
  const double passes_n = std::ceil(n / kWidth), passes_k = std::ceil(k / kDepth);
  const double c_passes = 2 * passes_k - 1 + (g.accumulate ? 1 : 0);
  const double tiles = std::ceil(m / kTileRows) * std::ceil(n / tile_cols(g.dtype));
  const double whole = std::floor(m / kTileRows) * std::floor(n / tile_cols(g.dtype));
  const Bytes a_size{m * k * item}, b_size{k * n * item}, c_size{m * n * item};
  const double mb = b * item / kMillion;
  return {1,
          b,
          2 * b * round_up(m, kTileRows) * round_up(n, tile_cols(g.dtype)) * k / kMillion,
          b * m * k * passes_n / kMillion,
          b * k * n / kMillion,
          b * k * n * std::ceil(m / kHeight) / kMillion,
          b * tiles * passes_k / kMillion,
          b * (tiles - whole) * passes_k / kMillion,
          b * m * n * c_passes / kMillion,
          mb * m * k * passes_n * spill(a_size, caches.l2),
          mb * k * n * spill(b_size, caches.l2),
          mb * m * n * c_passes * spill(c_size, caches.l2),
          mb * k * n * spill(g.transpose_a ? kReuseDistance * b * b_size : reuse_distance(in, b * b_size), caches.l3),
          mb * (m * k + k * n + m * n) * spill(b * (a_size + b_size + c_size), caches.l3)};
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
    {"result", Spends::Memory, "10^6 elements of C, each time they are read or written"},
    {"column", Spends::Math, "10^6 sums over k (B transposed)"},
    {"b_warm", Spends::Memory, "MB of B that have left the second-level cache since their last use"},
    {"b_far", Spends::Memory, "MB of B beyond the second-level cache"},
    {"b_cold", Spends::Memory, "MB of B that have left the last cache since their last use"},
    {"dram", Spends::Memory, "MB of B beyond the last cache"}};

/// Time of a product with at most 8 rows, which reads B once where it lies:
///
///   t = call + b·matrix + math·2·b·m·n·k + pack_a·b·m·k + stream_b·b·k·n + result·b·m·n·k/8 (B straight) +
///   column·b·m·n (B transposed)
///     + what of B misses caches
///
/// Leaves out that the registers fit five to eight rows less well than one to four. Coefficients: `gemm.few_*`.
FeatureRow few_rows_values(const LawInput& in, const Caches& caches) {
  const Gemm g = product(in.work);
  const double b = double(g.batch), m = double(g.m), n = double(g.n), k = double(g.k), item = bits(g.dtype) / 8.0;
  const double mb = b * k * n * item / kMillion;
  const Bytes size{b * k * n * item};
  return {1,
          b,
          2 * b * m * n * k / kMillion,
          b * m * k / kMillion,
          b * k * n / kMillion,
          g.transpose_b ? 0 : b * m * n * std::ceil(k / kFewDepth) / kMillion,
          b * m * n / kMillion,
          mb * spill(reuse_distance(in, size), caches.l2),
          mb * spill(size, caches.l2),
          mb * spill(reuse_distance(in, size), caches.l3),
          mb * spill(size, caches.l3)};
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
