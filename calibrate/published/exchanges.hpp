// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "calibrate/fit_exchanges.hpp"
#include "calibrate/published/skip.hpp"
#include "sim/base/csv.hpp"

namespace orrery {

/// One published measurement of a collective, and the fabric (a file of hw_models/fabrics) that predicts it.
struct PublishedExchange {
  std::string row_id, gpu, source;
  std::string fabric;
  ExchangeSample sample;
  std::string key() const;  // equal for repeats
};
using ExchangeRow = std::variant<PublishedExchange, Skip>;

/// The columns of a table of collectives.
constexpr std::string_view kExchangeColumns = "op gpu n_gpus message_bytes latency_us/busbw_GBps";

/// A row whose time is missing takes it from the bus bandwidth, as nccl-tests defines it.
ExchangeRow read_exchange_row(const CsvRow& row);

/// What a collective of this size is called where errors are told apart: "all_reduce below 64 KiB".
std::string exchange_label(std::string_view op, Bytes bytes);

/// The fabric of a row, by its GPU, interconnect and number of nodes; empty when none fits.
std::string fabric_of(std::string_view gpu, std::string_view interconnect, std::int64_t nodes);

/// The parameters of one fabric from rows of its tables: curves, and what its latencies are of NCCL's, from messages of
/// up to 8 KiB. The rest stays as it is in `base`.
FabricParameters fit_fabric(FabricParameters base, const std::vector<ExchangeSample>& samples);

}  // namespace orrery
