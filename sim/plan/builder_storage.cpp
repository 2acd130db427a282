// SPDX-License-Identifier: Apache-2.0
// PlanBuilder: which op takes the storage of a tensor, and which give it back.
#include <algorithm>
#include <bit>
#include <set>

#include "sim/plan/block_copies.hpp"
#include "sim/plan/operand_bits.hpp"
#include "sim/plan/repeated_block.hpp"

namespace orrery {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

struct Uses {
  std::uint32_t first = kNone;  // operand; none where it is known already who takes the storage
  std::uint16_t later = 0;      // streams on which a later op uses it
};

/// How the operands of a block take and give back the storage of tensors that were made in it.
struct BlockMarks {
  struct Owner {
    TensorId owner;
    std::uint32_t first = 0, last = 0;  // of `operands`
  };
  std::vector<std::uint32_t> alone;     // per operand: the bits of it where nobody else uses these tensors
  std::vector<Owner> owners;            // of tensors that others may use
  std::vector<std::uint32_t> operands;  // of all owners, counted in the block, in order
  std::vector<std::uint16_t> streams;   // per operand: of its op, one bit
  std::vector<std::uint8_t> lasts;      // per operand: of persistent storage
};

std::uint16_t bit_of(Stream s) { return static_cast<std::uint16_t>(1u << static_cast<unsigned>(s)); }

/// Ops are walked from the last to the first.
class StorageMarks {
 public:
  explicit StorageMarks(Plan& plan) : plan_{plan}, uses_(plan.tensors.size()) {}

  void mark_ops(std::size_t first, std::size_t end) {
    for (std::size_t op = end; op-- > first;) {
      const std::uint32_t begin = plan_.ops[op].first_operand;
      for (std::uint32_t i = begin + plan_.ops[op].num_operands; i-- > begin;) mark(i, bit_of(plan_.ops[op].stream));
    }
  }

  /// What a block that is like this one does with tensors of its own, when nobody else uses them. `others`: operands
  /// that name tensors of others, in order; `lent`: owners that others use in some copy.
  BlockMarks marks_of(OpId first, std::uint32_t num_ops, const std::vector<std::uint32_t>& others,
                      const std::set<TensorId>& lent) const {
    BlockMarks out;
    std::vector<std::pair<TensorId, std::uint32_t>> own;  // owner, operand
    auto other = others.begin();
    for (std::uint32_t i = 0; i < num_ops; ++i)
      for (const Operand& o : plan_.operands_of(plan_.ops[first.index() + i])) {
        const auto k = static_cast<std::uint32_t>(out.streams.size());
        out.streams.push_back(bit_of(plan_.ops[first.index() + i].stream));
        out.lasts.push_back(plan_.tensors[plan_.owner(o.tensor()).index()].persistent);
        if (other != others.end() && *other == k)
          ++other;
        else
          own.emplace_back(plan_.owner(o.tensor()), k);
      }
    out.alone.resize(out.streams.size());
    std::sort(own.begin(), own.end());
    for (const auto& [owner, k] : own) {
      const auto place = static_cast<std::uint32_t>(out.operands.size());
      if (out.owners.empty() || out.owners.back().owner != owner) out.owners.push_back({owner, place, place});
      out.owners.back().last = place + 1;
      out.operands.push_back(k);
    }
    for (const BlockMarks::Owner& o : out.owners) {
      std::uint16_t later = 0;
      for (std::uint32_t n = o.last; n-- > o.first && !plan_.tensors[o.owner.index()].persistent;) {
        const std::uint32_t k = out.operands[n];
        Operand mark;
        mark.set_frees(!(later & out.streams[k]));
        mark.set_allocates(n == o.first);
        out.alone[k] = std::bit_cast<std::uint32_t>(mark);
        later |= out.streams[k];
      }
    }
    std::erase_if(out.owners, [&](const BlockMarks::Owner& o) { return !lent.contains(o.owner); });
    return out;
  }

  /// A tensor made in a repetition is used by others only behind it: they have been walked. Those that nobody else uses
  /// are marked as they would be if there were nothing but the block. Persistent storage has no marks, and who uses it
  /// is seen where the block comes first. `like`: the operands of the block.
  void mark_repeated(const Repetition& r, const Operand* like, const BlockMarks& marks,
                     const std::vector<std::uint32_t>& others) {
    Operand* const operands = plan_.operands.data() + r.first_operand;
    set_bits(operands, marks.alone.data(), marks.alone.size());
    for (auto k = others.rbegin(); k != others.rend(); ++k)
      if (operands[*k].tensor() != like[*k].tensor() || !marks.lasts[*k]) mark(r.first_operand + *k, marks.streams[*k]);
    for (const BlockMarks::Owner& o : marks.owners)
      if (const std::size_t owner = o.owner.index() + r.moved; uses_[owner].later != 0)
        for (std::uint32_t n = o.last; n-- > o.first;)
          mark(r.first_operand + marks.operands[n], marks.streams[marks.operands[n]], owner,
               plan_.tensors[o.owner.index()].persistent);
  }

  void finish() {
    for (const std::uint32_t owner : transient_) plan_.operands[uses_[owner].first].set_allocates(true);
  }

  bool is_used(TensorId owner) const { return uses_[owner.index()].first != kNone; }

 private:
  /// All that comes behind it has been marked.
  void mark(std::uint32_t operand, std::uint16_t stream) {
    const std::size_t owner = plan_.owner(plan_.operands[operand].tensor()).index();
    mark(operand, stream, owner, plan_.tensors[owner].persistent);
  }
  void mark(std::uint32_t operand, std::uint16_t stream, std::size_t owner, bool lasts) {
    Operand& o = plan_.operands[operand];
    Uses& uses = uses_[owner];
    o.set_allocates(false);
    o.set_frees(!(uses.later & stream) && !lasts);
    uses.later |= stream;
    if (uses.first == kNone && !lasts) transient_.push_back(static_cast<std::uint32_t>(owner));
    uses.first = operand;
  }

  Plan& plan_;
  std::vector<Uses> uses_;
  std::vector<std::uint32_t> transient_;  // owners that are not persistent, of operands that have been marked
};

}  // namespace

/// Storage is taken by the first op that uses an owner and given back by the last one of each stream. Parameters that
/// no op uses are not of this plan: a decoder's has no encoder.
void PlanBuilder::mark_storage() {
  struct Known {
    std::vector<std::uint32_t> others;
    BlockMarks marks;
  };
  StorageMarks storage{plan_};
  std::map<OpId, Known> blocks;  // by the first op of what repetitions are like
  std::size_t end = plan_.ops.size();
  for (auto r = plan_.repetitions.rbegin(); r != plan_.repetitions.rend(); ++r) {
    storage.mark_ops(r->first.index() + r->num_ops, end);
    end = r->first.index();
    const auto [known, is_new] = blocks.try_emplace(r->like);
    auto& [others, marks] = known->second;
    if (is_new) {
      const BlockCopies::Recipe& recipe = copies_->recipe(r->like, r->num_ops);
      for (const BlockCopies::Recipe::Other& o : recipe.others) others.push_back(o.operand);
      std::set<TensorId> lent;
      for (const std::uint32_t t : recipe.lent) lent.insert(TensorId{recipe.block.first_tensor.index() + t});
      marks = storage.marks_of(r->like, r->num_ops, others, lent);
    }
    storage.mark_repeated(*r, plan_.operands.data() + plan_[r->like].first_operand, marks, others);
  }
  storage.mark_ops(0, end);
  storage.finish();
  std::erase_if(plan_.placements,
                [&](const ParameterPlacement& p) { return !storage.is_used(plan_.owner(p.weight.tensor)); });
  keep_moves();
}

/// Tensors of a copy are those of its block, moved, if the block takes the storage of tensors alone that were made in
/// it.
void PlanBuilder::keep_moves() {
  std::map<OpId, bool> blocks;
  for (Repetition& r : plan_.repetitions) {
    const auto [known, is_new] = blocks.try_emplace(r.like);
    if (is_new) {
      const RepeatedBlock block = repeated_block(plan_, r.like, r.num_ops);
      const OpBlock& made = copies_->recipe(r.like, r.num_ops).block;
      const std::size_t first = block.first_own.value - std::size_t{made.first_tensor.value};
      known->second =
          !block.lends &&
          (block.num_own == 0 || (block.first_own >= made.first_tensor && first + block.num_own <= made.num_tensors));
    }
    if (!known->second) r.moved = kNotMoved;
  }
}

}  // namespace orrery
