// SPDX-License-Identifier: Apache-2.0
#include "sim/model/parameters.hpp"

#include <fmt/format.h>

#include "sim/model/config_reader.hpp"

namespace orrery {
namespace {

/// The product of the dimensions; nothing when it passes the limit.
std::optional<std::int64_t> product_below_limit(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  for (const std::int64_t d : shape)
    if (__builtin_mul_overflow(product, d, &product) || product > ModelLimits::kParameters) return std::nullopt;
  return product;
}

}  // namespace

ParameterId ParameterSet::add(Parameter parameter) {
  const auto elements = product_below_limit(parameter.shape);
  if (!elements || total_ + *elements > ModelLimits::kParameters)
    throw UserError{at(config_,
                       fmt::format("the model has more than 2^53 parameters, counted up to '{}'", parameter.name),
                       "check the sizes of this configuration")};
  total_ += *elements;
  parameter.layer = layer_;
  model_.parameters.push_back(std::move(parameter));
  return ParameterId{model_.parameters.size() - 1};
}

ParameterId ParameterSet::matrix(std::string name, std::vector<std::int64_t> shape, std::optional<double> deviation) {
  return add({.name = std::move(name), .shape = std::move(shape), .deviation = deviation.value_or(deviation_)});
}

ParameterId ParameterSet::vector(std::string name, std::int64_t size, Init init) {
  return add({.name = std::move(name), .shape = {size}, .init = init, .deviation = deviation_, .decay = false});
}

Linear ParameterSet::linear(const std::string& prefix, std::int64_t in, std::int64_t out,
                            const LinearOptions& options) {
  Linear linear{.in = in, .out = out, .layout = options.layout};
  auto shape = options.layout == WeightLayout::OutIn ? std::vector{out, in} : std::vector{in, out};
  linear.weight = matrix(prefix + ".weight", std::move(shape), options.deviation);
  if (options.bias) linear.bias = vector(prefix + ".bias", out, Init::Zeros);
  return linear;
}

Linear ParameterSet::patches(const std::string& prefix, std::int64_t channels, std::int64_t patch, std::int64_t out) {
  Linear linear{.in = channels * patch * patch, .out = out};
  linear.weight = matrix(prefix + ".weight", {out, channels, patch, patch});
  linear.bias = vector(prefix + ".bias", out, Init::Zeros);
  return linear;
}

Norm ParameterSet::layer_norm(const std::string& prefix, std::int64_t dim, double epsilon) {
  Norm norm{.kind = NormKind::Layer, .dim = dim, .epsilon = epsilon};
  norm.weight = vector(prefix + ".weight", dim, Init::Ones);
  norm.bias = vector(prefix + ".bias", dim, Init::Zeros);
  return norm;
}

Norm ParameterSet::rms_norm(const std::string& prefix, std::int64_t dim, double epsilon, NormKind kind) {
  Norm norm{.kind = kind, .dim = dim, .epsilon = epsilon};
  norm.weight = vector(prefix + ".weight", dim, kind == NormKind::RmsOnePlus ? Init::Zeros : Init::Ones);
  return norm;
}

TokenEmbedding ParameterSet::embedding(const std::string& prefix, std::int64_t vocab, std::int64_t dim,
                                       std::optional<double> deviation) {
  return {.table = matrix(prefix + ".weight", {vocab, dim}, deviation), .vocab = vocab, .dim = dim};
}

}  // namespace orrery
