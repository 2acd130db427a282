// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "sim/plan/builder.hpp"
#include "sim/plan/last_uses.hpp"

namespace orrery {

/// The blocks of a plan under construction that are added again, and who has used what they touch. A copy costs what it
/// shares with other ops: its own tensors are moved with it, and storage that all copies touch alike, on one stream and
/// with nobody else between them (weights, sums of gradients), is *calm*: it puts no copy behind another op. Its last
/// uses are noted when somebody else asks for them.
class BlockCopies {
 public:
  /// What repeating a block takes, found once: all operands but `others` name tensors that were made in the block.
  struct Recipe {
    struct Other {
      std::uint32_t operand = 0, op = 0;  // counted in the block
      TensorId owner;
      bool is_read = false;  // and so is all of the block that names the same storage
    };
    struct Use {
      std::uint32_t op = 0;  // in the block
      Stream stream = Stream::Compute;
      bool writes = false;
    };
    /// An op of the block that a copy may have to order anew.
    struct Boundary {
      std::uint32_t op = 0, first_other = 0, num_others = 0;  // in the block; into `Split::others`
      bool is_after = false;                                  // it comes after ops before the block
    };
    /// Others by what copies do with them, as long as nobody else touches what is calm.
    struct Split {
      bool is_valid = false;
      std::vector<Replacement> replaced;  // `from` and `count` of what copies replace
      std::vector<std::uint32_t> fixed;   // operands that copies name too
      std::vector<Other> free;            // that they replace
      std::vector<Other> others;          // that are not calm
      std::vector<Boundary> boundary;     // the first op, and those that have any, or that come after any op

      bool holds(std::span<const Replacement> r) const;
    };

    OpBlock block;
    std::uint32_t first_operand = 0, num_operands = 0;
    std::vector<Other> others;
    std::vector<std::uint32_t> waiting;  // ops that come after any op
    std::vector<std::uint32_t> views;    // tensors made in the block that own no storage
    // Of the tensors made in the block: the writer, then those that read it since.
    std::vector<Use> last_uses;
    std::vector<std::uint32_t> first_use;  // per tensor, and the end
    std::vector<std::uint32_t> lent;       // tensors of a copy that others have been found to use
    Split split;
    OpId latest;  // the first op of the last copy
  };

  BlockCopies(Plan& plan, LastUses& uses) : plan_{plan}, uses_{uses} {}
  BlockCopies(const BlockCopies&) = delete;

  /// Adds the ops of a block again; see PlanBuilder::repeat.
  OpBlock repeat(const OpBlock& block, std::span<const Replacement> replaced, std::uint16_t microbatch, OpId after);
  /// Somebody is about to use this storage: if copies have used it, that is noted.
  void recall(TensorId owner) {
    if (!calm_.empty() && calm_.begin()->first <= owner && owner <= calm_.rbegin()->first) disturb(owner);
    if (!copies_.empty() && uses_.is_fresh(owner)) recall_own(owner);
  }
  /// Ops of another class follow, which touch other tensors.
  void end_class();
  const Recipe& recipe(OpId first, std::uint32_t num_ops) const { return recipes_.at({first, num_ops}); }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Copy {
    OpBlock block;
    Recipe* recipe = nullptr;
  };
  /// How copies of a block use an owner: the last op that writes it, and the last that reads it since.
  struct CalmUse {
    Recipe* recipe = nullptr;
    std::uint32_t writer = kNone, reader = kNone;  // counted in the block
  };
  struct Calm {
    Stream stream = Stream::Compute;
    std::vector<CalmUse> uses;
  };
  /// What a block does with an owner that it has not made.
  struct Shared {
    CalmUse use;
    Stream stream = Stream::Compute;
    bool is_fixed = true, has_one_stream = true;
  };
  using SharedOwners = std::map<TensorId, Shared>;

  Recipe recipe_of(const OpBlock& block) const;
  void note_own_uses(Recipe& recipe, const LastUses& own) const;
  void split(Recipe& recipe, std::span<const Replacement> replaced);
  SharedOwners shared_owners(Recipe& recipe, std::span<const Replacement> replaced) const;
  bool may_be_calm(TensorId owner, const Shared& shared) const;
  void find_calm(Recipe& recipe, SharedOwners& owners);
  void disturb(TensorId owner);
  void note_calm(TensorId owner, const Calm& calm);
  void recall_own(TensorId owner);
  void note_copied(const Copy& copy, std::uint32_t tensor);
  void copy_tensors(const Recipe& recipe, TensorId first, std::span<const Replacement> replaced);
  bool copy_operands(const Recipe& recipe, TensorId first, std::span<const Replacement> replaced);
  void copy_ops(const Recipe& recipe, OpId first, std::uint16_t microbatch, OpId after, bool may_write);
  void order_op(const Recipe& recipe, const Recipe::Boundary& b, OpId first, OpId after, bool may_write);

  Plan& plan_;
  LastUses& uses_;
  PagesAhead op_pages_, operand_pages_, tensor_pages_;        // of the plan
  std::map<std::pair<OpId, std::uint32_t>, Recipe> recipes_;  // by the first op and the number of ops
  std::vector<Copy> copies_;                                  // in order
  std::map<TensorId, Calm> calm_;                             // by owner, of the class at hand
  std::vector<TensorId> touched_;                             // scratch: owners of operands of an op
};

}  // namespace orrery
