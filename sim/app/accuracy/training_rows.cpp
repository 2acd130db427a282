// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/training_rows.hpp"

#include <cmath>

#include "hw_models/software_profile.hpp"
#include "sim/app/accuracy/left_out.hpp"
#include "sim/app/accuracy/memory_fit.hpp"
#include "sim/app/accuracy/step_model.hpp"

namespace orrery {
namespace {

constexpr double kReplayed = 0.02;  // of the host's time to start an op, where a graph does it

/// What starts ops is a matter of the row beside its software.
void set_launches(const StepModel& model, const Machine& machine) {
  machine.cost->scale_parameter("launch.enqueue", std::max(kReplayed, 1 - model.step().graphs));
}
double predicted_seconds(StepModel& model, const Machine& machine) {
  set_launches(model, machine);
  return model.seconds(machine);
}

class TrainingPredictor final : public RowPredictor {
 public:
  explicit TrainingPredictor(const Wiring& wiring) : wiring_{wiring}, clusters_{wiring.locations().clusters()} {}

  RowResult predict(const CsvRow& row) const override {
    try {
      StepOfRow read = read_step(row, clusters_);
      if (const auto* skip = std::get_if<Skip>(&read)) return *skip;
      const MeasuredStep measured = read_measured_step(row, std::get<PublishedStep>(read));
      if (measured.seconds <= 0 && !measured.peak_bytes && !measured.out_of_memory)
        return Skip{SkipReason::NoMeasurement, "iter_time_s is empty"};
      if (measured.seconds <= 0 && std::get<PublishedStep>(read).profile.empty())
        return Skip{SkipReason::UnsupportedFeature, "memory of software without a profile"};
      return result(row, StepModel{std::get<PublishedStep>(std::move(read))}, measured);
    } catch (const UserError& e) {
      return Skip{SkipReason::UnsupportedFeature, e.what()};
    }
  }

 private:
  RowPrediction result(const CsvRow& row, StepModel model, const MeasuredStep& measured) const {
    const PublishedStep& step = model.step();
    const SoftwareProfile& profile = profiles_.of(step.profile);
    const Machine machine = wiring_.machine(step.cluster);
    profile.apply(*machine.cost);
    set_launches(model, machine);
    const PredictedStep predicted = model.predict(machine);
    const PredictedStep published = measured.first_step ? predicted.at_first() : predicted;
    const double peak = peak_memory(profile, watched_shapes(step, memory_shapes(step, published)), room_of(machine));
    RowPrediction out = observations(row, step, predicted.seconds, peak, measured, profile);
    if (step.profile.empty()) return out;  // of which it is not known what it keeps
    out.outcomes.push_back({"out of memory", measured.out_of_memory,
                            needed_memory(profile, memory_shapes(step, predicted)), room_of(machine)});
    return out;
  }

  static RowPrediction observations(const CsvRow& row, const PublishedStep& step, double seconds, double peak,
                                    const MeasuredStep& m, const SoftwareProfile& profile) {
    const bool experts = row.has("n_experts") && row.integer("n_experts").value_or(0) > 1;
    const bool offloads = row.has("shard_mode") && contains(lower_case(row["shard_mode"]), "offload");
    Forecast forecast{.kind = offloads ? "offload" : "step", .device = step.cluster.device, .experts = experts};
    RowPrediction out;
    if (m.seconds > 0) out.observations.push_back(observe(row, {"step time", m.seconds, seconds, forecast}, profile));
    forecast.kind = "memory";
    if (m.peak_bytes && !step.profile.empty())
      out.observations.push_back(observe(row, {"peak memory", *m.peak_bytes, peak, forecast}, profile));
    return out;
  }

  const Wiring& wiring_;
  std::string clusters_;
  Profiles profiles_;
};

}  // namespace

std::vector<ProfileCase> training_cases(const CsvTable& table, const Wiring& wiring, std::string_view profile) {
  std::vector<ProfileCase> cases;
  for (std::size_t i = 0; i < table.num_rows(); ++i) {
    const CsvRow row = table.row(i);
    if (left_out(row)) continue;
    StepOfRow read = read_step(row, wiring.locations().clusters());
    auto* step = std::get_if<PublishedStep>(&read);
    const double measured = step ? read_measured_step(row, *step).seconds : 0;
    if (measured <= 0 || step->profile != profile) continue;
    try {
      Machine machine = wiring.machine(step->cluster);
      const auto model = std::make_shared<StepModel>(std::move(*step));
      predicted_seconds(*model, machine);
      cases.push_back({std::string{row["row_id"]}, std::string{row["model"]}, std::move(machine), measured,
                       [model](const Machine& m, const SoftwareProfile&) { return predicted_seconds(*model, m); }});
    } catch (const UserError&) {  // a row that is skipped
    }
  }
  return cases;
}

std::unique_ptr<RowPredictor> make_training_predictor(const Wiring& wiring) {
  return std::make_unique<TrainingPredictor>(wiring);
}

}  // namespace orrery
