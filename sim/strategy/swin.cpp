// SPDX-License-Identifier: Apache-2.0
// Shifted-window transformer. Windows are sequences: a row gather puts the patches of a window together, attention runs
// on batch · windows sequences of window² tokens, a second gather puts them back.
#include <fmt/format.h>

#include <algorithm>

#include "sim/strategy/indices.hpp"
#include "sim/strategy/network.hpp"

namespace orrery {
namespace {

/// A Layers with windows as sequences for one stage; blocks alternate between plain and shifted windows.
TensorId lower_stage(Layers& l, const Swin& s, const SwinStage& stage, TensorId x, std::int64_t batch,
                     int first_block) {
  const std::int64_t side = stage.resolution, window = std::min(s.window, side),
                     windows = (side / window) * (side / window), n = batch * side * side;
  for (std::size_t i = 0; i < stage.blocks.size(); ++i) {
    const Block& b = stage.blocks[i];
    const int index = first_block + static_cast<int>(i);
    const std::string name = fmt::format("layers.{}", index);
    const std::int64_t shift = i % 2 == 1 && side > window ? window / 2 : 0;
    const std::string key = fmt::format("{}.{}.{}", batch, side, shift);
    l.tape().builder().set_layer(index);
    l.weights().before(l.tape(), index);
    const bool recompute = l.sizes().training && keeps_only_inputs(l.arrangement().recompute);
    const std::size_t first = l.tape().num_recorded();
    l.tape().set_recompute(recompute);
    const TensorId partition = l.constant("swin.partition." + key, Shape{n}, DType::I32,
                                          [=] { return swin_partition(batch, side, window, shift); });
    const TensorId restore = l.constant("swin.restore." + key, Shape{n}, DType::I32,
                                        [=] { return swin_restore(batch, side, window, shift); });

    const RelativeBias& r = *b.attention.relative_bias;
    const std::int64_t cells = window * window;
    const TensorId offsets = l.constant(fmt::format("swin.offsets.{}", window), Shape{cells, cells}, DType::I32,
                                        [=] { return swin_offsets(window); });
    const TensorId bias = l.activation_tensor(name + ".relative_bias", Shape{stage.heads, cells, cells});
    l.tape().add(name + ".relative_bias",
                 RelativeBiasForward{
                     .heads = stage.heads, .q = cells, .buckets = r.buckets, .kv = cells, .dtype = l.sizes().dtype},
                 {reads(l.weight(r.table)), reads(offsets), writes(bias)});
    if (shift > 0) {
      const TensorId mask = l.constant("swin.mask." + fmt::format("{}.{}", side, shift), Shape{windows, cells, cells},
                                       l.sizes().dtype, [=] { return swin_mask(side, window, shift); });
      l.set_bias(bias, windows, mask);
    } else {
      l.set_bias(bias);
    }
    const TensorId normed = l.block_norm(name + ".attention_norm", x, n, b.attention_norm);
    const TensorId cut = l.gather(name + ".partition", normed, partition, n);
    const TensorId attended = l.attention(name + ".attention", cut, b.attention, nullptr, index);
    x = l.add(name + ".attention_residual", x, l.gather(name + ".restore", attended, restore, n));
    const TensorId inner = l.block_norm(name + ".ffn_norm", x, n, b.ffn_norm);
    x = l.add(name + ".ffn_residual", x, l.mlp(name + ".mlp", inner, std::get<Mlp>(b.ffn)));
    if (recompute) l.tape().keep(x);
    if (l.arrangement().recompute == Recompute::Whole) l.tape().make_all_again(first);
    l.tape().set_recompute(false);
    l.weights().after(l.tape(), index);
  }
  l.tape().builder().set_layer(-1);
  return x;
}

TensorId lower_merge(Layers& l, const SwinStage& stage, std::size_t index, TensorId x, std::int64_t batch) {
  const std::int64_t side = stage.resolution, n = batch * side * side;
  const TensorId rows = l.constant(fmt::format("swin.merge.{}.{}", batch, side), Shape{n}, DType::I32,
                                   [=] { return merge_rows(batch, side); });
  const TensorId cells = l.gather(fmt::format("merge.{}.gather", index), x, rows, n);
  const TensorId wide =
      l.tape().view(cells, fmt::format("merge.{}", index), Layout::contiguous(Shape{n / 4, 4 * stage.dim}));
  return l.linear(fmt::format("merge.{}", index),
                  l.norm(fmt::format("merge.{}.norm", index), wide, n / 4, *stage.merge_norm), n / 4, *stage.merge);
}

}  // namespace

TensorId lower_swin(Layers& layers, const Swin& s, const NetworkInputs& inputs, const NetworkSizes& sizes) {
  const std::int64_t side = s.image_size / s.patch_size, batch = sizes.batch, n = batch * side * side;
  const TensorId cells = layers.activation_tensor("patchify", Shape{n, s.channels * s.patch_size * s.patch_size});
  layers.tape().add("patchify", Patchify{batch, s.channels, s.image_size, s.patch_size, layers.sizes().dtype},
                    {reads(inputs.images), writes(cells)});
  TensorId x = layers.linear("patch_embedding", cells, n, s.patches);
  if (s.patch_norm) x = layers.norm("patch_norm", x, n, *s.patch_norm);
  int block = 0;
  for (std::size_t i = 0; i < s.stages.size(); ++i) {
    const SwinStage& stage = s.stages[i];
    const std::int64_t window = std::min(s.window, stage.resolution);
    layers.set_windows(batch * (stage.resolution / window) * (stage.resolution / window), window * window);
    x = lower_stage(layers, s, stage, x, batch, block);
    block += static_cast<int>(stage.blocks.size());
    if (stage.merge) x = lower_merge(layers, stage, i, x, batch);
  }
  const SwinStage& last = s.stages.back();
  const std::int64_t rows = last.resolution * last.resolution;
  const TensorId normed = layers.norm("final_norm", x, batch * rows, s.final_norm);
  const TensorId pooled = layers.activation_tensor("pool", Shape{batch, last.dim});
  layers.tape().add("pool", MeanPool{batch, rows, last.dim, layers.sizes().dtype}, {reads(normed), writes(pooled)});
  return layers.linear("logits", pooled, batch, s.classifier);
}

}  // namespace orrery
