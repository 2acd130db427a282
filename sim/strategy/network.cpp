// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/network.hpp"

#include <fmt/format.h>

#include "sim/strategy/indices.hpp"

namespace orrery {
namespace {

/// Inputs of one kind over all microbatches as one tensor with a port, cut into one view per microbatch.
class InputMaker {
 public:
  InputMaker(PlanBuilder& builder, const Slices& slices, std::int64_t microbatches)
      : builder_{builder}, slices_{slices}, microbatches_{microbatches} {}

  std::vector<TensorId> make(std::string_view port, Shape shape, DType dtype) {
    const std::int64_t each = shape.elements();
    const TensorId all =
        builder_.tensor(fmt::format("input.{}.{}", port, microbatches_ * each), Shape{microbatches_, each},
                        {.dtype = dtype, .role = TensorRole::Input, .persistent = true});
    builder_.port(std::string{port}, all, port_rows(slices_));
    std::vector<TensorId> out;
    for (std::int64_t m = 0; m < microbatches_; ++m) {
      Layout layout = Layout::contiguous(shape);
      layout.offset = m * each;
      out.push_back(builder_.view(all, fmt::format("input.{}.{}", port, m), layout));
    }
    return out;
  }

 private:
  PlanBuilder& builder_;
  const Slices& slices_;
  std::int64_t microbatches_;
};

void make_transformer_inputs(InputMaker& make, Layers& layers, const Transformer& t, const NetworkSizes& sizes,
                             std::vector<NetworkInputs>& out) {
  const std::int64_t rows = sizes.batch * sizes.sequence;
  const auto each = [&](std::string_view port, Shape shape, DType dtype, auto member) {
    const auto tensors = make.make(port, shape, dtype);
    for (std::size_t m = 0; m < out.size(); ++m) out[m].*member = tensors[m];
  };
  if (t.patches) {
    each("images", Shape{sizes.batch, t.channels, t.image_size, t.image_size}, layers.sizes().dtype,
         &NetworkInputs::images);
    return;
  }
  const CacheUse use = layers.sizes().cache_use;
  const bool extend = use == CacheUse::Extend || use == CacheUse::Paged || use == CacheUse::Tree;
  const bool pair = !t.encoder.empty() && !t.decoder.empty();
  if (!(pair && extend)) each("tokens", Shape{rows}, DType::I32, &NetworkInputs::tokens);
  if (pair)
    each("decoder_tokens", Shape{sizes.batch * sizes.target_sequence}, DType::I32, &NetworkInputs::decoder_tokens);
  if (t.positions.is_none() || layers.sizes().documents.count > 0) return;
  if (extend) {
    each("positions", Shape{rows}, DType::I32, &NetworkInputs::positions);
    return;
  }
  const TensorId positions = layers.rank_constant(
      fmt::format("positions.{}x{}", sizes.batch, sizes.sequence), Shape{layers.outer_rows()}, DType::I32,
      [slices = layers.slices(), first = t.position_offset, b = sizes.batch](std::span<const std::int64_t> at) {
        std::vector<std::int64_t> all;
        const std::vector<std::int64_t> once = slices.positions(at);
        for (std::int64_t i = 0; i < b; ++i)
          for (const std::int64_t p : once) all.push_back(first + p);
        all = slices.outer(std::move(all), at);
        return std::vector<double>(all.begin(), all.end());
      });
  for (NetworkInputs& in : out) in.positions = positions;
}

void make_dlrm_inputs(InputMaker& make, Layers& layers, const Dlrm& d, const NetworkSizes& sizes,
                      std::vector<NetworkInputs>& out) {
  const auto dense = make.make("dense", Shape{sizes.batch, d.dense_features}, layers.sizes().dtype);
  for (std::size_t m = 0; m < out.size(); ++m) out[m].dense = dense[m];
  const std::int64_t b = sizes.batch, per = d.lookups_per_table;
  const TensorId offsets = layers.constant(fmt::format("bag_offsets.{}x{}", b, per), Shape{b + 1}, DType::I32,
                                           [=] { return repeated_range(0, per, b + 1, 1); });
  for (std::size_t t = 0; t < d.tables.size(); ++t) {
    const auto bags = make.make(fmt::format("bag.{}", t), Shape{b * per}, DType::I32);
    for (std::size_t m = 0; m < out.size(); ++m) {
      out[m].bags.push_back(bags[m]);
      out[m].offsets.push_back(offsets);
    }
  }
}

}  // namespace

std::vector<TensorId> tensors_of(const NetworkInputs& in) {
  std::vector<TensorId> out{in.tokens, in.positions, in.decoder_tokens, in.bias_index, in.images, in.dense};
  out.insert(out.end(), in.bags.begin(), in.bags.end());
  out.insert(out.end(), in.offsets.begin(), in.offsets.end());
  std::erase_if(out, [](TensorId t) { return t.is_none(); });
  return out;
}

std::vector<NetworkInputs> make_inputs(PlanBuilder& builder, Layers& layers, const NetworkSizes& sizes,
                                       std::int64_t microbatches) {
  std::vector<NetworkInputs> out(static_cast<std::size_t>(microbatches));
  InputMaker make{builder, layers.slices(), microbatches};
  const Model& model = layers.model();
  if (const auto* t = std::get_if<Transformer>(&model.network)) make_transformer_inputs(make, layers, *t, sizes, out);
  if (const auto* d = std::get_if<Dlrm>(&model.network)) make_dlrm_inputs(make, layers, *d, sizes, out);
  if (const auto* s = std::get_if<Swin>(&model.network)) {
    const auto images =
        make.make("images", Shape{sizes.batch, s->channels, s->image_size, s->image_size}, layers.sizes().dtype);
    for (std::size_t m = 0; m < out.size(); ++m) out[m].images = images[m];
  }
  return out;
}

std::vector<DocumentRows> make_document_rows(PlanBuilder& builder, Layers& layers, const NetworkSizes& sizes,
                                             std::int64_t microbatches, bool with_positions) {
  std::vector<DocumentRows> out(static_cast<std::size_t>(microbatches));
  InputMaker make{builder, layers.slices(), microbatches};
  const Shape rows{sizes.batch * sizes.sequence};
  const auto first_keys = make.make("first_keys", rows, DType::I32);
  for (std::size_t m = 0; m < out.size(); ++m) out[m].first_keys = first_keys[m];
  if (!with_positions) return out;
  const auto positions = make.make("positions", rows, DType::I32);
  for (std::size_t m = 0; m < out.size(); ++m) out[m].positions = positions[m];
  return out;
}

std::function<std::vector<std::int64_t>(std::span<const std::int64_t>)> port_rows(const Slices& slices) {
  if (slices.mesh.size() == 1) return {};
  if (slices.roles.cp) return [slices](std::span<const std::int64_t> at) { return slices.rows(at); };
  return [slices](std::span<const std::int64_t> at) { return slices.samples(at); };
}

TensorId lower_network(Layers& layers, const NetworkInputs& inputs, const NetworkSizes& sizes, KvCache* cache,
                       LogitRows rows) {
  const Model& model = layers.model();
  if (const auto* t = std::get_if<Transformer>(&model.network))
    return lower_transformer(layers, *t, inputs, sizes, cache, rows);
  layers.weights().before(layers.tape(), kEmbeddingPart);
  const auto* s = std::get_if<Swin>(&model.network);
  const TensorId out =
      s ? lower_swin(layers, *s, inputs, sizes) : lower_dlrm(layers, std::get<Dlrm>(model.network), inputs, sizes);
  layers.weights().after(layers.tape(), kEmbeddingPart);
  return out;
}

std::int64_t output_classes(const Model& model) {
  if (const auto* t = std::get_if<Transformer>(&model.network)) return t->output.out;
  if (const auto* s = std::get_if<Swin>(&model.network)) return s->classifier.out;
  return 1;
}

std::int64_t output_rows(const Model& model, const NetworkSizes& sizes) {
  const auto* t = std::get_if<Transformer>(&model.network);
  if (!t || t->head == Head::Classifier) return sizes.batch;
  return sizes.batch * (!t->encoder.empty() && !t->decoder.empty() ? sizes.target_sequence : sizes.sequence);
}

}  // namespace orrery
