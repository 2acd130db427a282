// SPDX-License-Identifier: Apache-2.0
#include "hw_models/expert_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "hw_models/parameters.hpp"

namespace orrery {
namespace {

bool fits(const ExpertExchangeLaw& law, ExpertMode mode, ExpertDirection direction) {
  return law.mode == mode && law.direction == direction;
}

}  // namespace

std::span<const EnumName<ExpertMode>> enum_names(ExpertMode) {
  static constexpr EnumName<ExpertMode> kNames[] = {{ExpertMode::LowLatency, "low_latency"},
                                                    {ExpertMode::Normal, "normal"}};
  return kNames;
}

std::span<const EnumName<ExpertDirection>> enum_names(ExpertDirection) {
  static constexpr EnumName<ExpertDirection> kNames[] = {{ExpertDirection::Dispatch, "dispatch"},
                                                         {ExpertDirection::Combine, "combine"}};
  return kNames;
}

double ExpertExchangeShape::ranks_reached() const {
  const double of_others = double(experts - experts / ranks);
  double none = 1;
  for (std::int64_t i = 0; i < top_k; ++i)
    none *= std::max(0.0, of_others - double(i)) / std::max(1.0, double(experts - i));
  return double(ranks) * (1 - none);
}

Bytes ExpertExchangeShape::bytes() const {
  const double copies = mode == ExpertMode::LowLatency ? double(top_k) : ranks_reached();
  return Bytes{double(tokens) * copies * double(hidden) * (direction == ExpertDirection::Dispatch ? 1 : 2)};
}

std::vector<double> features_of(const ExpertExchangeShape& s, double full) {
  const double tokens = double(s.tokens), hidden = double(s.hidden), experts = double(s.experts), k = double(s.top_k),
               bytes = s.bytes().base();
  if (s.mode == ExpertMode::LowLatency)
    return {1, bytes, tokens * k, hidden, experts, k, tokens / std::ceil(experts / std::ceil(experts / full))};
  const double sms = double(s.sms), share = std::pow(std::pow(sms, -4) + std::pow(full, -4), 0.25);
  const double each = s.direction == ExpertDirection::Dispatch ? 1 : 2;
  return {1,
          bytes * share,
          tokens * share,
          tokens * s.ranks_reached() * share,
          tokens * experts * share,
          hidden,
          tokens * hidden * each * share,
          bytes * share * std::sqrt(sms / tokens)};
}

std::size_t num_features(ExpertMode mode) { return mode == ExpertMode::LowLatency ? 7 : 8; }

Seconds ExpertExchangeLaw::time(const ExpertExchangeShape& shape) const {
  const std::vector<double> f = features_of(shape, full);
  Seconds t;
  for (std::size_t i = 0; i < std::min(f.size(), coefficients.size()); ++i) t += f[i] * coefficients[i];
  return t;
}

std::array<double, 4> spread_features(double top_k, double tokens) {
  const double l = std::log(std::max(1.0, tokens));
  return {1, std::log(std::max(1.0, top_k)), l, l * l};
}

double ExpertExchangeLaw::deviation_at(const ExpertExchangeShape& shape) const {
  double here = deviation;
  if (!spread.empty()) {
    const auto f = spread_features(double(shape.top_k), double(std::min(shape.tokens, most_tokens)));
    here = std::exp(std::inner_product(f.begin(), f.end(), spread.begin(), 0.0));
  }
  const double beyond = std::log(shape.bytes() / reach);
  return beyond > 0 ? std::hypot(here, growth * std::max(1.0, beyond)) : here;
}

const ExpertExchangeLaw& ExpertExchangeModel::law(const ExpertExchangeShape& shape) const {
  for (const ExpertExchangeLaw& l : laws)
    if (fits(l, shape.mode, shape.direction)) return l;
  bug("an exchange of experts without a law");
}

ExpertExchangeModel read_expert_exchange(const Node& document) {
  if (document.kind != Node::Kind::Map || document.fields.size() != 1 ||
      document.fields.front().first != "expert_exchange")
    throw UserError{at(document, "a file of this kind has one key, `expert_exchange`",
                       "write `expert_exchange:` above the parameters")};
  const Node& node = document.fields.front().second;
  ExpertExchangeModel model;
  std::vector<Diagnostic> problems;
  read_options(node, model, problems);
  for (const EnumName<ExpertMode>& mode : enum_names(ExpertMode{}))
    for (const EnumName<ExpertDirection>& direction : enum_names(ExpertDirection{})) {
      const auto is_it = [&](const ExpertExchangeLaw& l) {
        return fits(l, mode.value, direction.value) && l.coefficients.size() == num_features(mode.value) &&
               (l.spread.empty() || l.spread.size() == spread_features(1, 1).size());
      };
      if (std::none_of(model.laws.begin(), model.laws.end(), is_it))
        problems.push_back(at(node, fmt::format("no law for {} of {}", direction.name, mode.name),
                              fmt::format("it needs {} coefficients", num_features(mode.value))));
    }
  if (!problems.empty()) throw UserError{in_file_order(std::move(problems))};
  return model;
}

ExpertExchangeModel load_expert_exchange(std::string_view name, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const auto path = std::filesystem::path{folder} / fmt::format("{}.yaml", name);
    if (std::filesystem::exists(path)) return read_expert_exchange(read_yaml(path.string()));
  }
  throw unknown_name("exchange", name, device_names(folders));
}

std::string exchanges_folder() { return ORRERY_EXCHANGES_DIR; }

std::string expert_exchange_file(const ExpertExchangeModel& model) {
  Node document = Node::map();
  document.fields.emplace_back("expert_exchange", write_options(model));
  return "# SPDX-License-Identifier: Apache-2.0\n" + to_yaml(document);
}

}  // namespace orrery
