// SPDX-License-Identifier: Apache-2.0
// Replicas of a model: when weights are gathered and gradients are summed.
//   ddp    all-reduce of a bucket behind its last backward pass, on a stream of its own, while earlier blocks compute
//   zero1  reduce-scatter there; every rank updates its part; all-gather of the new weights behind the update; with
//          owners see owned_parts.cpp
//   zero2  reduce-scatter behind each backward pass, added up in the part of the rank; where gradients of weights are
//          deferred, behind the last pass of those that overlap
//   zero3  and all-gather of the weights before each use, one bucket ahead, in both passes; with owners broadcasts
//          from the rank that keeps a bucket, and sums that it alone gets
// On a mesh with an axis `fsdp` beside others, parts are split over it and all-reduced over the others (hybrid shard).
#include <algorithm>

#include "sim/plan/placement.hpp"
#include "sim/strategy/parameters.hpp"

namespace orrery {

std::int64_t ParameterStorage::ranks_over(const std::vector<std::int8_t>& axes) const {
  return orrery::ranks_over(builder_->plan().mesh, axes);
}

/// None where one rank has it all.
OpId ParameterStorage::collect(CollectiveKind kind, const std::string& name, const std::vector<std::int8_t>& axes,
                               TensorId in, TensorId out, std::int64_t elements) {
  if (ranks_over(axes) == 1) return {};
  return collect(kind, name, builder_->group_over(axes), in, out, elements);
}

OpId ParameterStorage::collect(CollectiveKind kind, const std::string& name, GroupId group, TensorId in, TensorId out,
                               std::int64_t elements) {
  const DType dtype = builder_->plan().tensors[in.index()].dtype;
  const Collective work{.kind = kind, .group = group, .bytes = size_of(dtype, elements), .dtype = dtype};
  if (in == out) return builder_->add(name, work, {updates(in)}, Stream::Comm);
  return builder_->add(name, work, {reads(in), writes(out)}, Stream::Comm);
}

/// Between the rank that keeps a bucket and those that use it, as if all kept it: see split_owners.
OpId ParameterStorage::meet_root(CollectiveKind kind, const std::string& name, const Bucket& b, TensorId in,
                                 TensorId out) {
  const DType dtype = builder_->plan().tensors[in.index()].dtype;
  const Collective work{.kind = kind,
                        .group = builder_->group_over(b.scatter),
                        .root = static_cast<std::int32_t>(*b.root),
                        .bytes = size_of(dtype, b.elements),
                        .dtype = dtype};
  return builder_->add(name, work, {reads(in), writes(out)}, Stream::Comm);
}

OpId ParameterStorage::gather(const Bucket& b) {
  const std::string name = "gather." + b.name;
  if (b.root) return meet_root(CollectiveKind::Broadcast, name, b, b.own_weight, b.weight);
  return collect(CollectiveKind::AllGather, name, b.scatter, b.own_weight, b.weight, b.elements);
}

void ParameterStorage::gather_unit(Unit& unit, bool ahead) {
  if (unit.gathered) return;
  for (const std::size_t i : unit.buckets) {
    Bucket& b = buckets_[i];
    if (kind_of(b) != DataKind::Zero3) continue;
    bind_weights(b, make(b, ".gathered", b.elements, TensorRole::Parameter, false));
    const OpId op = gather(b);
    const bool waits = ahead || data_.prefetch == 0;  // what comes in its turn else has been ahead before
    if (waits && !op.is_none() && !gather_limit_.is_none()) builder_->order(gather_limit_);
  }
  unit.gathered = true;
}

/// Gathers what comes next in the direction of the pass, no sooner than the part before this one has been computed.
void ParameterStorage::gather_ahead(std::size_t unit, int direction) {
  for (std::int64_t k = 1; k <= data_.prefetch; ++k) {
    const std::int64_t next = static_cast<std::int64_t>(unit) + direction * k;
    if (next < 0 || next >= static_cast<std::int64_t>(units_.size())) return;
    Unit& u = units_[static_cast<std::size_t>(next)];
    if (u.chunk != units_[unit].chunk || u.first < 0) return;
    gather_unit(u, true);
  }
}

ParameterStorage::Used ParameterStorage::used_weights(const Unit& unit) const {
  Used used;
  for (const std::size_t i : unit.buckets) used.push_back(weights_of(buckets_[i]));
  return used;
}

void ParameterStorage::before(Tape& tape, int part) {
  const auto it = unit_of_part_.find(part);
  if (it == unit_of_part_.end() || units_[it->second].first != part) return;
  const std::size_t unit = it->second;
  if (peer_.every > 0) peer_before(part);
  if (gathers_) {
    gather_unit(units_[unit], false);
    if (part == kHeadPart && shares_embedding_) gather_unit(units_[unit_of_part_.at(kEmbeddingPart)], false);
    gather_ahead(unit, 1);
  }
  if (!trains_ || separate_) return;
  const auto finish = [this, &tape](std::size_t which) {
    tape.on_backward([this, &tape, which] { tape.defer([this, which] { finish_backward(which); }); });
  };
  if (part == kHeadPart && shares_embedding_) finish(unit_of_part_.at(kEmbeddingPart));
  finish(unit);
}

void ParameterStorage::after(Tape& tape, int part) {
  const auto it = unit_of_part_.find(part);
  if (it == unit_of_part_.end() || units_[it->second].last != part) return;
  const std::size_t unit = it->second;
  if (peer_.every > 0) peer_after(part);
  if (trains_ && (gathers_ || units_[unit].arrangement->data == DataKind::Zero2)) {
    const auto begin = [this, &tape](std::size_t which) {
      tape.on_backward([this, &tape, which, used = used_weights(units_[which])] { begin_backward(tape, which, used); });
    };
    begin(unit);
    if (part == kHeadPart && shares_embedding_) begin(unit_of_part_.at(kEmbeddingPart));
  }
  if (!gathers_) return;
  if (units_[unit].first >= 0 && data_.reshard) units_[unit].gathered = false;
  gather_limit_ = OpId{builder_->plan().ops.size() - 1};
}

/// The backward pass comes to a unit: its weights are gathered again, and there is room for the gradients of a pass.
void ParameterStorage::begin_backward(Tape& tape, std::size_t index, const Used& used) {
  Unit& unit = units_[index];
  const bool regather = gathers_ && unit.first >= 0 && data_.reshard;
  if (regather) {
    gather_unit(unit, false);
    gather_ahead(index, -1);
  }
  if (unit.arrangement->data != DataKind::Zero2 && unit.arrangement->data != DataKind::Zero3) return;
  ++unit.open;
  for (std::size_t k = 0; k < unit.buckets.size(); ++k) {
    Bucket& b = buckets_[unit.buckets[k]];
    const DataKind kind = kind_of(b);
    if (regather && kind == DataKind::Zero3) tape.rebind(builder_->plan().owner(used[k].front()), b.weight);
    if (b.frozen || (kind != DataKind::Zero2 && kind != DataKind::Zero3)) continue;
    if (b.gradient.is_none()) {
      set_gradient(b, make(b, ".grad_whole", b.elements, TensorRole::Gradient, false));
      const Piece& last = b.pieces.back();
      const std::int64_t filled = last.first + last.shape.elements();
      if (filled < b.elements) {
        Layout tail = Layout::contiguous(Shape{b.elements - filled});
        tail.offset = filled;
        builder_->add("pad." + b.name, Fill{.elements = b.elements - filled, .dtype = gradient_},
                      {writes(builder_->view(b.gradient, b.name + ".pad", tail))});
      }
    }
    bind_gradients(b, used[k]);
  }
}

/// All gradients of a unit are complete for this pass.
void ParameterStorage::finish_backward(std::size_t index) {
  Unit& unit = units_[index];
  const bool last = --unit.left == 0;
  --unit.open;  // counts only where gradients are split: elsewhere it stays below 1
  if (unit.open <= 0)
    for (const std::size_t i : unit.buckets) reduce(buckets_[i], last && --buckets_[i].users == 0);
  if (gathers_) {
    if (unit.first >= 0 && data_.reshard) unit.gathered = false;
    gather_limit_ = OpId{builder_->plan().ops.size() - 1};
  }
}

bool ParameterStorage::passes_repeat() const {
  return std::all_of(buckets_.begin(), buckets_.end(),
                     [&](const Bucket& b) { return kind_of(b) == DataKind::Ddp || kind_of(b) == DataKind::Zero1; });
}

void ParameterStorage::skip_pass(int chunk) {
  for (Unit& unit : units_) {
    if (unit.chunk != chunk) continue;
    --unit.left;
    if (unit.first == kHeadPart && shares_embedding_) --units_[unit_of_part_.at(kEmbeddingPart)].left;
  }
}

void ParameterStorage::zero(const Bucket& b, TensorId part) {
  const std::int64_t n = builder_->plan().shape(part).elements();
  builder_->add("zero." + b.name, Fill{.elements = n, .dtype = gradient_}, {writes(part)});
}

/// Parameters of a bucket that no gradient has reached (selection biases; positions, where the head alone uses the
/// bucket of a tied table) have zeros. False when none was reached.
bool ParameterStorage::complete_gradient(const Bucket& b) {
  const auto is_written = [&](TensorId t) { return targets_.is_written(t); };
  if (std::none_of(b.piece_gradients.begin(), b.piece_gradients.end(), is_written)) return false;
  for (const TensorId t : b.piece_gradients)
    if (!targets_.mark_written(t)) zero(b, t);
  return true;
}

void ParameterStorage::reduce(Bucket& b, bool last) {
  if (b.frozen) return;
  const std::string name = "sum." + b.name;
  const DataKind kind = kind_of(b);
  const std::int64_t own = b.elements / parts_of(b);
  const bool splits = kind == DataKind::Zero2 || kind == DataKind::Zero3;
  if ((splits || last) && complete_gradient(b)) {
    b.has_gradient = true;
    if (splits)
      add_part(b, name, own);
    else if (data_.overlap)
      sum_whole(b);
  }
  if (last && b.has_gradient && splits)
    collect(CollectiveKind::AllReduce, name + ".replicas", b.replicate, b.own_gradient, b.own_gradient, own);
}

/// ddp and zero1: sums the gradients of all passes at once.
void ParameterStorage::sum_whole(Bucket& b) {
  const std::string name = "sum." + b.name;
  if (b.is_placed) sum_replicas(b);
  if (kind_of(b) == DataKind::Ddp) {
    TensorId filled = b.gradient;
    if (b.filled < b.elements)
      filled = builder_->view(b.gradient, b.name + ".filled", Layout::contiguous(Shape{b.filled}));
    collect(CollectiveKind::AllReduce, name, b.sum, filled, filled, b.filled);
    return;
  }
  collect(CollectiveKind::ReduceScatter, name, b.scatter, b.gradient, b.own_gradient, b.elements);
  collect(CollectiveKind::AllReduce, name + ".replicas", b.replicate, b.own_gradient, b.own_gradient,
          b.elements / ranks_over(b.scatter));
}

/// The rank's part of the gradients of a pass, added to what it has.
void ParameterStorage::add_part(Bucket& b, const std::string& name, std::int64_t own) {
  const TensorId part = b.accumulates ? make(b, ".grad_new", own, TensorRole::Gradient, false) : b.own_gradient;
  if (b.root)
    meet_root(CollectiveKind::Reduce, name, b, b.gradient, part);
  else
    collect(CollectiveKind::ReduceScatter, name, b.scatter, b.gradient, part, b.elements);
  if (b.accumulates)
    builder_->add("add." + b.name, Add{1, own, gradient_}, {updates(b.own_gradient), reads(part)}, Stream::Compute);
  b.accumulates = true;
  b.gradient = {};
}

/// Adds up the gradients of the copies that several stages keep, behind all passes: they end in another order on each
/// stage, and wait for collectives that would wait behind these. All stages go by the parameters; a copy without a pass
/// adds nothing.
void ParameterStorage::sum_copies() {
  std::vector<Bucket*> tied;
  for (Bucket& b : buckets_)
    if (b.tie && !b.frozen) tied.push_back(&b);
  std::sort(tied.begin(), tied.end(),
            [](const Bucket* a, const Bucket* b) { return a->pieces.front().parameter < b->pieces.front().parameter; });
  for (Bucket* b : tied) {
    if (!b->has_gradient) zero(*b, b->own_gradient);
    b->has_gradient = true;
    collect(CollectiveKind::AllReduce, "sum." + b->name + ".tied", builder_->group(*b->tie), b->own_gradient,
            b->own_gradient, builder_->plan().shape(b->own_gradient).elements());
  }
}

}  // namespace orrery
