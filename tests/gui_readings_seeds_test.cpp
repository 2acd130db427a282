// SPDX-License-Identifier: Apache-2.0
// What of two sequences of kernels is sure to be the same op: random layers in which ops are fused, swapped or missing,
// of which it is known what was done to them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "sim/base/random.hpp"
#include "tests/gui_readings_testing.hpp"

using namespace orrery;
using namespace orrery::gui;

namespace {

constexpr int kFusedOp = -1;

/// A recorded layer with the place in the predicted one of each kernel that is one op of it.
struct Recorded {
  std::string letters;
  std::vector<int> truth;
  void add(char letter, int place) {
    letters += letter;
    truth.push_back(place);
  }
};

/// How often neighbours are changed.
struct Rates {
  double epilogue = 0, compiler = 0, swap = 0, late = 0;
};

/// A library's product does the ops behind it too, a norm the addition before it; a compiler makes one kernel of two or
/// three ops and says so.
Recorded recorded(const std::string& layer, const Rates& rates, Random& random) {
  Recorded out;
  for (std::size_t i = 0; i < layer.size(); ++i) {
    const std::string rest = layer.substr(i);
    const auto fused = [&](char letter, std::size_t ops) {
      out.add(letter, kFusedOp);
      i += ops - 1;
    };
    if (rest.starts_with("GA") && random.bernoulli(rates.epilogue))
      fused('G', rest.starts_with("GAA") ? 3 : 2);
    else if (rest.starts_with("AN") && random.bernoulli(rates.epilogue))
      fused('N', 2);
    else if (rest.size() > 1 && random.bernoulli(rates.compiler))
      fused('F', std::min<std::size_t>(rest.size(), 2 + random.below(2)));
    else
      out.add(layer[i], static_cast<int>(i));
  }
  for (std::size_t i = 0; i + 1 < out.letters.size(); ++i)
    if (out.letters[i] != out.letters[i + 1] && random.bernoulli(rates.swap)) {
      std::swap(out.letters[i], out.letters[i + 1]);
      std::swap(out.truth[i], out.truth[i + 1]);
      ++i;
    }
  if (random.bernoulli(rates.late)) {
    const std::size_t gone = random.below(out.letters.size());
    out.letters.erase(0, gone);
    out.truth.erase(out.truth.begin(), out.truth.begin() + static_cast<std::ptrdiff_t>(gone));
  }
  return out;
}

struct Score {
  double pairable = 0, right = 0, wrong = 0, fused_right = 0, fused_wrong = 0;
};

Score score(const Rates& rates, std::uint64_t seed) {
  constexpr const char* kLayers[] = {"NGGAGAG", "NGGGARGANGAGA", "NGAGANGAGA", "NGGGPGANGGMGA", "NAGNAGAG"};
  Random random{seed};
  std::vector<std::pair<std::string, Recorded>> layers;
  Readings::Seen seen;
  for (int n = 0; n < 3000; ++n) {
    const std::string layer = kLayers[random.below(5)];
    layers.emplace_back(layer, recorded(layer, rates, random));
    seen += readings(sequence(layer), sequence(layers.back().second.letters), 8).seen;
  }
  Score out;
  for (const auto& [layer, r] : layers) {
    const Readings found = readings(sequence(layer), sequence(r.letters), 8, seen);
    for (const int t : r.truth) out.pairable += t != kFusedOp;
    for (const auto& [i, j] : found.sure) (r.truth[j] == static_cast<int>(i) ? out.right : out.wrong) += 1;
    for (const Readings::Run& f : found.fused) (r.truth[f.b] == kFusedOp ? out.fused_right : out.fused_wrong) += 1;
  }
  return out;
}

}  // namespace

TEST_CASE("layers with fused, swapped or late ops have no wrong pair that is sure", "[gui]") {
  constexpr std::uint64_t kSeeds = 20;
  struct Case {
    const char* name;
    Rates rates;
    double least;  // of what has a partner
  };
  for (const auto& [name, rates, least] :
       {Case{"epilogues", {.epilogue = 0.15}, 0.9}, Case{"compiler", {.compiler = 0.1}, 0.85},
        Case{"both", {.epilogue = 0.15, .compiler = 0.1}, 0.78}, Case{"swaps", {.swap = 0.1}, 0.65},
        Case{"late", {.late = 0.3}, 0.88},
        Case{"late and fused", {.epilogue = 0.1, .compiler = 0.1, .late = 0.3}, 0.72},
        Case{"late and swapped", {.swap = 0.1, .late = 0.3}, 0.33},
        Case{"fused and swapped", {.epilogue = 0.15, .swap = 0.1}, 0.25},
        Case{"all at once", {.epilogue = 0.15, .compiler = 0.1, .swap = 0.1, .late = 0.3}, 0.16},
        Case{"little of all", {.epilogue = 0.02, .compiler = 0.02, .swap = 0.02, .late = 0.05}, 0.69}}) {
    Score all;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const Score s = score(rates, seed);
      INFO(name << ", seed " << seed << ": " << s.right << " of " << s.pairable << " right, " << s.wrong
                << " wrong; fused " << s.fused_right << " right, " << s.fused_wrong << " wrong");
      CHECK(s.wrong == 0);
      CHECK(s.fused_wrong == 0);
      CHECK(s.right >= least * s.pairable);
      all.pairable += s.pairable;
      all.right += s.right;
    }
    WARN(name << ": " << all.right << " of " << all.pairable << " sure and right");
  }
}
