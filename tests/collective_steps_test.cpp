// SPDX-License-Identifier: Apache-2.0
// An interpreter runs every algorithm for 1 to 17 members and compares the results with direct sums.
#include <catch2/catch.hpp>
#include <random>

#include "sim/plan/collective_steps.hpp"

using namespace orrery;

namespace {

using List = std::vector<double>;
using K = CollectiveKind;
using A = CollectiveAlgorithm;

std::int64_t first_of(std::int64_t elements, std::int64_t c, std::int64_t n) { return elements * c / n; }

/// All members of a collective with their buffers; member i's input holds 1000·i + element, or what is its part of
/// that.
class Members {
 public:
  Members(const CollectiveShape& shape, std::uint32_t seed) : shape_{shape}, random_{seed} {
    for (std::int64_t i = 0; i < shape.members; ++i) {
      const auto chunk = [&](List whole) {
        return List(whole.begin() + first_of(shape.elements, i, shape.members),
                    whole.begin() + first_of(shape.elements, i + 1, shape.members));
      };
      List in;
      for (std::int64_t e = 0; e < shape.elements; ++e) in.push_back(value(i, e));
      const List nothing(in.size(), -1.0);
      inputs_.push_back(shape.kind == K::AllGather ? chunk(in) : in);
      outputs_.push_back(shape.kind == K::ReduceScatter ? chunk(nothing) : nothing);
      if (shape.in_place && shape.kind == K::AllGather)
        std::copy(inputs_.back().begin(), inputs_.back().end(),
                  outputs_.back().begin() + first_of(shape.elements, i, shape.members));
      else if (shape.in_place)
        outputs_.back() = inputs_.back();
      stages_.emplace_back(stage_elements(shape), -2.0);
      for (int lane = 0; lane < num_lanes(shape); ++lane) {
        lanes_.push_back({CollectiveSteps{shape, i, lane}});
      }
    }
  }

  static double value(std::int64_t member, std::int64_t element) {
    return static_cast<double>(1000 * member + element);
  }
  const List& out(std::int64_t i) const { return outputs_[static_cast<std::size_t>(i)]; }
  const List& in(std::int64_t i) const { return shape_.in_place ? out(i) : inputs_[static_cast<std::size_t>(i)]; }

  /// As the runtime does: nobody waits for what it has sent. Members take their turns at random.
  void run_eagerly() {
    std::vector<std::size_t> turns(lanes_.size());
    for (std::size_t i = 0; i < turns.size(); ++i) turns[i] = i;
    for (bool moved = true; moved;) {
      moved = false;
      std::shuffle(turns.begin(), turns.end(), random_);
      for (const std::size_t l : turns)
        if (can_step(l)) step(l), moved = true;
    }
    for (const Lane& l : lanes_) CHECK(l.done == l.steps.size());
  }

  /// As the engine does: a step ends when both of its messages are through. Nobody's values move; the number of turns
  /// in which all messages that can go do so.
  std::int64_t run_in_step() {
    std::vector<std::int64_t> at(lanes_.size(), 0);
    std::vector<int> left(lanes_.size(), -1);
    for (std::int64_t turns = 0;; ++turns) {
      for (std::size_t l = 0; l < lanes_.size(); ++l) enter(l, at[l], left[l]);
      std::vector<std::size_t> ended;
      for (std::size_t l = 0; l < lanes_.size(); ++l) {
        if (at[l] == lanes_[l].steps.size()) continue;
        const CollectiveStep s = lanes_[l].steps[at[l]];
        if (s.from == kNobody || got_[l] == at[l] || at[lane_of(s.from, l)] != s.from_step) continue;
        ended.push_back(l);
      }
      if (ended.empty()) {
        for (std::size_t l = 0; l < lanes_.size(); ++l) CHECK(at[l] == lanes_[l].steps.size());
        return turns;
      }
      for (const std::size_t l : ended) {
        const CollectiveStep s = lanes_[l].steps[at[l]];
        got_[l] = at[l];
        --left[l], --left[lane_of(s.from, l)];
      }
      for (std::size_t l = 0; l < lanes_.size(); ++l)
        if (left[l] == 0) ++at[l], left[l] = -1;
    }
  }

  std::int64_t sent(std::int64_t member) const {
    std::int64_t sum = 0;
    for_each_step(member, [&](const CollectiveStep& s) { sum += s.to == kNobody ? 0 : s.source.count; });
    return sum;
  }
  std::int64_t exchanges(std::int64_t member) const {
    std::int64_t sum = 0;
    for_each_step(member, [&](const CollectiveStep& s) { sum += s.is_local() ? 0 : 1; });
    return sum;
  }

 private:
  struct Lane {
    CollectiveSteps steps;
    std::int64_t done = 0;
    CollectiveStep last = {};
  };

  template <class F>
  void for_each_step(std::int64_t member, F&& f) const {
    for (int lane = 0; lane < num_lanes(shape_); ++lane) {
      const CollectiveSteps steps{shape_, member, lane};
      for (std::int64_t k = 0; k < steps.size(); ++k) f(steps[k]);
    }
  }
  std::size_t lane_of(std::int32_t member, std::size_t like) const {
    const auto lanes = static_cast<std::size_t>(num_lanes(shape_));
    return static_cast<std::size_t>(member) * lanes + like % lanes;
  }
  List& buffer(std::size_t member, StepBuffer b) {
    if (b == StepBuffer::Stage) return stages_[member];
    const bool is_output = b == StepBuffer::Out || (shape_.in_place && shape_.kind != K::AllGather);
    return is_output ? outputs_[member] : inputs_[member];
  }
  List read(std::size_t member, const StepSlot& s) {
    List out;
    for_each_stretch(s, s, s, [&](std::int64_t first, std::int64_t, std::int64_t, std::int64_t n) {
      const List& b = buffer(member, s.buffer);
      REQUIRE(first + n <= static_cast<std::int64_t>(b.size()));
      out.insert(out.end(), b.begin() + first, b.begin() + first + n);
    });
    return out;
  }
  void write(std::size_t member, const StepSlot& s, const List& values) {
    REQUIRE(s.count == static_cast<std::int64_t>(values.size()));
    const StepSlot all{.count = s.count};
    for_each_stretch(all, s, s, [&](std::int64_t from, std::int64_t first, std::int64_t, std::int64_t n) {
      List& b = buffer(member, s.buffer);
      REQUIRE(first + n <= static_cast<std::int64_t>(b.size()));
      std::copy_n(values.begin() + from, n, b.begin() + first);
    });
  }
  bool can_step(std::size_t l) {
    Lane& lane = lanes_[l];
    if (lane.done == lane.steps.size()) return false;
    const CollectiveStep s = lane.steps[lane.done];
    if (s.reuses && lane.last.to != kNobody && lanes_[lane_of(lane.last.to, l)].done <= lane.last.to_step) return false;
    return s.from == kNobody || lanes_[lane_of(s.from, l)].done >= s.since;
  }
  void step(std::size_t l) {
    Lane& lane = lanes_[l];
    const std::size_t member = l / static_cast<std::size_t>(num_lanes(shape_));
    const CollectiveStep s = lane.steps[lane.done];
    if (s.is_local()) write(member, s.target, read(member, s.own));
    if (s.from != kNobody) {
      const CollectiveStep sender = lanes_[lane_of(s.from, l)].steps[s.from_step];
      REQUIRE(sender.to == static_cast<std::int32_t>(member));
      REQUIRE(sender.to_step == lane.done);
      REQUIRE(sender.source == s.theirs);
      List got = read(static_cast<std::size_t>(s.from), s.theirs);
      if (s.reduces) {
        const List own = read(member, s.own);
        for (std::size_t e = 0; e < got.size(); ++e) got[e] += own[e];
      }
      write(member, s.target, got);
    }
    lane.last = s;
    ++lane.done;
  }
  void enter(std::size_t l, std::int64_t& at, int& left) {
    got_.resize(lanes_.size(), -1);
    while (left < 0 && at < lanes_[l].steps.size()) {
      const CollectiveStep s = lanes_[l].steps[at];
      if (!s.is_local())
        left = (s.to != kNobody) + (s.from != kNobody);
      else
        ++at;
    }
  }

  CollectiveShape shape_;
  std::mt19937 random_;
  std::vector<List> inputs_, outputs_, stages_;
  std::vector<Lane> lanes_;
  std::vector<std::int64_t> got_;
};

/// What element e of member i's output must be.
double expected(const CollectiveShape& s, std::int64_t i, std::int64_t e) {
  const auto n = s.members;
  const auto sum = [&](std::int64_t at) {
    double all = 0;
    for (std::int64_t j = 0; j < n; ++j) all += Members::value(j, at);
    return all;
  };
  std::int64_t chunk = 0;
  while (first_of(s.elements, chunk + 1, n) <= e) ++chunk;
  switch (s.kind) {
    case K::AllReduce:
      return sum(e);
    case K::AllGather:
      return Members::value(chunk, e);
    case K::ReduceScatter:
      return sum(first_of(s.elements, i, n) + e);
    case K::AllToAll:
      return Members::value(chunk, s.elements / n * i + e % (s.elements / n));
    case K::Broadcast:
      return Members::value(s.root, e);
    case K::Reduce:
      return i == s.root ? sum(e) : s.in_place ? Members::value(i, e) : -1;
    case K::Shift:
      return Members::value(((i - s.root) % n + n) % n, e);
    case K::Barrier:
      return s.in_place ? Members::value(i, e) : -1;
  }
  return 0;
}

void check_results(const CollectiveShape& s, std::uint32_t seed) {
  CAPTURE(name_of(s.kind), name_of(s.algorithm), s.members, s.elements, s.root, s.pieces, s.per_node, s.in_place);
  Members m{s, seed};
  m.run_eagerly();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < s.members; ++i)
    for (std::size_t e = 0; e < m.out(i).size(); ++e)
      wrong += m.out(i)[e] != expected(s, i, static_cast<std::int64_t>(e));
  CHECK(wrong == 0);
  Members{s, seed}.run_in_step();
}

constexpr K kKinds[] = {K::AllReduce, K::AllGather, K::ReduceScatter, K::AllToAll,
                        K::Broadcast, K::Reduce,    K::Shift,         K::Barrier};
constexpr A kAlgorithms[] = {A::Ring, A::Tree, A::DoubleTree, A::Halving, A::Hierarchical, A::Direct, A::Bruck};

template <class F>
void for_each_algorithm(F&& f) {
  for (const K kind : kKinds)
    for (const A algorithm : kAlgorithms)
      if (has_algorithm(kind, algorithm)) f(kind, algorithm);
}

}  // namespace

TEST_CASE("every algorithm gives what its kind says, in any order of its members", "[collective]") {
  const std::int64_t n = GENERATE(range(1, 18));
  std::uint32_t seed = 0;
  for_each_algorithm([&](K kind, A algorithm) {
    for (const std::int64_t elements : {n, 7 * n, 5 * n + 3, std::int64_t{2}})
      for (const bool in_place : {false, true}) {
        if (kind == K::AllToAll && elements % n != 0) continue;
        if (kind == K::ReduceScatter && in_place) continue;  // as out of place: the output is a place of the input
        CollectiveShape s{.kind = kind, .algorithm = algorithm, .members = n, .elements = elements};
        s.in_place = in_place;
        s.root = static_cast<std::int32_t>(n > 1 ? (elements + 1) % n : 0);
        s.pieces = 1 + elements % 4;
        for (s.per_node = 1; s.per_node <= n; ++s.per_node) {
          if (n % s.per_node != 0) continue;
          check_results(s, ++seed);
          if (algorithm != A::Hierarchical) break;
        }
      }
  });
}

TEST_CASE("a shift goes any number of places either way", "[collective]") {
  for (std::int32_t places = -7; places <= 7; ++places)
    for (const bool in_place : {false, true}) {
      CollectiveShape s{.kind = K::Shift, .algorithm = A::Direct, .members = 5, .elements = 6, .root = places};
      s.in_place = in_place;
      check_results(s, 1);
    }
}

TEST_CASE("members send what the formulas say, in as many exchanges", "[collective]") {
  const std::int64_t n = GENERATE(2, 3, 4, 7, 8, 16, 17);
  const std::int64_t elements = 12 * n, chunk = 12, rounds = std::int64_t(std::ceil(std::log2(double(n))));
  const auto check = [&](K kind, A algorithm, std::int64_t exchanges, std::int64_t sent) {
    CAPTURE(n, name_of(kind), name_of(algorithm));
    CollectiveShape s{.kind = kind, .algorithm = algorithm, .members = n, .elements = elements, .root = 1};
    s.per_node = n % 4 == 0 ? 4 : 1;
    const Members m{s, 1};
    for (std::int64_t i = 0; i < n; ++i) {
      CHECK(m.exchanges(i) == exchanges);
      CHECK(m.sent(i) == sent);
    }
    CHECK(Members{s, 1}.run_in_step() == exchanges);  // all in step: as many turns
  };
  const std::int64_t most = (n - 1) * chunk, nodes = n % 4 == 0 ? n / 4 : n;
  check(K::AllReduce, A::Ring, 2 * (n - 1), 2 * most);
  check(K::AllReduce, A::Direct, 2 * (n - 1), 2 * most);
  check(K::AllReduce, A::Halving, 2 * rounds, 2 * most);
  check(K::AllReduce, A::Hierarchical, 2 * (n / nodes - 1) + 2 * (nodes - 1), 2 * most);
  for (const K kind : {K::AllGather, K::ReduceScatter}) {
    check(kind, A::Ring, n - 1, most);
    check(kind, A::Direct, n - 1, most);
    check(kind, A::Halving, rounds, most);
  }
  check(K::AllToAll, A::Direct, n - 1, most);
  check(K::Shift, A::Direct, 1, elements);
  check(K::Barrier, A::Direct, rounds, 0);
  std::int64_t bits = 0;  // set in all the numbers of places
  for (std::int64_t j = 0; j < n; ++j) bits += std::popcount(static_cast<std::uint64_t>(j));
  check(K::AllToAll, A::Bruck, rounds, bits * chunk);
}

TEST_CASE("trees send the message once over each of their edges and end after as many turns as they are deep",
          "[collective]") {
  const std::int64_t n = GENERATE(2, 3, 4, 7, 8, 16, 17), elements = 24;
  const auto total = [&](const CollectiveShape& s) {
    const Members m{s, 1};
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += m.sent(i);
    return sum;
  };
  for (const K kind : {K::Broadcast, K::Reduce}) {
    CollectiveShape s{.kind = kind, .algorithm = A::Tree, .members = n, .elements = elements, .root = 1};
    CHECK(total(s) == (n - 1) * elements);
    CHECK(Members{s, 1}.run_in_step() == std::int64_t(std::ceil(std::log2(double(n)))));
    // A pipeline of p pieces through n members: n − 1 + p − 1 turns.
    s.algorithm = A::Ring, s.pieces = 6;
    CHECK(total(s) == (n - 1) * elements);
    CHECK(Members{s, 1}.run_in_step() == n - 1 + 6 - 1);
  }
  for (const A algorithm : {A::Tree, A::DoubleTree}) {
    CollectiveShape s{.kind = K::AllReduce, .algorithm = algorithm, .members = n, .elements = elements, .pieces = 3};
    CHECK(total(s) == 2 * (n - 1) * elements);
  }
}

TEST_CASE("nobody is a leaf of both trees of an even number of members", "[collective]") {
  const std::int64_t n = GENERATE(2, 4, 6, 8, 16);
  const CollectiveShape s{.kind = K::AllReduce, .algorithm = A::DoubleTree, .members = n, .elements = 64};
  for (std::int64_t i = 0; i < n; ++i) {
    int inside = 0;  // trees in which it adds what children send
    for (int lane = 0; lane < 2; ++lane) inside += CollectiveSteps{s, i, lane}[0].reduces;
    CHECK(inside >= 1);
  }
}

TEST_CASE("a kind that cannot be done as wanted is done as usual", "[collective]") {
  CHECK(usable_algorithm(K::AllReduce, A::Halving, 8, 4) == A::Halving);
  CHECK(usable_algorithm(K::AllReduce, A::Hierarchical, 9, 4) == A::Ring);
  CHECK(usable_algorithm(K::AllToAll, A::Ring, 8, 4) == A::Direct);
  CHECK(usable_algorithm(K::Reduce, A::Halving, 8, 4) == A::Tree);
}
