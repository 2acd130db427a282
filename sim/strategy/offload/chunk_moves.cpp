// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/class_chunks.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

void ClassChunks::decide(const ChunkRules& rules, const WorkspaceModel* workspaces) {
  actions_ = chunk_actions(plan_, class_, updates_, layout_, travel_.early);
  next_ = next_of_passes(plan_, actions_);
  chunks_.resize(layout_.size());
  counts_.chunks = static_cast<std::int64_t>(layout_.size());
  if (updates_.all.empty()) return;
  const ChunkTrace known = trace_chunks(plan_, class_, updates_, layout_, actions_, workspaces);
  ChunkDecision d = rules.decide(known);
  for (std::size_t k = 0; k < chunks_.size(); ++k) {
    chunks_[k].place = d.places[k];
    counts_.on_device += d.places[k].states_stay;
    counts_.cached = counts_.cached || !d.places[k].weights_stay;
    counts_.resident += d.places[k].weights_stay;
    counts_.chunk_bytes = std::max(counts_.chunk_bytes, known.weight_bytes[k]);
  }
  if (!counts_.cached) counts_.resident = 0;
  counts_.cache = std::move(d.cache);
  if (travel_.first == FirstArrival::MasterOfUpdated) {
    wide_ = leaves_for_update(actions_, layout_, counts_.cache);
    if (travel_.in == Stream::Compute) come_first(counts_.cache, known.weight_bytes, d.steps, wide_);
  }
  if (travel_.first == FirstArrival::Master) wide_.assign(chunks_.size(), true);
  counts_.steps = std::move(d.steps);
  in_blocks_ = d.blocks > 0;
  free_.assign(static_cast<std::size_t>(d.blocks), OpId{});
}

void ClassChunks::make_chunk(std::uint32_t k) {
  Chunk& chunk = chunks_[k];
  const Update& first = updates_.all[layout_.members[k].front()];
  const Tier host = tier_of(travel_.memory), states = chunk.place.states_stay ? Tier::Device : travel_.states;
  const auto make = [&](std::string_view what, DType type, TensorRole role, Tier tier) {
    return r_.builder().tensor(fmt::format("chunk.{}.{}", k, what), shape_of(k),
                               {.dtype = type, .role = role, .tier = tier, .persistent = true});
  };
  chunk.home = make("weights", dtype_of(first), TensorRole::Parameter, chunk.place.weights_stay ? Tier::Device : host);
  if (travel_.own_gradients && !chunk.place.weights_stay)
    chunk.gradients = make("gradients", dtype_of(first), TensorRole::Gradient, host);
  if (lacks_master(first)) chunk.master = make("master", state_type(first), TensorRole::OptimizerState, states);
  for (std::size_t s = 0; s < first.states.size(); ++s)
    chunk.moments.push_back(make(fmt::format("state{}", s), state_type(first), TensorRole::OptimizerState, states));
  stand(k, chunk.home);
  stand_states(k);
  for (const std::uint32_t i : layout_.members[k]) {
    const Update& u = updates_.all[i];
    if (u.starts_fresh)
      r_.put(u.gradient, r_.builder().tensor(plan_.name_of(u.gradient), plan_.shape(u.gradient),
                                             {.dtype = dtype_of(u), .role = TensorRole::Gradient}));
  }
}

void ClassChunks::stand_states(std::uint32_t k) {
  for (const std::uint32_t i : layout_.members[k])
    for (std::size_t s = 0; s < updates_.all[i].states.size(); ++s)
      r_.put(updates_.all[i].states[s], chunks_[k].moments[s], layout_.slots[i].offset);
}

/// From here on the weights of a chunk, and gradients that took their place, lie there.
void ClassChunks::stand(std::uint32_t k, TensorId weights, TensorId gradients) {
  for (const std::uint32_t i : layout_.members[k]) {
    r_.put(plan_.owner(updates_.all[i].weight), weights, layout_.slots[i].offset);
    if (stashed_[i]) r_.put(plan_.owner(updates_.all[i].gradient), gradients, layout_.slots[i].offset);
  }
}

bool ClassChunks::all_stashed(std::uint32_t k) const {
  const auto& members = layout_.members[k];
  return std::all_of(members.begin(), members.end(), [&](std::uint32_t i) { return stashed_[i]; });
}

/// The latest copy, when it is made in the passes' own stream, waits as the next op of these does, and what runs beside
/// them waits for it: room that a chunk leaves, or takes, is that which the plan counted on. Whoever copies has
/// updated, too, what was to be updated until then.
void ClassChunks::keep_place() {
  if (!next_[now_].is_none()) r_.order_as(next_[now_]);
  r_.order(hosted_);
  moved_ = r_.last();
}

/// The room that stays for master copies on their way, as a chunk lies in it.
TensorId ClassChunks::buffer(std::uint32_t k, DType type) {
  PlanBuilder& b = r_.builder();
  if (buffer_.is_none()) {
    const std::int64_t most = *std::max_element(layout_.sizes.begin(), layout_.sizes.end());
    buffer_ = b.tensor("chunk.buffer", Shape{most}, {.dtype = type, .role = TensorRole::Workspace, .persistent = true});
  }
  const Shape shape = shape_of(k);
  return b.plan().shape(buffer_) == shape ? buffer_ : b.view(buffer_, "chunk.buffer", Layout::contiguous(shape));
}

/// Where a copy to the device arrives: in its place, or where it is rounded from.
TensorId ClassChunks::way_up(std::uint32_t k, TensorId from, TensorId to) {
  if (travel_.keeps_buffer && from == master_of(k)) return buffer(k, type_of(from));
  if (type_of(from) == type_of(to)) return to;
  return r_.builder().tensor(fmt::format("chunk.{}.wide", k), shape_of(k),
                             {.dtype = type_of(from), .role = TensorRole::Workspace});
}

/// Copies to the device, rounding there what is wider than its place. What it takes is free behind all that the passes
/// have done so far, and behind the block that was given back first.
void ClassChunks::bring(std::uint32_t k, TensorId from, TensorId to, std::string_view name) {
  const DType wide = type_of(from), type = type_of(to);
  const TensorId target = way_up(k, from, to);
  r_.copy(fmt::format("{}.{}", name, k), from, target, travel_.in);
  if (travel_.in == Stream::Compute) {
    keep_place();
  } else {
    r_.order(computed_);
    r_.order(wait_);
  }
  if (in_blocks_ && to == chunks_[k].here) {
    r_.order(free_.front());
    free_.pop_front();
  }
  if (target == to) return;
  const Work round =
      wide == type ? Work{CopyRows{1, layout_.sizes[k], type}} : Work{Cast{layout_.sizes[k], wide, type}};
  r_.builder().add(fmt::format("cast.{}", k), round, {reads(target), writes(to)}, travel_.in);
}

/// None where the optimizer has none.
TensorId ClassChunks::master_of(std::uint32_t k) const {
  const Chunk& chunk = chunks_[k];
  if (!chunk.master.is_none()) return chunk.master;
  return can_have_master(plan_, updates_.all[layout_.members[k].front()]) ? chunk.moments.back() : TensorId{};
}

void ClassChunks::come(std::uint32_t k) {
  Chunk& chunk = chunks_[k];
  chunk.here = r_.builder().tensor(fmt::format("chunk.{}", k), shape_of(k),
                                   {.dtype = type_of(chunk.home), .role = TensorRole::Parameter});
  const TensorId master = master_of(k);
  const bool wide = !wide_.empty() && wide_[k] && !chunk.came && !master.is_none();
  bring(k, wide ? master : chunk.home, chunk.here, "come");
  counts_.came_wide += wide;
  chunk.came = true;
  chunk.changed = wide;
  stand(k, chunk.here);
}

/// Comes after all that reads the chunk, so that its room is free when the copy has ended. Beside the passes one chunk
/// at a time is on its way, so that a slow link costs time and not memory.
void ClassChunks::leave(std::uint32_t k) {
  Chunk& chunk = chunks_[k];
  const TensorId below = !chunk.gradients.is_none() && all_stashed(k) ? chunk.gradients : chunk.home;
  OpId free = computed_;
  if (chunk.changed || !travel_.keep_clean) {
    const Copy work{bytes_of(r_.builder().plan(), chunk.here), Tier::Device,
                    r_.builder().plan().tensors[below.index()].tier};
    free = r_.builder().add(fmt::format("leave.{}", k), work, {updates(chunk.here), writes(below)}, travel_.out);
    ++counts_.written;
    if (travel_.out == Stream::Compute)
      keep_place(), computed_ = free;
    else if (!in_blocks_)
      wait_ = std::exchange(leaving_, free);
  }
  free_.push_back(free);
  stand(k, chunk.home, below);
  chunk.here = {};
}

TensorId ClassChunks::part(TensorId chunk, std::uint32_t i, std::string_view what) {
  Layout layout = Layout::contiguous(plan_.shape(updates_.all[i].weight));
  layout.offset = layout_.slots[i].offset;
  const Tensor& weight = plan_.tensors[updates_.all[i].weight.index()];
  return r_.builder().view(chunk, fmt::format("{}.{}", plan_.names[weight.name], what), layout);
}

void ClassChunks::stash(const ChunkAction& a) {
  const Update& u = updates_.all[a.index];
  const std::int64_t n = plan_.shape(u.gradient).elements();
  const TensorId from = r_[u.gradient], to = r_[u.weight];
  r_.builder().add(fmt::format("stash.{}", plan_.name_of(u.gradient)), CopyRows{1, n, dtype_of(u)},
                   {reads(from), writes(to)});
  computed_ = r_.last();
  stashed_[a.index] = true;
  Chunk& chunk = chunks_[chunk_of(a.index)];
  chunk.changed = true;
  stand(chunk_of(a.index), chunk.here.is_none() ? chunk.home : chunk.here);
}

/// A chunk whose weights stay on the device, while its states lie on the host: gradients go down and new weights up, in
/// the type of the master copy, which is cast on the device.
void ClassChunks::go_down(std::uint32_t k) {
  Chunk& chunk = chunks_[k];
  if (!chunk.place.weights_stay || chunk.place.states_stay || chunk.down) return;
  chunk.down = true;
  chunk.stage = r_.builder().tensor(
      fmt::format("chunk.{}.stage", k), shape_of(k),
      {.dtype = type_of(chunk.home), .role = TensorRole::Gradient, .tier = tier_of(travel_.memory)});
  r_.copy(fmt::format("down.{}", k), chunk.home, chunk.stage, travel_.out);
  if (travel_.out == Stream::Compute) keep_place(), computed_ = r_.last();
  stand(k, chunk.stage);
}

/// States on a disk are on the host while they are updated; so many chunks at once.
void ClassChunks::read_states(std::uint32_t k) {
  Chunk& chunk = chunks_[k];
  if (chunk.place.states_stay || travel_.states != Tier::Disk) return;
  const auto limit = static_cast<std::size_t>(travel_.buffers);
  const OpId behind = written_.size() >= limit ? written_[written_.size() - limit] : OpId{};
  const auto read = [&](TensorId& home, std::string_view what) {
    const TensorId there = r_.builder().tensor(
        fmt::format("chunk.{}.{}.staged", k, what), shape_of(k),
        {.dtype = type_of(home), .role = TensorRole::OptimizerState, .tier = tier_of(travel_.memory)});
    r_.copy(fmt::format("read.{}.{}", k, what), home, there, Stream::Disk);
    r_.order(behind);
    chunk.staged.emplace_back(there, home);
    home = there;
  };
  if (!chunk.master.is_none()) read(chunk.master, "master");
  for (std::size_t s = 0; s < chunk.moments.size(); ++s) read(chunk.moments[s], fmt::format("state{}", s));
  stand_states(k);
}

void ClassChunks::write_states(std::uint32_t k) {
  Chunk& chunk = chunks_[k];
  if (chunk.staged.empty()) return;
  for (const auto& [there, home] : chunk.staged) {
    written_.push_back(r_.copy(fmt::format("write.{}", k), there, home, Stream::Disk));
    if (chunk.master == there) chunk.master = home;
    std::replace(chunk.moments.begin(), chunk.moments.end(), there, home);
  }
  written_.erase(written_.end() - static_cast<std::ptrdiff_t>(chunk.staged.size()), written_.end() - 1);
  stand_states(k);
}

/// Where the gradient lies in the place of the weight, the op reads it there and puts the new weight in its place.
void ClassChunks::update(const ChunkAction& a) {
  const Update& u = updates_.all[a.index];
  const std::uint32_t k = chunk_of(a.index);
  Chunk& chunk = chunks_[k];
  go_down(k);
  if (chunk.updated == 0) read_states(k);
  std::vector<Operand> operands;
  const auto old = plan_.operands_of(plan_[u.op]);
  const std::size_t before = 2 + u.states.size();
  for (std::size_t i = 0; i < old.size(); ++i) {
    if (i == before && lacks_master(u)) operands.push_back(updates(part(chunk.master, a.index, "master")));
    operands.emplace_back(r_[old[i].tensor()], old[i].access());
  }
  if (old.size() == before && lacks_master(u)) operands.push_back(updates(part(chunk.master, a.index, "master")));
  const Op& op = plan_[u.op];
  r_.builder().set_phase(op.phase);
  r_.builder().set_layer(op.layer);
  const Work work = with_master(plan_.work(op));
  const bool there = chunk.place.states_stay;
  r_.builder().add(plan_.name_of(op), there ? work : on_host(work), operands, there ? op.stream : Stream::Host);
  (there ? computed_ : hosted_) = r_.last();
  if (++chunk.updated < layout_.members[k].size()) return;
  write_states(k);
  if (!chunk.down) return;
  const TensorId master = master_of(k);
  bring(k, master.is_none() ? chunk.stage : master, chunk.home, "up");
  stand(k, chunk.home);
}

/// Norms are taken where the gradient lies.
void ClassChunks::emit(OpId op) {
  if (std::holds_alternative<SumSquares>(plan_.work(op))) {
    const TensorId g = r_[plan_.operands_of(plan_[op])[0].tensor()];
    if (r_.builder().plan().tensors[g.index()].tier != Tier::Device) {
      r_.emit(op, {.work = on_host(plan_.work(op)), .stream = Stream::Host, .instead = {}});
      return;
    }
  }
  r_.emit(op);
  if (plan_[op].stream != Stream::Compute) return r_.order(moved_);
  computed_ = r_.last();
  r_.order(std::exchange(wait_, OpId{}));
}

void ClassChunks::do_action(const ChunkAction& a) {
  switch (a.deed) {
    case ChunkDeed::Emit:
      return emit(a.op);
    case ChunkDeed::Stash:
      return stash(a);
    case ChunkDeed::Update:
      return update(a);
    case ChunkDeed::GiveUp:
      return go_down(a.index);
  }
}

void ClassChunks::run() {
  stashed_.assign(updates_.all.size(), false);
  for (std::uint32_t k = 0; k < chunks_.size(); ++k) make_chunk(k);
  std::size_t next = 0;
  const auto& events = counts_.cache.events;
  const auto move = [&](std::size_t step) {
    for (; next < events.size() && events[next].step <= step; ++next)
      events[next].comes ? come(events[next].chunk) : leave(events[next].chunk);
  };
  for (now_ = 0; now_ < actions_.size(); ++now_) {
    move(now_);
    do_action(actions_[now_]);
  }
  move(actions_.size());
  r_.end_class();
  place_chunks(r_, class_, updates_, layout_, [this](std::uint32_t k) {
    std::vector<std::pair<std::string_view, TensorId>> copies;
    if (!chunks_[k].master.is_none()) copies.emplace_back("master", chunks_[k].master);
    return copies;
  });
}

Plan move_chunks(const Plan& plan, const ChunkRules& rules, const WorkspaceModel* workspaces,
                 std::vector<ChunkCounts>* counts) {
  PlanRewriter r{plan};
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    r.begin_class(ClassId{c});
    const Updates updates = updates_of(plan, ClassId{c});
    require_owned(plan, updates);
    require_same_type(plan, updates);
    ClassChunks chunks{r, updates, rules, ClassId{c}};
    chunks.decide(rules, workspaces);
    chunks.run();
    if (counts != nullptr) counts->push_back(chunks.counts());
  }
  return r.take(workspaces);
}

}  // namespace orrery
