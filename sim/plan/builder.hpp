// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/plan/last_uses.hpp"
#include "sim/plan/plan.hpp"

namespace orrery {

inline Operand reads(TensorId t) { return {t, Access::Read}; }
inline Operand writes(TensorId t) { return {t, Access::Write}; }
inline Operand updates(TensorId t) { return {t, Access::ReadWrite}; }

/// How much scratch an op needs on the device that will run it; rounds up to kAllocationUnit.
class WorkspaceModel {
 public:
  virtual ~WorkspaceModel() = default;
  virtual Bytes workspace(const Work& work) const = 0;
};

struct TensorSpec {
  DType dtype = DType::F32;
  TensorRole role = TensorRole::Activation;
  Tier tier = Tier::Device;
  bool persistent = false;
};

/// A stretch of ops of one class and the tensors made for it; see PlanBuilder::repeat.
struct OpBlock {
  OpId first_op;
  TensorId first_tensor;
  std::uint32_t num_ops = 0, num_tensors = 0;
};

/// Tensors [from, from + count) of a block are [to, to + count) where it is repeated.
struct Replacement {
  TensorId from, to;
  std::uint32_t count = 1;
};
TensorId replace(TensorId t, std::span<const Replacement> replaced);

class BlockCopies;

/// Builds a plan op by op. Dependencies between streams follow from the operands (read after write, write after read,
/// write after write); storage is taken at the first and given back after the last use. Classes are built one after
/// another.
class PlanBuilder {
 public:
  explicit PlanBuilder(std::string name, Mesh mesh = {});
  PlanBuilder(const PlanBuilder&) = delete;
  ~PlanBuilder();

  /// Starts the ops of a class; tensors made from here on are its own.
  ClassId begin_class(std::string name, std::vector<CoordRange> ranges);
  GroupId group(Group group);
  /// All ranks that differ on these axes only, named after them: "dp+cp".
  GroupId group_over(std::span<const std::int8_t> axes);

  TensorId tensor(std::string_view name, const Shape& shape, const TensorSpec& spec);
  /// Part of `base` (an owner or a view of one): offset and strides in elements of the owner's storage.
  TensorId view(TensorId base, std::string_view name, const Layout& layout);
  /// A tensor of the class at hand that the host gives or takes; see Port.
  void port(std::string name, TensorId tensor,
            std::function<std::vector<std::int64_t>(std::span<const std::int64_t>)> rows = {});
  /// Part of a persistent tensor that depends on the rank: see RankView; `where.view` is filled in.
  TensorId rank_view(TensorId base, std::string_view name, const Shape& shape, const RankView& where);
  /// The class whose ops are being added; makes the class of all ranks when there is none yet.
  ClassId rank_class();

  /// The part of the step that ops added from here on belong to.
  void set_phase(Phase p) { phase_ = p; }
  void set_layer(int layer) { layer_ = static_cast<std::int16_t>(layer); }
  void set_microbatch(std::int64_t m) { microbatch_ = static_cast<std::uint16_t>(m); }
  /// Ops added from here on (or not) are started in the call of one before; see Op::joins.
  void set_joins(bool on) { joins_ = on; }
  Phase phase() const { return phase_; }
  int layer() const { return layer_; }
  std::uint16_t microbatch() const { return microbatch_; }

  OpId add(std::string_view name, const Work& work, std::span<const Operand> operands, Stream stream = Stream::Compute);
  OpId add(std::string_view name, const Work& work, std::initializer_list<Operand> operands,
           Stream stream = Stream::Compute) {
    return add(name, work, std::span<const Operand>{operands.begin(), operands.size()}, stream);
  }

  /// The same of names, works and layouts that the plan knows already, which saves looking for them.
  NameId intern(std::string_view name) { return plan_.names.intern(name); }
  WorkId intern(const Work& work);
  LayoutId intern(const Layout& layout);
  TensorId tensor(NameId name, LayoutId contiguous, const TensorSpec& spec);
  TensorId view(TensorId base, NameId name, LayoutId layout);
  OpId add(NameId name, WorkId work, std::span<const Operand> operands, Stream stream);
  /// An order that no operand shows: the latest op comes after `before` too.
  void order(OpId before);

  /// What is added from here on until `end_block`.
  OpBlock begin_block() const { return {OpId{plan_.ops.size()}, TensorId{plan_.tensors.size()}}; }
  OpBlock end_block(OpBlock block) const;
  /// Adds the ops of a block again, for the microbatch at hand: with tensors of their own for those made in the block,
  /// and others for those of `replaced`. What they come after follows from the operands as it does for any op; the
  /// first one comes after `after` too.
  OpBlock repeat(const OpBlock& block, std::span<const Replacement> replaced, OpId after = {});
  /// Room for so many times as much as there is.
  void reserve(std::size_t times);

  Plan& plan() { return plan_; }
  const Plan& plan() const { return plan_; }

  /// Finishes: scratch per stream from `workspaces` (may be null: none), storage marks, verify.
  Plan take(const WorkspaceModel* workspaces);

 private:
  struct WorkHash {
    std::size_t operator()(const Work& w) const { return hash_of(w); }
  };

  OpId place(Op op, std::span<const Operand> operands);
  void close_class();
  void mark_storage();
  void keep_moves();
  void copy_rank_views(const OpBlock& block, const OpBlock& copy, std::span<const Replacement> replaced);
  void add_workspaces(const WorkspaceModel& model);

  Plan plan_;
  LastUses uses_;
  std::unordered_map<Work, WorkId, WorkHash> work_ids_;
  std::unordered_map<std::size_t, std::vector<LayoutId>> layout_ids_;
  std::unique_ptr<BlockCopies> copies_;
  Phase phase_ = Phase::Forward;
  std::int16_t layer_ = -1;
  std::uint16_t microbatch_ = 0;
  bool joins_ = false;
};

}  // namespace orrery
