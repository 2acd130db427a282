// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/plan/builder.hpp"

namespace orrery {

/// What of an op is another one when it is emitted again.
struct OpChange {
  std::optional<Work> work = {};
  std::optional<Stream> stream = {};
  std::vector<std::pair<TensorId, TensorId>> instead = {};  // operands of the old plan, and what takes their place
  std::optional<Phase> phase = {};
  std::string_view suffix = {};  // of its name
};

/// Builds a plan again, op by op, with some of its tensors elsewhere: the base of passes that move tensors between
/// tiers. A pass says where an owner stands from here on and emits ops in an order that keeps the plan's dependencies;
/// those between streams are made anew from the operands. Blocks that repeat are not told as such.
class PlanRewriter {
 public:
  explicit PlanRewriter(const Plan& from);

  const Plan& from() const { return *from_; }
  PlanBuilder& builder() { return builder_; }

  void begin_class(ClassId c);
  /// The same for some of its ranks, of which others follow: with tensors of their own.
  void begin_class(ClassId c, std::string name, std::vector<CoordRange> ranges);
  /// Where `owner` of the old plan stands from here on: `offset` elements into `base` of the new one.
  void put(TensorId owner, TensorId base, std::int64_t offset = 0);
  /// A tensor, or view, of the old plan in the new one; made like it when nothing was said of its owner.
  TensorId operator[](TensorId old);
  /// The op again, with its work or another one, on its stream or another one.
  OpId emit(OpId op, const OpChange& change = {});
  /// The same with these operands of the new plan. An op may be emitted in several parts, the last of which stands for
  /// it.
  OpId emit_with(OpId op, std::span<const Operand> operands, const OpChange& change = {});
  /// Leaves an op out: what comes after it comes after the last one of its stream.
  void skip(OpId op);
  /// Copies a tensor of the new plan to another of the same size; their tiers say between which.
  OpId copy(std::string_view name, TensorId from, TensorId to, Stream stream);
  /// Comes after an op of the new plan, whatever the operands say; nothing happens when it already does or when there
  /// is none.
  void order(OpId before);
  /// Comes after whatever `op` of the old plan comes after on other streams.
  void order_as(OpId op);
  OpId last() const { return OpId{builder_.plan().ops.size() - 1}; }

  /// Ports, constants, placements and workspaces of the class, as its owners stand now.
  void end_class();
  Plan take(const WorkspaceModel* workspaces);

 private:
  struct Place {
    TensorId base;
    std::int64_t offset = 0;
  };
  struct Known {
    TensorId tensor;
    Place place;
  };
  /// The same in the new plan.
  NameId name_of(NameId old);
  WorkId work_of(WorkId old);
  LayoutId layout_of(LayoutId old);
  TensorId owner_of(TensorId old);
  TensorId make_view(TensorId old, const Place& place);
  const RankView* rank_view_of(TensorId old) const;
  bool stands(TensorId old) const { return places_[from_->owner(old).index()].has_value(); }
  void end_placements();

  const Plan* from_;
  PlanBuilder builder_;
  ClassId old_, class_;
  std::vector<std::optional<Place>> places_;  // of owners of the old plan
  std::vector<std::optional<Known>> known_;   // of its tensors
  std::vector<OpId> ops_;                     // of its ops; none: not emitted yet
  std::vector<NameId> names_;                 // of its names; none: not met yet; and of its works and layouts
  std::vector<WorkId> works_;
  std::vector<LayoutId> layouts_;
  std::vector<Operand> operands_;  // of the op that is emitted
};

/// Bytes of a tensor of a plan, view or owner.
Bytes bytes_of(const Plan& plan, TensorId t);

}  // namespace orrery
