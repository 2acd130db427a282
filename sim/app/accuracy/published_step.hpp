// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "calibrate/published/skip.hpp"
#include "hw_models/software_profile.hpp"
#include "sim/app/accuracy/row_kind.hpp"
#include "sim/base/csv.hpp"
#include "sim/machine/cluster.hpp"
#include "sim/model/model.hpp"
#include "sim/strategy/train_step.hpp"

namespace orrery {

/// A network as a row of a table describes it: a Hugging Face configuration without its number of layers.
struct RowNetwork {
  Node config;
  std::int64_t layers = 1;

  /// The same network with so many layers.
  Model model(std::int64_t layers) const;
};

/// How a step is spread: `stages` of a pipeline with `chunks` parts each, outermost, then the axes of `inner`.
struct RowMesh {
  std::int64_t stages = 1, chunks = 1;
  std::string inner;             // "dp4 tp8", "dp2 fsdp4 tp8"
  std::int64_t inner_ranks = 1;  // of one stage
  std::int64_t replicas = 1;     // that split the samples of a microbatch
  std::int64_t sharers = 1;      // of the replicas: each has a part of what its strategy splits
  std::int64_t samples = 1;      // of a replica in a microbatch
  bool whole_experts = false;    // on the ranks of tp, too
  /// That exchange rows of experts, each so many ranks behind another.
  std::int64_t expert_ranks = 1, expert_stride = 1;

  std::string text(std::int64_t stages) const;
};

/// A training step that somebody measured, as a scenario would have it. `train.batch` and `parallel.mesh` follow from
/// the sizes at hand, see StepModel.
struct PublishedStep {
  RowNetwork network;
  RowMesh mesh;
  TrainOptions train;
  ParallelOptions parallel;
  double recomputed = 1;            // share of the blocks to which train.recompute applies
  double graphs = 0;                // share of the ops that graphs start
  bool tf32 = false;                // products of f32
  bool eager_squares = false;       // of ReLU, as eager PyTorch computes them
  double sent = 1;                  // of the bytes of exchanges of counted rows: a token goes to a node once
  Cluster cluster;                  // with as many nodes as the row has
  std::string profile;              // how the software runs on the hardware: a name of `orrery list profiles`
  bool rounds_weights = false;      // all in 16 bits behind their update, before they are cast to 8
  double cached_per_state = 0;      // bytes of each updated parameter in blocks that nothing of the update fits into
  bool first_node_watched = false;  // the published peak is that of the first stage
};

/// What the row measured: seconds of a step, and the most memory of a device where it is there.
struct MeasuredStep {
  double seconds = 0;  // 0: none, or out of memory
  std::optional<double> peak_bytes;
  bool first_step = false;  // the peak is that of the first step, whose passes have no moments beside them
  bool out_of_memory = false;
};

using NetworkOfRow = std::variant<RowNetwork, Skip>;
using StepOfRow = std::variant<PublishedStep, Skip>;

/// row_network.cpp: from layers, hidden, heads, ffn, ffn_type, vocab, experts …
NetworkOfRow read_network(const CsvRow& row);
/// row_cluster.cpp: from the GPU, how many stand in a node, and what is said of the network between nodes.
std::variant<Cluster, Skip> read_cluster_of(const CsvRow& row, const std::string& clusters_folder);
/// row_step.cpp: all of it.
StepOfRow read_step(const CsvRow& row, const std::string& clusters_folder);
/// row_measured.cpp: seconds as they stand there, else from a rate and the batch of the step.
MeasuredStep read_measured_step(const CsvRow& row, const PublishedStep& step);

/// row_step.cpp: the type of weights and activations ("fp16", "BF16", "FP8" is bf16 with products in 8 bits).
Precision precision_of(const CsvRow& row);
/// A measurement beside its prediction, with the interval that the profile has for such a forecast, and what the notes
/// of the row say that its measurement scatters by.
struct MeasuredForecast {
  std::string_view quantity;
  double measured = 0, predicted = 0;
  Forecast forecast;
};
Observation observe(const CsvRow& row, const MeasuredForecast& observed, const SoftwareProfile& profile);
/// A standard deviation of ln(measured): of notes that say "vary by up to +/-40%", taken for the 90 % interval; else 0.
double scatter_of(const CsvRow& row);

/// Products of a network in single precision in TF32.
Plan in_tf32(Plan plan);
/// A plan of a step with what its software does in other ways than the plan's strategies, for predictions: nobody
/// executes it.
Plan as_it_ran(Plan plan, const PublishedStep& step);

/// Numbers in a text: of "8 x 200 Gb/s HDR" 8 and 200.
std::vector<double> numbers_in(std::string_view text);
/// The same of counts: of "24+24" both; nothing of a text that is a number and no count, such as "-1" or "2.5".
std::vector<double> counts_in(std::string_view text);
bool contains(std::string_view text, std::string_view part);
/// In small letters.
std::string lower_case(std::string_view text);

}  // namespace orrery
