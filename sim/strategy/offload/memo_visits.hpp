// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/plan/plan.hpp"

namespace orrery {

/// What the backward pass over a block reads of the forward pass ("skeletal"): an owner of the plan that nobody else
/// uses.
struct SkeletalTensor {
  TensorId owner;
  bool by_rows = false;     // its last rows can be made again from what is swapped whole
  std::int64_t blocks = 1;  // parts of its rows that came from one rank each; the last rows of each are made again
};

/// A forward op that runs again ahead of the backward pass: for the last rows of each block, or for all that it makes.
struct AgainOp {
  OpId op;
  bool whole = false;
  std::int64_t blocks = 1;  // that its rows lie in; of a collective: those of the side that has the rows of all ranks
};

/// The passes of one microbatch over one block. Places are of ops in their class.
struct BlockVisit {
  std::int16_t layer = 0;
  std::uint16_t microbatch = 0;
  std::vector<SkeletalTensor> tensors;
  std::uint32_t first_written = 0, left = 0;        // by forward passes: first and last use of its tensors
  std::uint32_t first_needed = 0, last_needed = 0;  // by backward passes
  std::vector<AgainOp> again;  // forward ops that make the rows of tensors with `by_rows` again, and what these need
  std::int64_t rows = 0;       // that a block of the ops of `again` has, or multiples of it
  std::int64_t unit = 1;       // rows can be parted at multiples of it
  Flops forward;               // of its forward pass

  Bytes bytes(const Plan& plan, bool by_rows) const;
};

/// The visits of a class. Where ranks have rows of their own between blocks of a network, each makes the last of its
/// own rows again; they are gathered and, behind a product, scattered as in the forward pass, so that of the rows of
/// all ranks the last ones of each rank are made again. What ranks gather and the backward pass reads as it is, is
/// gathered again whole: it is no tensor of the visit. They come microbatch by microbatch, blocks in the order of the
/// forward pass. Throws UserError where the passes of a microbatch do not go forward and straight back.
std::vector<BlockVisit> block_visits(const Plan& plan, ClassId c);

}  // namespace orrery
