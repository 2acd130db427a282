// SPDX-License-Identifier: Apache-2.0
// What of two sequences of kernels is sure to be the same op: layers in which ops are fused, swapped or missing, of
// which it is known what was done to them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "gui/core/readings.hpp"
#include "sim/base/random.hpp"

using namespace orrery;
using namespace orrery::gui;

namespace {

/// Letters are kinds (N norm, G gemm, A elementwise, R rotation, P attention, M gate); F is a kernel that is known to
/// be fused.
Sequence sequence(const std::string& letters) {
  Sequence out;
  for (const char c : letters) out.push_back({static_cast<std::uint64_t>(c), c == 'F'});
  return out;
}

Places sure(const std::string& a, const std::string& b) { return readings(sequence(a), sequence(b), 8).sure; }

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

Score score(const Rates& rates) {
  constexpr const char* kLayers[] = {"NGGAGAG", "NGGGARGANGAGA", "NGAGANGAGA", "NGGGPGANGGMGA", "NAGNAGAG"};
  Random random{3};
  std::vector<std::pair<std::string, Recorded>> layers;
  Readings::Seen seen;
  for (int n = 0; n < 3000; ++n) {
    const std::string layer = kLayers[random.below(5)];
    layers.emplace_back(layer, recorded(layer, rates, random));
    seen |= readings(sequence(layer), sequence(layers.back().second.letters), 8).seen;
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

TEST_CASE("a product that may contain the op behind it is not sure to be the product alone", "[gui]") {
  // norm, up, act, down, norm: the act is gone. It may be in up or in down.
  CHECK(sure("NGAGN", "NGGN") == Places{{0, 0}, {4, 3}});
  CHECK(readings(sequence("NGAGN"), sequence("NGGN"), 8).likely == Places{{1, 1}, {3, 2}});
}

TEST_CASE("a missing op and one that looks like it make no wrong pair sure", "[gui]") {
  // up with its act inside, down, add, a cast of the same kind as act and add: one could read act and down as swapped.
  const Places all = sure("GAGA", "GGAA");
  for (const auto& [i, j] : all) {
    CHECK_FALSE((i == 0 && j == 0));
    CHECK_FALSE((i == 3 && j == 3));
  }
}

TEST_CASE("a kernel that is known to be fused stands for the ops between its neighbours", "[gui]") {
  const Readings r = readings(sequence("NGGARPG"), sequence("NGGAFG"), 8);
  REQUIRE(r.fused.size() == 1);
  CHECK((r.fused[0].a == 4 && r.fused[0].num_a == 2 && r.fused[0].b == 4 && r.fused[0].num_b == 1));
  CHECK(r.sure == Places{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {6, 5}});
}

TEST_CASE("ops that changed places are likely and not sure", "[gui]") {
  const Readings r = readings(sequence("NPGARM"), sequence("NPAGRM"), 8);
  for (const auto& [i, j] : r.sure) CHECK(i == j);
  const auto is_likely = [&](std::size_t i, std::size_t j) {
    return std::find(r.likely.begin(), r.likely.end(), std::pair{i, j}) != r.likely.end();
  };
  CHECK((is_likely(2, 3) && is_likely(3, 2)));
}

TEST_CASE("with runs of one, sure is what every longest common subsequence has", "[gui]") {
  const auto pairs = [](const std::string& a, const std::string& b) {
    return readings(sequence(a), sequence(b), 1).sure;
  };
  // The one G of b may be either G of a; A and N have one reading.
  CHECK(pairs("GGAN", "GAN") == Places{{2, 1}, {3, 2}});
  CHECK(pairs("GA", "NP").empty());
  CHECK(pairs("", "G").empty());
}

TEST_CASE("layers with fused, swapped or late ops have no wrong pair that is sure", "[gui]") {
  struct Case {
    const char* name;
    Rates rates;
    double least;  // of what has a partner
  };
  for (const auto& [name, rates, least] :
       {Case{"epilogues", {.epilogue = 0.15}, 0.85}, Case{"compiler", {.compiler = 0.1}, 0.8},
        Case{"both", {.epilogue = 0.15, .compiler = 0.1}, 0.7}, Case{"swaps", {.swap = 0.1}, 0.6},
        Case{"late", {.late = 0.3}, 0.85}, Case{"late and fused", {.epilogue = 0.1, .compiler = 0.1, .late = 0.3}, 0.6},
        Case{"late and swapped", {.swap = 0.1, .late = 0.3}, 0.5},
        Case{"fused and swapped", {.epilogue = 0.15, .swap = 0.1}, 0.5},
        Case{"all at once", {.epilogue = 0.15, .compiler = 0.1, .swap = 0.1, .late = 0.3}, 0.35}}) {
    const Score s = score(rates);
    INFO(name << ": " << s.right << " of " << s.pairable << " right, " << s.wrong << " wrong; fused " << s.fused_right
              << " right, " << s.fused_wrong << " wrong");
    CHECK(s.wrong == 0);
    CHECK(s.fused_wrong == 0);
    CHECK(s.right >= least * s.pairable);
  }
}

TEST_CASE("an op that changed places with a fused kernel behind it is not sure to be the one that was left", "[gui]") {
  // norm, up, gate, act, down, add, head: down moved behind the kernel that does add and head. It looks as if the
  // kernel did down and add.
  const Sequence layer = sequence("NGGAGAG"), kernels = sequence("NGGAFG");
  const Places apparent{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {6, 5}};
  CHECK(readings(layer, kernels, 8).sure == apparent);
  for (const auto& [i, j] : readings(layer, kernels, 8, {.swaps = true}).sure) CHECK((i == j && i < 4));
}
