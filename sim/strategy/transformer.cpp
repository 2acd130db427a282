// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "sim/strategy/indices.hpp"
#include "sim/strategy/network.hpp"

namespace orrery {
namespace {

class TransformerLowering {
 public:
  TransformerLowering(Layers& layers, const Transformer& t, const NetworkSizes& sizes, KvCache* cache)
      : l_{layers}, t_{t}, sizes_{sizes}, cache_{cache} {}

  TensorId run(const NetworkInputs& in, LogitRows rows) {
    l_.weights().before(l_.tape(), kEmbeddingPart);
    const TensorId logits = run_parts(in, rows);
    l_.weights().after(l_.tape(), kEmbeddingPart);
    return logits;
  }

  /// Some blocks of the only stack, with the embedding before the first and the head behind the last where asked for.
  TensorId run_span(const NetworkInputs& in, const BlockSpan& span, TensorId x, LogitRows rows) {
    last_ = in.last;
    const bool causal = !t_.decoder.empty();
    l_.set_sequence(sizes_.sequence);
    if (span.embedding) {
      l_.weights().before(l_.tape(), kEmbeddingPart);
      x = l_.pack(embed(in.tokens, in.positions, "embedding"));
      l_.weights().after(l_.tape(), kEmbeddingPart);
    } else {
      l_.assume_packed();
    }
    for (int i = span.first; i < span.last; ++i) x = l_.block(i, x, {}, cache_);
    if (!span.head) return x;
    x = l_.turn_outside(x);
    l_.weights().before(l_.tape(), kHeadPart);
    if (!causal && t_.encoder_norm) x = l_.norm("encoder_norm", x, l_.outer_rows(), *t_.encoder_norm);
    const TensorId logits = causal ? decode_head(x, rows) : head(x, sizes_.sequence);
    l_.weights().after(l_.tape(), kHeadPart);
    return logits;
  }

 private:
  TensorId run_parts(const NetworkInputs& in, LogitRows rows) {
    last_ = in.last;
    Layers::Memory memory;
    if (!t_.encoder.empty() && l_.sizes().cache_use != CacheUse::Extend) memory = encode(in);
    if (t_.decoder.empty()) return head(memory.states, memory.sequence);
    const bool pair = !t_.encoder.empty();
    memory.sequence = sizes_.sequence;
    const std::int64_t sequence = pair ? sizes_.target_sequence : sizes_.sequence;
    l_.set_sequence(sequence);
    TensorId x = l_.pack(embed(pair ? in.decoder_tokens : in.tokens, in.positions, "embedding"));
    share_bias(t_.decoder, in.bias_index, "decoder");
    if (t_.ways)
      x = lower_ways(l_, t_, x, cache_);
    else
      for (std::size_t i = 0; i < t_.decoder.size(); ++i)
        x = l_.block(static_cast<int>(t_.encoder.size() + i), x, memory, cache_);
    x = l_.turn_outside(x);
    return decode_head(x, rows);
  }
  std::int64_t rows() const { return l_.rows(); }

  Layers::Memory encode(const NetworkInputs& in) {
    const Layers::Memory none;
    TensorId x;
    std::int64_t sequence = sizes_.sequence;
    if (t_.patches) {
      sequence = (t_.image_size / t_.patch_size) * (t_.image_size / t_.patch_size) + 1;
      x = embed_patches(in.images, sequence);
    } else {
      l_.set_sequence(sequence);
      x = embed(in.tokens, in.positions, "embedding");
    }
    l_.set_sequence(sequence);
    share_bias(t_.encoder, {}, "encoder");
    for (std::size_t i = 0; i < t_.encoder.size(); ++i) x = l_.block(static_cast<int>(i), x, none, nullptr);
    x = l_.turn_outside(x);
    if (t_.encoder_norm) x = l_.norm("encoder_norm", x, l_.outer_rows(), *t_.encoder_norm);
    return {x, sequence};
  }

  TensorId embed(TensorId tokens, TensorId positions, std::string_view name) {
    l_.set_dropout_stream(0);
    TensorId x = l_.scale(fmt::format("{}.scale", name), l_.embed(name, l_.weight(t_.tokens->table), tokens),
                          t_.embedding_scale);
    const std::int64_t n = l_.outer_rows();
    if (t_.project_in) x = l_.project_outside(fmt::format("{}.project_in", name), x, *t_.project_in);
    if (!t_.positions.is_none())
      x = l_.add(fmt::format("{}.sum", name), x,
                 l_.gather(fmt::format("{}.positions", name), l_.weight(t_.positions), positions, n));
    if (!t_.token_types.is_none()) {
      const TensorId types = l_.constant(fmt::format("token_types.{}", n), Shape{n}, DType::I32,
                                         [n] { return std::vector<double>(static_cast<std::size_t>(n), 0.0); });
      x = l_.add(fmt::format("{}.types_sum", name), x,
                 l_.gather(fmt::format("{}.types", name), l_.weight(t_.token_types), types, n));
    }
    if (t_.embedding_norm) x = l_.norm(fmt::format("{}.norm", name), x, n, *t_.embedding_norm);
    return l_.dropout(fmt::format("{}.dropout", name), x);
  }

  TensorId embed_patches(TensorId images, std::int64_t sequence) {
    const std::int64_t patches = sequence - 1, b = sizes_.batch, width = t_.channels * t_.patch_size * t_.patch_size;
    Tape& tape = l_.tape();
    const TensorId cells = l_.activation_tensor("patchify", Shape{b * patches, width});
    tape.add("patchify", Patchify{b, t_.channels, t_.image_size, t_.patch_size, l_.sizes().dtype},
             {reads(images), writes(cells)});
    const TensorId embedded = l_.linear("patch_embedding", cells, b * patches, *t_.patches);
    const TensorId with_class = l_.activation_tensor("class_token", Shape{b * sequence, t_.hidden});
    tape.add("class_token", ConcatPrefix{b, patches, t_.hidden, l_.sizes().dtype},
             {reads(embedded), reads(l_.weight(t_.class_token)), writes(with_class)});
    const TensorId x = l_.activation_tensor("position_embedding", Shape{b * sequence, t_.hidden});
    tape.add("position_embedding", AddRows{b * sequence, t_.hidden, sequence, l_.sizes().dtype},
             {reads(with_class), reads(l_.weight(t_.positions)), writes(x)});
    l_.set_sequence(sequence);
    return l_.dropout("embedding.dropout", x);
  }

  /// T5: one table of biases serves all blocks of a stack.
  void share_bias(const std::vector<Block>& stack, TensorId bias_index, std::string_view name) {
    l_.set_bias({});
    if (stack.empty() || !stack.front().attention.relative_bias) return;
    const RelativeBias r = *stack.front().attention.relative_bias;
    const std::int64_t heads = stack.front().attention.heads, s = l_.sizes().sequence;
    const bool extend = l_.sizes().cache_use == CacheUse::Extend;
    const std::int64_t keys = extend ? cache_->capacity : s;
    const TensorId index =
        extend ? bias_index : l_.constant(fmt::format("{}.buckets.{}", name, s), Shape{s, s}, DType::I32, [=] {
          return t5_buckets(0, s, s, r.buckets, r.max_distance, r.bidirectional);
        });
    const TensorId bias = l_.activation_tensor(fmt::format("{}.relative_bias", name), Shape{heads, s, keys});
    l_.tape().add(fmt::format("{}.relative_bias", name),
                  RelativeBiasForward{.heads = heads,
                                      .q = s,
                                      .buckets = r.buckets,
                                      .kv = extend ? Extent{s, Symbol::Context} : Extent{s},
                                      .dtype = l_.sizes().dtype},
                  {reads(l_.weight(r.table)), reads(index), writes(bias)});
    l_.set_bias(bias);
  }

  TensorId last_rows(TensorId x) {
    const std::int64_t b = sizes_.batch, s = l_.sizes().sequence;
    if (const PagedRows* paged = l_.paged()) return l_.gather("last_rows", x, paged->last, paged->sequences);
    if (s == 1) return x;
    if (!last_.is_none()) return l_.gather("last_rows", x, last_, b);
    const TensorId index = l_.constant(fmt::format("last_rows.{}x{}", b, s), Shape{b}, DType::I32,
                                       [=] { return repeated_range(s - 1, s, b, 1); });
    return l_.gather("last_rows", x, index, b);
  }

  TensorId decode_head(TensorId x, LogitRows which) {
    x = l_.restore(x);
    std::int64_t n = l_.outer_rows();
    if (which == LogitRows::Last) {
      x = last_rows(x);
      n = l_.paged() ? l_.paged()->sequences : sizes_.batch;
    }
    if (t_.decoder_norm) x = l_.norm("final_norm", x, n, *t_.decoder_norm);
    if (t_.project_out) x = l_.project_outside("project_out", x, *t_.project_out);
    return l_.bounded_logits(l_.logits("logits", l_.scale("output_scale", x, t_.output_scale), t_.output));
  }

  /// Encoders: masked-language-model head over all rows, or a classifier over the first row of each sample.
  TensorId head(TensorId x, std::int64_t sequence) {
    if (t_.head == Head::MaskedLanguageModel || t_.head == Head::LanguageModel) {
      if (t_.transform) {
        const std::int64_t n = l_.outer_rows();
        x = l_.project_outside("head.transform", x, *t_.transform);
        x = l_.activation("head.act", t_.transform_activation, x, n, t_.transform->out);
        if (t_.transform_norm) x = l_.norm("head.norm", x, n, *t_.transform_norm);
      }
      return l_.logits("logits", x, t_.output);
    }
    const std::int64_t b = sizes_.batch;
    const TensorId index = l_.constant(fmt::format("first_rows.{}x{}", b, sequence), Shape{b}, DType::I32,
                                       [=] { return repeated_range(0, sequence, b, 1); });
    x = l_.gather("first_rows", x, index, b);
    if (t_.pooler)
      x = l_.activation("pooler.act", ActivationKind::Tanh, l_.linear("pooler", x, b, *t_.pooler), b, t_.pooler->out);
    return t_.output.out > 0 ? l_.linear("logits", x, b, t_.output) : x;
  }

  Layers& l_;
  const Transformer& t_;
  NetworkSizes sizes_;
  KvCache* cache_;
  TensorId last_;
};

}  // namespace

TensorId lower_transformer(Layers& layers, const Transformer& t, const NetworkInputs& inputs, const NetworkSizes& sizes,
                           KvCache* cache, LogitRows rows) {
  return TransformerLowering{layers, t, sizes, cache}.run(inputs, rows);
}

TensorId lower_span(Layers& layers, const NetworkInputs& inputs, const NetworkSizes& sizes, const BlockSpan& span,
                    TensorId x, KvCache* cache, LogitRows rows) {
  return TransformerLowering{layers, std::get<Transformer>(layers.outside().local.network.network), sizes, cache}
      .run_span(inputs, span, x, rows);
}

}  // namespace orrery
