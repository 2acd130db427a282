// SPDX-License-Identifier: Apache-2.0
// What ranks of the axis tp compute together, as in Megatron-LM (arXiv 1909.08053): projections to heads and to the inner
// width are split by outputs, projections back by inputs, whose results are summed. Without sequence parallelism every
// rank has all rows between blocks: entering costs nothing forward and an all-reduce of the gradient backward, leaving an
// all-reduce forward and nothing backward. With it (arXiv 2205.05198) a rank has 1/tp of the rows: all-gather and
// reduce-scatter, in one direction and, exchanged, in the other.
#include <fmt/format.h>

#include "sim/strategy/layers.hpp"

namespace orrery {
namespace {

/// A collective of tp on a matrix, on the stream of the ops that need its result.
Collective over(const Split& tp, CollectiveKind kind, std::int64_t elements, DType dtype,
                ReduceOp reduce = ReduceOp::Sum) {
  return {.kind = kind, .group = tp.group, .bytes = size_of(dtype, elements), .reduce = reduce, .dtype = dtype};
}

}  // namespace

TensorId Layers::enter(std::string_view name, TensorId x) {
  const Split& tp = roles().tp;
  if (!tp) return x;
  const Shape shape = tape_.plan().shape(x);
  if (!roles().sequence_parallel) {
    const TensorId inner = tape_.alias(x);
    const Collective sum = over(tp, CollectiveKind::AllReduce, shape.elements(), sizes_.dtype);
    tape_.on_backward([this_tape = &tape_, x, inner, sum, name = fmt::format("{}.enter.sum", name)] {
      const TensorId dy = this_tape->gradient(inner);
      if (dy.is_none()) return;
      this_tape->emit(name, sum, {updates(dy)});
      this_tape->contribute(x, dy);
    });
    return inner;
  }
  const std::int64_t all = shape[0] * tp.ranks;
  const TensorId y = activation_tensor(fmt::format("{}.gathered", name), Shape{all, shape[1]});
  tape_.add_plain(fmt::format("{}.enter", name), over(tp, CollectiveKind::AllGather, all * shape[1], sizes_.dtype),
                  {reads(x), writes(y)});
  const Collective scatter = over(tp, CollectiveKind::ReduceScatter, all * shape[1], sizes_.dtype);
  tape_.on_backward([this_tape = &tape_, x, y, scatter, name = fmt::format("{}.enter.scatter", name)] {
    const TensorId dy = this_tape->gradient(y);
    if (dy.is_none()) return;
    const TensorId dx = this_tape->contribution(x);
    this_tape->emit(name, scatter, {reads(dy), writes(dx)});
    this_tape->contribute(x, dx);
  });
  return y;
}

TensorId Layers::leave(std::string_view name, TensorId partial) {
  const Split& tp = roles().tp;
  if (!tp) return partial;
  const Shape shape = tape_.plan().shape(partial);
  if (!roles().sequence_parallel) {
    tape_.add_plain(fmt::format("{}.leave", name),
                    over(tp, CollectiveKind::AllReduce, shape.elements(), sizes_.dtype), {updates(partial)});
    return partial;
  }
  const TensorId y = activation_tensor(fmt::format("{}.scattered", name), Shape{shape[0] / tp.ranks, shape[1]});
  tape_.add_plain(fmt::format("{}.leave", name),
                  over(tp, CollectiveKind::ReduceScatter, shape.elements(), sizes_.dtype), {reads(partial), writes(y)});
  const Collective gather = over(tp, CollectiveKind::AllGather, shape.elements(), sizes_.dtype);
  tape_.on_backward([this_tape = &tape_, partial, y, gather, name = fmt::format("{}.leave.gather", name)] {
    const TensorId dy = this_tape->gradient(y);
    if (dy.is_none()) return;
    const TensorId dx = this_tape->contribution(partial);
    this_tape->emit(name, gather, {reads(dy), writes(dx)});
    this_tape->contribute(partial, dx);
  });
  return y;
}

TensorId Layers::project_back(std::string_view name, TensorId x, const Linear& l) {
  const std::int64_t rows = tape_.plan().shape(x)[0];
  if (!roles().tp) return linear(name, x, rows, l);
  Linear product = l;
  product.bias = {};
  const TensorId sum = leave(name, linear(name, x, rows, product));
  if (l.bias.is_none()) return sum;
  const Shape shape = tape_.plan().shape(sum);
  const TensorId y = activation_tensor(fmt::format("{}.biased", name), shape);
  tape_.add(fmt::format("{}.bias", name), AddRows{shape[0], shape[1], 1, sizes_.dtype},
            {reads(sum), reads(weight(l.bias)), writes(y)});
  return y;
}

TensorId Layers::embed(std::string_view name, TensorId table, TensorId index) {
  const Split& tp = roles().tp;
  const std::int64_t n = tape_.plan().shape(index).elements();
  if (!tp) return gather(name, table, index, n);
  const std::int64_t each = tape_.plan().shape(table)[0];
  const TensorId local = index_tensor(fmt::format("{}.local", name), Shape{n});
  tape_.add_plain(fmt::format("{}.local", name), LocalIndices{.rows = n, .classes = each},
                  {reads(index), reads(first_of_shard(each)), writes(local)});
  return leave(name, gather(name, table, local, n));
}

/// Where the part of a table or of the classes that a rank of tp holds begins.
TensorId Layers::first_of_shard(std::int64_t each) {
  return rank_constant(fmt::format("first_of_{}", each), Shape{1}, DType::I32,
                       [each, axis = static_cast<std::size_t>(roles().tp.axis)](std::span<const std::int64_t> at) {
                         return std::vector<double>{double(each * at[axis])};
                       });
}

void Layers::add_loss(TensorId logits, TensorId targets, TensorId loss, std::int64_t classes, double weight) {
  const Shape shape = tape_.plan().shape(logits);
  const std::int64_t n = shape[0];
  if (classes == 1) {
    tape_.add("loss", BinaryCrossEntropyForward{n, weight, sizes_.dtype}, {reads(logits), reads(targets), updates(loss)});
    return;
  }
  if (shape[1] < classes) return add_split_loss(logits, targets, loss, classes, weight);
  const TensorId lse = activation_tensor("loss.lse", Shape{n});
  tape_.add("loss", CrossEntropyForward{n, classes, weight, sizes_.dtype},
            {reads(logits), reads(targets), writes(lse), updates(loss)});
}

/// Three numbers per row cross the ranks: the largest logit, Σ exp(logit − largest), and the logit of the target. Every
/// rank adds the whole loss, as all but the classes is the same on them.
void Layers::add_split_loss(TensorId logits, TensorId targets, TensorId loss, std::int64_t classes, double weight) {
  const Split& tp = roles().tp;
  const Shape shape = tape_.plan().shape(logits);
  const std::int64_t n = shape[0], each = shape[1];
  const TensorId first = first_of_shard(each);
  if (each * tp.ranks > classes)
    tape_.add_plain("loss.mask", MaskColumns{.rows = n, .cols = each, .total = classes, .dtype = sizes_.dtype},
                    {reads(first), updates(logits)});
  const TensorId local = index_tensor("loss.targets", Shape{n}), max = activation_tensor("loss.max", Shape{n}),
                 sums = activation_tensor("loss.sums", Shape{2, n}), lse = activation_tensor("loss.lse", Shape{n});
  tape_.add_plain("loss.targets", LocalIndices{.rows = n, .classes = each},
                  {reads(targets), reads(first), writes(local)});
  tape_.add_plain("loss.max", RowMax{.rows = n, .cols = each, .dtype = sizes_.dtype}, {reads(logits), writes(max)});
  tape_.add_plain("loss.max.all", over(tp, CollectiveKind::AllReduce, n, sizes_.dtype, ReduceOp::Max), {updates(max)});
  tape_.add_plain("loss.sums", CrossEntropySums{.rows = n, .classes = each, .dtype = sizes_.dtype},
                  {reads(logits), reads(local), reads(max), writes(sums)});
  tape_.add_plain("loss.sums.all", over(tp, CollectiveKind::AllReduce, 2 * n, sizes_.dtype), {updates(sums)});
  tape_.add_plain("loss", CrossEntropyFinish{.rows = n, .weight = weight, .dtype = sizes_.dtype},
                  {reads(targets), reads(max), reads(sums), writes(lse), updates(loss)});
  const CrossEntropyBackward back{n, each, weight, sizes_.dtype};
  tape_.on_backward([this_tape = &tape_, logits, local, lse, back] {
    this_tape->emit("loss.backward", back, {updates(logits), reads(local), reads(lse)});
    this_tape->contribute(logits, logits);
  });
}

}  // namespace orrery
