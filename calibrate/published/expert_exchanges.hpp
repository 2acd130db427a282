// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "calibrate/published/skip.hpp"
#include "hw_models/expert_exchange.hpp"
#include "sim/base/csv.hpp"

namespace orrery {

struct PublishedExpertExchange {
  ExpertExchangeShape shape;
  Seconds measured;
};
/// A dispatch, a combine, or both.
using ExpertExchangeRow = std::variant<std::vector<PublishedExpertExchange>, Skip>;

constexpr std::string_view kExpertExchangeColumns = "gpu mode num_tokens topk n_experts dispatch_us/combine_us";

ExpertExchangeRow read_expert_exchange_row(const CsvRow& row);

/// A law for each mode and direction, by relative least squares.
ExpertExchangeModel fit_expert_exchange(const std::vector<PublishedExpertExchange>& rows);

}  // namespace orrery
