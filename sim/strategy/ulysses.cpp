// SPDX-License-Identifier: Apache-2.0
// DeepSpeed-Ulysses (arXiv 2309.14509): all-to-alls turn a part of the tokens with all heads into all tokens with a
// part of the heads, and back behind the attention, which so is that of whole sequences. Four all-to-alls of b·s·h/n
// elements per layer (of keys and values fewer under grouped queries), and their mirror images in the backward pass.
// Rotary embeddings come before. Ranks of cp hold contiguous chunks, so whatever comes from rank r is the r-th of the
// sequence.
#include <fmt/format.h>

#include "sim/strategy/layers.hpp"

namespace orrery {
namespace {

/// Part r of x goes to rank r, in order; the gradient goes the same way.
TensorId exchange(Tape& tape, const Split& cp, const std::string& name, TensorId x) {
  const Shape shape = tape.plan().shape(x);
  const DType dtype = tape.plan().tensors[x.index()].dtype;
  const TensorId y = tape.like(x, name);
  const Collective all_to_all{
      .kind = CollectiveKind::AllToAll, .group = cp.group, .bytes = size_of(dtype, shape.elements()), .dtype = dtype};
  tape.add_plain(name, all_to_all, {reads(x), writes(y)});
  tape.on_backward([tape = &tape, x, y, all_to_all, name = name + ".dx"] {
    const TensorId dy = tape->gradient(y);
    if (dy.is_none()) return;
    const TensorId dx = tape->contribution(x);
    tape->emit(name, all_to_all, {reads(dy), writes(dx)});
    tape->contribute(x, dx);
  });
  return y;
}

/// x[a, b, inner] as [b, a, inner].
TensorId swapped(Tape& tape, const std::string& name, TensorId x, std::int64_t a, std::int64_t b) {
  const std::int64_t inner = tape.plan().shape(x).elements() / (a * b);
  const DType dtype = tape.plan().tensors[x.index()].dtype;
  const TensorId y = tape.builder().tensor(name, Shape{b, a, inner}, {.dtype = dtype});
  tape.add(name, SwapAxes{.a = a, .b = b, .inner = inner, .dtype = dtype}, {reads(x), writes(y)});
  return y;
}

/// The sequence dimension is cut over cp: [batch, tokens, heads, dim] of all heads, a part of the tokens.
class Exchange {
 public:
  Exchange(Tape& tape, const Split& cp, std::int64_t batch, std::int64_t tokens)
      : tape_{tape}, cp_{cp}, batch_{batch}, tokens_{tokens} {}

  /// All tokens of the heads of this rank: [batch, cp·tokens, heads/cp, dim].
  TensorId to_heads(const std::string& name, TensorId x) const {
    const std::int64_t dim = tape_.plan().shape(x)[3], each = tape_.plan().shape(x)[2] / cp_.ranks;
    TensorId y = exchange(tape_, cp_, name, packed(name + ".pack", x));
    if (batch_ > 1) y = swapped(tape_, name + ".unpack", y, cp_.ranks, batch_);
    return tape_.view(y, name, Layout::contiguous(Shape{batch_, cp_.ranks * tokens_, each, dim}));
  }
  /// The way back of x [batch·cp·tokens, width]: all columns of the tokens of this rank.
  TensorId to_tokens(const std::string& name, TensorId x) const {
    const std::int64_t width = tape_.plan().shape(x)[1];
    if (batch_ > 1) x = swapped(tape_, name + ".pack", x, batch_, cp_.ranks);
    x = swapped(tape_, name + ".unpack", exchange(tape_, cp_, name, x), cp_.ranks, batch_ * tokens_);
    return tape_.view(x, name, Layout::contiguous(Shape{batch_ * tokens_, cp_.ranks * width}));
  }

 private:
  /// The heads of each rank one after another: [cp, batch, tokens, heads/cp, dim], from heads that may lie apart.
  TensorId packed(const std::string& name, TensorId x) const {
    const Layout from = tape_.plan().layouts[tape_.plan().tensors[x.index()].layout.index()];
    const std::int64_t n = cp_.ranks, each = from.shape[2] / n, dim = from.shape[3], rows = batch_ * tokens_;
    const auto& s = from.strides;
    const DType dtype = tape_.plan().tensors[x.index()].dtype;
    const TensorId y = tape_.builder().tensor(name, Shape{n, rows, each * dim}, {.dtype = dtype});
    const Shape shape{batch_, tokens_, n, each, dim};
    const TensorId source =
        tape_.view(x, name, {.shape = shape, .strides = {s[0], s[1], each * s[2], s[2], 1}, .offset = from.offset});
    const TensorId target = tape_.view(
        y, name,
        {.shape = shape, .strides = {tokens_ * each * dim, each * dim, rows * each * dim, dim, 1}, .offset = 0});
    tape_.add(name, CopyRows{rows * n, each * dim, dtype}, {reads(source), writes(target)});
    return y;
  }

  Tape& tape_;
  const Split& cp_;
  std::int64_t batch_, tokens_;
};

}  // namespace

TensorId Layers::ulysses(std::string_view name, const Projected& p, const Attention& a) {
  const std::int64_t n = roles().cp.ranks, s = sizes_.sequence * n;
  const Exchange exchange{tape_, roles().cp, sizes_.batch, sizes_.sequence};
  const auto part = [&](std::string_view suffix) { return fmt::format("{}.{}", name, suffix); };
  const Projected whole{exchange.to_heads(part("q_heads"), p.q), exchange.to_heads(part("k_heads"), p.k),
                        exchange.to_heads(part("v_heads"), p.v)};
  Attention some = a;
  some.heads /= n;
  some.kv_heads /= n;
  TensorId o;
  {
    const RecomputeScope core{tape_, recomputes(RecomputePart::Core)};
    o = attend_here(name, whole, some, sizes_.batch, s, Extent{s}, false);
  }
  return exchange.to_tokens(part("o_tokens"), o);
}

}  // namespace orrery
