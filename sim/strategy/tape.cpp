// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/tape.hpp"

#include <utility>

#include "sim/base/error.hpp"
#include "sim/strategy/backward.hpp"

namespace orrery {

OpId Tape::add(std::string_view name, const Work& work, std::initializer_list<Operand> operands, Stream stream) {
  return add(name, work, std::span<const Operand>{operands.begin(), operands.size()}, stream);
}

OpId Tape::add(std::string_view name, const Work& work, std::span<const Operand> operands, Stream stream) {
  const auto index = static_cast<std::uint32_t>(nodes_.size());
  TapeNode node{std::string{name}, work,  {operands.begin(), operands.end()}, builder_.layer(), builder_.microbatch(),
                recompute_,        stream};
  bool wanted = false;
  for (const Operand& o : operands) wanted = wanted || (o.reads() && wants(o.tensor()));
  for (const Operand& o : operands) {
    if (!o.writes()) continue;
    const std::uint32_t owner = plan().owner(o.tensor()).value;
    makers_[owner].push_back(index);
    if (wanted && plan().tensors[owner].dtype != DType::I32) wanted_[owner] = true;
  }
  nodes_.push_back(std::move(node));
  return builder_.add(name, work, operands, stream);
}

void Tape::parameter(TensorId parameter, TensorId gradient) {
  parameters_[parameter.value] = {gradient, false};
  wanted_[parameter.value] = true;
}

bool Tape::wants(TensorId input) { return wanted_.contains(plan().owner(input).value); }

void Tape::differentiate() {
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const TapeNode node = nodes_[i];
    builder_.set_phase(Phase::Backward);
    builder_.set_layer(node.layer);
    builder_.set_microbatch(node.microbatch);
    backward(node, *this);
  }
  nodes_.clear();
  makers_.clear();
  kept_.clear();
  again_.clear();
  gradients_.clear();
  views_.clear();
  shared_.clear();
  pieces_.clear();
  std::erase_if(wanted_, [&](const auto& w) { return !parameters_.contains(w.first); });
}

TensorId Tape::gradient(TensorId output) {
  const TensorId owner = plan().owner(output);
  const auto it = gradients_.find(owner.value);
  if (it == gradients_.end()) return {};
  if (owner == output) return it->second;
  auto [view, fresh] = views_.try_emplace(output.value);
  if (fresh)
    view->second = builder_.view(it->second, name_of(output) + ".grad",
                                 plan().layouts[plan().tensors[output.index()].layout.index()]);
  return view->second;
}

TensorId Tape::like(TensorId t, std::string_view name) {
  return builder_.tensor(name, plan().shape(t), {.dtype = plan().tensors[t.index()].dtype});
}

TensorId Tape::gradient_owner(TensorId owner) {
  auto [it, fresh] = gradients_.try_emplace(owner.value);
  if (fresh) it->second = like(owner, name_of(owner) + ".grad");
  return it->second;
}

TensorId Tape::contribution(TensorId input, std::string_view suffix) {
  const TensorId owner = plan().owner(input);
  if (owner == input) return like(input, name_of(input) + std::string{suffix});
  if (pieces_[input.value] > 0) bug("a view takes only one contribution to its gradient: " + name_of(input));
  gradient_owner(owner);
  return gradient(input);
}

void Tape::contribute(TensorId input, TensorId contribution) {
  ++pieces_[input.value];
  if (plan().owner(input) != input) return;  // written in place, into the view
  const auto it = gradients_.find(input.value);
  if (it == gradients_.end()) {
    gradients_[input.value] = contribution;
    return;
  }
  const Shape& s = plan().shape(input);
  const std::int64_t cols = s[s.rank - 1];
  const Add add{.rows = s.elements() / cols, .cols = cols, .dtype = plan().tensors[input.index()].dtype};
  const TensorId before = it->second;
  if (shared_.contains(before.value)) {
    const TensorId sum = like(input, name_of(input) + ".grad");
    emit(name_of(input) + ".grad_sum", add, {reads(before), reads(contribution), writes(sum)});
    gradients_[input.value] = sum;
  } else {
    emit(name_of(input) + ".grad_sum", add, {updates(before), reads(contribution)});
  }
}

void Tape::pass_through(TensorId input, TensorId gradient) {
  shared_[plan().owner(gradient).value] = true;
  contribute(input, gradient);
}

Tape::ParameterTarget Tape::parameter_target(TensorId parameter) {
  const TensorId owner = plan().owner(parameter);
  auto& [tensor, written] = parameters_.at(owner.value);
  if (owner != parameter) bug("a part of a parameter has no gradient of its own: " + name_of(parameter));
  return {tensor, std::exchange(written, true)};
}

TensorId Tape::added_parameter_target(TensorId parameter) {
  const auto target = parameter_target(parameter);
  if (!target.accumulate)
    emit(name_of(parameter) + ".grad_zero",
         Fill{.elements = plan().shape(parameter).elements(), .dtype = plan().tensors[parameter.index()].dtype},
         {writes(target.tensor)});
  return target.tensor;
}

TensorId Tape::saved(TensorId t) {
  const TensorId owner = plan().owner(t);
  const auto makers = makers_.find(owner.value);
  if (makers == makers_.end() || kept_.contains(owner.value) || !nodes_[makers->second.front()].recomputed) return t;
  const TensorId fresh = rematerialise(owner);
  if (owner == t) return fresh;
  return builder_.view(fresh, name_of(t), plan().layouts[plan().tensors[t.index()].layout.index()]);
}

TensorId Tape::rematerialise(TensorId owner) {
  if (const auto it = again_.find(owner.value); it != again_.end()) return it->second;
  const Phase phase = builder_.phase();
  builder_.set_phase(Phase::Recompute);
  const std::vector<std::uint32_t> nodes = makers_.at(owner.value);
  for (std::uint32_t n : nodes) replay(n);
  builder_.set_phase(phase);
  return again_.at(owner.value);
}

void Tape::replay(std::size_t index) {
  const TapeNode node = nodes_[index];
  std::vector<Operand> operands;
  for (const Operand& o : node.operands) {
    const TensorId owner = plan().owner(o.tensor());
    if (o.access() == Access::Read) {
      operands.push_back(reads(saved(o.tensor())));
      continue;
    }
    auto [it, fresh] = again_.try_emplace(owner.value);
    if (fresh) it->second = like(owner, name_of(owner) + ".again");
    const TensorId target = owner == o.tensor()
                                ? it->second
                                : builder_.view(it->second, name_of(o.tensor()),
                                                plan().layouts[plan().tensors[o.tensor().index()].layout.index()]);
    operands.push_back({target, o.access()});
  }
  builder_.add(node.name + ".again", node.work, operands, node.stream);
}

}  // namespace orrery
