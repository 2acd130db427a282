// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/packing/corpus.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace orrery {
namespace {

struct LengthRange {
  double from, to;

  /// Of lengths whose logarithms are uniform: (to − from)/ln(to/from).
  double mean() const { return (to - from) / std::log(to / from); }
};
constexpr std::array kRanges{LengthRange{200, 4096},    LengthRange{4096, 8192},   LengthRange{8192, 16384},
                             LengthRange{16384, 32768}, LengthRange{32768, 65536}, LengthRange{65536, 200000}};

struct Domain {
  double share;                             // % of the corpus
  std::array<double, kRanges.size()> bins;  // % of the domain
};
constexpr std::array kDomains{
    Domain{6.5, {2.06, 1.55, 2.61, 4.31, 10.02, 79.46}},    // Chinese books
    Domain{6.5, {2.55, 2.07, 3.68, 6.31, 13.86, 71.52}},    // English books
    Domain{8.5, {4.94, 14.59, 33.66, 31.12, 12.58, 3.12}},  // English papers
    Domain{25, {92.36, 3.88, 1.86, 0.92, 0.47, 0.50}},      // code
    Domain{3.5, {26.04, 51.88, 20.24, 1.71, 0.11, 0.02}},   // Chinese papers
    Domain{31.5, {96.63, 2.36, 0.76, 0.20, 0.04, 0.01}},    // English pages
    Domain{13.5, {99.02, 0.73, 0.21, 0.04, 0, 0}},          // Chinese pages
    Domain{5, {99.99, 0.01, 0, 0, 0, 0}},                   // others
};

/// How many documents of each range there are, in proportion.
std::array<double, kRanges.size()> documents_of_ranges(ShareOf shares) {
  std::array<double, kRanges.size()> out{};
  for (const Domain& d : kDomains) {
    double mean = 0, all = 0;
    for (std::size_t i = 0; i < kRanges.size(); ++i) mean += d.bins[i] * kRanges[i].mean(), all += d.bins[i];
    mean /= all;
    for (std::size_t i = 0; i < kRanges.size(); ++i)
      out[i] += d.share * d.bins[i] / all / (shares == ShareOf::Tokens ? kRanges[i].mean() : mean);
  }
  return out;
}

/// The same, each with those before it.
const std::array<double, kRanges.size()>& documents_until(ShareOf shares) {
  const auto sums = [](ShareOf of) {
    std::array<double, kRanges.size()> until = documents_of_ranges(of);
    for (std::size_t i = 1; i < until.size(); ++i) until[i] += until[i - 1];
    return until;
  };
  static const auto of_tokens = sums(ShareOf::Tokens), of_documents = sums(ShareOf::Documents);
  return shares == ShareOf::Tokens ? of_tokens : of_documents;
}

}  // namespace

std::int64_t datasculpt_length(ShareOf shares, Random& random) {
  const std::array<double, kRanges.size()>& until = documents_until(shares);
  const double drawn = random.uniform(0, until.back());
  const auto at = static_cast<std::size_t>(std::upper_bound(until.begin(), until.end(), drawn) - until.begin());
  const LengthRange& range = kRanges[std::min(at, kRanges.size() - 1)];
  return std::llround(std::exp(random.uniform(std::log(range.from), std::log(range.to))));
}

double datasculpt_mean(ShareOf shares) {
  const std::array<double, kRanges.size()> documents = documents_of_ranges(shares);
  double sum = 0, all = 0;
  for (std::size_t i = 0; i < kRanges.size(); ++i) sum += documents[i] * kRanges[i].mean(), all += documents[i];
  return sum / all;
}

std::vector<std::int64_t> datasculpt_lengths(ShareOf shares, std::int64_t tokens, Random& random) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t sum = 0; sum < tokens; sum += lengths.back()) lengths.push_back(datasculpt_length(shares, random));
  return lengths;
}

PackingStatistics datasculpt_packing(ShareOf shares, const PackRequest& request, std::int64_t tokens, int corpora) {
  PackingStatistics all;
  for (int seed = 1; seed <= corpora; ++seed) {
    Random random{static_cast<std::uint64_t>(seed)};
    const std::vector<std::int64_t> lengths = datasculpt_lengths(shares, tokens, random);
    const PackingStatistics s = statistics_of(pack(request, lengths), lengths, request);
    for (const auto count : {&PackingStatistics::documents, &PackingStatistics::windows, &PackingStatistics::tokens,
                             &PackingStatistics::lost})
      all.*count += s.*count;
    for (const auto mean : {&PackingStatistics::parts_per_window, &PackingStatistics::truncations_per_window,
                            &PackingStatistics::padding, &PackingStatistics::squares, &PackingStatistics::window_spread,
                            &PackingStatistics::rank_spread, &PackingStatistics::slowest_rank})
      all.*mean += s.*mean / corpora;
  }
  return all;
}

}  // namespace orrery
