// SPDX-License-Identifier: Apache-2.0
// The experts of one MoE layer on the busiest rank of moe_tp × moe_ep: gate and up projection in one grouped product,
// the gated activation, and the down projection.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/published/kernels.hpp"

namespace orrery {
namespace {

/// Loads of experts with density x^−a between 1 and `most`.
struct PowerLaw {
  double a, most;
  double moment(double p) const { return integral(p - a + 1) / integral(1 - a); }
  double integral(double e) const { return std::abs(e) < 1e-9 ? std::log(most) : (std::pow(most, e) - 1) / e; }
  double skew() const { return most / moment(1); }  // of the largest load over the mean
};

/// The law up to 0.8 of the tokens, as the harness draws it; lower where one expert would get more than all tokens.
PowerLaw spread_law(double exponent, double tokens, double most_skew) {
  constexpr double kMostShare = 0.8;
  PowerLaw law{exponent, std::max(2.0, kMostShare * tokens)};
  double low = 1, high = law.most;
  if (law.skew() > most_skew)
    for (int i = 0; i < 40; ++i) {
      law.most = std::sqrt(low * high);
      (law.skew() > most_skew ? high : low) = law.most;
    }
  return law;
}

/// Mean of the largest of n standard normal numbers, n = 1, 2, 4 … 256; linear in log₂ n between them.
double largest_of(double n) {
  constexpr double kMeans[] = {0, 0.564, 1.029, 1.424, 1.766, 2.070, 2.343, 2.595, 2.826};
  const double at = std::clamp(std::log2(n), 0.0, double(std::size(kMeans) - 1));
  const auto i = std::min(static_cast<std::size_t>(at), std::size(kMeans) - 2);
  return kMeans[i] + (at - double(i)) * (kMeans[i + 1] - kMeans[i]);
}

struct Load {
  double rank = 1;  // rows of the busiest rank over the mean
  double skew = 1;  // rows of the fullest expert over the mean
};

/// The busiest rank is the one measured. The largest of `ep` sums of e loads of skewness γ is about
/// mean + σ·√e·(z + (z² − 1)·γ/(6·√e)) with z that of normal numbers (Cornish and Fisher).
Load load_of(double exponent, double tokens, double topk, double experts, double ep) {
  const double most_skew = std::max(1.01, experts / topk), per_rank = experts / ep;
  const PowerLaw law = spread_law(exponent, tokens, most_skew);
  const double mean = law.moment(1), second = law.moment(2), sigma = std::sqrt(std::max(1e-12, second - mean * mean));
  const double third = law.moment(3) - 3 * mean * second + 2 * mean * mean * mean,
               gamma = third / (sigma * sigma * sigma);
  const double z = largest_of(ep), root = std::sqrt(per_rank);
  const double above =
      sigma / mean / root * (z + std::max(0.0, z * z - 1) * gamma / (6 * root)) * std::sqrt(1 - 1 / ep);
  const double most = std::min(law.skew(), ep * std::min(1.0, per_rank / topk));
  return {ep > 1 ? std::clamp(1 + above, 1.0, std::max(1.0, most)) : 1.0, law.skew()};
}

/// "power_law_1.2" → 1.2; nothing for balanced and unknown names.
std::optional<double> exponent_of(std::string_view name) {
  constexpr std::string_view kPrefix = "power_law_";
  return name.starts_with(kPrefix) ? parse_number(name.substr(kPrefix.size())) : std::nullopt;
}

}  // namespace

KernelRow read_moe_row(const CsvRow& row) {
  auto begun = begin_kernel_row(
      row, "dtype num_tokens hidden expert_ffn topk n_experts moe_tp moe_ep token_distribution", "latency_us", 1e-6);
  if (std::holds_alternative<Skip>(begun)) return begun;
  KernelCase c = std::get<KernelCase>(std::move(begun));
  const std::optional<DType> type = dtype_of(row["dtype"]);
  if (!type) return Skip{SkipReason::UnsupportedPrecision, std::string{row["dtype"]}};
  const std::string_view spread = row["token_distribution"];
  const std::optional<double> exponent = exponent_of(spread);
  if (!exponent && !spread.empty() && spread != "balanced")
    return Skip{SkipReason::UnsupportedFeature, fmt::format("token_distribution '{}'", spread)};
  Sizes size{row};
  const std::int64_t tokens = size["num_tokens"], hidden = size["hidden"], ffn = size["expert_ffn"];
  const std::int64_t topk = size["topk"], experts = size["n_experts"];
  const std::int64_t tp = row.has("moe_tp") ? size["moe_tp"] : 1, ep = row.has("moe_ep") ? size["moe_ep"] : 1;
  if (!size.missing().empty()) return size.skip();
  const Load load = exponent ? load_of(*exponent, double(tokens), double(topk), double(experts), double(ep)) : Load{};
  const double mean_rows = double(tokens * topk) / double(ep);
  const auto rows = std::max<std::int64_t>(1, std::llround(mean_rows * load.rank));
  const std::int64_t inner = std::max<std::int64_t>(1, ffn / tp), groups = std::max<std::int64_t>(1, experts / ep);
  const GroupedGemm up{.rows = rows, .n = 2 * inner, .k = hidden, .groups = groups, .dtype = *type, .skew = load.skew};
  const GroupedGemm down{.rows = rows, .n = hidden, .k = inner, .groups = groups, .dtype = *type, .skew = load.skew};
  c.works = {up, GatedForward{.rows = rows, .cols = inner, .dtype = *type}, down};
  c.op = fmt::format("moe {}", spread.empty() ? "balanced" : spread);
  c.size = 6 * mean_rows * double(hidden) * double(inner);
  return c;
}

}  // namespace orrery
