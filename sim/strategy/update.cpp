// SPDX-License-Identifier: Apache-2.0
// The end of a step: the norm of all gradients, and the new weights.
#include <algorithm>

#include "sim/plan/placement.hpp"
#include "sim/strategy/parameters.hpp"

namespace orrery {
namespace {

bool is_low_precision(DType t) { return t == DType::BF16 || t == DType::F16; }

}  // namespace

/// What the update goes through: buckets that a gradient has reached, those that are owned together as one.
std::vector<ParameterStorage::Bucket*> ParameterStorage::updated() {
  std::vector<Bucket*> out;
  for (Bucket& b : buckets_)
    if (b.has_gradient && !b.is_owned) out.push_back(&b);
  for (Owned& o : owned_)
    if (o.all.has_gradient) out.push_back(&o.all);
  return out;
}

/// What the update reads: gradients, or copies in f32, of which there are all before it begins.
void ParameterStorage::read_gradients(const OptimizerOptions& o) {
  for (Bucket* b : updated()) {
    b->read_gradient = b->own_gradient;
    if (!o.widen_gradients) continue;
    const Shape shape = builder_->plan().shape(b->own_gradient);
    b->read_gradient = builder_->tensor(b->name + ".gradient.f32", shape, {.role = TensorRole::Gradient});
    builder_->add("widen." + b->name, Cast{shape.elements(), gradient_, DType::F32},
                  {reads(b->own_gradient), writes(b->read_gradient)});
  }
}

/// Each rank adds up what it holds; what several ranks hold counts by its share. One sum over the whole mesh.
TensorId ParameterStorage::sum_norm() {
  const TensorId norm2 =
      builder_->tensor("grad_norm2", Shape{1}, {.dtype = DType::F64, .role = TensorRole::Result, .persistent = true});
  builder_->port("grad_norm2", norm2);
  builder_->add("grad_norm.zero", Fill{.elements = 1, .dtype = DType::F64}, {writes(norm2)});
  for (const Bucket& b : buckets_) {
    if (!b.has_gradient || b.is_owned) continue;
    if (b.is_placed)
      add_norm_of_placed(b, norm2);
    else
      builder_->add("grad_norm",
                    SumSquares{.elements = builder_->plan().shape(b.own_gradient).elements(),
                               .weight = 1 / b.copies,
                               .dtype = type_of_tensor(b.read_gradient)},
                    {reads(b.read_gradient), updates(norm2)});
  }
  for (const Owned& o : owned_)
    if (o.all.has_gradient) add_norm(o, norm2);
  std::vector<std::int8_t> all(builder_->plan().mesh.axes.size());
  for (std::size_t a = 0; a < all.size(); ++a) all[a] = static_cast<std::int8_t>(a);
  collect(CollectiveKind::AllReduce, "grad_norm.sum", all, norm2, norm2, 1);
  return norm2;
}

/// How many of the elements that a rank updates have weight decay: those with it come first in a bucket.
TensorId ParameterStorage::decayed_elements(const Bucket& b, std::int64_t own) {
  Plan& plan = builder_->plan();
  const TensorId t = builder_->tensor(b.name + ".decayed", Shape{1},
                                      {.dtype = DType::I32, .role = TensorRole::Constant, .persistent = true});
  const auto values = [mesh = plan.mesh, axes = b.scatter, decayed = b.decayed, starts = b.starts,
                       own](std::span<const std::int64_t> coordinates) {
    const std::int64_t at = position(mesh, axes, coordinates).at;
    const std::int64_t first = starts.empty() ? at * own : starts[static_cast<std::size_t>(at)];
    return std::vector<double>{double(std::clamp<std::int64_t>(decayed - first, 0, own))};
  };
  plan.constants.push_back({t, builder_->rank_class(), values});
  return t;
}

ParameterStorage::UpdateState ParameterStorage::update_state(const Bucket& b, const OptimizerOptions& o) {
  const DType wide = is_low_precision(dtype_) ? DType::F32 : dtype_;
  const DType moments = o.narrow_moments ? dtype_ : wide;
  const Shape shape = builder_->plan().shape(b.own_weight);
  UpdateState state;
  const auto add_state = [&](std::string_view what, DType type) {
    state.states.push_back(updates(builder_->tensor(
        b.name + std::string{what}, shape, {.dtype = type, .role = TensorRole::OptimizerState, .persistent = true})));
  };
  if (o.kind == OptimizerKind::Sgd) {
    if (o.momentum != 0) add_state(".velocity", wide);
  } else {
    add_state(".m", moments);
    add_state(".v", moments);
    if (is_low_precision(dtype_)) add_state(".master", wide);
  }
  if (o.decay != 0 && b.decayed > 0 && b.decayed < b.elements) state.decayed = decayed_elements(b, shape.elements());
  return state;
}

void ParameterStorage::emit_update(const Bucket& b, const UpdateState& state, const UpdateStep& step,
                                   const OptimizerOptions& o) {
  const std::int64_t n = builder_->plan().shape(step.weight).elements();
  const bool partly = !state.decayed.is_none();
  const double decay = b.decayed > 0 ? o.decay : 0.0;
  Work work = Sgd{.elements = n,
                  .rate = o.rate,
                  .momentum = o.momentum,
                  .decay = decay,
                  .max_norm = o.clip,
                  .partly = partly,
                  .dtype = dtype_};
  if (o.kind == OptimizerKind::AdamW)
    work = AdamW{.elements = n,
                 .rate = o.rate,
                 .beta1 = o.beta1,
                 .beta2 = o.beta2,
                 .epsilon = o.epsilon,
                 .decay = decay,
                 .max_norm = o.clip,
                 .step = Extent{step.ahead, Symbol::Step},
                 .master = is_low_precision(dtype_),
                 .partly = partly,
                 .dtype = dtype_,
                 .gradient = type_of_tensor(step.gradient),
                 .state = is_low_precision(dtype_) ? DType::F32 : dtype_,
                 .narrow_moments = o.narrow_moments};
  std::vector<Operand> operands{updates(step.weight), reads(step.gradient)};
  operands.insert(operands.end(), state.states.begin(), state.states.end());
  if (!step.norm2.is_none()) operands.push_back(reads(step.norm2));
  if (partly) operands.push_back(reads(state.decayed));
  builder_->add(step.name, work, operands);
}

void ParameterStorage::update_bucket(Bucket& b, TensorId norm2, const OptimizerOptions& o) {
  emit_update(b, update_state(b, o), {"update." + b.name, b.own_weight, b.read_gradient, norm2}, o);
  if (kind_of(b) == DataKind::Zero1 || kind_of(b) == DataKind::Zero2)
    collect(CollectiveKind::AllGather, "gather." + b.name, b.scatter, b.own_weight, b.weight, b.elements);
}

void ParameterStorage::update(const OptimizerOptions& options) {
  if (points_) return finish_points(options);
  if (!data_.overlap)
    for (Bucket& b : buckets_)
      if (b.has_gradient && (kind_of(b) == DataKind::Ddp || kind_of(b) == DataKind::Zero1)) sum_whole(b);
  sum_copies();
  builder_->set_phase(Phase::Optimizer);
  builder_->set_layer(-1);
  builder_->set_microbatch(0);
  if (separate_)
    for (Bucket& b : buckets_) b.has_gradient = !b.frozen && targets_.is_written(b.piece_gradients.front());
  for (Owned& o : owned_) lay_out_gradients(o);
  read_gradients(options);
  const TensorId norm2 = options.clip > 0 ? sum_norm() : TensorId{};
  for (Bucket* b : updated()) update_bucket(*b, norm2, options);
  for (const Owned& o : owned_)
    if (o.all.has_gradient) broadcast_owned(o);
  for (ParameterPlacement& p : builder_->plan().placements)
    for (const Bucket& b : buckets_)
      if (!b.has_gradient && p.rank_class == builder_->rank_class() &&
          std::any_of(b.pieces.begin(), b.pieces.end(), [&](const Piece& x) {
            return x.parameter == p.parameter ||
                   std::find(x.experts.begin(), x.experts.end(), p.parameter) != x.experts.end();
          }))
        p.gradient.tensor = {};
}

}  // namespace orrery
