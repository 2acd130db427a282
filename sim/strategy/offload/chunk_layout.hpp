// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/strategy/offload/updates.hpp"

namespace orrery {

/// Which chunk, and where in it, each updated tensor of a class lies: in order, a tensor that does not fit opens a new
/// chunk. All lists of chunks (weights, master copies, moments) lie alike.
struct ChunkLayout {
  struct Slot {
    std::uint32_t chunk = 0;
    std::int64_t offset = 0;
  };
  std::vector<Slot> slots;                          // per update
  std::vector<std::vector<std::uint32_t>> members;  // per chunk: updates
  std::vector<std::int64_t> sizes;                  // per chunk: elements

  std::size_t size() const { return members.size(); }
  std::int64_t elements() const;  // of all chunks
};

/// Chunks of `elements`; updates that are marked in `alone` (empty: none) have chunks of their own, which they fill.
/// Throws UserError when another tensor is larger than a chunk.
ChunkLayout lay_out_chunks(const Plan& plan, const Updates& updates, std::int64_t elements,
                           const std::vector<bool>& alone = {});

/// Runs of whole pages of `elements` each, a tensor in a run, so that it lies in one piece; the next one goes behind it
/// when it fits into the run's last page and no other has yet: no page is shared by more than two tensors.
ChunkLayout lay_out_pages(const Plan& plan, const Updates& updates, std::int64_t elements);

/// A chunk for each operator: the weights that an op of the passes is the first to read.
ChunkLayout lay_out_operators(const Plan& plan, ClassId c, const Updates& updates);

/// The fewest elements that a chunk may have: those of the largest tensor that is updated.
std::int64_t least_chunk(const Plan& plan);

/// The part of all chunks of this size that tensors fill, over the classes of a plan.
double chunk_utilisation(const Plan& plan, std::int64_t elements);

/// At the end of a class: weights lie where they stand, and once more in each copy of their chunk that `copies` gives
/// (master copies), under a name; gradients have no place.
using ChunkCopies = std::function<std::vector<std::pair<std::string_view, TensorId>>(std::uint32_t chunk)>;
void place_chunks(PlanRewriter& r, ClassId c, const Updates& updates, const ChunkLayout& layout,
                  const ChunkCopies& copies);

/// Bytes on the device that are no model data (activations, inputs, gradients until they move into their chunk,
/// scratch), per op of a class in the order of the plan: while it runs, and behind it, before the next one.
struct OtherBytes {
  std::vector<std::int64_t> during, behind;
};
/// All of it, without gradients where somebody else counts them, or without gradients and gathered weights.
enum class Beside : std::uint8_t { All, NoGradients, NoModelData };
OtherBytes other_bytes(const Plan& plan, ClassId c, const Updates& updates, const WorkspaceModel* workspaces,
                       Beside beside = Beside::All);

}  // namespace orrery
