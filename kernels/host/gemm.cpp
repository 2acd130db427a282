// SPDX-License-Identifier: Apache-2.0
// Packed matrix product: B in blocks of kDepth × kWidth that stay in L2/L3, A in blocks of kHeight × kDepth that stay
// in L2, a tile of 8 rows in registers. Few rows (decoding) stream B instead.
#include "kernels/host/gemm.hpp"

#include "kernels/host/gemm_small.hpp"
#include "kernels/host/gemm_tile.hpp"

namespace orrery::kernels {
namespace {

constexpr std::int64_t kHeight = 128, kDepth = 256, kWidth = 1024;
constexpr std::int64_t kRowsAtOnce = 4 * kTileRows;  // that share a panel of B while it is in L1

/// One block of the product: c[m,n] (+)= alpha·a·b (+ bias).
template <class T>
struct Block {
  std::int64_t m, n, k;
  const T* a;  // packed
  const T* b;  // packed
  T* c;
  std::int64_t ldc;
  T alpha;
  const T* bias;
  bool accumulate;
};

template <class T>
void store_tile(const Tile<T>& tile, std::int64_t rows, std::int64_t cols, const Block<T>& s, T* c, const T* bias) {
  for_tile(tile, rows, cols, [&](std::int64_t i, auto at, auto v) {
    T* row = c + i * s.ldc;
    auto y = s.alpha * v;
    if (s.accumulate) y += at(row);
    if (bias) y += at(bias);
    put(row, at.i, y);
  });
}

/// A block that is packed next, fetched into the second-level cache a few rows at a time while this one is multiplied.
template <class T>
class BlockAhead {
 public:
  /// Rows of `width` elements, `ld` apart; in so many parts.
  BlockAhead(const T* x, std::int64_t ld, std::int64_t rows, std::int64_t width, std::int64_t parts)
      : x_{x}, ld_{ld}, rows_{rows}, width_{width}, each_{(rows + parts - 1) / parts} {}
  void fetch() {
    const std::int64_t end = std::min(next_ + each_, rows_);
    for (; next_ < end; ++next_) fetch_lines(x_ + next_ * ld_, width_);
  }

 private:
  const T* x_;
  std::int64_t ld_, rows_, width_, each_, next_ = 0;
};

template <class T>
void multiply_tile_at(const Block<T>& s, std::int64_t i, std::int64_t j) {
  const std::int64_t rows = std::min(kTileRows, s.m - i), cols = std::min(kTileCols<T>, s.n - j);
  T* c = s.c + i * s.ldc + j;
  for (std::int64_t r = 0; r < rows; ++r) fetch_lines<true>(c + r * s.ldc, cols);
  const Tile<T> tile = multiply_tile(s.k, StepRows<T>{s.a + i * s.k, kTileRows}, s.b + j * s.k);
  store_tile(tile, rows, cols, s, c, s.bias ? s.bias + j : nullptr);
}

/// Along a few rows of C, so that a core reads ahead where C is not in its cache: down its columns, a product of 64
/// steps took 1.5 times as long where C came from memory (Sapphire Rapids, 1024 x 1024).
template <class T>
void multiply_block(const Block<T>& s, BlockAhead<T> ahead) {
  for (std::int64_t first = 0; first < s.m; first += kRowsAtOnce)
    for (std::int64_t j = 0; j < s.n; j += kTileCols<T>)
      for (std::int64_t i = first; i < std::min(first + kRowsAtOnce, s.m); i += kTileRows) {
        ahead.fetch();
        multiply_tile_at(s, i, j);
      }
}

template <class T>
constexpr std::int64_t tiles(std::int64_t m, std::int64_t n) {
  return round_up(m, kTileRows) / kTileRows * (padded_cols<T>(n) / kTileCols<T>);
}

/// Where [k,m] of Aᵀ lies as whole rows of one or the other.
template <class T>
BlockAhead<T> block_ahead(const T* a, const BlockStrides& s, std::int64_t k, std::int64_t m, std::int64_t parts) {
  return s.row == 1 ? BlockAhead<T>{a, s.col, m, k, parts} : BlockAhead<T>{a, s.row, m > 0 ? k : 0, m, parts};
}

template <class T>
struct Operands {
  const T* a;
  const T* b;
  T* c;
};

template <class T>
void gemm_packed(const GemmArgs<T>& args, const Operands<T>& x) {
  const auto [m, n, k] = args.dims;
  // (p, i) of op(A)ᵀ and (p, j) of op(B)
  const BlockStrides sa = args.transpose_a == Transpose::No ? BlockStrides{1, args.lda} : BlockStrides{args.lda, 1};
  const BlockStrides sb = args.transpose_b == Transpose::No ? BlockStrides{args.ldb, 1} : BlockStrides{1, args.ldb};
  Arena arena{args.workspace};
  T* packed_a = arena.take<T>(kHeight * std::min(k, kDepth));
  T* packed_b = arena.take<T>(std::min(k, kDepth) * std::min(padded_cols<T>(n), kWidth));
  for (std::int64_t j = 0; j < n; j += kWidth) {
    const std::int64_t width = std::min(kWidth, n - j);
    for (std::int64_t p = 0; p < k; p += kDepth) {
      const std::int64_t depth = std::min(kDepth, k - p);
      pack_panels(depth, width, x.b + p * sb.row + j * sb.col, sb, packed_b);
      for (std::int64_t i = 0; i < m; i += kHeight) {
        const std::int64_t height = std::min(kHeight, m - i);
        const T* a = x.a + p * sa.row + i * sa.col;
        pack_row_tiles(height, depth, a, sa, packed_a);
        const std::int64_t left = std::clamp<std::int64_t>(m - i - height, 0, kHeight);
        multiply_block<T>({height, width, depth, packed_a, packed_b, x.c + i * args.ldc + j, args.ldc, args.alpha,
                           args.bias && p == 0 ? args.bias + j : nullptr, p > 0 || args.write == Write::Accumulate},
                          block_ahead(a + height * sa.col, sa, depth, left, tiles<T>(height, width)));
      }
    }
  }
}

template <class T>
void gemm_one(const GemmArgs<T>& args, const Operands<T>& x) {
  const auto [m, n, k] = args.dims;
  if (k == 0 || m <= kSmallRows) {
    multiply_few_rows<T>({.m = m,
                          .n = n,
                          .k = k,
                          .transpose_a = args.transpose_a,
                          .transpose_b = args.transpose_b,
                          .a = x.a,
                          .lda = args.lda,
                          .b = x.b,
                          .ldb = args.ldb,
                          .c = x.c,
                          .ldc = args.ldc,
                          .alpha = args.alpha,
                          .write = args.write,
                          .bias = args.bias,
                          .packed_a = static_cast<T*>(args.workspace)});
  } else {
    gemm_packed(args, x);
  }
}

}  // namespace

std::size_t gemm_workspace(GemmDims dims, std::size_t element_size) {
  const auto [m, n, k] = dims;
  const std::int64_t lanes2 = 128 / static_cast<std::int64_t>(element_size);
  if (m <= kSmallRows) return static_cast<std::size_t>(kSmallRows * k) * element_size + kSmallRows * 64;
  const std::int64_t depth = std::min(k, kDepth), width = std::min(round_up(n, lanes2), kWidth);
  return cache_lines(static_cast<std::size_t>(kHeight * depth) * element_size) +
         cache_lines(static_cast<std::size_t>(depth * width) * element_size);
}

template <class T>
void gemm(const GemmArgs<T>& args) {
  const bool one = args.batch > 1 && args.dims.m > kSmallRows && args.stride_b == 0 &&
                   args.transpose_a == Transpose::No && args.stride_a == args.dims.m * args.lda &&
                   args.stride_c == args.dims.m * args.ldc;
  if (one) {  // the batch is one taller matrix
    GemmArgs<T> all = args;
    all.dims.m *= args.batch;
    return gemm_one<T>(all, {args.a, args.b, args.c});
  }
  for (std::int64_t b = 0; b < args.batch; ++b)
    gemm_one<T>(args, {args.a + b * args.stride_a, args.b + b * args.stride_b, args.c + b * args.stride_c});
}

template void gemm<float>(const GemmArgs<float>&);
template void gemm<double>(const GemmArgs<double>&);

}  // namespace orrery::kernels
