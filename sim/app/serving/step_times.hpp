// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "hw_models/software_profile.hpp"
#include "sim/app/serving/layer_period.hpp"
#include "sim/app/serving/serve_interval.hpp"
#include "sim/app/wiring.hpp"
#include "sim/program/serving/serving.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery {

/// What is served on what: the objects live as long as the times that are made of it.
struct Deployment {
  const Model& model;
  const Strategy& strategy;  // of one replica
  const Wiring& wiring;
  Cluster cluster;
  SoftwareProfile profile;
  ServeOptions options;
};

/// Bytes on one rank of a replica.
struct ReplicaMemory {
  Bytes capacity, weights, activations, pool;
  Bytes device, left;  // all of the device, and what weights, activations and `reserved` leave of it
  Bytes host;          // a device's share of its host's memory; 0: not known
  std::int64_t blocks = 0, host_blocks = 0;  // of keys and values
  std::vector<KvLayers> layers;              // whose keys and values they are; none: of layers that keep all

  /// The blocks of a replica with these limits.
  KvBlocks::Sizes pool_of(const ReplicaOptions& options) const;
  /// How many sequences of so many tokens they have room for, if parts of blocks counted.
  double sequences(std::int64_t tokens, std::int64_t block) const;
};

/// Times of steps from plans. A step is a template, a plan lowered for so many rows, under bindings, what its sequences
/// see of the pool:
///
///   t = host_step + sequences·host_sequence + max( body(rows) + head(sequences) + Σ attention(bindings), started )
///
/// started = layers of experts · host_experts, where steps are no graphs.
///
/// body and head are executions of plans of one and of two periods of layers (behind those in front that do not
/// repeat), continued to all layers. Attention is asked of the cost model for each step, and remembered by the numbers
/// that it depends on. Where the host or a disk sets the pace, so that more attention does not show at its full time,
/// the plans are executed for each new binding instead: `test` says which, so that what is remembered is exact.
class PlanTimes final : public StepTimes {
 public:
  explicit PlanTimes(Deployment deployment);
  ~PlanTimes() override;

  double step(const BatchShape& shape) override;
  double front(std::int64_t prompt) override;
  double swap(std::int64_t blocks) override;
  double hand_over(std::int64_t tokens) override;
  double answer() override { return d_.profile.host_answer.base(); }

  /// What a replica with these limits holds.
  ReplicaMemory memory(const ReplicaOptions& options) const;
  /// Picoseconds of a step without the host's part, with all layers lowered and executed by the engine: what `step`
  /// must come to.
  std::int64_t executed(const BatchShape& shape) const;
  /// Takes the host's times of another profile; what is remembered of the device stays.
  void set_host(const SoftwareProfile& profile);
  std::size_t num_templates() const { return templates_.size(); }
  /// How far steps may be off: as far as published times per token and to the first token were by this profile, and
  /// what buckets add.
  StepDoubt doubt() const;

 private:
  struct Template;
  enum class Regime : std::uint8_t { Eager, Graph };
  Regime regime_of(const BatchShape& shape) const;
  std::int64_t padded(std::int64_t rows, Regime regime) const;
  const Machine& machine(Regime regime) const { return regime == Regime::Graph ? graphs_ : eager_; }
  Template& find(std::int64_t rows, std::int64_t sequences, Regime regime);
  const Template& tested(std::int64_t rows, Regime regime);
  void lower_into(Template& t);
  void forget_plans(Template& t);
  std::int64_t device_time(const BatchShape& shape, Regime regime);
  std::optional<std::int64_t> body(std::int64_t rows, Regime regime);
  std::int64_t head(std::int64_t sequences, Regime regime);
  std::int64_t least(std::int64_t rows, Regime regime);
  double attention(std::size_t work, const BatchShape& shape);
  Plan lower(const Model& model, std::int64_t rows, std::int64_t sequences) const;
  Plan kernels(const Model& model, std::int64_t rows, std::int64_t sequences) const;
  std::int64_t extrapolated(const Template& t, const Bindings& bindings, Regime regime) const;
  std::int64_t continued(const Template& t, std::int64_t one, const Bindings& bindings, Regime regime) const;
  BatchShape bucketed(BatchShape shape) const;
  Bytes weights() const;
  Bytes activations(std::int64_t rows, std::int64_t sequences) const;
  std::int64_t context() const;

  Deployment d_;
  Machine eager_, graphs_;
  LayerPeriod layers_;
  std::int64_t expert_layers_ = 0;
  Model once_, twice_;
  std::map<std::tuple<std::int64_t, std::int64_t, Regime>, std::unique_ptr<Template>> templates_;
  std::vector<Template*> with_plans_;  // in the order in which they were lowered
  std::size_t room_ = 0;               // that these take
  std::map<std::pair<std::int64_t, Regime>, std::int64_t> heads_;
  std::vector<Work> attentions_;  // different ones, over all layers
  std::vector<std::int64_t> counts_;
  struct Memo {
    std::unordered_map<std::uint64_t, double> decodes;
    std::map<std::array<std::int64_t, 4>, double> prompts;
  };
  std::vector<Memo> memos_;
  mutable std::optional<Bytes> weights_;  // of a rank, once they are asked for
  mutable std::map<std::pair<std::int64_t, std::int64_t>, Bytes> activations_;
  Bindings around_;  // what a cost model may know of the rest of a step
};

/// Most tokens of a sequence: as the options say, else the positions of the model.
std::int64_t context_of(const Model& model, const ServeOptions& options);

}  // namespace orrery
