// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/strategy/arrangement.hpp"
#include "sim/strategy/parameters.hpp"
#include "sim/strategy/pipeline/schedule.hpp"
#include "sim/strategy/workload.hpp"

namespace orrery {

inline std::span<const EnumName<ContextKind>> enum_names(ContextKind) {
  static constexpr EnumName<ContextKind> names[] = {
      {ContextKind::Ring, "ring"}, {ContextKind::Ulysses, "ulysses"}, {ContextKind::Rsa, "rsa"}};
  return names;
}

/// How a training step is spread over ranks.
struct ParallelOptions {
  std::string mesh;
  DataOptions data;
  bool sequence_parallel = false;
  bool tensor_overlap = false, tp_comm_overlap = false, keep_gathered = false;
  ContextKind context = ContextKind::Ring;
  bool zigzag = true;
  std::string schedule = "1f1b";
  std::int64_t chunks = 0;
  std::vector<std::int64_t> stage_layers;
  double expert_buffer = 0;
  std::int64_t expert_slots = 0;
  bool whole_experts = false, expert_overlap = false, data_attention = false, blocking = false;
  std::vector<LayerOptions> layers;

  template <class V>
  void visit(V& v) {
    v.field("mesh", mesh,
            "axes and their sizes, neighbours on the last one have consecutive ranks: `dp2 pp4 tp8`; axes are dp, fsdp "
            "(replicas), pp (layers), tp (matrices in stripes), row and col (matrices in squares, samples over row), "
            "depth (more samples, beside row and col), x, y and z (matrices in a cube), cp (tokens of a sequence), ep "
            "(experts and samples)");
    v.field("data", data, "what replicas share");
    v.field("sequence_parallel", sequence_parallel, "split rows between blocks over tp");
    v.field("tensor_overlap", tensor_overlap,
            "tp, and x, y, z: sum input gradients while weight gradients are computed (Megatron-LM's asynchronous "
            "all-reduce); row and col: fetch the blocks of the next step while those of this one are multiplied, with "
            "two buffers for each");
    v.field("tp_comm_overlap", tp_comm_overlap,
            "sequence_parallel: rows are multiplied piece by piece on their way to and from projections of blocks, as "
            "by Transformer Engine's userbuffers (--tp-comm-overlap of Megatron-Core); with tensor_overlap in it");
    v.field("keep_gathered", keep_gathered,
            "x, y, z: keep the gathered rows and weights of the forward pass for the backward pass, in place of "
            "gathering them again; sequence_parallel: the rows");
    v.field("context", context, "how attention reaches keys on other ranks of cp");
    v.field("zigzag", zigzag, "ring: two chunks per rank, from both ends of the sequence, so that causal work is even");
    v.field("schedule", schedule, "order of the passes of a pipeline");
    v.field("chunks", chunks, "interleaved: parts of the model per stage; 0: as many as the schedule has",
            between(0, 4096));
    v.field("stage_layers", stage_layers, "blocks of each part of the pipeline, in order; empty: as even as can be",
            at_least(0));
    v.field(
        "expert_buffer", expert_buffer,
        "ep: rows that there is room for at the experts of a rank, over those that `routing` sends there; 0: for the "
        "worst case",
        at_least(0));
    v.field("expert_slots", expert_slots,
            "ep: replicas of experts that a rank has room for: the hotter an expert by `routing`, the more replicas "
            "share its rows (FlexMoE); 0: each expert once, as many on each rank",
            between(0, 4096));
    v.field("whole_experts", whole_experts,
            "sequence_parallel: experts lie whole on the ranks of ep and tp together, which route the rows that they "
            "have between blocks, where otherwise ranks of tp have stripes of the same experts (MoE parallel folding)");
    v.field("expert_overlap", expert_overlap,
            "training: passes of neighbouring microbatches take turns between exchanges of experts, which run beside");
    v.field("data_attention", data_attention,
            "generation and inference: ranks of tp have samples of their own and whole attention, and share "
            "feed-forward matrices and experts only");
    v.field(
        "blocking", blocking,
        "generation and inference: a stage of a pipeline computes nothing while it sends and receives; training with "
        "1f1b: the host starts no op of a pass before the messages ahead of it have come and gone, as where programs "
        "synchronize with the device around each exchange (Megatron-LM)");
    v.field("layers", layers, "blocks that split the ranks of their stage, or keep activations, in a way of their own");
  }
};

/// The schedule of a pipeline with so many stages; throws UserError when it is not legal.
Schedule schedule_of(const ParallelOptions& parallel, std::int64_t stages, std::int64_t microbatches);

/// How microbatches that do the same as an earlier one come into the plan: copied from it, or lowered like any other.
/// Both give the same plan.
enum class Repeats : std::uint8_t { Copied, Lowered };

/// Lowers one training step on a mesh; on a mesh of one rank it is the plan of a single device. Every rank class is one
/// stage of the pipeline, or what one rank of cp does in it where these have unequal work, or an owner of buckets.
Plan lower_train_step(const Model& model, const TrainOptions& train, const ParallelOptions& parallel,
                      const WorkspaceModel* workspaces, Repeats repeats = Repeats::Copied);

/// What of products, and of attention, the model needs: the rest is for padding.
struct NeededShares {
  double products = 1, attention = 1;
};

/// Arithmetic that the model needs: GEMM and attention work over all ranks, recomputation excluded.
Flops model_flops(const Plan& plan, const NeededShares& needed = {});

}  // namespace orrery
