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
  return record(name, work, operands, stream, true);
}

OpId Tape::add_plain(std::string_view name, const Work& work, std::initializer_list<Operand> operands, Stream stream) {
  return record(name, work, {operands.begin(), operands.size()}, stream, false);
}

void Tape::add_steps(std::span<const Operand> operands, std::function<void(std::span<const TensorId>)> emit) {
  std::vector<TensorId> tensors;
  for (const Operand& o : operands) tensors.push_back(o.tensor());
  emit(tensors);
  file_steps(operands, std::move(emit), recompute_);
}

void Tape::add_later_steps(std::initializer_list<Operand> operands,
                           std::function<void(std::span<const TensorId>)> emit) {
  file_steps({operands.begin(), operands.size()}, std::move(emit), true);
}

void Tape::file_steps(std::span<const Operand> operands, std::function<void(std::span<const TensorId>)> emit,
                      bool recomputed) {
  TapeNode node;
  node.operands = {operands.begin(), operands.end()};
  node.layer = builder_.layer();
  node.microbatch = builder_.microbatch();
  node.recomputed = recomputed;
  node.has_rule = false;
  node.steps = std::move(emit);
  file(std::move(node));
}

OpId Tape::record(std::string_view name, const Work& work, std::span<const Operand> operands, Stream stream,
                  bool has_rule) {
  const OpId op = builder_.add(name, work, operands, stream);
  file({plan()[op].name,
        work,
        {operands.begin(), operands.end()},
        builder_.layer(),
        builder_.microbatch(),
        recompute_,
        has_rule,
        stream,
        {}});
  return op;
}

/// Remembers who makes what, and what takes part in differentiation.
void Tape::file(TapeNode node) {
  const auto index = static_cast<std::uint32_t>(nodes_.size());
  bool wanted = false;
  for (const Operand& o : node.operands) wanted = wanted || (o.reads() && wants(o.tensor()));
  for (const Operand& o : node.operands) {
    if (!o.writes()) continue;
    const std::uint32_t owner = plan().owner(o.tensor()).value;
    makers_[owner].push_back(index);
    if (wanted && plan().tensors[owner].dtype != DType::I32) wanted_[owner] = true;
  }
  nodes_.push_back(std::move(node));
}

void Tape::on_backward(std::function<void()> step) {
  TapeNode node;
  node.layer = builder_.layer();
  node.microbatch = builder_.microbatch();
  node.backward = std::move(step);
  nodes_.push_back(std::move(node));
}

void Tape::make_all_again(std::size_t first) {
  on_backward([this, first, last = nodes_.size()] {
    for (std::size_t i = first; i < last; ++i)
      for (std::size_t k = 0; nodes_[i].recomputed && k < nodes_[i].operands.size(); ++k) {
        const Operand o = nodes_[i].operands[k];
        const TensorId owner = plan().owner(o.tensor());
        if (o.writes() && !kept_.contains(owner.value)) rematerialise(owner);
      }
  });
}

/// Tensors that the ops of a scope have made again are no longer taken for theirs.
void Tape::forget(const Scope& scope) {
  for (std::size_t i = scope.first; i < scope.last; ++i)
    for (const Operand& o : nodes_[i].operands)
      if (nodes_[i].recomputed && o.writes()) again_.erase(plan().owner(o.tensor()).value);
}

/// What a saving pass makes is made when it is asked for: its output by the next pass, the rest by backward rules.
void Tape::run_again(int block, bool saves) {
  const Scope scope = scopes_.at(block);
  const int layer = builder_.layer();
  builder_.set_layer(block);
  forget(scope);
  if (!saves) {
    const TensorId output = saved(scope.output);
    forget(scope);
    again_[plan().owner(scope.output).value] = output;
  }
  builder_.set_layer(layer);
}

TensorId Tape::alias(TensorId t) {
  const TensorId out = builder_.view(t, name_of(t), plan().layouts[plan().tensors[t.index()].layout.index()]);
  aliases_[out.value] = out.value;
  if (wants(t)) wanted_[out.value] = true;
  return out;
}

bool Tape::wants(TensorId input) { return wanted_.contains(key(input)) || targets_.find(input) != nullptr; }

TensorId Tape::view(TensorId base, std::string_view name, const Layout& layout) {
  const TensorId out = builder_.view(base, name, layout);
  if (const auto it = aliases_.find(base.value); it != aliases_.end()) aliases_[out.value] = it->second;
  return out;
}

void Tape::differentiate() {
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    builder_.set_phase(Phase::Backward);
    builder_.set_layer(nodes_[i].layer);
    builder_.set_microbatch(nodes_[i].microbatch);
    if (nodes_[i].backward)
      nodes_[i].backward();
    else if (nodes_[i].has_rule)
      orrery::backward(nodes_[i], *this);
  }
}

void Tape::defer(std::function<void()> step) {
  if (!deferred_) return step();
  const int layer = builder_.layer();
  later_.push_back([this, layer, step = std::move(step)] {
    builder_.set_layer(layer);
    step();
  });
}

void Tape::emit_deferred() {
  const bool before = std::exchange(deferred_, false);
  builder_.set_phase(Phase::Backward);
  for (const auto& step : later_) step();
  later_.clear();
  deferred_ = before;
}

TensorId Tape::gradient(TensorId output) {
  const std::uint32_t filed = key(output);
  const auto it = gradients_.find(filed);
  if (it == gradients_.end()) return {};
  if (filed == output.value) return it->second;
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
  const TensorId owner{std::size_t{key(input)}};
  if (owner == input) return like(input, name_of(input) + std::string{suffix});
  if (pieces_[input.value] > 0) bug("a view takes only one contribution to its gradient: " + name_of(input));
  gradient_owner(owner);
  return gradient(input);
}

void Tape::contribute(TensorId input, TensorId contribution) {
  ++pieces_[input.value];
  if (key(input) != input.value) return;  // written in place, into the view
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

TensorId Tape::gradient_so_far(TensorId input) const {
  const auto it = gradients_.find(input.value);
  return it == gradients_.end() || key(input) != input.value || shared_.contains(it->second.value) ? TensorId{}
                                                                                                   : it->second;
}

void Tape::pass_through(TensorId input, TensorId gradient) {
  shared_[plan().owner(gradient).value] = true;
  contribute(input, gradient);
}

Tape::ParameterTarget Tape::parameter_target(TensorId parameter) {
  const TensorId* target = targets_.find(parameter);
  if (!target || target->is_none()) bug("no place for the gradient of " + name_of(parameter));
  return {*target, targets_.mark_written(*target)};
}

TensorId Tape::added_parameter_target(TensorId parameter) {
  const auto target = parameter_target(parameter);
  if (!target.accumulate)
    emit(name_of(parameter) + ".grad_zero",
         Fill{.elements = plan().shape(parameter).elements(), .dtype = plan().tensors[target.tensor.index()].dtype},
         {writes(target.tensor)});
  return target.tensor;
}

bool Tape::is_made_again(TensorId t) const {
  const std::uint32_t owner = plan().owner(t).value;
  const auto makers = makers_.find(owner);
  return makers != makers_.end() && !kept_.contains(owner) && nodes_[makers->second.front()].recomputed;
}

TensorId Tape::saved(TensorId t) {
  const TensorId owner = plan().owner(t);
  if (const auto it = again_.find(owner.value); it != again_.end()) {
    if (owner == t) return it->second;
    return builder_.view(it->second, name_of(t), plan().layouts[plan().tensors[t.index()].layout.index()]);
  }
  if (!is_made_again(t)) return t;
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
  for (std::uint32_t n : nodes) finish_others(n, owner);
  builder_.set_phase(phase);
  return again_.at(owner.value);
}

/// What a node has made again beside `owner` is changed as it was changed later.
void Tape::finish_others(std::uint32_t node, TensorId owner) {
  const std::vector<Operand> operands = nodes_[node].operands;
  for (const Operand& o : operands) {
    const TensorId other = plan().owner(o.tensor());
    if (o.access() != Access::Write || other == owner) continue;
    const std::vector<std::uint32_t> makers = makers_.at(other.value);
    for (const std::uint32_t later : makers)
      if (later > node) replay(later);
  }
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
  if (!node.steps) {
    builder_.add(std::string{plan().names[node.name]} + ".again", node.work, operands, node.stream);
    return;
  }
  std::vector<TensorId> tensors;
  for (const Operand& o : operands) tensors.push_back(o.tensor());
  node.steps(tensors);
}

}  // namespace orrery
