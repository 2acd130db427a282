// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/cross_entropy.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/host/indexing.hpp"
#include "kernels/host/sampling.hpp"
#include "kernels/philox.hpp"
#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;
using Ids = std::vector<std::int32_t>;

namespace {

constexpr std::int64_t kRows = 4, kVocab = 37;
const Ids kTargets{3, kIgnoreIndex, 36, 0};

template <class T>
struct Loss {
  std::vector<T> loss = poison<T>(kRows), lse = poison<T>(kRows), dlogits = poison<T>(kRows * kVocab);
  T mean = 0;

  Loss(const std::vector<T>& x, T scale) {
    run([&] {
      cross_entropy<T>({.rows = kRows,
                        .vocab = kVocab,
                        .logits = x.data(),
                        .targets = kTargets.data(),
                        .loss = loss.data(),
                        .lse = lse.data()});
      mean = static_cast<T>(std::accumulate(loss.begin(), loss.end(), 0.0) / 3);  // rows that count
      cross_entropy_backward<T>({.rows = kRows,
                                 .vocab = kVocab,
                                 .logits = x.data(),
                                 .targets = kTargets.data(),
                                 .lse = lse.data(),
                                 .scale = scale,
                                 .dlogits = dlogits.data()});
    });
  }
};

std::vector<std::size_t> draw_counts(SampleArgs<double> args, std::uint64_t draws) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(args.vocab));
  Workspace workspace{sample_workspace(args.vocab, sizeof(double))};
  std::int32_t token = -1;
  args.rows = 1;
  args.tokens = &token;
  args.workspace = workspace.data();
  for (args.step = 0; args.step < draws; ++args.step) {
    sample(args);
    ++counts[static_cast<std::size_t>(token)];
  }
  CHECK(workspace.intact());
  return counts;
}

}  // namespace

TEST_CASE("cross-entropy equals its formula and its gradient equals differences", "[kernels]") {
  INFO("seed 1");
  Values x = random_values(kRows * kVocab, 1, -5, 5);
  const Loss<double> got{x, 1.0 / 3};
  double expected = 0;
  for (const std::size_t r : {0u, 2u, 3u}) {
    double sum = 0;
    for (std::size_t c = 0; c < kVocab; ++c) sum += std::exp(x[r * kVocab + c]);
    CHECK(got.loss[r] == Approx(std::log(sum) - x[r * kVocab + static_cast<std::size_t>(kTargets[r])]).epsilon(1e-14));
    expected += got.loss[r] / 3;
  }
  CHECK(got.loss[1] == 0);
  CHECK(got.mean == Approx(expected).epsilon(1e-15));
  CHECK(distance(got.dlogits, numeric_gradient(x, [&] { return Loss<double>{x, 1.0}.mean; })) < 1e-7);
  const Loss<float> f{as<float>(x), 1.0f / 3};
  CHECK(distance(f.loss, got.loss) < 1e-6);
  CHECK(distance(f.dlogits, got.dlogits) < 1e-6);
}

TEST_CASE("a loss over two vocabulary shards equals the loss over the whole vocabulary", "[kernels]") {
  // 37 classes in two shards of 20 columns: the last three columns of the second are padding.
  INFO("seed 2");
  const Values x = random_values(kRows * kVocab, 2, -5, 5);
  const Loss<double> whole{x, 0.5};
  constexpr std::int64_t kCols = 20;
  Values max(kRows, -1e300), sums(2 * kRows, 0.0), lse = poison(kRows);
  std::vector<Values> shards(2, Values(kRows * kCols, 99.0));
  std::vector<Ids> targets(2, Ids(kRows));
  for (const std::size_t s : {0u, 1u}) {
    const std::int64_t first = kCols * static_cast<std::int64_t>(s);
    for (std::int64_t r = 0; r < kRows; ++r)
      std::copy_n(x.begin() + r * kVocab + first, std::min(kCols, kVocab - first), shards[s].begin() + r * kCols);
    Values part = poison(kRows);
    run([&] {
      local_indices(kRows, kCols, static_cast<std::int32_t>(first), kTargets.data(), targets[s].data());
      mask_columns(kRows, kCols, first, kVocab, shards[s].data());
      row_max(kRows, kCols, shards[s].data(), part.data());
    });
    for (std::size_t r = 0; r < kRows; ++r) max[r] = std::max(max[r], part[r]);
  }
  CHECK(targets[0] == Ids{3, kIgnoreIndex, -1, 0});
  CHECK(targets[1] == Ids{-1, kIgnoreIndex, 16, -1});
  for (const std::size_t s : {0u, 1u}) {
    Values part = poison(2 * kRows);
    run([&] {
      cross_entropy_sums<double>({.rows = kRows,
                                  .cols = kCols,
                                  .logits = shards[s].data(),
                                  .targets = targets[s].data(),
                                  .max = max.data(),
                                  .sums = part.data()});
    });
    for (std::size_t i = 0; i < part.size(); ++i) sums[i] += part[i];
  }
  double loss = 0;
  run([&] {
    loss = cross_entropy_finish<double>(
        {.rows = kRows, .targets = targets[0].data(), .max = max.data(), .sums = sums.data(), .lse = lse.data()});
  });
  CHECK(loss == Approx(3 * whole.mean).epsilon(1e-14));
  CHECK(distance(lse, whole.lse) < 1e-15);
  for (const std::size_t s : {0u, 1u}) {
    run([&] {  // in place
      cross_entropy_backward<double>({.rows = kRows,
                                      .vocab = kCols,
                                      .logits = shards[s].data(),
                                      .targets = targets[s].data(),
                                      .lse = lse.data(),
                                      .scale = 0.5,
                                      .dlogits = shards[s].data()});
    });
    Values expected;
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t c = kCols * static_cast<std::int64_t>(s); c < kCols * static_cast<std::int64_t>(s + 1); ++c)
        expected.push_back(c < kVocab ? whole.dlogits[static_cast<std::size_t>(r * kVocab + c)] : 0.0);
    CHECK(distance(shards[s], expected) < 1e-14);
  }
}

TEST_CASE("argmax gives ties to the lower index", "[kernels]") {
  Values x(40, 1.0);
  x[7] = x[33] = x[12] = 2;
  x[25] = 3;
  Ids tokens(2, -1);
  run([&] { argmax(2, 20, x.data(), tokens.data()); });
  CHECK(tokens == Ids{7, 5});
}

TEST_CASE("argmax finds the first of the largest in long rows, and takes the first where all are hidden", "[kernels]") {
  constexpr std::int64_t kVocab = 1000;
  const double hidden = -std::numeric_limits<double>::infinity();
  Values x(3 * kVocab, hidden);
  x[700] = x[701] = x[998] = -5;
  for (std::int64_t i = 0; i < kVocab; ++i) x[static_cast<std::size_t>(2 * kVocab + i)] = double(i % 999);
  Ids tokens(3, -1);
  run([&] { argmax(3, kVocab, x.data(), tokens.data()); });
  CHECK(tokens == Ids{700, 0, 998});
}

TEST_CASE("samples follow the distribution, and top-k and top-p cut it", "[kernels]") {
  // Probabilities ½, ¼, ⅛, ⅛ in a mixed order; 20,000 draws have a standard deviation of at most 71.
  const Values logits{std::log(0.125), std::log(0.5), std::log(0.125), std::log(0.25)};
  const SampleArgs<double> base{.vocab = 4, .seed = 9, .logits = logits.data()};
  const auto near = [](std::size_t count, double expected) { return std::abs(double(count) - expected) < 400; };
  const auto plain = draw_counts(base, 20000);
  CHECK((near(plain[0], 2500) && near(plain[1], 10000) && near(plain[2], 2500) && near(plain[3], 5000)));
  auto two = base;
  two.top_k = 2;
  const auto top = draw_counts(two, 20000);
  CHECK((top[0] == 0 && top[2] == 0 && near(top[1], 20000.0 * 2 / 3)));
  auto nucleus = base;
  nucleus.top_p = 0.8;  // ½ + ¼ < 0.8: the first of the two ties is needed too
  const auto cut = draw_counts(nucleus, 20000);
  CHECK((cut[2] == 0 && near(cut[0], 20000.0 / 7) && near(cut[1], 20000.0 * 4 / 7)));
  auto cold = base;
  cold.temperature = 0.01;
  CHECK(draw_counts(cold, 100)[1] == 100);
}

TEST_CASE("a row draws the same token alone and in a batch", "[kernels]") {
  INFO("seed 5");
  const std::int64_t rows = 6, vocab = 50;
  const Values x = random_values(rows * vocab, 5);
  Ids together(rows, -1), alone(rows, -1);
  Workspace workspace{sample_workspace(vocab, sizeof(double))};
  SampleArgs<double> args{.rows = rows,
                          .vocab = vocab,
                          .top_k = 30,
                          .top_p = 0.9,
                          .seed = 1,
                          .step = 2,
                          .first_row = 10,
                          .logits = x.data(),
                          .tokens = together.data(),
                          .workspace = workspace.data()};
  run([&] { sample(args); });
  args.rows = 1;
  for (std::int64_t r = 0; r < rows; ++r, ++args.first_row, args.logits += vocab) {
    args.tokens = &alone[static_cast<std::size_t>(r)];
    sample(args);
  }
  CHECK(together == alone);
}
