// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/vision.hpp"

#include <set>

#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;
using Ids = std::vector<std::int32_t>;

TEST_CASE("patches hold channel, row and column of a convolution", "[kernels]") {
  const PatchifyDims d{.batch = 2, .channels = 3, .height = 4, .width = 6, .patch = 2};
  INFO("seed 1");
  const Values image = random_values(2 * 3 * 4 * 6, 1);
  Values rows = poison(144);
  run([&] { patchify(d, image.data(), rows.data()); });
  CHECK(std::set<double>(rows.begin(), rows.end()) == std::set<double>(image.begin(), image.end()));
  // batch 1, patch (1, 2), channel 2, inner (1, 0): row 6 + 5, column 2·4 + 2; pixel (3, 4)
  CHECK(rows[(6 + 5) * 12 + 8 + 2] == image[((3 + 2) * 4 + 3) * 6 + 4]);
}

TEST_CASE("a prefix token goes before every sequence and its gradient sums over the batch", "[kernels]") {
  const TokenDims d{.batch = 2, .tokens = 2, .dim = 2};
  const Values prefix{9, 8}, x{1, 2, 3, 4, 5, 6, 7, 8};
  Values y = poison(12), dx = poison(8), dprefix = poison(2);
  run([&] {
    concat_prefix(d, prefix.data(), x.data(), y.data());
    concat_prefix_backward(d, y.data(), dx.data(), dprefix.data());
  });
  CHECK(y == Values{9, 8, 1, 2, 3, 4, 9, 8, 5, 6, 7, 8});
  CHECK(dx == x);
  CHECK(dprefix == Values{18, 16});
}

TEST_CASE("the mean over tokens and its gradient divide by the number of tokens", "[kernels]") {
  const TokenDims d{.batch = 2, .tokens = 2, .dim = 2};
  const Values x{1, 2, 3, 4, 5, 6, 7, 8};
  Values y = poison(4), dx = poison(8);
  run([&] {
    mean_tokens(d, x.data(), y.data());
    mean_tokens_backward(d, y.data(), dx.data());
  });
  CHECK(y == Values{2, 3, 6, 7});
  CHECK(dx == Values{1, 1.5, 1, 1.5, 3, 3.5, 3, 3.5});
}

TEST_CASE("a relative bias looks up its table and its gradient adds to it", "[kernels]") {
  const Ids index{1, 0, 1, 1};
  const Values table{1, 10, 2, 20};
  Values bias = poison(8), dtable = poison(4);
  run([&] {
    relative_bias<double>({.heads = 2, .pairs = 4, .index = index.data(), .table = table.data(), .bias = bias.data()});
    relative_bias_backward<double>({.heads = 2,
                                    .pairs = 4,
                                    .buckets = 2,
                                    .index = index.data(),
                                    .dbias = bias.data(),
                                    .dtable = dtable.data(),
                                    .write = Write::Overwrite});
  });
  CHECK(bias == Values{2, 1, 2, 2, 20, 10, 20, 20});
  CHECK(dtable == Values{1, 10, 6, 60});
}
