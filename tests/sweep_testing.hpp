// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/app/sweep/sweep_record.hpp"
#include "tests/app_testing.hpp"

namespace orrery::testing {

/// A small step on a cluster of two nodes; some of its meshes and batches do not go together.
inline constexpr const char* kSweptScenario =
    "model: gpt2-tiny\ncluster: dgx_h100\nstrategy: [{ddp: {mesh: dp4}}]\n"
    "workload: {train: {batch: 8, sequence: 64}}\n";

inline CommandResult swept(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "sweep");
  return orrery(arguments);
}

inline nlohmann::json parsed(const CommandResult& r) {
  INFO(r.err);
  REQUIRE_FALSE(r.out.empty());
  return nlohmann::json::parse(r.out);
}

inline std::set<std::string> ids_in(const std::string& folder) {
  std::set<std::string> ids;
  for (const std::string& path : shards_in(folder + "/shards"))
    for (const SweepRecord& r : parse_shard(read_file(path)).records) CHECK(ids.insert(r.id).second);
  return ids;
}

}  // namespace orrery::testing
