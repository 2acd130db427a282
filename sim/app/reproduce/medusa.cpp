// SPDX-License-Identifier: Apache-2.0
// Medusa, Cai and others, arXiv 2401.10774: the static tree that its authors built from the accuracy of their heads,
// and tokens per step that the same accuracies promise, beside what they measured (MT-bench, greedy, batch 1; logs of
// the repository FasterDecoding/Medusa at e2a5d20). Accuracies are those of assets/medusa_acc.csv, the chance that one
// of the first k choices is right; ranks 6 to 10, which it does not hold, fall by 0.85 each.
#include <fmt/format.h>

#include "sim/app/speculation_study.hpp"

namespace orrery::papers::medusa {
namespace {

constexpr const char* kLogs = "repository FasterDecoding/Medusa, logs of MT-bench";

struct Vicuna {
  const char* name;
  double measured;
  double within_top[5][5];  // head, k
  const char* model;
};
constexpr Vicuna kModels[] = {{"Vicuna 7B",
                               2.565,
                               {{.560, .672, .727, .760, .780},
                                {.316, .424, .485, .528, .562},
                                {.201, .288, .348, .383, .417},
                                {.147, .225, .274, .311, .340},
                                {.118, .187, .235, .272, .300}},
                               "{model_type: llama, hidden_size: 4096, intermediate_size: 11008, num_hidden_layers: "
                               "32, num_attention_heads: 32}"},
                              {"Vicuna 13B",
                               2.639,
                               {{.594, .705, .758, .792, .816},
                                {.340, .440, .507, .546, .580},
                                {.216, .309, .361, .403, .436},
                                {.150, .232, .288, .323, .354},
                                {.122, .196, .243, .279, .307}},
                               "{model_type: llama, hidden_size: 5120, intermediate_size: 13824, num_hidden_layers: "
                               "40, num_attention_heads: 40}"},
                              {"Vicuna 33B",
                               2.514,
                               {{.605, .716, .765, .798, .822},
                                {.356, .469, .529, .569, .596},
                                {.225, .320, .379, .421, .446},
                                {.160, .249, .307, .348, .376},
                                {.137, .207, .262, .298, .326}},
                               "{model_type: llama, hidden_size: 6656, intermediate_size: 17920, num_hidden_layers: "
                               "60, num_attention_heads: 52}"}};

DraftAccuracy accuracy_of(const Vicuna& v) {
  DraftAccuracy a;
  for (const auto& head : v.within_top) {
    std::vector<double> row;
    for (int k = 0; k < 5; ++k) row.push_back(head[k] - (k > 0 ? head[k - 1] : 0));
    a.hits.push_back(row);
  }
  return a;
}

}  // namespace

Reproduction reproduce(const Reproducer& reproducer) {
  Reproduction out{{}, {"tokens per step", "step ms", "plain step ms", "speed-up"}, {}};
  const TreeShape tree = best_first_shape(accuracy_of(kModels[0]), 63, 5, 10);
  constexpr double kWidths[] = {10, 28, 23, 2};
  for (std::int64_t d = 1; d <= 4; ++d)
    out.claims.push_back({fmt::format("nodes of depth {} of the tree of 63", d),
                          "repository FasterDecoding/Medusa, medusa_choices.py", kWidths[d - 1], double(tree.width(d)),
                          "nodes", 1e-9, "best path first, from the accuracy of the 7B heads"});
  for (const Vicuna& v : kModels)
    out.claims.push_back({fmt::format("{}: tokens per step", v.name), kLogs, v.measured,
                          expected_tokens(tree, accuracy_of(v)), "tokens", 0.07, "the tree of the 7B heads"});
  // Our kernels launch without a Python loop around them: faster than the published 1.97x, 1.92x and 1.94x in sum.
  for (const Vicuna& v : kModels) {
    reproducer.pause();
    const GenerationCase at{v.model, "dgx_a100", {}, 1, 256, "f16"};
    const GenerationSpeed plain = generation_speed(reproducer, at, {}),
                          medusa = generation_speed(reproducer, at, "{method: medusa}");
    const double tokens = expected_tokens(tree, accuracy_of(v));
    out.ablations.push_back({fmt::format("{} on one A100, batch 1, kernels alone", v.name),
                             {tokens, medusa.step * 1e3, plain.step * 1e3, tokens * plain.step / medusa.step}});
  }
  for (const std::int64_t batch : {8, 32}) {
    const GenerationCase at{kModels[0].model, "dgx_a100", {}, batch, 256, "f16"};
    const GenerationSpeed plain = generation_speed(reproducer, at, {}),
                          medusa = generation_speed(reproducer, at, "{method: medusa}");
    const double tokens = expected_tokens(tree, accuracy_of(kModels[0]));
    out.ablations.push_back({fmt::format("{}, batch {}", kModels[0].name, batch),
                             {tokens, medusa.step * 1e3, plain.step * 1e3, tokens * plain.step / medusa.step}});
  }
  return out;
}

}  // namespace orrery::papers::medusa
