// SPDX-License-Identifier: Apache-2.0
// The tensors of parameters and gradients, and where the host finds each parameter in them.
#include <algorithm>

#include "sim/strategy/parameters.hpp"

namespace orrery {

/// Of a bucket with one matrix of a block: buckets of many are not quantised, see Options::separate.
Quantised ParameterStorage::quantised(const Bucket& b) const {
  const Parameter& p = (*model_)[b.pieces.front().parameter];
  return separate_ && p.layer >= 0 && p.shape.size() > 1 ? quantised_ : Quantised::None;
}

TensorId ParameterStorage::make(const Bucket& b, std::string_view what, std::int64_t elements, TensorRole role,
                                bool persistent) {
  const Quantised stored = role == TensorRole::Parameter ? quantised(b) : Quantised::None;
  if (stored != Quantised::None)
    builder_->tensor(b.name + std::string{what} + ".scales", Shape{share(elements, kScaledRun)},
                     {.dtype = DType::F16, .role = role, .persistent = persistent});
  const bool on_peer =
      role == TensorRole::Parameter && persistent && is_on_peer((*model_)[b.pieces.front().parameter].layer);
  const bool whole = b.pieces.size() == 1 && elements == b.pieces.front().shape.elements();
  return builder_->tensor(b.name + std::string{what}, whole ? b.pieces.front().shape : Shape{elements},
                          {.dtype = role == TensorRole::Gradient ? gradient_ : type_of(stored, dtype_),
                           .role = role,
                           .tier = on_peer ? Tier::Peer : Tier::Device,
                           .persistent = persistent});
}

/// The part of a bucket's storage that holds a piece.
TensorId ParameterStorage::piece_of(const Bucket& b, const Piece& p, TensorId base, std::string_view suffix) {
  if (is_all_of(b, p.shape, base)) return base;
  Layout layout = Layout::contiguous(p.shape);
  layout.offset = begin_in(b, base) + p.first;
  return builder_->view(base, (*model_)[p.parameter].name + std::string{suffix}, layout);
}

/// Element of a tensor with the weights or the gradients of a bucket where the bucket begins.
std::int64_t ParameterStorage::begin_in(const Bucket& b, TensorId base) const { return base == b.weight ? b.begin : 0; }

bool ParameterStorage::is_all_of(const Bucket& b, const Shape& shape, TensorId base) const {
  const bool shares_weights = b.is_owned && base == b.weight;
  return b.pieces.size() == 1 && b.elements == shape.elements() && !shares_weights;
}

TensorId ParameterStorage::way(TensorId weight, std::int64_t i, std::int64_t count) {
  if (count == 1) return weight;
  const auto [it, fresh] = ways_.try_emplace({weight.value, i});
  if (!fresh) return it->second;
  const auto part = [&](TensorId t) {
    Layout layout = builder_->plan().layouts[builder_->plan().tensors[t.index()].layout.index()];
    layout.shape.sizes[0] /= count;
    layout.offset += i * layout.shape[0] * layout.strides[0];
    return builder_->view(t, builder_->plan().name_of(t), layout);
  };
  it->second = part(weight);
  const TensorId* gradient = targets_.find(weight);
  if (gradient && !gradient->is_none()) {
    targets_.mark_written(*gradient);  // by all of its parts
    targets_.set(it->second, part(*gradient));
  }
  return it->second;
}

/// From here on ops read the weights of a bucket in `base`.
void ParameterStorage::bind_weights(Bucket& b, TensorId base) {
  b.weight = base;
  for (const Piece& p : b.pieces) {
    const TensorId t = piece_of(b, p, base, "");
    if (trains_ && !b.frozen) targets_.set(t, {});
    if (p.experts.empty()) {
      weights_[p.parameter.index()] = t;
      continue;
    }
    stacks_[p.parameter.value] = t;
    for (const ParameterId e : p.experts) weights_[e.index()] = t;
  }
}

/// What ops read now, per piece.
std::vector<TensorId> ParameterStorage::weights_of(const Bucket& b) const {
  std::vector<TensorId> out;
  for (const Piece& p : b.pieces)
    out.push_back(p.experts.empty() ? weights_[p.parameter.index()] : stacks_.at(p.parameter.value));
  return out;
}

/// The gradients of a bucket lie in `base`.
void ParameterStorage::set_gradient(Bucket& b, TensorId base) {
  b.gradient = base;
  b.piece_gradients.clear();
  for (const Piece& p : b.pieces) b.piece_gradients.push_back(piece_of(b, p, base, ".grad"));
}

/// Contributions to the gradients of these weights go there.
void ParameterStorage::bind_gradients(const Bucket& b, const std::vector<TensorId>& weights) {
  for (std::size_t i = 0; i < b.pieces.size(); ++i) targets_.set(weights[i], b.piece_gradients[i]);
}

void ParameterStorage::add_storage(Bucket& b) {
  const DataKind kind = kind_of(b);
  const std::int64_t n = parts_of(b), own = b.elements / n;
  RankView where;
  std::copy(b.scatter.begin(), b.scatter.end(), where.axes.begin());
  where.stride = own;
  const std::string_view weights = separate_ ? "" : ".weights";
  if (kind == DataKind::Zero3) {
    b.own_weight = make(b, ".weights_part", own, TensorRole::Parameter, true);
  } else {
    bind_weights(b, make(b, weights, b.elements, TensorRole::Parameter, true));
    b.own_weight = n == 1 ? b.weight : builder_->rank_view(b.weight, b.name + ".weights_part", Shape{own}, where);
  }
  if (!trains_ || b.frozen) return;
  if (kind == DataKind::Zero2 || kind == DataKind::Zero3) {
    b.own_gradient = make(b, ".grad_part", own, TensorRole::Gradient, true);
    return;
  }
  set_gradient(b, make(b, ".grad", b.elements, TensorRole::Gradient, true));
  b.own_gradient = n == 1 ? b.gradient : builder_->rank_view(b.gradient, b.name + ".grad_part", Shape{own}, where);
  bind_gradients(b, weights_of(b));
}

/// Where the host finds the part of a parameter that a rank holds.
Stored ParameterStorage::stored(const Bucket& b, const Piece& p, ParameterId id, bool gradient) {
  const Cut& cut = b.arrangement->local.cuts[id.index()];
  Stored s{.tensor = {}, .shard = cut.shard, .flat_axes = kNoAxes};
  std::int64_t first = 0;  // element of the piece
  if (!p.experts.empty()) {
    const auto expert = std::lower_bound(p.experts.begin(), p.experts.end(), id);  // they were made in order
    const auto at = static_cast<std::int64_t>(expert - p.experts.begin());
    first = at % p.shape[0] * p.shape[1] * p.shape[2];
    if (cut.held_at >= 0) {
      const auto& axes = b.arrangement->roles().experts.axes;
      std::copy(axes.begin(), axes.end(), s.held_axes.begin());
      s.held_at = cut.held_at;
    }
  }
  const DataKind kind = kind_of(b);
  const bool split = gradient ? kind != DataKind::Ddp : kind == DataKind::Zero3;
  if (split && !b.root) {
    std::copy(b.scatter.begin(), b.scatter.end(), s.flat_axes.begin());
    s.flat_first = p.first + first;
    s.in_place = kind == DataKind::Zero1;
    s.tensor = gradient ? (s.in_place ? b.gradient : b.own_gradient) : b.own_weight;
    return s;
  }
  const TensorId base = b.root ? (gradient ? b.own_gradient : b.own_weight) : gradient ? b.gradient : b.weight;
  const Shape shape = p.experts.empty() ? p.shape : Shape{p.shape[1], p.shape[2]};
  Layout layout = Layout::contiguous(shape);
  layout.offset = begin_in(b, base) + p.first + first;
  s.tensor =
      is_all_of(b, shape, base) ? base : builder_->view(base, (*model_)[id].name + (gradient ? ".grad" : ""), layout);
  return s;
}

void ParameterStorage::place(const Bucket& b) {
  for (const Piece& p : b.pieces) {
    const std::vector<ParameterId> one{p.parameter};
    for (const ParameterId id : p.experts.empty() ? one : p.experts) {
      ParameterPlacement placement{
          .parameter = id, .rank_class = builder_->rank_class(), .weight = stored(b, p, id, false), .gradient = {}};
      if (trains_ && !b.frozen) placement.gradient = stored(b, p, id, true);
      builder_->plan().placements.push_back(std::move(placement));
    }
  }
}

}  // namespace orrery
