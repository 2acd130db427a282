// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/vision.hpp"

#include <set>

#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;
using Ids = std::vector<std::int32_t>;

TEST_CASE("patches hold channel, row and column of a convolution, and unpatchify undoes them", "[kernels]") {
  const PatchifyDims d{.batch = 2, .channels = 3, .height = 4, .width = 6, .patch = 2};
  INFO("seed 1");
  const Values image = random_values(2 * 3 * 4 * 6, 1);
  Values rows = poison(144), back = poison(144);
  run([&] {
    patchify(d, image.data(), rows.data());
    unpatchify(d, rows.data(), back.data());
  });
  CHECK(back == image);
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

TEST_CASE("T5 buckets are exact for near and logarithmic for far positions", "[kernels]") {
  Ids index(300, -1);
  t5_bucket_index({.q_len = 1, .kv_len = 300, .offset = 150, .index = index.data()});
  const auto bucket = [&](std::int64_t relative) { return index[static_cast<std::size_t>(150 + relative)]; };
  // 32 buckets, 16 for each sign, 8 of them exact; distance 16 is 8 + ⌊8·ln 2/ln 16⌋ = 10, and 128 and more is the last
  CHECK(bucket(0) == 0);
  CHECK(bucket(-7) == 7);
  CHECK(bucket(7) == 23);
  CHECK(bucket(-8) == 8);
  CHECK(bucket(-20) == 8 + 2);
  CHECK(bucket(-140) == 15);
  CHECK(bucket(140) == 31);
  t5_bucket_index({.q_len = 1, .kv_len = 300, .offset = 150, .bidirectional = false, .index = index.data()});
  CHECK(bucket(5) == 0);
  CHECK(bucket(-15) == 15);
  CHECK(bucket(-149) == 31);
}

TEST_CASE("the relative index of a window has its centre on the diagonal and uses every entry", "[kernels]") {
  Ids index(16 * 16, -1);
  swin_relative_index(4, index.data());
  CHECK(index[0] == 3 * 7 + 3);
  CHECK(index[1] == 3 * 7 + 2);   // position 0 less position 1: Δx = −1
  CHECK(index[16] == 3 * 7 + 4);  // position 1 less position 0
  CHECK(index[15] == 0);          // first less last: Δ = (−3, −3)
  CHECK(std::set<std::int32_t>(index.begin(), index.end()).size() == 49);
}

TEST_CASE("shifted windows visit every token once and mask those that were not neighbours", "[kernels]") {
  const SwinDims d{.batch = 2, .height = 4, .width = 4, .window = 2, .shift = 1};
  Ids index(32, -1);
  Values mask = poison(4 * 16);
  run([&] {
    swin_window_index(d, index.data());
    swin_mask(d, mask.data());
  });
  CHECK(Ids(index.begin(), index.begin() + 8) == Ids{5, 6, 9, 10, 7, 4, 11, 8});
  CHECK(index[16] == 16 + 5);
  CHECK(std::set<std::int32_t>(index.begin(), index.end()).size() == 32);
  CHECK(Values(mask.begin(), mask.begin() + 16) == Values(16, 0.0));                // the first window is whole
  CHECK(Values(mask.begin() + 16, mask.begin() + 20) == Values{0, -100, 0, -100});  // columns 3 and 0 in the second
  CHECK(Values(mask.begin() + 48, mask.begin() + 52) == Values{0, -100, -100, -100});
}

TEST_CASE("patch merging reads the four tokens of a square in the published order", "[kernels]") {
  Ids index(8, -1);
  patch_merge_index({.batch = 1, .height = 2, .width = 4}, index.data());
  CHECK(index == Ids{0, 4, 1, 5, 2, 6, 3, 7});
}
