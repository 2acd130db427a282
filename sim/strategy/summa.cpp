// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/summa.hpp"

#include <algorithm>
#include <array>

namespace orrery {
namespace {

/// One operand or result of a product as its steps see it: a block of the rank, or one of two buffers in turn.
class Place {
 public:
  Place(const Summa& summa, std::string name, TensorId block, const Split& over)
      : summa_{summa}, name_{std::move(name)}, block_{block}, over_{over} {}

  TensorId at(std::int64_t step) {
    if (!over_) return block_;
    TensorId& b = buffers_[summa_.overlap ? static_cast<std::size_t>(step % 2) : 0];
    if (b.is_none()) b = summa_.buffer(name_, shape_);
    return b;
  }
  void fetch(std::int64_t step) {
    if (over_) summa_.broadcast(name_, block_, over_, step, at(step));
  }
  void put_down(std::int64_t step) {
    if (over_) summa_.reduce(name_, at(step), over_, step, block_);
  }

 private:
  const Summa& summa_;
  std::string name_;
  TensorId block_;
  Split over_;
  Shape shape_ = summa_.builder.plan().shape(block_);
  std::array<TensorId, 2> buffers_;
};

}  // namespace

TensorId Summa::buffer(const std::string& name, const Shape& shape) const {
  return builder.tensor(name, shape, {.dtype = dtype, .role = TensorRole::Communication});
}

void Summa::broadcast(const std::string& name, TensorId block, const Split& over, std::int64_t from,
                      TensorId to) const {
  const Collective work{.kind = CollectiveKind::Broadcast,
                        .group = over.group,
                        .root = static_cast<std::int32_t>(from),
                        .bytes = size_of(dtype, builder.plan().shape(block).elements()),
                        .dtype = dtype};
  builder.add(name, work, {reads(block), writes(to)}, overlap ? Stream::Ring : Stream::Compute);
}

/// The first sum defines `out`, those of later steps change it on one rank each.
void Summa::reduce(const std::string& name, TensorId part, const Split& over, std::int64_t to, TensorId out) const {
  const Collective work{.kind = CollectiveKind::Reduce,
                        .group = over.group,
                        .root = static_cast<std::int32_t>(to),
                        .bytes = size_of(dtype, builder.plan().shape(out).elements()),
                        .dtype = dtype};
  builder.add(name, work, {reads(part), to == 0 ? writes(out) : updates(out)},
              overlap ? Stream::Ring : Stream::Compute);
}

void Summa::multiply(const std::string& name, Gemm one, const Factor& left, const Factor& right, TensorId bias,
                     TensorId out, const Split& sum) const {
  Place a{*this, name + ".left", left.block, left.over}, b{*this, name + ".right", right.block, right.over},
      c{*this, name + ".sum", out, sum};
  const auto fetch = [&](std::int64_t i) {
    a.fetch(i);
    b.fetch(i);
  };
  fetch(0);
  for (std::int64_t i = 0; i < row.ranks; ++i) {
    one.accumulate = !sum && i > 0;
    one.bias = !bias.is_none() && i == 0;
    const TensorId product = c.at(i);
    const Operand result = one.accumulate ? updates(product) : writes(product);
    if (one.bias)
      builder.add(name, one, {reads(a.at(i)), reads(b.at(i)), reads(bias), result});
    else
      builder.add(name, one, {reads(a.at(i)), reads(b.at(i)), result});
    if (overlap && i + 1 < row.ranks) fetch(i + 1);
    c.put_down(i);
    if (!overlap && i + 1 < row.ranks) fetch(i + 1);
  }
}

}  // namespace orrery
