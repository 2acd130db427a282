// SPDX-License-Identifier: Apache-2.0
// Most microbatches do the same as another one with other tensors: they are not lowered again.
#include <algorithm>

#include "sim/strategy/stage.hpp"

namespace orrery {

std::vector<Replacement> replacements(std::span<const TensorId> from, std::span<const TensorId> to) {
  std::vector<Replacement> out;
  for (std::size_t i = 0; i < from.size(); ++i) out.push_back({from[i], to[i]});
  return out;
}

/// Dropout and gates with noise number their samples.
bool StageLowering::may_repeat() const {
  const TrainOptions& o = step_.train;
  return step_.repeats == Repeats::Copied && o.dropout <= 0 && o.attention_dropout <= 0 && !o.dense_to_sparse &&
         weights_->passes_repeat();
}

std::size_t StageLowering::block_of(Pass pass) {
  return pass == Pass::Forward ? 0 : pass == Pass::WeightGradient ? 2 : 1;
}

/// The first microbatch of the backward passes that does not stand apart: all others come to know from it how to go
/// back. Weight gradients must take the same first.
void StageLowering::find_patterns() {
  if (!may_repeat()) return;
  std::map<int, std::array<std::vector<int>, 3>> orders;  // of the microbatches in each pass, by chunk
  for (const Action& a : step_.schedule->actions[static_cast<std::size_t>(stage_)])
    orders[a.chunk][block_of(a.pass)].push_back(a.microbatch);
  for (const auto& [chunk, passes] : orders) {
    Pattern p;
    for (const std::vector<int>& order : passes)
      if (!order.empty()) p.apart.insert({order.front(), order.back()});
    const auto first = [&](const std::vector<int>& order) {
      const auto it = std::find_if(order.begin(), order.end(), [&](int m) { return !p.apart.contains(m); });
      return it == order.end() ? -1 : *it;
    };
    p.microbatch = first(passes[1]);
    if (!passes[2].empty() && first(passes[2]) != p.microbatch) p.microbatch = -1;
    patterns_[chunk] = std::move(p);
  }
  find_receivers();
}

/// A pass whose message is always the next of its channel receives it in its own block, so that copies of the block do.
void StageLowering::find_receivers() {
  for (auto& [chunk, pattern] : patterns_) pattern.receives.fill(true);
  std::map<int, std::size_t> next;  // by sending stage: message of the channel
  for (const Action& a : step_.schedule->actions[static_cast<std::size_t>(stage_)]) {
    bool& receives = patterns_.at(a.chunk).receives[block_of(a.pass)];
    const auto needed = needed_by(a);
    if (!needed || needed->first == stage_ || step_.parallel.blocking) {
      receives = false;
      continue;
    }
    const std::vector<Message>& messages = channel_of(needed->first).messages;
    std::size_t& at = next[needed->first];
    receives = receives && at < messages.size() && messages[at] == needed->second;
    const auto found = std::find(messages.begin() + static_cast<std::ptrdiff_t>(at), messages.end(), needed->second);
    if (found != messages.end()) at = static_cast<std::size_t>(found - messages.begin()) + 1;
  }
}

bool StageLowering::receives(const Action& a) const {
  const auto pattern = patterns_.find(a.chunk);
  return pattern != patterns_.end() && pattern->second.receives[block_of(a.pass)];
}

bool StageLowering::repeats(const Action& a) const {
  const auto pattern = patterns_.find(a.chunk);
  if (pattern == patterns_.end() || pattern->second.apart.contains(a.microbatch)) return false;
  const auto known = passes_.find({a.chunk, pattern->second.microbatch});
  return known != passes_.end() && a.microbatch != pattern->second.microbatch && known->second.blocks[block_of(a.pass)];
}

/// What the host gives to a microbatch.
std::vector<TensorId> StageLowering::given_to(std::int64_t microbatch) const {
  const auto m = static_cast<std::size_t>(microbatch);
  std::vector<TensorId> out;
  if (m < inputs_.size()) out = tensors_of(inputs_[m]);
  if (m < documents_.size()) {
    out.push_back(documents_[m].first_keys);
    const bool is_given = m < inputs_.size() && inputs_[m].positions == documents_[m].positions;
    if (!is_given && !documents_[m].positions.is_none()) out.push_back(documents_[m].positions);
  }
  if (m < targets_.size()) out.push_back(targets_[m]);
  return out;
}

void StageLowering::repeat(const Action& a, PassState& pass) {
  const Pattern& of_chunk = patterns_.at(a.chunk);
  const int pattern = of_chunk.microbatch;
  const PassState& like = passes_.at({a.chunk, pattern});
  const std::size_t at = block_of(a.pass);
  std::vector<Replacement> replaced;
  const auto add_block = [&](std::size_t i) {
    replaced.push_back({like.blocks[i]->first_tensor, pass.blocks[i]->first_tensor, like.blocks[i]->num_tensors});
  };
  for (std::size_t i = 0; i < at; ++i) add_block(i);
  const auto add = [&](TensorId from, TensorId to) {
    if (from.is_none() || to.is_none()) return;
    replaced.push_back({from, to});
    replaced.push_back({b_.plan().owner(from), b_.plan().owner(to)});
  };
  if (!of_chunk.receives[0]) add(like.received, pass.received);
  if (!of_chunk.receives[1]) add(like.gradient_received, pass.gradient_received);
  for (const Replacement& r : replacements(given_to(pattern), given_to(a.microbatch))) replaced.push_back(r);
  pass.blocks[at] = b_.repeat(*like.blocks[at], replaced, receives(a) ? pass_before_last() : OpId{});
  add_block(at);
  if (receives(a)) {
    TensorId& received = at == 0 ? pass.received : pass.gradient_received;
    received = replace(at == 0 ? like.received : like.gradient_received, replaced);
    channel_of(needed_by(a)->first).tensors.push_back(received);
  }
  if (a.pass == Pass::Forward)
    pass.out = replace(like.out, replaced);
  else if (a.pass != Pass::WeightGradient && !like.gradient_out.is_none())
    pass.gradient_out = replace(like.gradient_out, replaced);
  if (a.pass == Pass::Backward || a.pass == Pass::WeightGradient) weights_->skip_pass(a.chunk);
}

}  // namespace orrery
