// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/base/options.hpp"
#include "sim/model/model.hpp"
#include "sim/plan/builder.hpp"
#include "sim/strategy/distribution.hpp"
#include "sim/strategy/expert_layout.hpp"
#include "sim/strategy/workload.hpp"

namespace orrery {

/// Whether an axis of a mesh is one of some.
bool has_axis(std::span<const std::int8_t> axes, std::int8_t axis);

/// What replicas of a model share, and what each of them keeps.
///   ddp    every replica keeps all; gradients are all-reduced
///   zero1  optimizer states are split; gradients reduce-scattered, new weights gathered   (ZeRO, arXiv 1910.02054)
///   zero2  and gradients: they are reduce-scattered after every microbatch
///   zero3  and weights: gathered before each use, dropped behind it                       (also FSDP, arXiv
///   2304.11277)
enum class DataKind : std::uint8_t { Ddp, Zero1, Zero2, Zero3 };

inline std::span<const EnumName<DataKind>> enum_names(DataKind) {
  static constexpr EnumName<DataKind> names[] = {
      {DataKind::Ddp, "ddp"}, {DataKind::Zero1, "zero1"}, {DataKind::Zero2, "zero2"}, {DataKind::Zero3, "zero3"}};
  return names;
}

/// What some blocks of a model do otherwise than the rest of it.
struct LayerOptions {
  std::string blocks;
  std::string mesh;
  std::optional<DataKind> data;
  std::optional<bool> sequence_parallel;
  std::string ffn_mesh;
  std::optional<bool> ffn_sequence_parallel;
  std::optional<Recompute> recompute;

  /// Whether feed-forward layers split their ranks otherwise than attention.
  bool has_own_feed_forward() const { return !ffn_mesh.empty() || ffn_sequence_parallel; }

  template <class V>
  void visit(V& v) {
    v.required("blocks", blocks, "which, from 0: `5`, `0-11` or `0-3,8-11`");
    v.field("mesh", mesh,
            "how they split the ranks of their stage, neighbours on the last axis have consecutive ranks: `dp4 tp2` or "
            "`tp2 fsdp4`; empty: as the plan's mesh does");
    v.field("data", data, "kind of their `data`; empty: the plan's");
    v.field("sequence_parallel", sequence_parallel, "split rows between blocks over tp; empty: as in the plan");
    v.field("ffn_mesh", ffn_mesh, "the same of their feed-forward layers with the norm before; empty: as `mesh`");
    v.field("ffn_sequence_parallel", ffn_sequence_parallel,
            "split the rows around their feed-forward layers over tp; empty: as `sequence_parallel`");
    v.field("recompute", recompute, "what they keep of the forward pass; empty: as the workload says");
  }
};

/// How some blocks of a model are arranged on the ranks of a stage.
struct Arrangement {
  LocalModel local;
  Slices slices;
  DataKind data = DataKind::Ddp;
  Recompute recompute = Recompute::None;

  const Roles& roles() const { return slices.roles; }
  /// Rows of a rank in an activation between blocks, of one microbatch.
  std::int64_t outer_rows() const {
    return slices.batch * slices.sequence / (roles().cp.ranks * (roles().sequence_parallel ? roles().tp.ranks : 1));
  }
};

/// How each part of a model is arranged. The first holds for what lies outside of blocks, and for blocks of which
/// nothing else is said.
struct Arrangements {
  std::vector<Arrangement> all;
  std::vector<std::size_t> of_block;  // index into `all`; behind its end: 0
  std::vector<std::size_t> of_ffn;    // the same of feed-forward layers that have one of their own; 0: they have none
  std::unordered_map<std::uint32_t, std::size_t> of_parameter = {};  // of those layers
  /// All axes that split rows between blocks somewhere. Rows of a microbatch lie in an order in which the first of
  /// these varies slowest; a rank has, in this order, those whose place on its row axes is the rank's.
  std::vector<std::int8_t> row_order;
  std::vector<ExpertLayout> experts = {};  // by block; of ranks over which they lie

  const Arrangement& outside() const { return all.front(); }
  /// What tells constants of an arrangement from those of others: nothing for the first.
  std::string suffix(const Arrangement& s) const {
    return &s == all.data() ? "" : "." + std::to_string(&s - all.data());
  }
  /// Of a block, or with a negative number of what lies outside.
  const Arrangement& of(int part) const {
    const auto i = static_cast<std::size_t>(part);
    return part < 0 || i >= of_block.size() ? all.front() : all[of_block[i]];
  }
  /// Of the feed-forward layer of a block, in which its states leave it.
  const Arrangement& of_feed_forward(int block) const {
    const auto i = static_cast<std::size_t>(block);
    return i >= of_ffn.size() || of_ffn[i] == 0 ? of(block) : all[of_ffn[i]];
  }
  /// Of a parameter, in a part that is arranged so.
  const Arrangement& of(const Arrangement& part, ParameterId id) const {
    const auto own = of_parameter.find(id.value);
    return own == of_parameter.end() ? part : all[own->second];
  }
};

/// Blocks of both stacks of a model.
std::int64_t block_count(const Model& model);

struct ParallelOptions;

/// "dp2 pp4 tp8". Throws UserError that shows the form.
Mesh parse_mesh(const std::string& text);

/// The mesh of a plan and what its axes are for: `roles[0]` for what the plan's own mesh splits, `roles[1 + i]` for
/// `layers[i]`, and behind them for feed-forward layers of those that say so. Axes of the mesh as written are cut into
/// smaller ones, `dp` into `dp.0` and `dp.1`, where layers split the same ranks in another way, so that every degree is
/// a product of some of the axes. Throws UserError where two ways of splitting have no common refinement.
struct StageMeshes {
  Mesh mesh;
  std::vector<Roles> roles;
};
StageMeshes stage_meshes(const ParallelOptions& parallel);

/// The place on a split of the class whose ops are being added: that of its first rank.
std::int64_t place_of_class(const Plan& plan, const Split& split);

/// Throws UserError with the legal values where something does not divide.
Arrangements make_arrangements(PlanBuilder& builder, const Model& model, const TrainOptions& train,
                               const ParallelOptions& parallel, std::vector<Roles> roles);

}  // namespace orrery
