// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/host/gemm.hpp"
#include "kernels/host/processor.hpp"
#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;

namespace {

/// A product with every feature: leading dimensions larger than the matrices, a batch, alpha, bias.
struct Case {
  GemmDims dims;
  Transpose ta, tb;
  Write write = Write::Overwrite;
  bool bias = false;
  std::int64_t batch = 1;
  bool broadcast_b = false;
};

constexpr std::int64_t kPad = 3;
constexpr double kAlpha = 0.75;

struct Data {
  std::int64_t rows_a, cols_a, rows_b, cols_b;
  Values a, b, c, bias;

  explicit Data(const Case& s, unsigned seed) {
    const auto [m, n, k] = s.dims;
    rows_a = s.ta == Transpose::No ? m : k, cols_a = (s.ta == Transpose::No ? k : m) + kPad;
    rows_b = s.tb == Transpose::No ? k : n, cols_b = (s.tb == Transpose::No ? n : k) + kPad;
    a = random_values(s.batch * rows_a * cols_a, seed);
    b = random_values((s.broadcast_b ? 1 : s.batch) * rows_b * cols_b, seed + 1);
    c = random_values(s.batch * m * (n + kPad), seed + 2);
    bias = random_values(n, seed + 3);
  }
};

Values naive(const Case& s, const Data& d) {
  const auto [m, n, k] = s.dims;
  Values c = d.c;
  for (std::int64_t g = 0; g < s.batch; ++g)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        const double* a = d.a.data() + g * d.rows_a * d.cols_a;
        const double* b = d.b.data() + (s.broadcast_b ? 0 : g) * d.rows_b * d.cols_b;
        double sum = 0;
        for (std::int64_t p = 0; p < k; ++p)
          sum += (s.ta == Transpose::No ? a[i * d.cols_a + p] : a[p * d.cols_a + i]) *
                 (s.tb == Transpose::No ? b[p * d.cols_b + j] : b[j * d.cols_b + p]);
        double& out = c[static_cast<std::size_t>((g * m + i) * (n + kPad) + j)];
        out = kAlpha * sum + (s.write == Write::Accumulate ? out : 0) +
              (s.bias ? d.bias[static_cast<std::size_t>(j)] : 0);
      }
  return c;
}

template <class T>
double error(const Case& s, unsigned seed) {
  const Data d{s, seed};
  const std::int64_t m = s.dims.m, n = s.dims.n;
  const auto a = as<T>(d.a), b = as<T>(d.b), bias = as<T>(d.bias);
  auto c = as<T>(d.c);
  if (s.write == Write::Overwrite)  // what is written is poisoned, the padding of the rows is not
    for (std::int64_t r = 0; r < s.batch * m; ++r) std::fill_n(c.begin() + r * (n + kPad), n, T(NAN));
  Workspace workspace{gemm_workspace(s.dims, sizeof(T))};
  run([&] {
    gemm<T>({.dims = s.dims,
             .transpose_a = s.ta,
             .transpose_b = s.tb,
             .a = a.data(),
             .lda = d.cols_a,
             .b = b.data(),
             .ldb = d.cols_b,
             .c = c.data(),
             .ldc = n + kPad,
             .batch = s.batch,
             .stride_a = d.rows_a * d.cols_a,
             .stride_b = s.broadcast_b ? 0 : d.rows_b * d.cols_b,
             .stride_c = m * (n + kPad),
             .alpha = T(kAlpha),
             .write = s.write,
             .bias = s.bias ? bias.data() : nullptr,
             .workspace = workspace.data()});
  });
  CHECK(workspace.intact());
  return distance(c, naive(s, d));
}

void check(const Case& s) {
  const unsigned seed = static_cast<unsigned>(s.dims.m * 1000003 + s.dims.n * 1009 + s.dims.k);
  INFO("seed " << seed << " m " << s.dims.m << " n " << s.dims.n << " k " << s.dims.k << " ta " << int(s.ta) << " tb "
               << int(s.tb) << " accumulate " << int(s.write) << " bias " << s.bias);
  CHECK(error<double>(s, seed) < 1e-14);
  CHECK(error<float>(s, seed) < 1e-6);
}

constexpr Transpose kBoth[] = {Transpose::No, Transpose::Yes};

}  // namespace

TEST_CASE("a GEMM equals the triple loop for all transposes and sizes around its tiles", "[kernels]") {
  for (const Transpose ta : kBoth)
    for (const Transpose tb : kBoth)
      for (const std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 130})
        for (const std::int64_t n : {1, 15, 32, 67})
          for (const std::int64_t k : {1, 8, 19, 300}) check({.dims = {m, n, k}, .ta = ta, .tb = tb});
}

TEST_CASE("a GEMM wider than its column block is complete", "[kernels]") {
  for (const Transpose ta : kBoth)
    for (const Transpose tb : kBoth) check({.dims = {17, 1060, 270}, .ta = ta, .tb = tb, .bias = true});
}

TEST_CASE("a GEMM accumulates and adds its bias once", "[kernels]") {
  for (const std::int64_t m : {1, 8, 40})
    for (const std::int64_t k : {0, 5, 600})
      for (const bool bias : {false, true})
        for (const Write write : {Write::Overwrite, Write::Accumulate})
          check({.dims = {m, 37, k}, .ta = Transpose::No, .tb = Transpose::Yes, .write = write, .bias = bias});
}

TEST_CASE("a batched GEMM takes strides, and a stride of 0 repeats an operand", "[kernels]") {
  for (const std::int64_t m : {3, 12})
    for (const bool broadcast : {false, true})
      for (const Transpose ta : kBoth)
        check({.dims = {m, 21, 34}, .ta = ta, .tb = Transpose::No, .batch = 3, .broadcast_b = broadcast});
}

TEST_CASE("a grouped GEMM multiplies each group of rows by its own weights, forward and backward", "[kernels]") {
  const std::int64_t k = 13, n = 37;
  const std::vector<std::int32_t> offsets{0, 5, 5, 25, 26};
  const std::int64_t groups = 4, rows = 26;
  const unsigned seed = 11;
  INFO("seed " << seed);
  const Values x = random_values(rows * k, seed), w = random_values(groups * k * n, seed + 1);
  const Values dy = random_values(rows * n, seed + 2), bias = random_values(groups * n, seed + 3);
  Values y(static_cast<std::size_t>(rows * n)), dx(x.size(), 0), dw(w.size(), 0);
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t r = offsets[static_cast<std::size_t>(g)]; r < offsets[static_cast<std::size_t>(g) + 1]; ++r)
      for (std::int64_t j = 0; j < n; ++j) {
        y[static_cast<std::size_t>(r * n + j)] = bias[static_cast<std::size_t>(g * n + j)];
        for (std::int64_t p = 0; p < k; ++p) {
          const auto xi = static_cast<std::size_t>(r * k + p), wi = static_cast<std::size_t>((g * k + p) * n + j);
          const auto yi = static_cast<std::size_t>(r * n + j);
          y[yi] += x[xi] * w[wi];
          dx[xi] += dy[yi] * w[wi];
          dw[wi] += dy[yi] * x[xi];
        }
      }
  Workspace workspace{grouped_gemm_workspace(20, k, n, sizeof(double))};
  auto got_y = poison(rows * n), got_dx = poison(rows * k), got_dw = poison(groups * k * n);
  const GroupedGemmArgs<double> base{
      .groups = groups, .k = k, .n = n, .offsets = offsets.data(), .workspace = workspace.data()};
  run([&] {
    auto args = base;
    args.x = x.data(), args.w = w.data(), args.y = got_y.data(), args.bias = bias.data();
    grouped_gemm(args);
    args = base;
    args.x = dy.data(), args.w = w.data(), args.y = got_dx.data();
    grouped_gemm_input_gradient(args);
    args = base;
    args.x = x.data(), args.w = dy.data(), args.y = got_dw.data();
    grouped_gemm_weight_gradient(args);
  });
  CHECK(workspace.intact());
  CHECK(distance(got_y, y) < 1e-14);
  CHECK(distance(got_dx, dx) < 1e-14);
  CHECK(distance(got_dw, dw) < 1e-14);
}

TEST_CASE("the computer that builds the kernels has their instructions", "[kernels]") {
  CHECK(missing_instructions().empty());
}
