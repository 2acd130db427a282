// SPDX-License-Identifier: Apache-2.0
// Rows of published steps, for tests.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "sim/app/accuracy/named_models.hpp"
#include "sim/app/accuracy/published_step.hpp"
#include "sim/app/wiring.hpp"

namespace orrery::testing {

inline constexpr std::string_view kHead =
    "row_id,model,layers,hidden,heads,ffn,ffn_type,vocab,seq,gpu,n_gpus,gpus_per_node,interconnect,software,precision,"
    "tp,"
    "pp,vpp,dp,shard_mode,recompute,mbs,gbs,iter_time_s\n";

inline CsvTable table(const std::string& row) { return CsvTable{std::string{kHead} + row + "\n", "rows.csv"}; }

inline const Wiring& wiring() {
  static const Wiring w{Environment{}};
  return w;
}

inline NamedModels& models() {
  static NamedModels m{wiring().locations()};
  return m;
}

inline StepOfRow read(const std::string& row) {
  const CsvTable t = table(row);
  return read_step(t.row(0), wiring().locations().clusters());
}

inline PublishedStep step(const std::string& row) {
  const StepOfRow read_row = read(row);
  REQUIRE(std::holds_alternative<PublishedStep>(read_row));
  return std::get<PublishedStep>(read_row);
}

}  // namespace orrery::testing
