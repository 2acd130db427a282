// SPDX-License-Identifier: Apache-2.0
// The passes of a pipeline stage in the order of its schedule, and the messages between stages.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/strategy/stage.hpp"

namespace orrery {

bool StageLowering::is_next(int from, int to) const {
  const int p = step_.schedule->stages;
  return (to - from + p) % p == 1;
}

Peer StageLowering::peer(int stage) const {
  return {static_cast<std::uint8_t>(step_.roles().pp.axes.front()), stage - stage_};
}

/// Microbatches pass in the same order at both ends.
std::int64_t StageLowering::tag(const Message& m) const { return std::int64_t{m.part} * 2 + (m.is_gradient ? 1 : 0); }

/// How the states lie that a part of the pipeline ends with.
const Arrangement& StageLowering::behind(int part) const {
  if (step_.has_blocks(part))
    return step_.arrangements.of_feed_forward(step_.bounds[static_cast<std::size_t>(part) + 1] - 1);
  return part == 0 ? step_.arrangements.outside() : between(part - 1);
}

/// How states cross from a part to the next: as one of the two has them, whichever is less on each rank.
const Arrangement& StageLowering::between(int part) const {
  const Arrangement &from = behind(part),
                    &to = step_.has_blocks(part + 1)
                              ? step_.arrangements.of(step_.bounds[static_cast<std::size_t>(part) + 1])
                          : part + 2 == step_.schedule->parts ? step_.arrangements.outside()
                                                              : from;
  return to.outer_rows() < from.outer_rows() ? to : from;
}

/// What one stage sends another, in the order of its passes.
std::vector<StageLowering::Message> StageLowering::messages_to(int from, int to) const {
  const Schedule& s = *step_.schedule;
  std::vector<Message> out;
  for (const Action& a : s.actions[static_cast<std::size_t>(from)]) {
    const int k = s.part(from, a.chunk);
    if (a.pass == Pass::Forward && k + 1 < s.parts && s.home(k + 1, a.microbatch).stage == to)
      out.push_back({k, a.microbatch, false});
    if ((a.pass == Pass::Backward || a.pass == Pass::InputGradient) && k > 0 && s.home(k - 1, a.microbatch).stage == to)
      out.push_back({k, a.microbatch, true});
  }
  return out;
}

/// The message that a pass begins with, and who sends it.
std::optional<std::pair<int, StageLowering::Message>> StageLowering::needed_by(const Action& a) const {
  const Schedule& s = *step_.schedule;
  const int k = part_of(a);
  if (a.pass == Pass::Forward && k > 0)
    return std::pair{s.home(k - 1, a.microbatch).stage, Message{k - 1, a.microbatch, false}};
  if ((a.pass == Pass::Backward || a.pass == Pass::InputGradient) && k + 1 < s.parts)
    return std::pair{s.home(k + 1, a.microbatch).stage, Message{k + 1, a.microbatch, true}};
  return std::nullopt;
}

StageLowering::Channel& StageLowering::channel_of(int from) {
  Channel& c = channels_[from];
  if (c.messages.empty()) c.messages = messages_to(from, stage_);
  return c;
}

/// Messages are not received far ahead: no sooner than this pass has ended. None where there is none.
OpId StageLowering::pass_before_last() const {
  return action_ends_.size() > 1 ? action_ends_[action_ends_.size() - 2] : OpId{};
}

/// The wanted message, behind all that its sender sends before it.
TensorId StageLowering::receive(int from, const Message& wanted) {
  if (from == stage_) {
    const auto it = std::find_if(local_.begin(), local_.end(), [&](const auto& l) { return l.first == wanted; });
    if (it == local_.end()) bug("a stage waits for a pass of its own that comes later");
    return it->second;
  }
  Channel& c = channel_of(from);
  const auto next = c.messages.begin() + static_cast<std::ptrdiff_t>(c.tensors.size());
  auto it = std::find(next, c.messages.end(), wanted);
  if (it == c.messages.end()) it = std::find(c.messages.begin(), next, wanted);
  const auto at = static_cast<std::size_t>(it - c.messages.begin());
  if (it == c.messages.end() || (it == next && at < c.tensors.size()))
    bug("a stage waits for a message that nobody sends");
  while (c.tensors.size() <= at) {
    const Message& m = c.messages[c.tensors.size()];
    const auto [block, is_first] = c.blocks.try_emplace({m.part, m.is_gradient, b_.phase()}, b_.begin_block());
    if (is_first) {
      c.tensors.push_back(add_receive(from, m));
      block->second = b_.end_block(block->second);
    } else {
      c.tensors.push_back(b_.repeat(block->second, {}, pass_before_last()).first_tensor);
    }
  }
  return c.tensors[at];
}

/// What a pass needs, received ahead of its block; none where it needs nothing or receives it itself.
TensorId StageLowering::receive_ahead(const Action& a) {
  const auto needed = needed_by(a);
  if (!needed || receives(a)) return {};
  const TensorId x = receive(needed->first, needed->second);
  wait_for_messages();
  return x;
}

/// The next message of a channel, received in the block of the pass that needs it.
TensorId StageLowering::receive_next(const Action& a) {
  const auto [from, message] = *needed_by(a);
  return channel_of(from).tensors.emplace_back(add_receive(from, message));
}

/// With `blocking` the host enqueues a pass when the messages ahead of it have come and gone.
void StageLowering::wait_for_messages() {
  if (step_.parallel.blocking) b_.add("wait", HostWork{}, {}, Stream::Host);
}

void StageLowering::wait_for_loss() {
  if (step_.train.waits_for_loss) b_.add("wait_for_loss", HostWork{}, {}, Stream::Host);
}

TensorId StageLowering::add_receive(int from, const Message& m) {
  const Arrangement& lies = between(m.is_gradient ? m.part - 1 : m.part);
  const Shape shape{lies.outer_rows(), std::get<Transformer>(lies.local.network.network).hidden};
  const DType dtype = dtype_of(step_.train.dtype);
  const std::string name = fmt::format("{}.{}.{}", m.is_gradient ? "gradient_from" : "from", from, m.part);
  const TensorId x = b_.tensor(name, shape, {.dtype = dtype});
  b_.add("recv." + name, Recv{.peer = peer(from), .tag = tag(m), .bytes = size_of(dtype, shape.elements())},
         {writes(x)}, is_next(from, stage_) ? Stream::RecvPrev : Stream::RecvNext);
  if (const OpId before = pass_before_last(); !before.is_none()) b_.order(before);
  return x;
}

void StageLowering::send(int to, const Message& m, TensorId what) {
  if (to == stage_) return;
  b_.add(fmt::format("send.{}.{}", m.is_gradient ? "gradient" : "states", m.part),
         Send{.peer = peer(to), .tag = tag(m), .bytes = b_.plan().size(what)}, {reads(what)},
         is_next(stage_, to) ? Stream::SendNext : Stream::SendPrev);
}

void StageLowering::hand_over(int to, const Message& m, TensorId what) {
  if (to == stage_) local_.emplace_back(m, what);
}

void StageLowering::forward(const Action& a) {
  const Schedule& s = *step_.schedule;
  const int k = part_of(a);
  PassState& pass = passes_[{a.chunk, a.microbatch}];
  b_.set_phase(Phase::Forward);
  pass.received = receive_ahead(a);
  if (repeats(a))
    repeat(a, pass);
  else
    emit_forward(a, pass);
  if (k + 1 == s.parts) wait_for_loss();
  if (k + 1 < s.parts) hand_over(s.home(k + 1, a.microbatch).stage, {k, a.microbatch, false}, pass.out);
}

void StageLowering::emit_forward(const Action& a, PassState& pass) {
  const Schedule& s = *step_.schedule;
  const int k = part_of(a);
  const OpBlock begun = b_.begin_block();
  if (receives(a)) pass.received = receive_next(a);
  pass.tape = std::make_unique<Tape>(b_, weights_->targets());
  Layers layers = make_layers(*pass.tape, a.microbatch);
  if (k > 0) {
    layers.start_in(between(k - 1));
    pass.in = pass.tape->alias(pass.received);
    pass.tape->want(pass.in);
  }
  const BlockSpan span{step_.bounds[static_cast<std::size_t>(k)], step_.bounds[static_cast<std::size_t>(k) + 1], k == 0,
                       k + 1 == s.parts};
  const NetworkInputs none;
  pass.out = lower_span(layers, k == 0 ? inputs_[static_cast<std::size_t>(a.microbatch)] : none, sizes_, span, pass.in);
  if (span.head) {
    lower_loss(layers, pass.out, a.microbatch);
  } else {
    pass.out = layers.turn_to(between(k), fmt::format("states.{}", k), pass.out);
    send(s.home(k + 1, a.microbatch).stage, {k, a.microbatch, false}, pass.out);
  }
  pass.blocks[block_of(a.pass)] = b_.end_block(begun);
}

void StageLowering::backward(const Action& a) {
  const Schedule& s = *step_.schedule;
  const int k = part_of(a);
  PassState& pass = passes_.at({a.chunk, a.microbatch});
  const bool is_first = a.pass != Pass::WeightGradient;
  b_.set_phase(Phase::Backward);
  if (is_first) pass.gradient_received = receive_ahead(a);
  if (repeats(a))
    repeat(a, pass);
  else
    emit_backward(a, pass);
  if (is_first && k > 0) hand_over(s.home(k - 1, a.microbatch).stage, {k, a.microbatch, true}, pass.gradient_out);
  if (a.pass != Pass::InputGradient && a.microbatch != patterns_[a.chunk].microbatch)
    passes_.erase({a.chunk, a.microbatch});
}

void StageLowering::emit_backward(const Action& a, PassState& pass) {
  const int k = part_of(a);
  const OpBlock begun = b_.begin_block();
  if (receives(a)) pass.gradient_received = receive_next(a);
  if (a.pass == Pass::WeightGradient) {
    pass.tape->emit_deferred();
  } else {
    if (!pass.gradient_received.is_none()) pass.tape->set_gradient(pass.out, pass.gradient_received);
    pass.tape->set_deferred(a.pass == Pass::InputGradient);
    pass.tape->differentiate();
    if (k > 0) {
      pass.gradient_out = pass.tape->gradient(pass.in);
      send(step_.schedule->home(k - 1, a.microbatch).stage, {k, a.microbatch, true}, pass.gradient_out);
    }
  }
  pass.blocks[block_of(a.pass)] = b_.end_block(begun);
}

void StageLowering::run_schedule() {
  find_patterns();
  for (const Action& a : step_.schedule->actions[static_cast<std::size_t>(stage_)]) {
    b_.set_microbatch(a.microbatch);
    b_.set_layer(-1);
    if (a.pass == Pass::Forward)
      forward(a);
    else
      backward(a);
    // The last op that computes: a message may wait for its receiver. A stage without blocks may have none.
    const std::size_t first = b_.plan().classes.back().first_op;
    std::size_t end = b_.plan().ops.size();
    while (end > first && b_.plan().ops[end - 1].stream != Stream::Compute) --end;
    action_ends_.push_back(end > first ? OpId{end - 1} : OpId{});
  }
}

}  // namespace orrery
