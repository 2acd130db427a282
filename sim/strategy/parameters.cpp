// SPDX-License-Identifier: Apache-2.0
// Which parameters lie together, and over which ranks their gradients add up.
#include "sim/strategy/parameters.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/plan/placement.hpp"
#include "sim/strategy/model_parts.hpp"

namespace orrery {
namespace {

/// Calls f(number of the block, experts of one matrix) for every matrix of every mixture-of-experts layer of a model.
template <class F>
void for_each_stack(const Model& model, F f) {
  for_each_experts(model, [&](int block, const MoE& moe) {
    std::vector<ParameterId> gate, up, down;
    for (const Mlp& e : moe.experts) {
      if (e.gate) gate.push_back(e.gate->weight);
      up.push_back(e.up.weight);
      down.push_back(e.down.weight);
    }
    for (const auto* experts : {&gate, &up, &down})
      if (!experts->empty()) f(block, *experts);
  });
}

bool same_group(const Group* a, const Group* b) {
  return a == b || (a && b && a->axes == b->axes && a->only == b->only);
}

std::string part_name(int part) {
  if (part == kEmbeddingPart) return "outside";
  return part == kHeadPart ? "head" : std::to_string(part);
}

}  // namespace

ParameterStorage::ParameterStorage(PlanBuilder& builder, const Model& model, const Arrangements& arrangements,
                                   Options options)
    : builder_{&builder},
      model_{&model},
      arrangements_{&arrangements},
      dtype_{options.dtype},
      gradient_{options.gradient},
      quantised_{options.quantised},
      trains_{options.trains},
      frozen_{options.frozen},
      separate_{options.separate},
      data_{options.data},
      peer_{options.peer},
      weights_(model.parameters.size()),
      ties_{std::move(options.ties)} {
  builder.rank_class();
  make_units(options);
  choose_roots();
  for (Bucket& b : buckets_) lay_out(b);
  make_owned();
  for (Bucket& b : buckets_)
    if (!b.is_owned) add_storage(b);
  for (Owned& o : owned_) add_storage(o);
  if (!options.placed) return;
  for (const Bucket& b : buckets_) place(b);
}

/// Parts join a unit until the gradients of the unit fill a bucket.
void ParameterStorage::make_units(const Options& o) {
  std::int64_t filled = 0;
  for (const HeldPart& part : o.parts) {
    const Arrangement* arrangement = &arrangements_->of(part.part);
    const bool apart = part.part < 0 || (!units_.empty() && units_.back().first < 0);
    const bool joins = !separate_ && !units_.empty() && units_.back().chunk == part.chunk &&
                       units_.back().arrangement == arrangement &&
                       (o.data.predict || (!apart && filled < o.data.bucket));
    if (!joins) {
      units_.push_back({.arrangement = arrangement,
                        .chunk = part.chunk,
                        .first = part.part,
                        .last = part.part,
                        .buckets = {},
                        .left = part.passes});
      filled = 0;
    }
    gathers_ = gathers_ || arrangement->data == DataKind::Zero3;
    Unit& unit = units_.back();
    unit.last = part.part;
    unit_of_part_[part.part] = units_.size() - 1;
    add_part(unit, part);
    filled += gradient_bytes(part);
    const bool shares = part.shares_embedding && !o.data.predict;  // there all parts are one unit
    if (shares) units_[unit_of_part_.at(kEmbeddingPart)].left += part.passes;
    shares_embedding_ = shares_embedding_ || shares;
  }
}

std::int64_t ParameterStorage::gradient_bytes(const HeldPart& part) const {
  std::int64_t elements = 0;
  const Arrangement& arrangement = arrangements_->of(part.part);
  for (const ParameterId id : part.parameters)
    elements += local_shape(arrangements_->of(arrangement, id), id).elements();
  return static_cast<std::int64_t>(size_of(dtype_, elements).base());
}

void ParameterStorage::add_part(Unit& unit, const HeldPart& part) {
  add_stacks(unit, part);
  const bool in_parts = data_.part > 0 && unit.arrangement->data == DataKind::Zero3;  // in the order of their use
  for (const bool decay : {true, false})
    for (const ParameterId id : part.parameters) {
      const Cut& cut = arrangements_->of(*unit.arrangement, id).local.cuts[id.index()];
      if (cut.expert || (in_parts ? !decay : (*model_)[id].decay != decay)) continue;
      add_piece(unit, {id});
    }
}

void ParameterStorage::add_stacks(Unit& unit, const HeldPart& part) {
  for_each_stack(*model_, [&](int block, const std::vector<ParameterId>& experts) {
    if (std::find(part.parameters.begin(), part.parameters.end(), experts.front()) == part.parameters.end()) return;
    add_piece(unit, experts, block);
  });
}

void ParameterStorage::add_piece(Unit& unit, std::vector<ParameterId> ids, int block) {
  Bucket& b = bucket_of(unit, ids.front());
  const Arrangement& arrangement = *b.arrangement;
  Piece p{.parameter = ids.front(),
          .experts = {},
          .shape = local_shape(arrangement, ids.front()),
          .first = 0,
          .decay = (*model_)[ids.front()].decay};
  if (arrangement.local.cuts[ids.front().index()].expert) {
    p.block = block;
    auto held = static_cast<std::int64_t>(ids.size()) / arrangement.roles().experts.ranks;
    if (b.is_placed) {
      for (const HeldExpert& h : held_experts(b, p)) p.experts.push_back(ids[static_cast<std::size_t>(h.expert)]);
      held = std::ssize(p.experts);
    } else {
      p.experts = std::move(ids);
    }
    p.shape = Shape{held, p.shape[0], p.shape[1]};
  }
  b.pieces.push_back(std::move(p));
}

/// One bucket per set of ranks that share a parameter; where these are gathered in parts, one per part. Where ranks own
/// stretches of all weights, what has no weight decay is in one bucket for all units.
ParameterStorage::Bucket& ParameterStorage::bucket_of(Unit& unit, ParameterId id) {
  const Arrangement& arrangement = arrangements_->of(*unit.arrangement, id);
  const Cut& cut = arrangement.local.cuts[id.index()];
  Bucket wanted;
  wanted.arrangement = &arrangement;
  wanted.is_placed = cut.expert && arrangement.roles().placed_experts;
  set_axes(wanted, cut);
  if (const auto tie = ties_.find(id.value); tie != ties_.end()) wanted.tie = &tie->second;
  wanted.frozen = frozen_ && (*model_)[id].decay;
  wanted.is_owned = data_.owners && !separate_ && !wanted.tie && !wanted.frozen && ranks_over(wanted.scatter) > 1 &&
                    kind_of(wanted) == DataKind::Zero1;
  wanted.is_rest = wanted.is_owned && !(*model_)[id].decay;
  const auto shares = [&](std::size_t i) {
    return buckets_[i].arrangement == wanted.arrangement && buckets_[i].frozen == wanted.frozen &&
           buckets_[i].sum == wanted.sum && same_group(buckets_[i].tie, wanted.tie) &&
           buckets_[i].copies == wanted.copies && buckets_[i].is_rest == wanted.is_rest &&
           buckets_[i].is_placed == wanted.is_placed;
  };
  const auto last = std::find_if(unit.buckets.rbegin(), unit.buckets.rend(), shares);
  if (!separate_ && last != unit.buckets.rend() && has_room(buckets_[*last], id)) return buckets_[*last];
  if (wanted.is_rest)
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      if (shares(i)) return used_by(unit, i);
  if (separate_)
    wanted.name = (*model_)[id].name + (cut.expert ? ".experts" : "");
  else if (wanted.is_rest)
    wanted.name = fmt::format("rest.{}", buckets_.size());
  else
    wanted.name = fmt::format("{}.{}", part_name(unit.first), unit.buckets.size());
  buckets_.push_back(std::move(wanted));
  return used_by(unit, buckets_.size() - 1);
}

ParameterStorage::Bucket& ParameterStorage::used_by(Unit& unit, std::size_t bucket) {
  unit.buckets.push_back(bucket);
  ++buckets_[bucket].users;
  return buckets_[bucket];
}

bool ParameterStorage::has_room(const Bucket& b, ParameterId id) const {
  if (data_.part == 0 || kind_of(b) != DataKind::Zero3) return true;
  std::int64_t elements = local_shape(*b.arrangement, id).elements();
  for (const Piece& p : b.pieces) elements += p.shape.elements();
  return elements <= data_.part;
}

/// Over which axes gradients are parts of a sum, which of them split the optimizer's work, and how many ranks hold
/// equal parts of the result.
void ParameterStorage::set_axes(Bucket& b, const Cut& cut) const {
  const Roles& roles = b.arrangement->roles();
  const auto add = [&](const Split& s, std::vector<std::int8_t>& to) {
    if (s) to.insert(to.end(), s.axes.begin(), s.axes.end());
  };
  for (const Split* s : {&roles.dp, &roles.fsdp, &roles.cp}) add(*s, b.sum);
  if (!cut.expert) add(roles.ep, b.sum);
  b.sum.insert(b.sum.end(), cut.partial.begin(), cut.partial.end());
  std::sort(b.sum.begin(), b.sum.end());
  const bool splits = b.arrangement->data != DataKind::Ddp && !b.is_placed;
  for (const std::int8_t a : b.sum) {
    const auto& fsdp = roles.fsdp.axes;
    const bool inner = !roles.fsdp || std::find(fsdp.begin(), fsdp.end(), a) != fsdp.end();
    (splits && inner ? b.scatter : b.replicate).push_back(a);
  }
  std::vector<bool> distinct(builder_->plan().mesh.axes.size(), false);
  for (const auto& axes : cut.shard.axes)
    for (const std::int8_t a : axes)
      if (a >= 0) distinct[static_cast<std::size_t>(a)] = true;
  for (const std::int8_t a : b.scatter) distinct[static_cast<std::size_t>(a)] = true;
  for (const std::int8_t a : roles.experts.axes)
    if (cut.expert) distinct[static_cast<std::size_t>(a)] = true;
  if (!roles.pp.axes.empty()) distinct[static_cast<std::size_t>(roles.pp.axes.front())] = true;
  for (std::size_t a = 0; a < distinct.size(); ++a)
    if (!distinct[a]) b.copies *= double(builder_->plan().mesh.axes[a].size);
}

/// Whole buckets are kept by the ranks that share them, one after another in the order of their use.
void ParameterStorage::choose_roots() {
  if (!data_.owners || data_.kind != DataKind::Zero3) return;
  std::int64_t next = 0;
  for (Bucket& b : buckets_)
    if (const std::int64_t n = ranks_over(b.scatter); n > 1 && kind_of(b) == DataKind::Zero3) {
      b.root = next++ % n;
      b.starts.assign(static_cast<std::size_t>(n), 0);
    }
}

/// Elements of a bucket: pieces with weight decay first, padding behind so that all ranks have equal parts.
void ParameterStorage::lay_out(Bucket& b) {
  std::stable_partition(b.pieces.begin(), b.pieces.end(), [](const Piece& p) { return p.decay; });
  for (Piece& p : b.pieces) {
    p.first = b.elements;
    b.elements += p.shape.elements();
    if (p.decay) b.decayed = b.elements;
  }
  const std::int64_t n = parts_of(b);
  b.filled = b.elements;
  b.elements = share(b.elements, n) * n;
  if (b.tie) {
    std::int64_t tied = 1;
    for (std::size_t e = 0; e < b.tie->axes.size(); ++e)
      tied *= b.tie->only.size() > e && !b.tie->only[e].empty() ? static_cast<std::int64_t>(b.tie->only[e].size())
                                                                : builder_->plan().mesh.axes[b.tie->axes[e]].size;
    b.copies *= double(tied);
  }
}

Shape ParameterStorage::local_shape(const Arrangement& arrangement, ParameterId id) const {
  return orrery::local_shape(builder_->plan().mesh, arrangement.local.cuts[id.index()].shard);
}

}  // namespace orrery
