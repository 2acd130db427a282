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

void ParameterStorage::update(const Tape& tape, const OptimizerOptions& options) {
  Plan& plan = builder_->plan();
  builder_->set_phase(Phase::Optimizer);
  builder_->set_layer(-1);
  builder_->set_microbatch(0);
  const bool master = is_low_precision(dtype_);
  const DType state = master ? DType::F32 : dtype_;
  const TensorId norm2 = options.clip > 0
                             ? builder_->tensor("grad_norm2", Shape{1},
                                                {.dtype = DType::F64, .role = TensorRole::Result, .persistent = true})
                             : TensorId{};
  if (!norm2.is_none()) {
    builder_->port("grad_norm2", norm2);
    builder_->add("grad_norm.zero", Fill{.elements = 1, .dtype = DType::F64}, {writes(norm2)});
    for (std::size_t k = 0; k < owners_.size(); ++k)
      if (tape.has_gradient(owners_[k]))
        builder_->add("grad_norm", SumSquares{.elements = plan.shape(owners_[k]).elements(), .dtype = dtype_},
                      {reads(gradients_[k]), updates(norm2)});
  }
  const auto state_of = [&](TensorId owner, std::string_view what) {
    const std::string name = std::string{plan.names[plan.tensors[owner.index()].name]} + std::string{what};
    return builder_->tensor(name, plan.shape(owner),
                            {.dtype = state, .role = TensorRole::OptimizerState, .persistent = true});
  };
  for (std::size_t k = 0; k < owners_.size(); ++k) {
    const TensorId w = owners_[k];
    if (!tape.has_gradient(w)) {
      for (std::size_t i = 0; i < weights_.size(); ++i)
        if (plan.owner(weights_[i]) == w) plan.gradients[i] = {};
      continue;
    }
    const std::int64_t n = plan.shape(w).elements();
    const double decay = decay_[k] ? options.decay : 0.0;
    std::vector<Operand> operands{updates(w), reads(gradients_[k])};
    const std::string name = "update." + std::string{plan.names[plan.tensors[w.index()].name]};
    if (options.kind == OptimizerKind::Sgd) {
      operands.push_back(updates(state_of(w, ".velocity")));
      if (!norm2.is_none()) operands.push_back(reads(norm2));
      builder_->add(name,
                    Sgd{.elements = n,
                        .rate = options.rate,
                        .momentum = options.momentum,
                        .decay = decay,
                        .max_norm = options.clip,
                        .dtype = dtype_},
                    operands);
      continue;
    }
    operands.push_back(updates(state_of(w, ".m")));
    operands.push_back(updates(state_of(w, ".v")));
    if (master) operands.push_back(updates(state_of(w, ".master")));
    if (!norm2.is_none()) operands.push_back(reads(norm2));
    builder_->add(name,
                  AdamW{.elements = n,
                        .rate = options.rate,
                        .beta1 = options.beta1,
                        .beta2 = options.beta2,
                        .epsilon = options.epsilon,
                        .decay = decay,
                        .max_norm = options.clip,
                        .step = Extent{0, Symbol::Step},
                        .master = master,
                        .dtype = dtype_,
                        .state = state},
                  operands);
  }
}

}  // namespace orrery
