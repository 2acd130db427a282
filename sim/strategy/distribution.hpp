// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/model/model.hpp"
#include "sim/plan/builder.hpp"

namespace orrery {

/// One dimension of parallelism as a rank sees it: axes of the mesh whose product it is, the first varies slowest; none
/// where the mesh does not have it. Only replicas and matrices in stripes may lie on several axes.
struct Split {
  std::vector<std::int8_t> axes;
  std::int64_t ranks = 1;
  GroupId group;  // of the plan being built

  explicit operator bool() const { return ranks > 1; }
};

/// An exchange of so many elements of a rank (of what is gathered or scattered: of all ranks) between those of a split.
inline Collective over(const Split& split, CollectiveKind kind, std::int64_t elements, DType dtype) {
  return {.kind = kind, .group = split.group, .bytes = size_of(dtype, elements), .dtype = dtype};
}

/// How queries find the keys that other ranks of a context axis hold.
enum class ContextKind : std::uint8_t { Ring, Ulysses, Rsa };

/// What each axis of a mesh splits: replicas of the model (`dp`, `fsdp`), layers (`pp`), matrices in one dimension
/// (`tp`), samples and matrices in two (`row`, `col`, with `depth`) or three (`x`, `y`, `z`), tokens of a sequence
/// (`cp`), experts and samples (`ep`).
struct Roles {
  Split dp, fsdp, pp, tp, cp, ep, row, col, depth, x, y, z;
  /// Over which experts lie, each whole on one rank: ep, or ep and tp together (in order of the mesh), whose ranks then
  /// route the rows that they have between blocks.
  Split experts;
  bool placed_experts = false;     // not E / ranks on each rank: see ExpertLayout
  bool sequence_parallel = false;  // between blocks the rows of an activation are split over tp
  ContextKind context = ContextKind::Ring;
  bool zigzag = true;            // ring: a rank holds chunks r and 2n − 1 − r, so that all see equally many keys
  bool tensor_overlap = false;   // tp, row col, x y z: collectives run beside arithmetic
  bool tp_comm_overlap = false;  // with sequence_parallel: what crosses tp does so in pieces, beside their products
  bool keep_gathered = false;    // x y z, sequence_parallel: what was gathered for the forward pass is kept
  /// tp splits samples, and inside of feed-forward layers matrices; all else is whole on each rank.
  bool data_attention = false;
  bool feed_forward_only = false;  // of blocks; their attention is arranged otherwise
  bool sums_logits = false;  // ranks of tp have inputs of the output matrix, and sum logits of all classes

  bool fold_experts() const { return experts.axes.size() > ep.axes.size(); }
  /// What splits the samples of a microbatch between blocks, the first varies slowest.
  std::vector<Split> sample_splits() const { return {dp, fsdp, ep, depth, row, x, y, data_attention ? tp : Split{}}; }
};

/// Which samples and tokens of a step a rank computes. The batch is cut into microbatches, each of them into blocks of
/// samples, one per rank of Roles::sample_splits or, where parts of a model are split in several ways, smaller ones;
/// sequences are cut over cp, in one chunk per rank or, in zig-zag, in two.
struct Slices {
  Mesh mesh;
  Roles roles;
  std::int64_t microbatches = 1;
  std::int64_t batch = 1;     // samples of a rank in a microbatch
  std::int64_t sequence = 1;  // tokens of a whole sample
  /// Axes over which a microbatch is cut into blocks; a rank has the blocks whose place on its own sample axes is the
  /// rank's, in order. Empty: the sample axes, so that each rank has one.
  std::vector<std::int8_t> block_axes;

  std::vector<std::int8_t> sample_axes() const;
  /// Axes over which the rows of an activation between blocks are split.
  std::vector<std::int8_t> row_axes() const;
  std::int64_t replicas() const;
  /// How many blocks a microbatch has, and those of a rank.
  std::int64_t blocks() const;
  std::vector<std::int64_t> blocks(std::span<const std::int64_t> coordinates) const;
  /// The place of a rank among those that a split has.
  std::int64_t at(const Split& split, std::span<const std::int64_t> coordinates) const;
  /// The same for logits: on a cube y and z have changed places there.
  Slices of_logits() const;
  /// The samples of microbatch m, or of all of them in order.
  std::vector<std::int64_t> samples(std::span<const std::int64_t> coordinates, std::int64_t m) const;
  std::vector<std::int64_t> samples(std::span<const std::int64_t> coordinates) const;
  /// Sequences are cut over cp into chunks of equal length; which of them a rank of cp holds, in order.
  std::int64_t chunk() const;
  std::vector<std::int64_t> chunks(std::int64_t rank) const;
  /// (query, key) pairs of one sequence in which the query, of one rank of cp, stands at the key, of another, or
  /// behind.
  std::int64_t causal_pairs(std::int64_t queries_of, std::int64_t keys_of) const;
  /// Where in its sequence each token of a rank stands.
  std::vector<std::int64_t> positions(std::span<const std::int64_t> coordinates) const;
  /// sample · sequence + position, for each row of microbatch m or of all.
  std::vector<std::int64_t> rows(std::span<const std::int64_t> coordinates, std::int64_t m) const;
  std::vector<std::int64_t> rows(std::span<const std::int64_t> coordinates) const;
  /// The rows that a rank has between blocks: a part of its rows under sequence parallelism.
  std::vector<std::int64_t> outer(std::vector<std::int64_t> rows, std::span<const std::int64_t> coordinates) const;
};

/// Finds the axes of a mesh by name; throws UserError that names the legal ones.
Roles roles_of(const Mesh& mesh);

/// How one parameter lies on the mesh.
struct Cut {
  Shard shard;
  std::int32_t held_at = -1;         // an expert: the place on Roles::experts that holds it
  std::vector<std::int8_t> partial;  // axes, but for replicas: equal weights, parts of their gradient
  bool expert = false;               // its gradient is summed over dp, fsdp and cp only
};

/// A model as one rank computes it: the network with the sizes of a rank's part (heads, widths, vocabulary, experts),
/// and how each parameter is cut.
struct LocalModel {
  Model network;  // without parameters
  std::vector<Cut> cuts;
};

/// As the scheme of the mesh cuts a model (sim/strategy/tensor_scheme.hpp). Throws UserError with the legal values
/// where sizes do not divide.
LocalModel localise(const Model& model, const Roles& roles);

/// Splits matrices by columns and rows as Megatron-LM does (arXiv 1909.08053, 2205.05198): projections to heads and to
/// the inner width by their outputs, projections back by their inputs, tables by the vocabulary (padded to a multiple
/// of tp). Experts go to the ranks of ep.
LocalModel cut_in_stripes(const Model& model, const Roles& roles);

/// Throws UserError that names the multiples of `of` next to n unless it is one; "batch 7 is not a multiple of 2,
/// `why`".
void require_multiple(std::int64_t n, std::int64_t of, std::string_view what, std::string_view why);

/// What each of `ranks` holds of n, padded to a multiple of them.
constexpr std::int64_t share(std::int64_t n, std::int64_t ranks) { return (n + ranks - 1) / ranks; }

/// Weights are matrices to the ops that use them: a convolution's [out, channels, p, p] is [out, channels·p·p], a table
/// with leading ones [1, n, dim] is [n, dim].
Shape storage_shape(const Parameter& p);

}  // namespace orrery
