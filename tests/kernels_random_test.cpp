// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/random.hpp"

#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;

namespace {

constexpr std::int64_t kRows = 7, kCols = 301;
constexpr PhiloxKey kKey{.seed = 42, .stream = 5};

/// The columns [col, col + cols) and rows [row, row + rows) of a global [kRows,kCols].
Values cut(const Values& x, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
  Values y;
  for (std::int64_t r = row; r < row + rows; ++r)
    y.insert(y.end(), x.begin() + r * kCols + col, x.begin() + r * kCols + col + cols);
  return y;
}

/// Calls fill(rows, cols, window, out) for the whole and for shards, and checks that shards are parts of the whole.
template <class F>
Values check_shards(F&& fill) {
  Values whole = poison(kRows * kCols);
  run([&] { fill(kRows, kCols, ShardWindow{0, 0, kCols}, whole.data()); });
  for (const std::int64_t row : {0, 3})
    for (const std::int64_t col : {0, 1, 2, 3, 150, 299}) {
      const std::int64_t rows = 3, cols = std::min<std::int64_t>(kCols - col, 77);
      Values part = poison(rows * cols);
      fill(rows, cols, ShardWindow{row, col, kCols}, part.data());
      CHECK(part == cut(whole, row, rows, col, cols));
    }
  return whole;
}

}  // namespace

TEST_CASE("Philox gives the known answers of its authors", "[kernels]") {
  // Counter and key all zero, all ones, and digits of π (counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822
  // 299f31d0).
  const auto words = [](PhiloxKey key, std::uint64_t block) {
    const PhiloxWords w = philox(key, block);
    return std::vector<std::uint32_t>(w.word, w.word + 4);
  };
  CHECK(words({0, 0}, 0) == std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(words({~0ull, ~0ull}, ~0ull) == std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(words({0x299f31d0a4093822ull, 0x0370734413198a2eull}, 0x85a308d3243f6a88ull) ==
        std::vector<std::uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("dropout of rows that are listed drops what it drops in the whole tensor", "[kernels]") {
  const Values ones(static_cast<std::size_t>(kRows * kCols), 1.0);
  const std::vector<std::int32_t> ids{6, 0, 3};
  Values whole = poison(kRows * kCols), part = poison(3 * 50);
  const ShardWindow window{.row = 2, .col = 101, .global_cols = kCols};
  run([&] {
    dropout<double>({.rows = kRows,
                     .cols = kCols,
                     .window = {0, 0, kCols},
                     .key = kKey,
                     .p = 0.5,
                     .x = ones.data(),
                     .y = whole.data()});
    dropout<double>({.rows = 3,
                     .cols = 50,
                     .window = window,
                     .key = kKey,
                     .p = 0.5,
                     .row_ids = ids.data(),
                     .x = ones.data(),
                     .y = part.data()});
  });
  Values expected;
  for (const std::int32_t id : ids)
    for (const double v : cut(whole, id, 1, 101, 50)) expected.push_back(v);
  CHECK(part == expected);
}

TEST_CASE("a shard of dropout drops what the whole tensor drops", "[kernels]") {
  const Values ones(static_cast<std::size_t>(kRows * kCols), 1.0);
  const Values y = check_shards([&](std::int64_t rows, std::int64_t cols, const ShardWindow& window, double* out) {
    dropout<double>({.rows = rows, .cols = cols, .window = window, .key = kKey, .p = 0.25, .x = ones.data(), .y = out});
  });
  std::size_t kept = 0;
  for (const double v : y) {
    CHECK((v == 0 || v == 1 / 0.75));
    kept += v != 0;
  }
  CHECK(std::abs(static_cast<double>(kept) / static_cast<double>(y.size()) - 0.75) < 0.04);  // 4 standard deviations
}

TEST_CASE("dropout keeps all at p = 0 and drops all, NaN included, at p = 1", "[kernels]") {
  const Values x{1, 2, NAN};
  Values y = poison(3);
  DropoutArgs<double> args{
      .rows = 1, .cols = 3, .window = {0, 0, 3}, .key = kKey, .p = 1, .x = x.data(), .y = y.data()};
  dropout(args);
  CHECK(y == Values{0, 0, 0});
  args.p = 0;
  dropout(args);
  CHECK((y[0] == 1 && y[1] == 2));
}

TEST_CASE("uniform and normal values do not depend on sharding and have their moments", "[kernels]") {
  const auto args = [](std::int64_t rows, std::int64_t cols, const ShardWindow& window, double* y) {
    return RandomFillArgs<double>{.rows = rows, .cols = cols, .window = window, .key = kKey, .y = y};
  };
  const Values u = check_shards(
      [&](std::int64_t r, std::int64_t c, const ShardWindow& w, double* y) { fill_uniform(args(r, c, w, y), -1, 3); });
  const Values z = check_shards(
      [&](std::int64_t r, std::int64_t c, const ShardWindow& w, double* y) { fill_normal(args(r, c, w, y), 0.5, 2); });
  const auto moments = [](const Values& x) {
    double mean = 0, square = 0;
    for (const double v : x) mean += v / static_cast<double>(x.size());
    for (const double v : x) square += (v - mean) * (v - mean) / static_cast<double>(x.size());
    return std::pair{mean, std::sqrt(square)};
  };
  // 2,107 values: the mean is within 4 σ/√n = 0.1 (uniform, σ = 4/√12) and 0.175 (normal)
  CHECK(std::abs(moments(u).first - 1) < 0.1);
  CHECK(std::abs(moments(u).second - 4 / std::sqrt(12)) < 0.1);
  CHECK(std::abs(moments(z).first - 0.5) < 0.175);
  CHECK(std::abs(moments(z).second - 2) < 0.13);
}

TEST_CASE("float and double draw the same numbers", "[kernels]") {
  Values x = poison(40);
  auto y = poison<float>(40);
  fill_normal<double>({.rows = 2, .cols = 20, .window = {1, 3, 50}, .key = kKey, .y = x.data()}, 0, 1);
  fill_normal<float>({.rows = 2, .cols = 20, .window = {1, 3, 50}, .key = kKey, .y = y.data()}, 0, 1);
  CHECK(distance(y, x) < 1e-7);
}
