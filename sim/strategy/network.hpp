// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/layers.hpp"

namespace orrery {

/// What a network reads, made by the lowering of a step; those that a family does not use stay none.
struct NetworkInputs {
  TensorId tokens;          // [batch · sequence]
  TensorId positions;       // rows of the position table, [batch · sequence]
  TensorId decoder_tokens;  // encoder-decoder
  TensorId last;            // rows that become logits under LogitRows::Last, [batch]; none: those in the last place
  TensorId bias_index;      // decoding of T5: buckets of the one query, [1, capacity]
  TensorId images;          // [batch, channels, side, side]
  TensorId dense;           // DLRM: [batch, features]
  std::vector<TensorId> bags, offsets;  // DLRM, per table
};

/// All of them, in the same order for each microbatch.
std::vector<TensorId> tensors_of(const NetworkInputs& inputs);

struct NetworkSizes {
  std::int64_t batch = 1, sequence = 1, target_sequence = 1;
};

/// Which rows of the last block become logits.
enum class LogitRows : std::uint8_t { All, Last };

/// Blocks [first, last) of a network of one stack, as a pipeline stage computes them; with the embedding before them
/// and the head behind them.
struct BlockSpan {
  int first = 0, last = 0;
  bool embedding = true, head = true;
};

/// Lowers a span; `x` is what the span before it gave (unused with the embedding). Logits with the head, else the
/// states of the last block.
TensorId lower_span(Layers& layers, const NetworkInputs& inputs, const NetworkSizes& sizes, const BlockSpan& span,
                    TensorId x, KvCache* cache = nullptr, LogitRows rows = LogitRows::All);

/// Lowers the whole forward pass of a model; the logits, a matrix. Encoder-decoders run the encoder first, except when
/// the cache is extended: then only the decoder runs, against the cached encoder output.
TensorId lower_network(Layers& layers, const NetworkInputs& inputs, const NetworkSizes& sizes, KvCache* cache = nullptr,
                       LogitRows rows = LogitRows::All);

TensorId lower_transformer(Layers& layers, const Transformer& t, const NetworkInputs& inputs, const NetworkSizes& sizes,
                           KvCache* cache, LogitRows rows);
/// Blocks of sub-layers with residual streams of their own, from the embedding to what they are merged into (ways.cpp).
TensorId lower_ways(Layers& layers, const Transformer& t, TensorId x, KvCache* cache);
TensorId lower_swin(Layers& layers, const Swin& s, const NetworkInputs& inputs, const NetworkSizes& sizes);
TensorId lower_dlrm(Layers& layers, const Dlrm& d, const NetworkInputs& inputs, const NetworkSizes& sizes);

/// Makes the inputs of a model as persistent tensors with ports, one slice per microbatch: entry m serves microbatch m.
/// `sizes` are those of a rank.
std::vector<NetworkInputs> make_inputs(PlanBuilder& builder, Layers& layers, const NetworkSizes& sizes,
                                       std::int64_t microbatches);
/// The same of what tells the documents of samples apart: ports `first_keys` and, where asked for, `positions`.
std::vector<DocumentRows> make_document_rows(PlanBuilder& builder, Layers& layers, const NetworkSizes& sizes,
                                             std::int64_t microbatches, bool with_positions);
/// Which rows of a port's whole array a rank holds: its samples, or its tokens where sequences are cut; null on one
/// rank.
std::function<std::vector<std::int64_t>(std::span<const std::int64_t>)> port_rows(const Slices& slices);

/// Classes of the output: vocabulary, labels, 1 for a click probability.
std::int64_t output_classes(const Model& model);
/// Rows of logits of one pass: tokens for language models, samples for classifiers.
std::int64_t output_rows(const Model& model, const NetworkSizes& sizes);

}  // namespace orrery
