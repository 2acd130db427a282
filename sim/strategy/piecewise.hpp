// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/tensor_scheme.hpp"

namespace orrery {

/// Products whose input or result crosses the ranks of tp in pieces, each multiplied while another one travels, for
/// rows that are split over tp between blocks (`tp_comm_overlap`). As Transformer Engine's userbuffers do by default:
///   ring exchange  rows that are gathered for a projection into a block (and gradients for one back): each rank begins
///                  with its own and passes on what it has; products of m/t rows, t − 1 messages of m/t rows
///   pipeline       rows of a projection back that are summed and scattered: four products of a quarter of the columns
///                  each, of which the last one was multiplied before is scattered
///   bulk           rows that weight gradients gather again, and the scattered gradient of an input: whole, beside the
///                  other product of the backward pass
/// Left out: messages of 8 bits where products have 8 bits. Sources: S. Wang and others, Overlap Communication with
/// Dependent Computation via Decomposition, ASPLOS 2023; initialize_ub of transformer_engine/pytorch/module/base.py.

/// Makes the products of `readers`, for Layers::take_made. `all`: the rows x of all ranks, which come together in the
/// backward pass alone.
void enter_in_pieces(Layers& l, std::string_view name, TensorId x, TensorId all, std::span<const Reader> readers);
/// The product without its bias, summed and scattered.
TensorId project_back_in_pieces(Layers& l, std::string_view name, TensorId x, const Linear& w);

}  // namespace orrery
