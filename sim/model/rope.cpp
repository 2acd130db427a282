// SPDX-License-Identifier: Apache-2.0
#include "sim/model/rope.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

constexpr double kTwoPi = 6.283185307179586476925286766559;
constexpr double kLargest = 1e12;
constexpr std::string_view kWhere = "rope_parameters|rope_scaling", kTheta = "rope_theta";

struct Scaling {
  std::string type = "default";
  double factor = 1, low_frequency = 1, high_frequency = 4, beta_fast = 32, beta_slow = 1;
  double original_positions = 0;
  std::optional<double> mscale, mscale_all_dim, attention_factor;
  bool truncate = true;
};

/// The map with rope keys: `rope_parameters`, its part for the layer type, `rope_scaling`, or null.
const Node* rope_map(const ConfigReader& config, const RopeNeeds& needs) {
  const Node* map = config.find(kWhere);
  if (!map) return nullptr;
  if (const Node* part = map->find(needs.layer_type)) return part;
  return needs.theta_key == kTheta ? map : nullptr;
}

std::optional<double> maybe_real(ConfigReader& r, std::string_view key) {
  if (!r.find(key)) return std::nullopt;
  return r.real(key, 0, 0, kLargest);
}

Scaling read_scaling(ConfigReader& r, double max_positions) {
  Scaling s;
  s.type = r.text("rope_type|type", "default");
  s.factor = r.real("factor", 1, 1e-6, kLargest);
  s.low_frequency = r.real("low_freq_factor", 1, 1e-6, kLargest);
  s.high_frequency = r.real("high_freq_factor", 4, 1e-6, kLargest);
  s.beta_fast = r.real("beta_fast", 32, 1e-6, kLargest);
  s.beta_slow = r.real("beta_slow", 1, 1e-6, kLargest);
  s.original_positions = r.real("original_max_position_embeddings", max_positions, 1, kLargest);
  s.mscale = maybe_real(r, "mscale");
  s.mscale_all_dim = maybe_real(r, "mscale_all_dim");
  s.attention_factor = maybe_real(r, "attention_factor");
  s.truncate = r.boolean("truncate", true);
  return s;
}

double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

double yarn_attention_factor(const Scaling& s) {
  if (s.attention_factor) return *s.attention_factor;
  if (s.mscale.value_or(0) > 0 && s.mscale_all_dim.value_or(0) > 0)
    return yarn_mscale(s.factor, *s.mscale) / yarn_mscale(s.factor, *s.mscale_all_dim);
  return yarn_mscale(s.factor, 1);
}

void scale_llama3(const Scaling& s, std::vector<double>& frequencies) {
  const double span = s.high_frequency - s.low_frequency;
  for (double& f : frequencies) {
    const double turns = s.original_positions * f / kTwoPi;  // over the original length
    if (turns > s.high_frequency) continue;
    const double keep = turns < s.low_frequency || span <= 0 ? 0.0 : (turns - s.low_frequency) / span;
    f = (1 - keep) * f / s.factor + keep * f;
  }
}

void scale_yarn(const Scaling& s, double theta, double dims, std::vector<double>& frequencies) {
  const auto dimension_of_turns = [&](double turns) {
    return dims * std::log(s.original_positions / (turns * kTwoPi)) / (2 * std::log(theta));
  };
  double low = dimension_of_turns(s.beta_fast), high = dimension_of_turns(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / s.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

void apply_scaling(ConfigReader& config, const Scaling& s, double theta, double dims, RopeReading& out) {
  std::vector<double>& frequencies = out.rope.inverse_frequencies;
  if (s.type == "linear") {
    for (double& f : frequencies) f /= s.factor;
  } else if (s.type == "llama3") {
    scale_llama3(s, frequencies);
  } else if (s.type == "yarn") {
    scale_yarn(s, theta, dims, frequencies);
    out.rope.attention_factor = yarn_attention_factor(s);
    const double mscale = yarn_mscale(s.factor, s.mscale_all_dim.value_or(0));
    out.score_factor = mscale * mscale;
  } else if (s.type != "default" && s.type != "dynamic") {
    config.problem(kWhere, fmt::format("rope type '{}' is not supported", s.type),
                   "known types: default, linear, dynamic, llama3, yarn");
  }
}

}  // namespace

RopeReading read_rope(ConfigReader& config, const RopeNeeds& needs) {
  double theta = config.real(needs.theta_key, needs.theta, 1.000001, kLargest);
  double partial = config.real("partial_rotary_factor", 1, 0, 1);
  Scaling scaling;
  if (const Node* map = rope_map(config, needs)) {
    if (map->kind != Node::Kind::Map) {
      config.problem(kWhere, "rope_parameters must be a map");
      return {};
    }
    ConfigReader r{*map};
    theta = r.real(kTheta, theta, 1.000001, kLargest);
    partial = r.real("partial_rotary_factor", partial, 0, 1);
    scaling = read_scaling(r, static_cast<double>(needs.max_positions));
    r.hand_over(config);
  }
  const auto dims = static_cast<std::int64_t>(static_cast<double>(needs.head_dim) * partial);
  if (dims < 2 || dims % 2 != 0) {
    config.problem("head_dim|partial_rotary_factor|hidden_size",
                   fmt::format("rotary positions need an even number of dimensions per head, not {}", dims));
    return {};
  }
  RopeReading out;
  for (std::int64_t i = 0; i < dims / 2; ++i)
    out.rope.inverse_frequencies.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims)));
  apply_scaling(config, scaling, theta, static_cast<double>(dims), out);
  return out;
}

}  // namespace orrery
