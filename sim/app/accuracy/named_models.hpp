// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "sim/app/locations.hpp"
#include "sim/base/yaml.hpp"
#include "sim/model/model.hpp"

namespace orrery {

/// The model that a table names without its sizes ("nvidia/Llama-3.1-8B-Instruct-FP8"): one of `orrery list models`, or
/// gpt-oss; with positions for long contexts, and keys as `replicate_keys` has them. Null where the name is that of
/// none.
std::shared_ptr<const Model> named_model(std::string_view name, std::int64_t tp, const Locations& locations);

/// Those that the rows of tables name, each made once. Safe to use from several threads; `locations` outlives it.
class NamedModels {
 public:
  explicit NamedModels(const Locations& locations) : locations_{locations} {}
  /// As `named_model`.
  std::shared_ptr<const Model> find(std::string_view name, std::int64_t tp);
  const Locations& locations() const { return locations_; }

 private:
  const Locations& locations_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::int64_t>, std::shared_ptr<const Model>> made_;
};

/// Servers give each rank a head of keys and values of its own where there are fewer of them than ranks: copies, so
/// that the network has as many as there are ranks. Numbers of heads that do not divide stay.
void replicate_keys(Node& config, std::int64_t tp);

}  // namespace orrery
