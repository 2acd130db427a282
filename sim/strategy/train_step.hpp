// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/strategy/distribution.hpp"
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
  ContextKind context = ContextKind::Ring;
  bool zigzag = true;
  std::string schedule = "1f1b";
  std::int64_t chunks = 1;
  std::vector<std::int64_t> stage_layers;

  template <class V>
  void visit(V& v) {
    v.field("mesh", mesh,
            "axes and their sizes, neighbours on the last one have consecutive ranks: `dp2 pp4 tp8`; axes are dp, fsdp "
            "(replicas), pp (layers), tp (matrices), cp (tokens of a sequence), ep (experts and samples)");
    v.field("data", data, "what replicas share");
    v.field("sequence_parallel", sequence_parallel, "split rows between blocks over tp");
    v.field("context", context, "how attention reaches keys on other ranks of cp");
    v.field("zigzag", zigzag, "ring: two chunks per rank, from both ends of the sequence, so that causal work is even");
    v.field("schedule", schedule, "order of the passes of a pipeline");
    v.field("chunks", chunks, "interleaved: parts of the model per stage");
    v.field("stage_layers", stage_layers, "blocks of each part of the pipeline, in order; empty: as even as can be");
  }
};

/// "dp2 pp4 tp8". Throws UserError that shows the form.
Mesh parse_mesh(const std::string& text);

/// The schedule of a pipeline with so many stages; throws UserError when it is not legal.
Schedule schedule_of(const ParallelOptions& parallel, std::int64_t stages, std::int64_t microbatches);

/// Lowers one training step on a mesh; on a mesh of one rank it is the plan of a single device. Every rank class is one
/// stage of the pipeline, or what one rank of cp does in it where these have unequal work.
Plan lower_train_step(const Model& model, const TrainOptions& train, const ParallelOptions& parallel,
                      const WorkspaceModel* workspaces);

/// Arithmetic that the model needs: GEMM and attention work over all ranks, recomputation excluded.
Flops model_flops(const Plan& plan);

}  // namespace orrery
