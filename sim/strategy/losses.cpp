// SPDX-License-Identifier: Apache-2.0
// The loss of a model, over classes that may lie on several ranks.
#include <fmt/format.h>

#include "sim/strategy/layers.hpp"

namespace orrery {

TensorId Layers::first_of_shard(std::int64_t each, const Split& over) {
  return rank_constant(fmt::format("first_of_{}.{}", each, fmt::join(over.axes, "+")), Shape{1}, DType::I32,
                       [each, over, slices = slices()](std::span<const std::int64_t> at) {
                         return std::vector<double>{double(each * slices.at(over, at))};
                       });
}

TensorId Layers::local_indices(std::string_view name, TensorId index, std::int64_t each, const Split& over) {
  const std::int64_t n = tape_.plan().shape(index).elements();
  const TensorId local = index_tensor(fmt::format("{}.local", name), Shape{n});
  tape_.add_plain(fmt::format("{}.local", name), LocalIndices{.rows = n, .classes = each},
                  {reads(index), reads(first_of_shard(each, over)), writes(local)});
  return local;
}

void Layers::add_loss(TensorId logits, TensorId targets, TensorId loss, std::int64_t classes, double weight) {
  const Shape shape = tape_.plan().shape(logits);
  const std::int64_t n = shape[0];
  if (classes == 1) {
    tape_.add("loss", BinaryCrossEntropyForward{n, weight, sizes_.dtype},
              {reads(logits), reads(targets), updates(loss)});
    return;
  }
  logits = widened(logits);
  if (shape[1] < classes || is_op_by_op(sizes_.loss)) return add_split_loss(logits, targets, loss, classes, weight);
  const CrossEntropyForward work{n, classes, weight, loss_type()};
  if (sizes_.loss == LossKind::Torch) return add_copied_loss(logits, targets, loss, work);
  const TensorId lse = loss_tensor("loss.lse", Shape{n});
  tape_.add("loss", work, {reads(logits), reads(targets), writes(lse), updates(loss)});
}

TensorId Layers::widened(TensorId logits) {
  if (loss_type() == sizes_.dtype) return logits;
  const Shape shape = tape_.plan().shape(logits);
  const TensorId wide = loss_tensor("loss.logits", shape);
  tape_.add("loss.widen", Cast{shape.elements(), sizes_.dtype, DType::F32}, {reads(logits), writes(wide)});
  return wide;
}

/// Log-probabilities stay for the backward pass. There the gradient with respect to them, zero but for the targets, and
/// that of the logits are tensors of their own.
void Layers::add_copied_loss(TensorId wide, TensorId targets, TensorId loss, const CrossEntropyForward& work) {
  const Shape shape = tape_.plan().shape(wide);
  const TensorId kept = loss_tensor("loss.log_softmax", shape), lse = loss_tensor("loss.lse", Shape{work.rows});
  tape_.add_plain("loss.log_softmax", CopyRows{shape[0], shape[1], DType::F32}, {reads(wide), writes(kept)});
  tape_.add_plain("loss", work, {reads(kept), reads(targets), writes(lse), updates(loss)});
  tape_.on_backward([&tape = tape_, shape, work, wide, kept, targets, lse] {
    const TensorId of_targets = tape.like(wide, "loss.of_targets.grad"), grad = tape.contribution(wide);
    tape.emit("loss.of_targets.backward", Fill{.elements = shape.elements(), .dtype = DType::F32},
              {writes(of_targets)});
    tape.emit("loss.backward", CrossEntropyBackward{work.rows, work.classes, work.weight, DType::F32},
              {reads(kept), reads(targets), reads(lse), writes(grad)});
    tape.emit("loss.grad_sum", Add{.rows = shape[0], .cols = shape[1], .dtype = DType::F32},
              {updates(grad), reads(of_targets)});
    tape.contribute(wide, grad);
  });
}

TensorId Layers::copied_for_loss(TensorId logits) {
  if (sizes_.loss != LossKind::MegatronCopied) return logits;
  const Shape shape = tape_.plan().shape(logits);
  const TensorId copy = loss_tensor("loss.copy", shape);
  tape_.add_plain("loss.copy", CopyRows{shape[0], shape[1], loss_type()}, {reads(logits), writes(copy)});
  return copy;
}

/// Three numbers per row cross the ranks: the largest logit, Σ exp(logit − largest), and the logit of the target. Every
/// rank adds the whole loss, as all but the classes is the same on them. Op by op the exponentials stay for the
/// backward pass, in the place of the logits or of a copy.
void Layers::add_split_loss(TensorId from, TensorId targets, TensorId loss, std::int64_t classes, double weight) {
  const TensorId logits = copied_for_loss(from);
  const Split over = scheme_->classes(roles());
  const auto all_reduce = [&](std::string_view name, TensorId what, std::int64_t elements, ReduceOp reduce) {
    if (!over) return;
    tape_.add_plain(
        name,
        Collective{
            .group = over.group, .bytes = size_of(loss_type(), elements), .reduce = reduce, .dtype = loss_type()},
        {updates(what)});
  };
  const bool op_by_op = is_op_by_op(sizes_.loss);
  const Shape shape = tape_.plan().shape(logits);
  const std::int64_t n = shape[0], each = shape[1];
  if (each * over.ranks > classes)
    tape_.add_plain("loss.mask", MaskColumns{.rows = n, .cols = each, .total = classes, .dtype = loss_type()},
                    {reads(first_of_shard(each, over)), updates(logits)});
  const TensorId local = local_indices("loss.targets", targets, each, over), max = loss_tensor("loss.max", Shape{n}),
                 sums = loss_tensor("loss.sums", Shape{2, n}), lse = loss_tensor("loss.lse", Shape{n});
  tape_.add_plain("loss.max", RowMax{.rows = n, .cols = each, .dtype = loss_type()}, {reads(logits), writes(max)});
  all_reduce("loss.max.all", max, n, ReduceOp::Max);
  tape_.add_plain("loss.sums", CrossEntropySums{.rows = n, .classes = each, .dtype = loss_type(), .op_by_op = op_by_op},
                  {op_by_op ? updates(logits) : reads(logits), reads(local), reads(max), writes(sums)});
  all_reduce("loss.sums.all", sums, 2 * n, ReduceOp::Sum);
  tape_.add_plain("loss", CrossEntropyFinish{.rows = n, .weight = weight, .dtype = loss_type()},
                  {reads(targets), reads(max), reads(sums), writes(lse), updates(loss)});
  const CrossEntropyBackward back{n, each, weight, loss_type(), op_by_op};
  tape_.on_backward([this_tape = &tape_, from, logits, local, parts = op_by_op ? sums : lse, back] {
    this_tape->emit("loss.backward", back, {updates(logits), reads(local), reads(parts)});
    this_tape->contribute(from, logits);
  });
}

}  // namespace orrery
