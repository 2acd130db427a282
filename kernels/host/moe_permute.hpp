// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

enum class RouteLayout {
  Compact,  ///< experts' rows follow one another: offsets[e+1] = offsets[e] + kept rows of e
  Padded,   ///< an expert has `capacity` rows for each of `groups` equal runs of tokens, unused ones at its end:
            ///< offsets[e] = e·groups·capacity
};

/// Sorts the choices (t,j) by expert, stable in t·top_k + j. Choices over the capacity, or of no expert (index −1), are
/// dropped: their row is −1.
struct RouteArgs {
  std::int64_t tokens = 0, experts = 0, top_k = 1;
  std::optional<std::int64_t> capacity = {};  ///< rows an expert takes at most; absent: all. Padded needs it.
  std::optional<std::int64_t> room = {};      ///< Compact: of choice_of_row; absent: one for each choice
  RouteLayout layout = RouteLayout::Compact;
  std::int64_t groups = 1;                ///< Compact has one
  const std::int32_t* indices = nullptr;  ///< [tokens,top_k]
  std::int32_t* counts = nullptr;         ///< [experts]: choices of each expert, before drops
  std::int32_t* offsets = nullptr;        ///< [experts+1]
  std::int32_t* row_of_choice = nullptr;  ///< [tokens·top_k]: row of a choice, or −1
  std::int32_t* choice_of_row = nullptr;  ///< [tokens·top_k], Padded [experts·groups·capacity]: t·top_k + j, or −1
};

/// With more rows than room only counts and offsets are written.
void route(const RouteArgs& args);

/// Moves token rows x[tokens,cols] to expert rows [rows,cols] and back, by the maps of `route`.
template <class T>
struct PermuteArgs {
  std::int64_t tokens = 0, top_k = 1, rows = 0, cols = 0;
  const std::int32_t* row_of_choice = nullptr;
  const std::int32_t* choice_of_row = nullptr;
};

/// dx[t,:] = Σ_j dy[row_of_choice[t,j],:] in order of j.
template <class T>
void moe_permute_backward(const PermuteArgs<T>& args, const T* dy, T* dx, Write write = Write::Overwrite);

/// y[t,:] = Σ_j weights[t,j]·x[row_of_choice[t,j],:] in order of j; dropped choices add nothing.
template <class T>
void moe_unpermute(const PermuteArgs<T>& args, const T* x, const T* weights, T* y, Write write = Write::Overwrite);

/// dx[r,:] = weights[c]·dy[t,:] with c = choice_of_row[r], t = c / top_k (zeros in unused rows); dweights[c] =
/// x[r,:]·dy[t,:] (0 for dropped choices).
template <class T>
struct UnpermuteBackwardArgs {
  PermuteArgs<T> map;
  const T* x = nullptr;
  const T* weights = nullptr;
  const T* dy = nullptr;
  T* dx = nullptr;
  T* dweights = nullptr;
};

template <class T>
void moe_unpermute_backward(const UnpermuteBackwardArgs<T>& args);

}  // namespace orrery::kernels
