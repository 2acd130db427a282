// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/elementwise.hpp"

#include <bit>
#include <chrono>
#include <memory>

#include "kernels/host/indexing.hpp"
#include "kernels/host/rope.hpp"
#include "kernels/host/spin.hpp"
#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;
using Ids = std::vector<std::int32_t>;

TEST_CASE("the allocation counter of these tests sees an allocation", "[kernels]") {
#ifndef ORRERY_SANITIZED
  const auto before = allocations();
  const auto p = std::make_unique<double[]>(100);
  const auto after = allocations();
  CHECK(p != nullptr);
  CHECK(after - before == 1);
#endif
}

TEST_CASE("elementwise kernels do their arithmetic on every element, tail included", "[kernels]") {
  for (const std::int64_t n : {1, 8, 19, 70}) {
    INFO("seed 1, n " << n);
    const Values a = random_values(n, 1), b = random_values(n, 2);
    Values sum = poison(n), scaled = poison(n), product = poison(n), filled = poison(n), copied = poison(n), added = b;
    run([&] {
      add(n, a.data(), b.data(), sum.data());
      scale(n, 3.0, a.data(), scaled.data());
      multiply(n, a.data(), b.data(), product.data());
      fill(n, 7.0, filled.data());
      copy(n, a.data(), copied.data());
      axpy(n, 2.0, a.data(), added.data());
    });
    for (std::size_t i = 0; i < a.size(); ++i) {
      CHECK(sum[i] == a[i] + b[i]);
      CHECK(scaled[i] == 3 * a[i]);
      CHECK(product[i] == a[i] * b[i]);
      CHECK(filled[i] == 7);
      CHECK(copied[i] == a[i]);
      CHECK(added[i] == Approx(b[i] + 2 * a[i]).epsilon(1e-15));
    }
  }
}

TEST_CASE("column slices are copied and accumulated by row strides", "[kernels]") {
  const Values wide{1, 2, 3, 4, 5, 6};
  Values slice = poison(4), sum(4, 10.0);
  run([&] {
    copy_rows<double>({.rows = 2, .cols = 2, .src = wide.data() + 1, .src_stride = 3, .dst = slice.data()});
    copy_rows<double>(
        {.rows = 2, .cols = 2, .src = wide.data() + 1, .src_stride = 3, .dst = sum.data(), .write = Write::Accumulate});
  });
  CHECK(slice == Values{2, 3, 5, 6});
  CHECK(sum == Values{12, 13, 15, 16});
}

TEST_CASE("bias, column sum and transpose agree with loops", "[kernels]") {
  const std::int64_t rows = 7, cols = 21;
  INFO("seed 2");
  const Values x = random_values(rows * cols, 2), bias = random_values(cols, 3);
  Values y = poison(rows * cols), sum = poison(cols), t = poison(rows * cols),
         expected(static_cast<std::size_t>(cols), 0);
  run([&] {
    bias_add(rows, cols, x.data(), bias.data(), y.data());
    column_sum(rows, cols, x.data(), sum.data());
    transpose2d(rows, cols, x.data(), t.data());
  });
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto i = static_cast<std::size_t>(r * cols + c), j = static_cast<std::size_t>(c);
      CHECK(y[i] == x[i] + bias[j]);
      CHECK(t[static_cast<std::size_t>(c * rows + r)] == x[i]);
      expected[j] += x[i];
    }
  CHECK(distance(sum, expected) < 1e-15);
  Values twice = sum;
  column_sum(rows, cols, x.data(), twice.data(), Write::Accumulate);
  for (double& v : expected) v *= 2;
  CHECK(distance(twice, expected) < 1e-15);
}

TEST_CASE("swapped axes put row j of block i where row i of block j was, and back", "[kernels]") {
  const std::int64_t outer = 3, a = 19, b = 5;
  for (const std::int64_t inner : {1, 4, 33}) {
    INFO("seed 5, rows of " << inner);
    const Values x = random_values(outer * a * b * inner, 5);
    Values y = poison(outer * a * b * inner), back = poison(outer * a * b * inner);
    run([&] {
      swap_axes(outer, a, b, inner, x.data(), y.data());
      swap_axes(outer, b, a, inner, y.data(), back.data());
    });
    CHECK(back == x);
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t i = 0; i < a; ++i)
        for (std::int64_t j = 0; j < b; ++j)
          CHECK(y[static_cast<std::size_t>(((o * b + j) * a + i) * inner + inner - 1)] ==
                x[static_cast<std::size_t>(((o * a + i) * b + j) * inner + inner - 1)]);
  }
}

TEST_CASE("casts between float and double keep what float can hold", "[kernels]") {
  const std::vector<float> x{0.1f, -3.0f, 1e30f};
  std::vector<double> y(3);
  std::vector<float> z(3);
  cast(3, x.data(), y.data());
  cast(3, y.data(), z.data());
  CHECK(z == x);
}

TEST_CASE("an embedding gives zeros outside its vocabulary range and its backward adds in order", "[kernels]") {
  const std::int64_t dim = 5, first = 2, last = 6;
  const Ids ids{3, -1, 5, 0, 3, 6};
  INFO("seed 4");
  Values table = random_values((last - first) * dim, 4);
  const Values w = random_values(6 * dim, 5);
  Values out = poison(6 * dim), dtable = poison((last - first) * dim);
  const auto forward = [&] {
    embedding<double>({.tokens = 6,
                       .dim = dim,
                       .first = first,
                       .last = last,
                       .ids = ids.data(),
                       .table = table.data(),
                       .out = out.data()});
  };
  run([&] {
    forward();
    embedding_backward<double>({.tokens = 6,
                                .dim = dim,
                                .first = first,
                                .last = last,
                                .ids = ids.data(),
                                .dout = w.data(),
                                .dtable = dtable.data(),
                                .write = Write::Overwrite});
  });
  for (std::size_t c = 0; c < 5; ++c) {
    CHECK(out[c] == table[5 + c]);
    CHECK(out[5 + c] == 0);
    CHECK(out[15 + c] == 0);
    CHECK(out[25 + c] == 0);
  }
  CHECK(distance(dtable, numeric_gradient(table, [&] {
                   forward();
                   return dot(out, w);
                 })) < 1e-9);
}

TEST_CASE("rows gather by an index map that leaves out -1", "[kernels]") {
  const Values x{1, 2, 3, 4, 5, 6};
  const Ids index{2, -1, 0, 2};
  Values y = poison(8);
  run([&] { gather_rows(4, 2, index.data(), x.data(), y.data()); });
  CHECK(y == Values{5, 6, 0, 0, 1, 2, 5, 6});
}

TEST_CASE("rope turns pairs by position times frequency and its inverse turns them back", "[kernels]") {
  const std::int64_t tokens = 6, heads = 2, dim = 11, rot = 8, half = rot / 2;
  const Values inv_freq{1.0, 0.3, 0.1, 0.02};
  Values cos = poison(20 * half), sin = poison(20 * half);
  rope_table<double>(
      {.positions = 20, .half = half, .inv_freq = inv_freq.data(), .cos = cos.data(), .sin = sin.data()});
  const Ids positions{0, 7, 3, 19, 1, 1};
  for (const RopeStyle style : {RopeStyle::HalfSplit, RopeStyle::Interleaved})
    for (const bool array : {false, true}) {
      INFO("seed 6, style " << int(style));
      const Values x = random_values(tokens * heads * dim, 6);
      Values y = poison(tokens * heads * dim);
      RopeArgs<double> args{.tokens = tokens,
                            .heads = heads,
                            .head_dim = dim,
                            .rot_dim = rot,
                            .style = style,
                            .x = x.data(),
                            .x_token_stride = heads * dim,
                            .x_head_stride = dim,
                            .y = y.data(),
                            .y_token_stride = heads * dim,
                            .y_head_stride = dim,
                            .cos = cos.data(),
                            .sin = sin.data(),
                            .positions = array ? positions.data() : nullptr,
                            .start = 5,
                            .sequence = 3};
      run([&] { rope(args); });
      Values expected = x;
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(array ? positions[static_cast<std::size_t>(t)] : 5 + t % 3) *
                                 inv_freq[static_cast<std::size_t>(i)];
            const auto base = static_cast<std::size_t>((t * heads + h) * dim);
            const auto a = base + static_cast<std::size_t>(style == RopeStyle::HalfSplit ? i : 2 * i);
            const auto b = base + static_cast<std::size_t>(style == RopeStyle::HalfSplit ? i + half : 2 * i + 1);
            expected[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
            expected[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
          }
      CHECK(distance(y, expected) < 1e-15);
      args.x = y.data();  // in place
      args.direction = RopeDirection::Inverse;
      run([&] { rope(args); });
      CHECK(distance(y, x) < 1e-15);
    }
}

TEST_CASE("spin keeps a thread busy for at least the time it was given", "[kernels]") {
  const auto begin = std::chrono::steady_clock::now();
  spin(0.01);
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::duration<double>{0.01});
}
