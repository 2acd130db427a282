// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/context_parallel.hpp"

#include <fmt/format.h>

#include "sim/strategy/layers.hpp"

namespace orrery {

TensorId Ring::pass_on(TensorId t) {
  const DType dtype = builder_.plan().tensors[t.index()].dtype;
  const Shape shape = builder_.plan().shape(t);
  TensorId& to = buffers_[hops_++ % 2];
  if (to.is_none()) to = builder_.tensor(name_, shape, {.dtype = dtype, .role = TensorRole::Communication});
  Collective hop = over(axis_, CollectiveKind::Shift, shape.elements(), dtype);
  hop.root = 1;
  builder_.add(name_, hop, {reads(t), writes(to)}, stream_);
  return to;
}

/// Where the tokens stand that come by on hops first_hop, first_hop + 1, …, one hop after another.
TensorId Layers::context_positions(std::int64_t first_hop, std::int64_t hops) {
  return rank_constant(fmt::format("positions.{}+{}", first_hop, hops), Shape{hops * sizes_.sequence}, DType::I32,
                       [=, slices = slices()](std::span<const std::int64_t> at) {
                         const auto axis = static_cast<std::size_t>(slices.roles.cp.axes.front());
                         std::vector<double> out;
                         for (std::int64_t h = first_hop; h < first_hop + hops; ++h) {
                           std::vector<std::int64_t> from{at.begin(), at.end()};
                           from[axis] = origin(slices.roles.cp, at[axis], h);
                           for (const std::int64_t p : slices.positions(from)) out.push_back(double(p));
                         }
                         return out;
                       });
}

}  // namespace orrery
