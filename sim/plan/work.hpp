// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>

#include "sim/plan/kinds/attention.hpp"
#include "sim/plan/kinds/collective.hpp"
#include "sim/plan/kinds/elementwise.hpp"
#include "sim/plan/kinds/embedding.hpp"
#include "sim/plan/kinds/factor.hpp"
#include "sim/plan/kinds/gemm.hpp"
#include "sim/plan/kinds/loss.hpp"
#include "sim/plan/kinds/move.hpp"
#include "sim/plan/kinds/norm.hpp"
#include "sim/plan/kinds/optimizer.hpp"
#include "sim/plan/kinds/paged.hpp"
#include "sim/plan/kinds/routing.hpp"
#include "sim/plan/kinds/speculation.hpp"
#include "sim/plan/kinds/vision.hpp"

namespace orrery {

/// What an op does: how much work of which shape, never how long it takes. The list of all op kinds.
using Work =
    std::variant<Gemm, GroupedGemm, AttentionForward, AttentionBackward, PagedAttention, MergeAttention, SoftmaxForward,
                 SoftmaxBackward, AppendCache, TreeMask, CompactCache, DraftCandidates, AcceptTree, RelativeBiasForward,
                 RelativeBiasBackward, NormForward, NormBackward, NormSums, NormApply, NormBackwardSums,
                 NormBackwardApply, ActivationForward, ActivationBackward, GatedForward, GatedBackward, Add, Multiply,
                 ScaleRows, RowDot, AddRows, SumRows, Fill, BroadcastHeads, SumHeads, Dropout, Cast, LocalIndices,
                 Gather, ScatterAdd, ScatterRows, AdmitRows, RotaryEmbedding, EmbeddingBagForward, EmbeddingBagBackward,
                 DotInteractionForward, DotInteractionBackward, CrossEntropyForward, CrossEntropyBackward, MaskColumns,
                 RowMax, CrossEntropySums, CrossEntropyFinish, BinaryCrossEntropyForward, BinaryCrossEntropyBackward,
                 Sample, TopKGate, TopKGateBackward, RouteMap, SplitRoutes, MergeRoutes, Permute, PermuteBackward,
                 Unpermute, UnpermuteBackward, Patchify, ConcatPrefix, ConcatPrefixBackward, MeanPool, MeanPoolBackward,
                 SumSquares, Sgd, AdamW, Cholesky, CholeskySolve, Covariance, Copy, CopyRows, SwapAxes, Alloc, Free,
                 HostWork, Collective, Send, Recv>;

constexpr std::size_t kNumKinds = std::variant_size_v<Work>;

Amount amount(const Work& work, const Bindings& bindings = {});
OpClass class_of(const Work& work);
std::string_view kind_name(const Work& work);
/// The word of the kind with this variant index.
std::string_view kind_name(std::size_t index);

/// "gemm m=512 n=768 k=768 tb": kind and fields, those at their default left out.
std::string to_text(const Work& work);
/// The kind with all that is no size: "norm.rms.bf16", "cast.bf16.f32".
std::string variant_of(const Work& work);

/// Equal works hash equally; the hash is the same on every machine.
std::size_t hash_of(const Work& work);

/// Whether the cores of the node do the work, and not the device of the rank.
bool runs_on_host(const Work& work);

/// Whether the amount depends on what a Program binds.
bool is_bound(const Work& work);

}  // namespace orrery
