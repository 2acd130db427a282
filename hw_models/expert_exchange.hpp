// SPDX-License-Identifier: Apache-2.0
// Dispatch and combine of the tokens of MoE layers by kernels of their own, as DeepEP has them.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "hw_models/device_model.hpp"

namespace orrery {

/// Low latency: each token goes to each of its experts at once. Normal: once to each rank that holds some of them, by
/// as many SMs as it is given.
enum class ExpertMode : std::uint8_t { LowLatency, Normal };
enum class ExpertDirection : std::uint8_t { Dispatch, Combine };
std::span<const EnumName<ExpertMode>> enum_names(ExpertMode);
std::span<const EnumName<ExpertDirection>> enum_names(ExpertDirection);

/// What one rank sends, and gets back in the combine.
struct ExpertExchangeShape {
  ExpertMode mode = ExpertMode::Normal;
  ExpertDirection direction = ExpertDirection::Dispatch;
  std::int64_t ranks = 8, tokens = 1, hidden = 4096, top_k = 8, experts = 256;
  std::int64_t sms = 20;

  /// The ranks that a token reaches when its experts are drawn evenly: n·(1 − C(E − E/n, k)/C(E, k)).
  double ranks_reached() const;
  /// Dispatched in 8 bits, combined in 16.
  Bytes bytes() const;
};

/// What the time is linear in, bytes b = 1 to the experts (8 bits), 2 back. Low latency, with the SMs n of a device of
/// `sms` that get an expert each, or as many as it takes for all to have equally many, n = ⌈E / ⌈E/sms⌉⌉:
///   1, bytes, tokens · experts of each, hidden, experts, experts of each, tokens / n
/// Normal, with s̄ = (sms⁻⁴ + full⁻⁴)^¼, which is 1/sms until so many SMs fill the links:
///   1, bytes · s̄, tokens · s̄, tokens · ranks reached · s̄, tokens · experts · s̄, hidden,
///   tokens · hidden · b · s̄         rows that are read to be sent, or added up when they have come back
///   bytes · s̄ · √(sms / tokens)     choices are random: of queues with n rows in the mean the fullest has n + z·√n
std::vector<double> features_of(const ExpertExchangeShape& shape, double full);
std::size_t num_features(ExpertMode mode);

/// What ln σ is linear in: 1, ln top_k, ln tokens, (ln tokens)². Of few tokens single draws decide, of many the queues.
std::array<double, 4> spread_features(double top_k, double tokens);

/// t = Σ coefficientᵢ · featureᵢ. Leaves out skewed routing, and ranks beyond one node.
struct ExpertExchangeLaw {
  ExpertMode mode = ExpertMode::Normal;
  ExpertDirection direction = ExpertDirection::Dispatch;
  std::vector<Seconds> coefficients;
  double full = 20;
  double deviation = 0.1;
  std::vector<double> spread = {};
  std::int64_t most_tokens = std::int64_t{1} << 40;
  Bytes reach = 1e30_B;
  double growth = 0;

  Seconds time(const ExpertExchangeShape& shape) const;
  /// Of ln(measured / time): exp(spread · features), or `deviation` of laws without it; beyond the reach
  /// hypot(that, growth · max(1, ln(bytes / reach))).
  double deviation_at(const ExpertExchangeShape& shape) const;

  template <class V>
  void visit(V& v) {
    v.required("mode", mode, "which kernels");
    v.required("direction", direction, "to the experts or back");
    v.required("coefficients", coefficients, "of the features, in their order", at_least(Seconds{0}));
    v.field("full", full, "SMs: of normal kernels that fill the links, of low-latency ones that there are",
            at_least(1));
    v.field("deviation", deviation, "standard deviation of ln(measured / predicted), of rows left out", at_least(0));
    v.field("spread", spread, "coefficients of its logarithm in 1, ln top_k, ln tokens, (ln tokens)²; empty: the same");
    v.field("most_tokens", most_tokens, "tokens beyond which it stays as it is", at_least(1));
    v.field("reach", reach, "bytes of the largest exchange that was fitted", at_least(Bytes{0}));
    v.field("growth", growth, "deviation that comes with each e-fold of bytes beyond the reach, the first at once",
            at_least(0));
  }
};

struct ExpertExchangeModel {
  Provenance provenance;
  std::vector<ExpertExchangeLaw> laws;

  const ExpertExchangeLaw& law(const ExpertExchangeShape& shape) const;

  template <class V>
  void visit(V& v) {
    v.required("provenance", provenance, "where the numbers come from");
    v.required("laws", laws, "one for each mode and direction");
  }
};

/// From a document with the one key `expert_exchange`. Throws UserError: also when a law is missing.
ExpertExchangeModel read_expert_exchange(const Node& document);
ExpertExchangeModel load_expert_exchange(std::string_view name, const std::vector<std::string>& folders);
std::string exchanges_folder();
std::string expert_exchange_file(const ExpertExchangeModel& model);

}  // namespace orrery
