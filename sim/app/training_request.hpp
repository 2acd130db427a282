// SPDX-License-Identifier: Apache-2.0
// What commands that look for the best way to train share: a model, a cluster and a batch, and one way tried.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/app/command.hpp"
#include "sim/app/reproduce/reproduction.hpp"
#include "sim/model/model.hpp"

namespace orrery {

/// Bytes of each memory that a rank may use; 0: there is none.
struct MemoryRoom {
  double device = 0, host = 0, disk = 0;
};

/// What is to be trained, and on what.
struct TrainingRequest {
  Node model, cluster;  // documents, not names
  std::int64_t ranks = 1;
  std::int64_t batch = 1;  // samples per step, of all ranks together
  std::int64_t microbatches = 1;
  std::int64_t sequence = 1024;
  std::string dtype = "bf16";
  MemoryRoom room;
  double reserved = 0;  // part of a device's memory that is kept for what software holds beside the plan

  /// Without what is reserved.
  MemoryRoom usable() const { return {(1 - reserved) * room.device, room.host, room.disk}; }
};

/// The options --cluster, --devices, --sequence and --dtype, and what they and the name of a model come to.
class TrainingTarget {
 public:
  std::vector<Flag> flags();
  /// Of a batch of 1. Throws UserError for what cannot be read.
  TrainingRequest read(const Wiring& wiring, const std::string& model);

  const std::string& model() const { return model_; }
  const std::string& cluster() const { return cluster_; }
  const Model& network() const { return network_; }
  std::int64_t devices_per_node() const { return devices_per_node_; }
  /// Whether devices have memory of their own, beside that of their hosts.
  bool has_own_memory() const { return has_own_memory_; }
  /// "llama-3-8b (8.03 B parameters) on dgx_h100: 8 devices, WORK, bf16", and a line with the memory of a device.
  std::string head(const TrainingRequest& request, const std::string& work) const;
  /// The request by the names of model and cluster, where it is they that were given: for a scenario file.
  TrainingRequest named(TrainingRequest request) const;
  /// The same as `head` for --json.
  nlohmann::json json(const TrainingRequest& request) const;

 private:
  std::string model_, cluster_ = "host", dtype_;
  Model network_;
  std::int64_t devices_per_node_ = 1;
  bool has_own_memory_ = false;
  std::optional<std::int64_t> devices_, sequence_;
};

/// A step under one strategy and one kind of recomputation.
struct TrainingTrial {
  std::string recompute;
  std::string limit;              // what is too small, or why the way is not open; empty when it fits
  std::string slowed;             // what takes most of the time: "compute 83 %"
  std::vector<TierReport> tiers;  // peaks of a rank
  double step = 0, low = 0, high = 0, tokens_per_second = 0, mfu = 0;

  bool fits() const { return limit.empty(); }
  /// Whether it was predicted; else the strategy is not open to the model or the batch.
  bool is_open() const { return step > 0; }
  /// At most the peak of a rank on the device; nothing where it was not predicted.
  std::optional<double> device_bytes() const;
  /// "31.2 GiB" of one tier or both; "-": nothing.
  std::string peak(Tier a, Tier b) const;
  /// Whether this one is to be preferred: one that fits to one that does not, then the faster or the smaller one.
  bool is_better_than(const TrainingTrial& other) const;
};

/// So many devices of a cluster: nodes with fewer of them, or fewer nodes. Throws UserError where they are not as many
/// on each node, or more than there are.
void use_devices(Node& document, const Cluster& cluster, std::int64_t devices);

/// The scenario file of a training step: `strategy` as one entry of its list, `recompute` as a value or with more keys
/// behind it ("full, microbatches: 8").
std::string training_scenario(const TrainingRequest& request, const std::string& strategy,
                              const std::string& recompute);
/// Predicts it. A refusal is a trial that is not open. `report`, if any, gets the whole report.
TrainingTrial predict_training(const Reproducer& reproducer, const TrainingRequest& request,
                               const std::string& strategy, const std::string& recompute, Report* report = nullptr);

nlohmann::json to_json(const TrainingTrial& trial);

}  // namespace orrery
