// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/parameters.hpp"

namespace orrery {
namespace {

/// Calls f for every mixture-of-experts layer of a model.
template <class F>
void for_each_moe(const Model& model, F f) {
  const auto* t = std::get_if<Transformer>(&model.network);
  if (!t) return;
  for (const auto* stack : {&t->encoder, &t->decoder})
    for (const Block& b : *stack)
      if (const auto* moe = std::get_if<MoE>(&b.ffn)) f(*moe);
}

bool is_low_precision(DType t) { return t == DType::BF16 || t == DType::F16; }

/// Weights are matrices to the ops that use them: a convolution's [out, channels, p, p] is [out, channels·p·p], a table
/// with leading ones [1, n, dim] is [n, dim].
Shape storage_shape(const Parameter& p) {
  if (p.shape.size() <= 2) return Shape{std::span<const std::int64_t>{p.shape}};
  if (p.shape.front() == 1) return Shape{p.elements() / p.shape.back(), p.shape.back()};
  return Shape{p.shape.front(), p.elements() / p.shape.front()};
}

}  // namespace

ParameterStorage::ParameterStorage(PlanBuilder& builder, const Model& model, DType dtype)
    : builder_{&builder}, model_{&model}, dtype_{dtype}, weights_(model.parameters.size()) {
  for_each_moe(model, [&](const MoE& moe) { stack_experts(moe); });
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    if (!weights_[i].is_none()) continue;
    const Parameter& p = model.parameters[i];
    weights_[i] =
        builder.tensor(p.name, storage_shape(p), {.dtype = dtype, .role = TensorRole::Parameter, .persistent = true});
    owners_.push_back(weights_[i]);
    decay_.push_back(p.decay);
  }
  builder.plan().parameters = weights_;
}

void ParameterStorage::stack_experts(const MoE& moe) {
  std::vector<ParameterId> gate, up, down;
  for (const Mlp& e : moe.experts) {
    if (e.gate) gate.push_back(e.gate->weight);
    up.push_back(e.up.weight);
    down.push_back(e.down.weight);
  }
  for (const auto* experts : {&gate, &up, &down})
    if (!experts->empty()) stack(*experts);
}

void ParameterStorage::stack(const std::vector<ParameterId>& experts) {
  const Parameter& first = (*model_)[experts.front()];
  const Shape shape{static_cast<std::int64_t>(experts.size()), first.shape[0], first.shape[1]};
  const TensorId base = builder_->tensor(first.name + ".experts", shape,
                                         {.dtype = dtype_, .role = TensorRole::Parameter, .persistent = true});
  owners_.push_back(base);
  decay_.push_back(first.decay);
  for (std::size_t e = 0; e < experts.size(); ++e) {
    Layout layout = Layout::contiguous(Shape{first.shape[0], first.shape[1]});
    layout.offset = static_cast<std::int64_t>(e) * first.shape[0] * first.shape[1];
    weights_[experts[e].index()] = builder_->view(base, (*model_)[experts[e]].name, layout);
  }
}

void ParameterStorage::add_gradients(Tape& tape) {
  Plan& plan = builder_->plan();
  for (TensorId owner : owners_) {
    const std::string name = std::string{plan.names[plan.tensors[owner.index()].name]} + ".grad";
    const TensorId g =
        builder_->tensor(name, plan.shape(owner), {.dtype = dtype_, .role = TensorRole::Gradient, .persistent = true});
    gradients_.push_back(g);
    tape.parameter(owner, g);
  }
  plan.gradients.assign(weights_.size(), {});
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const TensorId owner = plan.owner(weights_[i]);
    for (std::size_t k = 0; k < owners_.size(); ++k) {
      if (owners_[k] != owner) continue;
      plan.gradients[i] = owner == weights_[i]
                              ? gradients_[k]
                              : builder_->view(gradients_[k], model_->parameters[i].name + ".grad",
                                               plan.layouts[plan.tensors[weights_[i].index()].layout.index()]);
      break;
    }
  }
}

TensorId ParameterStorage::sum_norm(const Tape& tape) {
  const TensorId norm2 =
      builder_->tensor("grad_norm2", Shape{1}, {.dtype = DType::F64, .role = TensorRole::Result, .persistent = true});
  builder_->port("grad_norm2", norm2);
  builder_->add("grad_norm.zero", Fill{.elements = 1, .dtype = DType::F64}, {writes(norm2)});
  for (std::size_t k = 0; k < owners_.size(); ++k)
    if (tape.has_gradient(owners_[k]))
      builder_->add("grad_norm", SumSquares{.elements = builder_->plan().shape(owners_[k]).elements(), .dtype = dtype_},
                    {reads(gradients_[k]), updates(norm2)});
  return norm2;
}

void ParameterStorage::update_one(std::size_t k, TensorId norm2, const OptimizerOptions& o) {
  Plan& plan = builder_->plan();
  const TensorId w = owners_[k];
  const std::string name{plan.names[plan.tensors[w.index()].name]};
  const bool master = is_low_precision(dtype_) && o.kind == OptimizerKind::AdamW;
  const DType state = is_low_precision(dtype_) ? DType::F32 : dtype_;
  std::vector<Operand> operands{updates(w), reads(gradients_[k])};
  const auto add_state = [&](std::string_view what) {
    operands.push_back(
        updates(builder_->tensor(name + std::string{what}, plan.shape(w),
                                 {.dtype = state, .role = TensorRole::OptimizerState, .persistent = true})));
  };
  const std::int64_t n = plan.shape(w).elements();
  const double decay = decay_[k] ? o.decay : 0.0;
  Work work =
      Sgd{.elements = n, .rate = o.rate, .momentum = o.momentum, .decay = decay, .max_norm = o.clip, .dtype = dtype_};
  if (o.kind == OptimizerKind::Sgd) {
    add_state(".velocity");
  } else {
    work = AdamW{.elements = n,
                 .rate = o.rate,
                 .beta1 = o.beta1,
                 .beta2 = o.beta2,
                 .epsilon = o.epsilon,
                 .decay = decay,
                 .max_norm = o.clip,
                 .step = Extent{0, Symbol::Step},
                 .master = master,
                 .dtype = dtype_,
                 .state = state};
    add_state(".m");
    add_state(".v");
    if (master) add_state(".master");
  }
  if (!norm2.is_none()) operands.push_back(reads(norm2));
  builder_->add("update." + name, work, operands);
}

void ParameterStorage::update(const Tape& tape, const OptimizerOptions& options) {
  builder_->set_phase(Phase::Optimizer);
  builder_->set_layer(-1);
  builder_->set_microbatch(0);
  const TensorId norm2 = options.clip > 0 ? sum_norm(tape) : TensorId{};
  for (std::size_t k = 0; k < owners_.size(); ++k)
    if (tape.has_gradient(owners_[k])) update_one(k, norm2, options);
  Plan& plan = builder_->plan();
  for (std::size_t i = 0; i < weights_.size(); ++i)
    if (!tape.has_gradient(plan.owner(weights_[i]))) plan.gradients[i] = {};
}

}  // namespace orrery
