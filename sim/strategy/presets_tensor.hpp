// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/preset.hpp"

namespace orrery {

/// Megatron-LM: t ranks share each matrix, the first of a pair by columns, the second by rows, heads and vocabulary
/// with them. A block of b·s rows and width h sums b·s·h elements over t twice forward and twice backward; with
/// `sequence_parallel` each sum is a reduce-scatter and an all-gather, what lies between blocks is divided by t, and
/// rows are gathered again for weight gradients unless `keep_gathered`; with `tp_comm_overlap` they travel in pieces,
/// each multiplied while the next one is under way. Sources: arXiv 1909.08053; sequence parallelism 2205.05198;
/// products in pieces doi 10.1145/3567955.3567959.
inline constexpr Preset kTensor{
    .name = "tensor",
    .summary = "matrices split by columns, then rows (Megatron), activations too with sequence_parallel",
    .splits = "tp",
    .also = "dp",
    .mesh = "ranks that share each matrix: `tp4`; `dp2 tp4` with replicas",
    .options = "sequence_parallel keep_gathered tensor_overlap tp_comm_overlap",
};

/// Optimus: q·q ranks hold a block of each matrix and of each activation, and multiply by SUMMA: q steps that broadcast
/// a block of rows along `col` and a block of the matrix along `row`. A rank takes part in (7b·s·h + 12h²)/q elements
/// per block forward and twice that backward; all of its memory falls with q². Source: arXiv 2104.05343.
inline constexpr Preset kOptimus2d{
    .name = "optimus-2d",
    .summary = "matrices and activations in squares, multiplied by SUMMA (Optimus)",
    .splits = "row col",
    .also = "dp",
    .mesh = "the sides of the square: `row2 col2`; `dp2 row2 col2` with replicas",
    .options = "tensor_overlap",
};

/// Tesseract: d squares of q·q ranks one behind another, each with 1/d of the rows; gradients of weights, which are
/// equal along `depth`, add up over it. Source: arXiv 2105.14500.
inline constexpr Preset kTensor25d{
    .name = "tensor-2.5d",
    .summary = "several squares, each with a part of the rows (Tesseract)",
    .splits = "depth",
    .also = "row col dp",
    .mesh = "squares and their sides: `depth2 row2 col2`",
    .options = "tensor_overlap",
};

/// A cube of p³ ranks: a product gathers rows over one axis and the matrix over another, and scatters the sum over the
/// third. Nothing of a matrix or an activation lies on two ranks. Source: arXiv 2105.14450.
inline constexpr Preset kTensor3d{
    .name = "tensor-3d",
    .summary = "matrices and activations in a cube: gather, multiply, scatter",
    .splits = "x y z",
    .also = "dp",
    .mesh = "the sides of the cube: `x2 y2 z2`",
    .options = "tensor_overlap keep_gathered",
};

}  // namespace orrery
