// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/packing/packed_training.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/option_error.hpp"

namespace orrery {
namespace {

double causal_pairs(std::int64_t n) { return 0.5 * double(n) * double(n + 1); }

std::int64_t tokens_of(const PackedWindow& window) {
  std::int64_t sum = 0;
  for (const DocumentPart& p : window) sum += p.length();
  return sum;
}

/// Pairs that the documents of a window need.
double document_pairs(const PackedWindow& window) {
  double sum = 0;
  for (const DocumentPart& p : window) sum += causal_pairs(p.length());
  return sum;
}

/// What a rank computes between two waits, in the mean, and the same of the rank with the most.
struct Shares {
  double mean = 0, most = 0;
};

/// `pairs` of each window, in order of steps and ranks.
Shares shares_of(const std::vector<double>& pairs, const PackedStep& s) {
  Shares out;
  std::int64_t waits = 0;
  const std::int64_t each = s.ranks * s.per_rank;
  for (std::int64_t first = 0; first + each <= std::ssize(pairs); first += each)
    for (std::int64_t j = 0; j < s.per_rank; j += s.together, ++waits) {
      double most = 0;
      for (std::int64_t r = 0; r < s.ranks; ++r) {
        const auto at = pairs.begin() + first + r * s.per_rank + j;
        double sum = 0;
        for (auto p = at; p != at + std::min(s.together, s.per_rank - j); ++p) sum += *p;
        most = std::max(most, sum);
        out.mean += sum / double(s.ranks);
      }
      out.most += most;
    }
  out.mean /= double(waits), out.most /= double(waits);
  return out;
}

}  // namespace

PackedSamples packed_samples(const PackingOptions& o, const PackedStep& s) {
  if (o.packer == PackerKind::DataSculpt)
    throw OptionError{{"packer"}, "packer datasculpt needs texts, and a workload has lengths", "use largest_fit"};
  if (o.packer == PackerKind::Alone && !o.padding)
    throw OptionError{{"padding", "packer"}, "packer alone leaves what a document does not fill", "use best_fit"};
  Random random{s.seed};
  const LengthSampler sampler{o.lengths};
  const std::int64_t step = s.ranks * s.per_rank, wanted = o.steps * step * s.window;
  PackedSamples out;
  for (std::int64_t sum = 0; sum < wanted; sum += out.lengths.back()) out.lengths.push_back(sampler.draw(random));
  out.windows = pack({.packer = o.packer,
                      .window = s.window,
                      .ranks = s.ranks,
                      .per_rank = s.per_rank,
                      .seed = s.seed,
                      .fills = !o.padding,
                      .balances = o.balance},
                     out.lengths);
  out.windows.resize(out.windows.size() / static_cast<std::size_t>(step) * static_cast<std::size_t>(step));
  return out;
}

PackedAmounts packed_amounts(const PackingOptions& o, const PackedStep& s) {
  const PackedSamples samples = packed_samples(o, s);
  const double places = double(samples.windows.size()) * double(s.window);
  PackedAmounts out;
  std::vector<double> computed;
  double tokens = 0, needed = 0, all = 0, documents = 0;
  for (const PackedWindow& w : samples.windows) {
    const std::int64_t n = tokens_of(w);
    tokens += double(n), documents += double(w.size());
    needed += o.mask ? document_pairs(w) : causal_pairs(n);
    computed.push_back(o.mask ? document_pairs(w) + double(s.window - n) : causal_pairs(s.window));  // padding: itself
    all += computed.back();
  }
  out.tokens = tokens / places, out.needed = needed / all;
  const Shares shares = shares_of(computed, s);
  const double in_one = double(s.together), rest = double(s.ranks - 1);
  out.slowest = std::llround(shares.most / in_one);
  out.others = rest > 0 ? std::llround((shares.mean * double(s.ranks) - shares.most) / (rest * in_one)) : out.slowest;
  if (o.mask) out.documents = std::max<std::int64_t>(1, std::llround(documents / double(samples.windows.size())));
  return out;
}

}  // namespace orrery
