// SPDX-License-Identifier: Apache-2.0
// Plans of several ranks on one GPU, which exchange by copies and kernels, and networks of every kind: what one device
// of the host computes.
#include "runtime/cuda/gpu_executor.hpp"
#include "tests/cuda_testing.hpp"
#include "tests/parallel_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

struct Family {
  const char *model, *strategy;
  std::int64_t batch = 4, microbatches = 2;
};

/// One of each way to share out a network, and some at once.
constexpr Family kFamilies[] = {
    {"gpt2", "{mesh: dp2}"},
    {"gpt2", "{mesh: dp2, data: {kind: zero1}}"},
    {"gpt2", "{mesh: dp2, data: {kind: zero1, owners: true}}"},
    {"llama", "{mesh: fsdp2, data: {kind: zero2}}"},
    {"gpt2", "{mesh: dp2, data: {kind: zero3}}"},
    {"llama", "{mesh: tp2}"},
    {"gpt2", "{mesh: tp2, sequence_parallel: true}"},
    {"gpt2", "{mesh: tp2, tensor_overlap: true}"},
    {"gpt2", "{mesh: tp2, sequence_parallel: true, tp_comm_overlap: true}"},
    {"gpt2", "{mesh: row2 col2}"},
    {"gpt2", "{mesh: depth2 row2 col2}", 8},
    {"gpt2", "{mesh: x2 y2 z2}", 8},
    {"llama", "{mesh: cp2}"},
    {"llama", "{mesh: cp2, context: ulysses}"},
    {"gpt2", "{mesh: cp2, context: rsa}"},
    {"gpt2", "{mesh: pp2}"},
    {"gpt2", "{mesh: pp2, schedule: gpipe}"},
    {"llama", "{mesh: pp2, schedule: interleaved, chunks: 2}"},
    {"gpt2", "{mesh: pp2, schedule: chimera}"},
    {"gpt2", "{mesh: pp2, schedule: zb-h1}"},
    {"gpt2", "{mesh: pp2, schedule: zb-v}"},
    {"gpt2", "{mesh: pp2, schedule: dualpipe}", 4, 4},
    {"mixtral", "{mesh: ep2}"},
    {"mixtral", "{mesh: ep2, expert_overlap: true}"},
    {"gpt2", "{mesh: dp2 pp2 tp2, sequence_parallel: true, data: {kind: zero1}}"},
};

/// As small as the family allows: the threads of emulated kernels take turns.
Model tiny(const std::string& family) {
  SmallSizes s{.hidden = 8, .inner = 12, .vocab = 30, .positions = 16};
  if (family == "gpt2") return gpt2_of(s);
  if (family == "llama") return s.heads = 4, llama_of(s);
  return s.layers = 2, mixtral_of(s);
}

}  // namespace

TEST_CASE("ranks that share one GPU compute what one device of the host computes", "[cuda]") {
  TrainOptions o;
  o.sequence = 8;
  o.steps = 2;
  o.optimizer = clipped_optimizer();
  for (const Family& f : kFamilies) {
    INFO(f.model << " " << f.strategy);
    const Model model = tiny(f.model);
    o.batch = f.batch;
    o.microbatches = f.microbatches;
    TrainOptions of_one = o;
    of_one.dtype = Precision::F64;
    const Trained one = train(model, of_one, *single());
    o.dtype = Precision::F32;
    const auto device = make_gpu_executor(gpu_under_test());
    const Trained many = train(model, o, parallel(f.strategy)->train_step(model, o, &gpu_workspaces()), *device);
    REQUIRE(many.losses.size() == 2);
    for (std::size_t i = 0; i < many.losses.size(); ++i) CHECK(many.losses[i] == Approx(one.losses[i]).epsilon(1e-5));
    CHECK(worst_difference(many.gradients, one.gradients) < 1e-4);
    CHECK(worst_difference(many.weights, one.weights) < 1e-4);
  }
}

TEST_CASE("every family of models trains on a GPU as on the host", "[cuda]") {
  TrainOptions o;
  o.batch = 2;
  o.sequence = 9;
  o.steps = 2;
  o.dropout = 0.1;
  o.optimizer = clipped_optimizer();
  for (const char* name : {"opt-tiny", "bert-tiny", "t5-tiny", "mixtral-tiny", "qwen3-moe-tiny", "deepseek-tiny",
                           "vit-tiny", "swin-tiny-test", "dlrm-tiny"}) {
    INFO(name);
    const Model model = load_model(shipped_model(name));
    o.target_sequence = name == std::string_view{"t5-tiny"} ? 6 : 0;
    o.dtype = Precision::F64;
    const Trained want = train(model, o, *single());
    o.dtype = Precision::F32;
    const auto device = make_gpu_executor(gpu_under_test());
    const Trained got = train(model, o, single()->train_step(model, o, &gpu_workspaces()), *device);
    REQUIRE(got.losses.size() == 2);
    for (std::size_t i = 0; i < got.losses.size(); ++i) CHECK(got.losses[i] == Approx(want.losses[i]).epsilon(1e-5));
    // The gradient of a key's bias is nothing but rounding: scores of a query all move alike.
    CHECK(worst_difference(got.gradients, want.gradients) < 1e-3);
    CHECK(worst_difference(got.weights, want.weights) < 1e-4);
  }
}
