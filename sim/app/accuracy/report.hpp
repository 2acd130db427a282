// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/app/accuracy/score.hpp"
#include "sim/app/console.hpp"

namespace orrery {

/// One quantity of a table, judged.
struct JudgedQuantity {
  std::string name;
  std::vector<AccuracyPoint> points;
  Score all;
  std::vector<TableSlice> slices;
  SweepScore sweeps;
};

/// How often a yes or no was predicted right.
struct JudgedOutcome {
  std::string name;
  std::size_t rows = 0, right = 0;
  std::size_t yes = 0, yes_right = 0;  // of those measured as yes
};

struct JudgedTable {
  EvaluatedTable table;
  std::vector<JudgedQuantity> quantities;  // the main one first
  std::vector<JudgedOutcome> outcomes;
};
JudgedTable judge(EvaluatedTable table);

enum class PerRow { No, Yes };

std::string to_text(const JudgedTable& table, const Console& console);
nlohmann::json to_json(const JudgedTable& table, PerRow per_row);

}  // namespace orrery
