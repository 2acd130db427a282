// SPDX-License-Identifier: Apache-2.0
// Layers of n sub-layers with residual streams of their own (Kraken, arXiv 2408.07802). With the outputs x_j of the
// layer before, sub-layer i computes
//   a = attention_i(norm(x_i)),  u = x_i + a,  v = u + Σ_{j ≠ i} x_j,  out_i = u + mlp_i(norm(v));
// in the first layer, where all x_j are the embedding, v = u. Since u − x_i = a, v is a plus the sum of all x_j, which
// is one all-reduce where sub-layers lie on the ranks of tp: it starts with the layer, beside the attention, on a
// stream of its own. The outputs of the last layer are projected and added up.
#include <fmt/format.h>

#include "sim/strategy/layers.hpp"
#include "sim/strategy/network.hpp"

namespace orrery {
namespace {

class WaysLowering {
 public:
  WaysLowering(Layers& layers, const Transformer& t, KvCache* cache) : l_{layers}, t_{t}, cache_{cache} {}

  TensorId run(TensorId x) {
    // Each rank feeds what it alone makes of the embedding: gradients add up over tp.
    x = scheme_of(l_.roles()).enter(l_, "ways", x, {});
    std::vector<TensorId> streams(static_cast<std::size_t>(ways()), x);
    for (std::size_t i = 0; i < t_.decoder.size(); ++i) streams = layer(static_cast<int>(i), streams);
    return merge(streams);
  }

 private:
  std::int64_t ways() const { return t_.ways->count; }

  std::vector<TensorId> layer(int i, const std::vector<TensorId>& in) {
    l_.tape().builder().set_layer(i);
    l_.weights().before(l_.tape(), i);
    const TensorId sum = i == 0 ? TensorId{} : sum_of(fmt::format("layers.{}.sum", i), in);
    std::vector<TensorId> out;
    for (std::int64_t j = 0; j < ways(); ++j) {
      l_.set_way(j, ways(), true);
      out.push_back(sub_layer(i, j, in[static_cast<std::size_t>(j)], sum));
    }
    l_.set_way(0, 1, false);
    l_.weights().after(l_.tape(), i);
    l_.tape().builder().set_layer(-1);
    return out;
  }

  TensorId sub_layer(int i, std::int64_t j, TensorId x, TensorId sum) {
    const std::string name = ways() == 1 ? fmt::format("layers.{}", i) : fmt::format("layers.{}.way{}", i, j);
    const auto part = [&](std::string_view what) { return fmt::format("{}.{}", name, what); };
    const Block& b = t_.decoder[static_cast<std::size_t>(i)];
    const TensorId normed = l_.block_norm(part("attention_norm"), x, l_.rows(), b.attention_norm);
    const TensorId a = l_.attention(part("attention"), normed, b.attention, cache_, static_cast<int>(i * ways() + j));
    const TensorId u = l_.add(part("attention_residual"), x, a);
    const TensorId v = sum.is_none() ? u : l_.add(part("others"), sum, a);
    const TensorId m =
        l_.mlp(part("mlp"), l_.block_norm(part("ffn_norm"), v, l_.rows(), b.ffn_norm), std::get<Mlp>(b.ffn));
    return l_.add(part("ffn_residual"), u, m);
  }

  TensorId total(std::string_view name, const std::vector<TensorId>& parts) {
    TensorId sum = parts.front();
    for (std::size_t j = 1; j < parts.size(); ++j) sum = l_.add(fmt::format("{}.{}", name, j), sum, parts[j]);
    return sum;
  }

  /// Of the outputs of all sub-layers: on this rank first, then over tp.
  TensorId sum_of(const std::string& name, const std::vector<TensorId>& parts) {
    const TensorId here = total(name, parts);
    const Split& tp = l_.roles().tp;
    if (!tp) return here;
    Tape& tape = l_.tape();
    const Shape shape = tape.plan().shape(here);
    const TensorId all = l_.activation_tensor(name, shape);
    const Collective sum{.kind = CollectiveKind::AllReduce,
                         .group = tp.group,
                         .bytes = size_of(l_.sizes().dtype, shape.elements()),
                         .dtype = l_.sizes().dtype};
    tape.add_plain(name, sum, {reads(here), writes(all)}, Stream::Comm);
    tape.on_backward([&tape, here, all, sum, name] {
      const TensorId dy = tape.gradient(all);
      if (dy.is_none()) return;
      const TensorId dx = tape.contribution(here);
      tape.emit(name + ".back", sum, {reads(dy), writes(dx)});
      tape.contribute(here, dx);
    });
    return all;
  }

  TensorId merge(const std::vector<TensorId>& streams) {
    std::vector<TensorId> parts;
    for (std::int64_t j = 0; j < ways(); ++j) {
      l_.set_way(j, ways(), true);
      parts.push_back(l_.product(ways() == 1 ? "merge" : fmt::format("merge.way{}", j),
                                 streams[static_cast<std::size_t>(j)], l_.rows(), t_.ways->merge));
    }
    l_.set_way(0, 1, false);
    return scheme_of(l_.roles()).leave(l_, "merge", total("merge.sum", parts));
  }

  Layers& l_;
  const Transformer& t_;
  KvCache* cache_;
};

}  // namespace

TensorId lower_ways(Layers& layers, const Transformer& t, TensorId x, KvCache* cache) {
  return WaysLowering{layers, t, cache}.run(x);
}

}  // namespace orrery
