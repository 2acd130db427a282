// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/network.hpp"

#include <fmt/format.h>

#include "sim/strategy/indices.hpp"

namespace orrery {
namespace {

/// Inputs of one kind over all microbatches as one tensor with a port, cut into one view per microbatch.
class InputMaker {
 public:
  InputMaker(PlanBuilder& builder, std::int64_t microbatches) : builder_{builder}, microbatches_{microbatches} {}

  std::vector<TensorId> make(std::string_view port, Shape shape, DType dtype) {
    const std::int64_t each = shape.elements();
    const TensorId all =
        builder_.tensor(fmt::format("input.{}.{}", port, microbatches_ * each), Shape{microbatches_, each},
                        {.dtype = dtype, .role = TensorRole::Input, .persistent = true});
    builder_.port(std::string{port}, all);
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
  const bool extend = layers.sizes().cache_use == CacheUse::Extend;
  const bool pair = !t.encoder.empty() && !t.decoder.empty();
  if (!(pair && extend)) each("tokens", Shape{rows}, DType::I32, &NetworkInputs::tokens);
  if (pair)
    each("decoder_tokens", Shape{sizes.batch * sizes.target_sequence}, DType::I32, &NetworkInputs::decoder_tokens);
  if (t.positions.is_none()) return;
  if (extend) {
    each("positions", Shape{rows}, DType::I32, &NetworkInputs::positions);
    return;
  }
  const std::int64_t first = t.position_offset, s = sizes.sequence, b = sizes.batch;
  const TensorId positions = layers.constant(fmt::format("positions.{}x{}", b, s), Shape{rows}, DType::I32,
                                             [=] { return repeated_range(first, 1, s, b); });
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

std::vector<NetworkInputs> make_inputs(PlanBuilder& builder, Layers& layers, const NetworkSizes& sizes,
                                       std::int64_t microbatches) {
  std::vector<NetworkInputs> out(static_cast<std::size_t>(microbatches));
  InputMaker make{builder, microbatches};
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

TensorId lower_network(Layers& layers, const NetworkInputs& inputs, const NetworkSizes& sizes, KvCache* cache,
                       LogitRows rows) {
  const Model& model = layers.model();
  if (const auto* t = std::get_if<Transformer>(&model.network))
    return lower_transformer(layers, *t, inputs, sizes, cache, rows);
  if (const auto* s = std::get_if<Swin>(&model.network)) return lower_swin(layers, *s, inputs, sizes);
  return lower_dlrm(layers, std::get<Dlrm>(model.network), inputs, sizes);
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
