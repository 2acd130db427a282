// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/random.hpp"

namespace orrery {

/// Σ k^−exponent for k = 1 … n: the first thousand terms one by one, the rest by Euler and Maclaurin's formula up to
/// the third derivative, which leaves out less than 1e-15 of the sum.
double harmonic_sum(std::int64_t n, double exponent);

/// Ranks 0 … n−1, of which rank k comes with a probability in proportion to (k + 1)^−exponent; all alike with exponent
/// 0. By rejection and inversion (Hörmann and Derflinger, ACM TOMACS 6(3), 1996): no tables, and about one uniform
/// number a draw however large n is.
class BoundedZipf {
 public:
  BoundedZipf(std::int64_t n, double exponent);

  std::int64_t operator()(Random& random) const;
  double probability(std::int64_t rank) const;
  /// How many ranks have at least this probability: the first ones.
  std::int64_t ranks_above(double probability) const;
  /// The share of draws that the first `ranks` get.
  double coverage(std::int64_t ranks) const { return harmonic_sum(ranks, exponent_) / sum_; }
  std::int64_t size() const { return n_; }

 private:
  double integral(double x) const;
  double inverse_integral(double y) const;

  std::int64_t n_;
  double exponent_, sum_;
  double low_, high_, always_;  // the integral's range over 1/2 … n + 1/2; how near a rank needs no second test
};

/// A categorical feature: how many rows its table has, and how skewed its ids are.
struct CategoricalField {
  std::int64_t rows = 1;
  double exponent = 1;
};

/// The ids of categorical features, one of each field a sample, drawn from bounded Zipf distributions that do not know
/// of each other. Ids number the rows of all tables, field behind field, and within a field by how often they come:
/// the first is the most frequent one. Sample i of equal fields and seeds is the same whoever asks for it, and when.
/// Left out: that features of one sample, and samples near each other, have to do with one another.
class IdStream {
 public:
  IdStream(std::span<const CategoricalField> fields, std::uint64_t seed);

  std::int64_t fields() const { return static_cast<std::int64_t>(zipf_.size()); }
  std::int64_t rows() const { return first_.back(); }
  std::int64_t first_row(std::int64_t field) const { return first_[static_cast<std::size_t>(field)]; }
  std::int64_t field_of(std::int64_t row) const;

  /// The ids of one sample, a number for each field.
  void sample(std::int64_t index, std::span<std::int64_t> ids) const;
  /// Samples first … first + count − 1, one behind the other.
  std::vector<std::int64_t> batch(std::int64_t first, std::int64_t count) const;

  /// Of each field, how many of its first rows are among the `rows` most frequent ones of all.
  std::vector<std::int64_t> most_frequent(std::int64_t rows) const;
  /// The share of look-ups that go to the `rows` most frequent rows.
  double coverage(std::int64_t rows) const;
  /// How often a row is looked up by a sample, on average.
  double probability(std::int64_t row) const;

 private:
  std::vector<std::int64_t> ranks_above(double probability) const;

  std::vector<BoundedZipf> zipf_;
  std::vector<std::int64_t> first_;  // of each field, and of all rows one more
  std::uint64_t seed_;
};

/// The ids of a batch, each once, ascending.
std::vector<std::int64_t> unique_ids(std::vector<std::int64_t> ids);

/// The 26 categorical fields of Criteo's Kaggle data set: cardinalities as in the repository hpcaitech/CachedEmbedding
/// (33,762,577 rows), exponents fitted to the 8192 samples in the repository Hsword/Het (ids that come three times or
/// more; 1.2 for four tables of at most 24 rows, which the sample does not tell). Batches of 128, 1024 and 8192 samples
/// of that file have 0.461, 0.316 and 0.187 different ids a look-up, of this stream 0.529, 0.422 and 0.315: features of
/// the data know of each other. `large_fields` scales the exponents of the six fields of more than two million
/// rows: with 1.4 these ratios are 0.442, 0.315 and 0.202.
std::vector<CategoricalField> criteo_kaggle_fields(double large_fields = 1);

}  // namespace orrery
