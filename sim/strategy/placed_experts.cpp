// SPDX-License-Identifier: Apache-2.0
// Experts of which several ranks of ep have replicas (FlexMoE, arXiv 2304.03946): each rank has its own in whole, with
// gradients and states, whatever other replicas of a model split. Gradients of an expert are summed over the ranks that
// have it, so that their weights stay equal.
#include <fmt/format.h>

#include "sim/strategy/parameters.hpp"

namespace orrery {

/// Of a layer, on the ranks of this class.
const std::vector<HeldExpert>& ParameterStorage::held_experts(const Bucket& b, const Piece& p) const {
  return arrangements_->experts[static_cast<std::size_t>(p.block)].held(
      place_of_class(builder_->plan(), b.arrangement->roles().experts));
}

/// One of the experts of a stack, in a tensor with the weights or gradients of its bucket.
TensorId ParameterStorage::expert_of(const Bucket& b, const Piece& p, TensorId base, std::size_t at) {
  Layout layout = Layout::contiguous(Shape{p.shape[1], p.shape[2]});
  layout.offset = begin_in(b, base) + p.first + static_cast<std::int64_t>(at) * layout.shape.elements();
  return builder_->view(base, (*model_)[p.experts[at]].name + ".grad", layout);
}

/// In order of the experts on all ranks, so that none waits for another in a circle.
void ParameterStorage::sum_replicas(const Bucket& b) {
  const auto axis = static_cast<std::uint8_t>(b.arrangement->roles().experts.axes.front());
  for (const Piece& p : b.pieces)
    for (std::size_t k = 0; k < p.experts.size(); ++k) {
      const ExpertLayout& layout = arrangements_->experts[static_cast<std::size_t>(p.block)];
      std::vector<std::int64_t> holders = layout.holders(held_experts(b, p)[k].expert);
      if (holders.size() == 1) continue;
      const TensorId gradient = expert_of(b, p, b.gradient, k);
      const GroupId group = builder_->group({fmt::format("ep{}", fmt::join(holders, "+")), {axis}, {holders}});
      collect(CollectiveKind::AllReduce, "sum." + (*model_)[p.experts[k]].name, group, gradient, gradient,
              p.shape[1] * p.shape[2]);
    }
}

/// Each expert counts once over the ranks that have it.
void ParameterStorage::add_norm_of_placed(const Bucket& b, TensorId norm2) {
  for (const Piece& p : b.pieces)
    for (std::size_t k = 0; k < p.experts.size(); ++k) {
      const ExpertLayout& layout = arrangements_->experts[static_cast<std::size_t>(p.block)];
      const auto holders = double(layout.holders(held_experts(b, p)[k].expert).size());
      builder_->add("grad_norm",
                    SumSquares{.elements = p.shape[1] * p.shape[2],
                               .weight = 1 / (b.copies * holders),
                               .dtype = type_of_tensor(b.read_gradient)},
                    {reads(expert_of(b, p, b.read_gradient, k)), updates(norm2)});
    }
}

}  // namespace orrery
