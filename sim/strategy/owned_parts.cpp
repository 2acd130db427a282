// SPDX-License-Identifier: Apache-2.0
// Ranks that own parameters, as in HybridZeroOptimizer of InternEvo and other ZeRO-1 optimizers that split no tensor:
//
//   sums        gradients of a bucket are all-reduced
//   owners      the largest parameter goes to the rank that has least, and so on: its load
//   storage     the weights of all buckets lie in one tensor of equal parts, of which a rank has as many neighbouring
//               ones as its load takes; a bucket fills whole parts. So the amounts are those of whole parameters, while
//               which elements a rank has is a matter of order
//   update      a rank lays the gradients of a window of parts side by side, among them its own, and updates it
//   messages    each rank broadcasts what it owns, one after another
//
// All ranks do the same work, so that they are one class: each window has as many parts as the largest load, and what a
// rank updates of others' parts is what these send it. The norm is that of equally many parts of each rank. Left out:
// ranks that are done sooner.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "sim/plan/placement.hpp"
#include "sim/strategy/parameters.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostParts = 128;  // of a window: the more, the less padding, and the more copies of gradients

/// Elements of each of n ranks, where parameters go to who has least (`_partition_param_list`).
std::vector<std::int64_t> loads_of(std::vector<std::int64_t> parameters, std::int64_t n) {
  std::sort(parameters.begin(), parameters.end(), std::greater<>{});
  std::vector<std::int64_t> loads(static_cast<std::size_t>(n), 0);
  for (const std::int64_t elements : parameters) *std::min_element(loads.begin(), loads.end()) += elements;
  return loads;
}

std::int64_t parts_of(std::span<const std::int64_t> lengths, std::int64_t part) {
  std::int64_t n = 0;
  for (const std::int64_t length : lengths) n += share(length, part);
  return n;
}

/// Of windows of so many elements in 1, 2, … parts: the part that leaves least padding.
std::int64_t best_part(std::span<const std::int64_t> lengths, std::int64_t window) {
  std::int64_t best = window;
  for (std::int64_t parts = 2; parts <= std::min(kMostParts, window); ++parts)
    if (const std::int64_t part = share(window, parts); parts_of(lengths, part) * part < parts_of(lengths, best) * best)
      best = part;
  return best;
}

}  // namespace

/// Buckets of the same ranks are owned together: matrices first, what has no weight decay behind them.
void ParameterStorage::make_owned() {
  for (const bool rest : {false, true})
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      const Bucket& b = buckets_[i];
      if (!b.is_owned || b.is_rest != rest) continue;
      const auto same = [&](const Owned& o) {
        const Bucket& first = buckets_[o.buckets.front()];
        return first.arrangement == b.arrangement && first.scatter == b.scatter && first.copies == b.copies;
      };
      auto owned = std::find_if(owned_.begin(), owned_.end(), same);
      if (owned == owned_.end()) owned = owned_.insert(owned_.end(), Owned{});
      owned->buckets.push_back(i);
    }
  for (Owned& o : owned_) lay_out(o);
}

void ParameterStorage::lay_out(Owned& o) {
  const std::int64_t n = ranks_over(buckets_[o.buckets.front()].scatter);
  std::vector<std::int64_t> lengths, parameters;
  std::int64_t filled = 0;
  for (const std::size_t i : o.buckets) {
    lengths.push_back(buckets_[i].elements);
    filled += buckets_[i].elements;
    for (const Piece& p : buckets_[i].pieces) parameters.push_back(p.shape.elements());
  }
  const std::vector<std::int64_t> loads = loads_of(std::move(parameters), n);
  o.part = best_part(lengths, *std::max_element(loads.begin(), loads.end()));
  for (const std::size_t i : o.buckets) {
    Bucket& b = buckets_[i];
    b.begin = o.parts * o.part;
    o.parts += share(b.elements, o.part);
    b.elements = share(b.elements, o.part) * o.part;
    if (!b.is_rest) o.all.decayed = o.parts * o.part;
  }
  o.first.push_back(0);
  double before = 0;
  for (const std::int64_t load : loads) {
    before += double(load);
    o.first.push_back(std::llround(before / double(filled) * double(o.parts)));
    o.window = std::max(o.window, o.first.back() - o.first[o.first.size() - 2]);
  }
  const Bucket& first = buckets_[o.buckets.front()];
  o.all.arrangement = first.arrangement;
  o.all.scatter = first.scatter, o.all.copies = first.copies;
  o.all.is_owned = true;  // is not gathered behind its update
  o.all.name = fmt::format("owned.{}", &o - owned_.data());
  o.all.elements = o.parts * o.part;
  for (std::size_t r = 0; r + 1 < o.first.size(); ++r)
    o.all.starts.push_back(std::min(o.first[r], o.parts - o.window) * o.part);
}

/// A view of `parts` parts that lies elsewhere on each rank: where `at` says of its position.
TensorId ParameterStorage::owned_view(const Owned& o, std::string_view name, std::int64_t parts,
                                      const std::function<RankView::Place(std::int64_t)>& at) {
  RankView where;
  std::copy(o.all.scatter.begin(), o.all.scatter.end(), where.axes.begin());
  for (std::int64_t r = 0; r < std::ssize(o.all.starts); ++r) where.places.push_back(at(r));
  const TensorId base = where.places.front().tensor;
  return builder_->rank_view(base, fmt::format("{}.{}", o.all.name, name), Shape{parts * o.part}, where);
}

void ParameterStorage::add_storage(Owned& o) {
  o.all.weight = builder_->tensor(o.all.name + ".weights", Shape{o.all.elements},
                                  {.dtype = dtype_, .role = TensorRole::Parameter, .persistent = true});
  o.all.own_weight = owned_view(o, "weights_part", o.window, [&](std::int64_t r) {
    return RankView::Place{o.all.weight, o.all.starts[static_cast<std::size_t>(r)]};
  });
  for (const std::size_t i : o.buckets) bind_weights(buckets_[i], o.all.weight);
  if (!trains_) return;
  for (const std::size_t i : o.buckets) {
    Bucket& b = buckets_[i];
    set_gradient(b, make(b, ".grad", b.elements, TensorRole::Gradient, true));
    bind_gradients(b, weights_of(b));
  }
  if (o.parts % std::ssize(o.all.starts) != 0) o.nothing = make(o.all, ".no_grad", o.part, TensorRole::Gradient, true);
}

/// Where the gradients of a part lie.
RankView::Place ParameterStorage::gradient_of(const Owned& o, std::int64_t part) const {
  for (const std::size_t i : o.buckets)
    if (const std::int64_t at = part * o.part - buckets_[i].begin; at < buckets_[i].elements)
      return {buckets_[i].gradient, at};
  return {o.nothing, 0};
}

/// Lays the gradients of a rank's window side by side, in a tensor that the update reads.
void ParameterStorage::lay_out_gradients(Owned& o) {
  for (const std::size_t i : o.buckets) o.all.has_gradient = o.all.has_gradient || buckets_[i].has_gradient;
  if (!o.all.has_gradient) return;
  for (const std::size_t i : o.buckets) {
    if (!buckets_[i].has_gradient) zero(buckets_[i], buckets_[i].gradient);
    o.gradients.push_back(reads(buckets_[i].gradient));
  }
  if (!o.nothing.is_none()) o.gradients.push_back(reads(o.nothing));
  o.all.own_gradient = make(o.all, ".grad_part", o.window * o.part, TensorRole::Gradient, false);
  for (std::int64_t k = 0; k < o.window; ++k) {
    Layout layout = Layout::contiguous(Shape{o.part});
    layout.offset = k * o.part;
    const TensorId from = owned_view(o, fmt::format("grad.{}", k), 1, [&](std::int64_t r) {
      return gradient_of(o, o.all.starts[static_cast<std::size_t>(r)] / o.part + k);
    });
    const TensorId to = builder_->view(o.all.own_gradient, fmt::format("{}.grad_part.{}", o.all.name, k), layout);
    std::vector<Operand> operands{reads(from), writes(to)};
    operands.insert(operands.end(), o.gradients.begin(), o.gradients.end());
    builder_->add("own." + o.all.name, CopyRows{1, o.part, gradient_}, operands);
  }
}

/// Every rank adds up each n-th part.
void ParameterStorage::add_norm(const Owned& o, TensorId norm2) {
  const std::int64_t n = std::ssize(o.all.starts);
  for (std::int64_t k = 0; k < share(o.parts, n); ++k) {
    const TensorId part =
        owned_view(o, fmt::format("norm.{}", k), 1, [&](std::int64_t r) { return gradient_of(o, k * n + r); });
    std::vector<Operand> operands{reads(part), updates(norm2)};
    operands.insert(operands.end(), o.gradients.begin(), o.gradients.end());
    builder_->add("grad_norm", SumSquares{.elements = o.part, .weight = 1 / o.all.copies, .dtype = gradient_},
                  operands);
  }
}

/// The new weights of each rank in turn, who is the root of one message; who owns nothing sends nothing.
void ParameterStorage::broadcast_owned(const Owned& o) {
  const GroupId group = builder_->group_over(o.all.scatter);
  for (std::size_t r = 0; r + 1 < o.first.size(); ++r) {
    const std::int64_t elements = (o.first[r + 1] - o.first[r]) * o.part;
    if (elements == 0) continue;
    Layout layout = Layout::contiguous(Shape{elements});
    layout.offset = o.first[r] * o.part;
    const TensorId part = builder_->view(o.all.weight, fmt::format("{}.weights_of.{}", o.all.name, r), layout);
    builder_->add(fmt::format("broadcast.{}.{}", o.all.name, r),
                  Collective{.kind = CollectiveKind::Broadcast,
                             .group = group,
                             .root = static_cast<std::int32_t>(r),
                             .bytes = size_of(dtype_, elements),
                             .dtype = dtype_},
                  {updates(part)}, Stream::Comm);
  }
}

}  // namespace orrery
