// SPDX-License-Identifier: Apache-2.0
#include "gui/core/readings.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace orrery::gui {
namespace {

/// Beyond this many cells two sequences are only compared at kinds that occur once.
constexpr std::size_t kMaxCells = 4'000'000;
constexpr std::uint32_t kMissing = 2, kOtherKind = 3, kSwapped = 2;
/// So much more than the best readings may cost one that has to be thought of as well; and where much was done.
constexpr std::uint32_t kDoubt = 2, kMoreDoubt = 4;
/// Much was done where more than one layer in so many was.
constexpr std::uint64_t kOften = 20;

/// Kinds that occur once on both sides, in the same order on both: those that do not cross.
Places unique_pairs(const Sequence& a, const Sequence& b) {
  struct Seen {
    std::size_t in_a = 0, in_b = 0, a = 0, b = 0;
  };
  std::unordered_map<std::uint64_t, Seen> seen;
  for (std::size_t i = 0; i < a.size(); ++i) seen[a[i].kind].a = i, ++seen[a[i].kind].in_a;
  for (std::size_t j = 0; j < b.size(); ++j) seen[b[j].kind].b = j, ++seen[b[j].kind].in_b;
  Places all;
  for (const auto& [kind, s] : seen)
    if (s.in_a == 1 && s.in_b == 1) all.emplace_back(s.a, s.b);
  std::sort(all.begin(), all.end());
  Places kept;
  for (const auto& p : all)
    if (kept.empty() || p.second > kept.back().second) kept.push_back(p);
  return kept;
}

/// What an op is in the other sequence in one reading.
struct Part {
  enum class Role : std::uint8_t { Missing, Pair, Swapped, OtherKind, Whole, Member } role = Role::Missing;
  std::size_t first = 0, count = 0;  // of the other sequence
  bool operator==(const Part&) const = default;
};

/// What an op is in several readings together.
struct Parts {
  Part part;
  bool is_known = false, differs = false;
  bool is_paired = false;          // in one of them
  std::size_t partner = SIZE_MAX;  // the last that was noted
  bool has_partners = false;       // there are several

  void note(const Part& p) {
    differs = differs || (is_known && !(p == part));
    part = p;
    is_known = true;
    is_paired = is_paired || p.role == Part::Role::Pair || p.role == Part::Role::Swapped;
  }
  void note_partner(std::size_t other) {
    has_partners = has_partners || (partner != SIZE_MAX && partner != other);
    partner = other;
  }
  bool is_sure(Part::Role role) const { return is_known && !differs && part.role == role; }
};

std::uint32_t cost_of_run(std::size_t k, bool is_fused) {
  return kMissing * static_cast<std::uint32_t>(k - (is_fused ? 2 : 1));
}

class Reader {
 public:
  Reader(const Sequence& a, const Sequence& b, std::size_t longest_run, const Readings::Seen& elsewhere)
      : a_{a},
        b_{b},
        longest_{longest_run},
        elsewhere_{elsewhere},
        width_{b.size() + 1},
        to_(width_ * (a.size() + 1), UINT32_MAX) {
    at(to_, 0, 0) = 0;
    for (std::size_t i = 0; i <= a.size(); ++i)
      for (std::size_t j = 0; j <= b.size(); ++j)
        each_step(i, j, [&](std::size_t k, std::size_t l, std::uint32_t cost) {
          std::uint32_t& next = at(to_, i + k, j + l);
          next = std::min(next, at(to_, i, j) + cost);
        });
  }

  Readings read() {
    Readings out;
    walk_back(0);
    const std::vector<Parts> best_a = parts_a_, best_b = parts_b_;
    out.seen = {1, has_swaps_, has_changes()};
    const auto is_often = [&](std::uint64_t layers) { return kOften * layers > elsewhere_.layers; };
    const bool has_cost = at(to_, a_.size(), b_.size()) > 0;
    walk_back(has_cost && is_often(elsewhere_.swapped) && is_often(elsewhere_.changed) ? kMoreDoubt : kDoubt);
    for (std::size_t i = 0; i < a_.size(); ++i) {
      const Parts& p = parts_a_[i];
      if (p.is_sure(Part::Role::Pair)) out.sure.emplace_back(i, p.part.first);
      if (p.is_sure(Part::Role::Whole)) out.fused.push_back({i, 1, p.part.first, p.part.count});
    }
    for (std::size_t j = 0; j < b_.size(); ++j)
      if (const Parts& p = parts_b_[j]; p.is_sure(Part::Role::Whole))
        out.fused.push_back({p.part.first, p.part.count, j, 1});
    const std::set<std::pair<std::size_t, std::size_t>> sure{out.sure.begin(), out.sure.end()};
    for (std::size_t i = 0; i < a_.size(); ++i)
      if (const std::pair pair{i, best_a[i].partner}; is_likely(best_a[i], best_b) && !sure.contains(pair))
        out.likely.push_back(pair);
    return out;
  }

 private:
  /// The two sides have other ops, in whatever order.
  bool has_changes() const {
    const auto kinds = [](const Sequence& s) {
      std::vector<std::uint64_t> out;
      for (const SequenceItem& i : s) out.push_back(i.kind);
      std::sort(out.begin(), out.end());
      return out;
    };
    return kinds(a_) != kinds(b_);
  }

  std::uint32_t& at(std::vector<std::uint32_t>& cells, std::size_t i, std::size_t j) const {
    return cells[i * width_ + j];
  }

  /// One partner and no other in the best readings.
  static bool is_likely(const Parts& p, const std::vector<Parts>& others) {
    return p.is_paired && !p.has_partners && others[p.partner].is_paired && !others[p.partner].has_partners;
  }

  /// All steps from one place: so many ops of a, so many of b, and what that costs.
  template <class Visit>
  void each_step(std::size_t i, std::size_t j, Visit visit) const {
    const std::size_t n = a_.size() - i, m = b_.size() - j;
    if (n > 0) visit(1, 0, kMissing);
    if (m > 0) visit(0, 1, kMissing);
    if (n == 0 || m == 0) return;
    if (a_[i] == b_[j])
      visit(1, 1, 0u);
    else if (longest_ > 1)
      visit(1, 1, a_[i].is_fused || b_[j].is_fused ? kMissing : kOtherKind);
    if (longest_ > 1 && n > 1 && m > 1 && are_swapped(i, j)) visit(2, 2, kSwapped);
    for (std::size_t k = 2; k <= std::min(longest_, n); ++k) visit(k, 1, cost_of_run(k, b_[j].is_fused));
    for (std::size_t l = 2; l <= std::min(longest_, m); ++l) visit(1, l, cost_of_run(l, a_[i].is_fused));
    if (elsewhere_.swapped > 0) each_swapped_run(i, j, visit);
  }

  /// Steps in which an op changed places with a run behind it, or with one before it.
  template <class Visit>
  void each_swapped_run(std::size_t i, std::size_t j, Visit visit) const {
    const std::size_t n = a_.size() - i, m = b_.size() - j;
    if (m > 1 && !(b_[j] == b_[j + 1]))
      for (std::size_t k = 2; k <= longest_ && k < n; ++k) {
        if (a_[i] == b_[j + 1]) visit(k + 1, 2, kSwapped + cost_of_run(k, b_[j].is_fused));
        if (a_[i + k] == b_[j]) visit(k + 1, 2, kSwapped + cost_of_run(k, b_[j + 1].is_fused));
      }
    if (n > 1 && !(a_[i] == a_[i + 1]))
      for (std::size_t l = 2; l <= longest_ && l < m; ++l) {
        if (b_[j] == a_[i + 1]) visit(2, l + 1, kSwapped + cost_of_run(l, a_[i].is_fused));
        if (b_[j + l] == a_[i]) visit(2, l + 1, kSwapped + cost_of_run(l, a_[i + 1].is_fused));
      }
  }

  bool are_swapped(std::size_t i, std::size_t j) const {
    return a_[i] == b_[j + 1] && a_[i + 1] == b_[j] && !(a_[i] == a_[i + 1]);
  }

  /// From the end: what each place costs to the end, and the steps of readings that cost no more than so much above the
  /// best.
  void walk_back(std::uint32_t doubt) {
    parts_a_.assign(a_.size(), {});
    parts_b_.assign(b_.size(), {});
    std::vector<std::uint32_t> from(to_.size(), UINT32_MAX);
    at(from, a_.size(), b_.size()) = 0;
    const std::uint32_t most = at(to_, a_.size(), b_.size()) + doubt;
    for (std::size_t i = a_.size() + 1; i-- > 0;)
      for (std::size_t j = b_.size() + 1; j-- > 0;) {
        if (at(to_, i, j) > most) continue;  // no such reading comes here
        each_step(i, j, [&](std::size_t k, std::size_t l, std::uint32_t cost) {
          const std::uint32_t there = at(from, i + k, j + l);
          if (there > most) return;
          const std::uint32_t rest = cost + there;
          at(from, i, j) = std::min(at(from, i, j), rest);
          if (at(to_, i, j) + rest <= most) note(i, j, k, l);
        });
      }
  }

  void note(std::size_t i, std::size_t j, std::size_t k, std::size_t l) {
    using enum Part::Role;
    has_swaps_ = has_swaps_ || (k > 1 && l > 1);
    if (l == 0) return parts_a_[i].note({});
    if (k == 0) return parts_b_[j].note({});
    if (k == 2 && l == 2) {
      note_pair(i, j + 1, Swapped);
      return note_pair(i + 1, j, Swapped);
    }
    if (k == 1 && l == 1) return note_pair(i, j, a_[i] == b_[j] ? Pair : OtherKind);
    if (k > 1 && l > 1) return note_swapped_run(i, j, k, l);
    note_run(i, j, k, l);
  }

  /// An op changed places with a run behind it, or with one before it.
  void note_swapped_run(std::size_t i, std::size_t j, std::size_t k, std::size_t l) {
    if (a_[i] == b_[j + l - 1]) {
      note_pair(i, j + l - 1, Part::Role::Swapped);
      note_run(i + 1, j, k - 1, l - 1);
    }
    if (a_[i + k - 1] == b_[j]) {
      note_pair(i + k - 1, j, Part::Role::Swapped);
      note_run(i, j + 1, k - 1, l - 1);
    }
  }

  void note_run(std::size_t i, std::size_t j, std::size_t k, std::size_t l) {
    using enum Part::Role;
    for (std::size_t x = i; x < i + k; ++x) parts_a_[x].note({k > 1 ? Member : Whole, j, l});
    for (std::size_t y = j; y < j + l; ++y) parts_b_[y].note({l > 1 ? Member : Whole, i, k});
    for (std::size_t x = i; x < i + k; ++x)
      for (std::size_t y = j; y < j + l; ++y) {
        // For a whole only a part of its own kind is a partner.
        if (k > 1 || a_[x] == b_[y]) parts_a_[x].note_partner(y);
        if (l > 1 || a_[x] == b_[y]) parts_b_[y].note_partner(x);
      }
  }

  void note_pair(std::size_t i, std::size_t j, Part::Role role) {
    parts_a_[i].note({role, j, 1});
    parts_b_[j].note({role, i, 1});
    parts_a_[i].note_partner(j);
    parts_b_[j].note_partner(i);
  }

  const Sequence &a_, &b_;
  std::size_t longest_;
  Readings::Seen elsewhere_;
  std::size_t width_;
  std::vector<std::uint32_t> to_;
  std::vector<Parts> parts_a_, parts_b_;
  bool has_swaps_ = false;  // one of the readings that were walked has
};

}  // namespace

Readings::Seen& Readings::Seen::operator+=(const Seen& o) {
  layers += o.layers;
  swapped += o.swapped;
  changed += o.changed;
  return *this;
}

Readings readings(const Sequence& a, const Sequence& b, std::size_t longest_run, const Readings::Seen& elsewhere) {
  Readings out;
  out.seen.layers = 1;
  if (a == b) {
    for (std::size_t i = 0; i < a.size(); ++i) out.sure.emplace_back(i, i);
    return out;
  }
  if ((a.size() + 1) * (b.size() + 1) > kMaxCells) {
    out.likely = unique_pairs(a, b);
    return out;
  }
  return Reader{a, b, longest_run, elsewhere}.read();
}

}  // namespace orrery::gui
