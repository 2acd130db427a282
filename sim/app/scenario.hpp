// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/app/locations.hpp"
#include "sim/base/options.hpp"
#include "sim/engine/engine.hpp"
#include "sim/machine/cluster.hpp"
#include "sim/model/model.hpp"
#include "sim/program/embedding/cached_options.hpp"
#include "sim/program/serving/serving_options.hpp"
#include "sim/strategy/speculation/drafter.hpp"
#include "sim/strategy/speculation/token_tree.hpp"
#include "sim/strategy/workload.hpp"

namespace orrery {

/// How messages between ranks are timed.
enum class NetworkKind : std::uint8_t { ClosedForm, Flow };
std::span<const EnumName<NetworkKind>> enum_names(NetworkKind);
std::span<const EnumName<Collectives>> enum_names(Collectives);
std::span<const EnumName<Expansion>> enum_names(Expansion);

/// How the host thread of a GPU starts ops: one call for each, or all of a plan recorded as a graph and started at
/// once.
enum class LaunchRegime : std::uint8_t { Eager, Graph };
std::span<const EnumName<LaunchRegime>> enum_names(LaunchRegime);

/// How closely an execution is simulated.
struct Fidelity {
  Expansion ranks = Expansion::Folded;
  Collectives collectives = Collectives::ClosedForm;
  NetworkKind network = NetworkKind::ClosedForm;
};

/// A value that a prediction must come to.
struct Expectation {
  Node value;
  Node within;
  std::string why;

  template <class V>
  void visit(V& v) {
    v.required("value", value, "number, quantity, or true or false");
    v.field("within", within, "allowed difference: `3 %` of the value, or in its own unit; left out: none");
    v.field("why", why, "where the value comes from");
  }
};

/// Exactly one is there.
struct Workload {
  std::optional<TrainOptions> train;
  std::optional<GenerateOptions> generate;
  std::optional<InferOptions> infer;
  std::optional<ServeOptions> serve;
  std::optional<CachedTrainingOptions> cached_training;

  template <class V>
  void visit(V& v) {
    v.field("train", train, "training steps");
    v.field("generate", generate, "prefill and decode steps");
    v.field("infer", infer, "forward passes");
    v.field("serve", serve, "requests that come and are answered (`orrery serve`)");
    v.field("cached_training", cached_training, "training steps with embeddings on parameter servers, and caches");
  }
};

/// The keys of a scenario file.
struct ScenarioOptions {
  std::string summary;
  Node model, cluster;
  Node strategy;
  Workload workload;
  std::string weights, tokenizer, profile, order;
  CollectiveChoice algorithms;
  AllocatorOptions memory;
  LaunchRegime launch = LaunchRegime::Eager;
  Fidelity fidelity;
  std::vector<std::string> include;
  std::map<std::string, Expectation> expect;

  template <class V>
  void visit(V& v) {
    v.field("summary", summary, "one line for `orrery list scenarios`");
    v.required("model", model,
               "a config.json, a folder that holds one, the name of a model of `orrery list models`, or the "
               "configuration itself");
    v.field(
        "cluster", cluster,
        "a cluster file, the name of one of `orrery list clusters`, or the cluster itself; left out: this computer");
    v.field("strategy", strategy, "list of one strategy over its options; left out: single");
    v.required("workload", workload, "what is done");
    v.field("weights", weights, "safetensors file or folder; empty: drawn from the workload's seed");
    v.field("tokenizer", tokenizer, "tokenizer.json or a folder that holds one; empty: bytes");
    v.field(
        "order", order,
        "order of the ranks on the devices: factors of the mesh's axes, of which the last varies fastest; `tp8 dp4` "
        "puts neighbours on dp side by side, `row4 col4 row2 col2` tiles of 2x2; empty: as the mesh");
    v.field("algorithms", algorithms,
            "by which algorithm collectives run; left out: by formulas the faster of ring and tree, step by step the "
            "cheapest. Threads of one computer run by it; predictions of them are of what was measured");
    v.field("memory", memory, "how the memory of devices is given out, predicted and run");
    v.field("profile", profile,
            "how the software drives the hardware, one of `orrery list profiles`; empty: as well as kernels run alone");
    v.field("launch", launch,
            "how the host thread of a GPU starts ops: each by a call, or all of a plan as one recorded graph");
    v.field("ranks", fidelity.ranks, "which ranks are simulated: one of each class, or all");
    v.field("collectives", fidelity.collectives,
            "a collective is timed by a formula, or by the messages of its algorithm");
    v.field("network", fidelity.network,
            "how messages between ranks are timed: by formulas, or as flows of SimGrid (every rank is simulated)");
    v.field("include", include, "files to read before this one, relative to it; later ones win");
    v.field("expect", expect, "what predictions must come to, by metric; checked by the tests");
  }
};

/// A scenario with everything that it names found and read.
struct Scenario {
  std::string name;
  ScenarioOptions options;
  Node document;  // as merged, each value with its origin
  Model model;    // with its drafter's parameters, where it speculates
  Cluster cluster;
  SpeculationLayout layout;  // of a generation that speculates
  Drafter drafter;
  std::string strategy;
  Node strategy_options;
  // Empty where there is none.
  std::string model_path, cluster_path, weights_path, tokenizer_path, text_path, trace_path;

  /// "train", "generate", "infer", "serve" or "cached_training".
  std::string_view workload_name() const;
  std::int64_t seed() const;
  bool speculates() const { return options.workload.generate && options.workload.generate->speculate; }
};

/// One `--set`, or a flag that stands for one.
struct Override {
  std::string change;  // "path=value"
  std::string source;  // "--set"
};

/// The document of a file under includes, environment and overrides: defaults are not in it yet.
Node merged_document(Node document, const Environment& environment, const std::vector<Override>& overrides,
                     const Locations& locations);
/// One override of a merged document. What sets a key below `cluster` or `model` changes a copy of the file that is
/// named there.
void apply_override(Node& document, const Override& override, const Locations& locations);

/// What a scenario file is called: as its folder, if it is a `scenario.yaml`, else as itself.
std::string scenario_name(const std::string& path);
/// Reads a scenario: file < environment < overrides from left to right. Throws UserError with every problem found.
Scenario load_scenario(const std::string& path, const Locations& locations, const Environment& environment,
                       const std::vector<Override>& overrides);
/// The same from a merged document.
Scenario make_scenario(Node document, std::string name, const Locations& locations);

/// Every key with its value; file names are absolute. Reads back as the same scenario.
Node resolved_scenario(const Scenario& scenario);
/// The same as one JSON line in which files stand by their contents; its SHA-256 is the scenario's id.
std::string canonical_scenario(const Scenario& scenario);

}  // namespace orrery
