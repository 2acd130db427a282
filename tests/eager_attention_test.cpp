// SPDX-License-Identifier: Apache-2.0
// Attention op by op: what it holds until it returns.
#include <catch2/catch.hpp>

#include "tests/parallel_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

Plan lower(const TrainOptions& o) {
  return parallel("{mesh: dp1}")->train_step(gpt2_of({.hidden = 32, .layers = 4, .heads = 4, .vocab = 64}), o, nullptr);
}

/// Bytes in the shape of scores that lie on a device while they are multiplied with the values of the first block.
double scores_beside_values(const Plan& plan, std::int64_t elements) {
  double live = 0;
  for (const Op& op : plan.ops_of(plan.classes[0])) {
    double freed = 0;
    for (const Operand& o : plan.operands_of(op)) {
      const TensorId owner = plan.owner(o.tensor());
      if (plan.shape(owner).elements() != elements) continue;
      if (o.allocates()) live += plan.size(owner).base();
      if (o.frees()) freed += plan.size(owner).base();
    }
    if (std::holds_alternative<Gemm>(plan.work(op)) && plan.name_of(op).ends_with(".output")) return live;
    live -= freed;
  }
  return 0;
}

}  // namespace

/// Softmax, what dropout leaves (2 B each) and its mask; eager, masked scores (2 B) beside them until attention
/// returns. What a block keeps is the same.
TEST_CASE("eager attention holds two bytes more a score until it returns", "[parallel]") {
  TrainOptions o;
  o.batch = 8, o.sequence = 16;
  o.dtype = Precision::BF16;
  o.stored_scores = o.dropout_masks = true;
  o.attention_dropout = 0.1;
  const auto scores = static_cast<std::int64_t>(4 * 16 * 16 * 8);
  const Plan in_place = lower(o);
  o.eager_attention = true;
  const Plan eager = lower(o);
  CHECK(scores_beside_values(in_place, scores) == 5.0 * double(scores));
  CHECK(scores_beside_values(eager, scores) == 7.0 * double(scores));
  CHECK(kept_bytes(eager, 1) == kept_bytes(in_place, 1));
}
