// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/memory_fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/app/accuracy/profile_fit.hpp"
#include "sim/app/accuracy/step_model.hpp"
#include "sim/strategy/model_parts.hpp"

namespace orrery {
namespace {

constexpr int kSweeps = 2000, kRounds = 4;
constexpr double kLeastDeviation = 0.03;
constexpr double kReserve = 0.94;  // of a device's memory is there for tensors
constexpr double kInside = 0.999;  // of that room, for fits to end inside of it

std::int64_t ranks_on(const Mesh& mesh, std::string_view axis) {
  for (const Axis& a : mesh.axes)
    if (a.name == axis) return a.size;
  return 1;
}

using Parts = std::array<double, 4>;
Parts parts_of(const MemoryShape& s) { return {1, s.parameters, s.states, s.passing}; }

SoftwareProfile with(SoftwareProfile p, const Parts& x) {
  p.memory_fixed = Bytes{x[0]};
  p.memory_per_parameter = x[1], p.memory_per_state = x[2], p.memory_fragments = x[3];
  return p;
}

Parts parts_of_profile(const SoftwareProfile& p) {
  return {p.memory_fixed.base(), p.memory_per_parameter, p.memory_per_state, p.memory_fragments};
}

/// What of `cached` stays: the rest is given back.
double kept_cached(const SoftwareProfile& p, const MemoryShape& s, double room) {
  return std::clamp(room - p.memory(s), 0.0, s.cached);
}
double with_cached(const SoftwareProfile& p, const MemoryShape& s, double room) {
  return p.memory(s) + kept_cached(p, s, room);
}

const MemoryShape& fullest(const SoftwareProfile& p, const std::vector<MemoryShape>& stages, double room) {
  return *std::max_element(stages.begin(), stages.end(), [&](const MemoryShape& a, const MemoryShape& b) {
    return with_cached(p, a, room) < with_cached(p, b, room);
  });
}

double relative_error(const SoftwareProfile& p, const MemoryCase& c) {
  return peak_memory(p, c.stages, c.room) / c.measured - 1;
}

bool is_refused(const SoftwareProfile& p, const MemoryCase& c) { return needed_memory(p, c.stages) > c.room; }

double mean_error(const SoftwareProfile& p, const std::vector<const MemoryCase*>& cases) {
  double sum = 0;
  for (const MemoryCase* c : cases) sum += std::abs(relative_error(p, *c));
  return cases.empty() ? 0 : sum / double(cases.size());
}

/// min Σ ((live + Σ_k x_k·part_k − measured) / measured)² with x ≥ 0, one x after another, of the stages that are
/// fullest under `now`. Of steps that ran, with their room for `measured`, those count that pass it.
Parts least_squares(const SoftwareProfile& now, const std::vector<const MemoryCase*>& cases) {
  Parts x = parts_of_profile(now);
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (std::size_t k = 0; k < x.size(); ++k) {
      double slope = 0, curvature = 0;
      for (const MemoryCase* c : cases) {
        const MemoryShape& stage = fullest(now, c->stages, c->room);
        const Parts parts = parts_of(stage);
        const double aim = c->measured > 0 ? c->measured : kInside * c->room;
        double rest = aim - stage.live - (c->measured > 0 ? kept_cached(now, stage, c->room) : 0);
        for (std::size_t j = 0; j < x.size(); ++j) rest -= j == k ? 0 : x[j] * parts[j];
        if (c->measured <= 0 && rest - x[k] * parts[k] >= 0) continue;
        slope += parts[k] * rest / (aim * aim);
        curvature += parts[k] * parts[k] / (aim * aim);
      }
      x[k] = curvature > 0 ? std::max(0.0, slope / curvature) : 0;
    }
  return x;
}

}  // namespace

namespace {

double elements_of(const Model& model, int part) {
  double sum = 0;
  for (const ParameterId id : parameters_of(model, part)) sum += double(model[id].elements());
  return sum;
}

/// Of a stage that has, beside its share of the blocks, what lies before the first or behind the last.
double parameters_with(const PublishedStep& step, int outside) {
  const RowMesh& mesh = step.mesh;
  const std::int64_t parts = mesh.stages * mesh.chunks, layers = (step.network.layers + parts - 1) / parts;
  const Model one = step.network.model(1);
  return double(layers * mesh.chunks) * elements_of(one, 0) + elements_of(one, outside);
}

}  // namespace

std::vector<MemoryShape> memory_shapes(const PublishedStep& step, const PredictedStep& predicted) {
  const Mesh mesh = parse_mesh(step.mesh.inner.empty() ? "dp1" : step.mesh.inner);
  const auto split = double(ranks_on(mesh, "tp"));
  const auto sharers = double(step.mesh.sharers);
  const DataKind kind = step.parallel.data.kind;
  const auto shape = [&](const StageBytes& bytes, double parameters) {
    const double states = parameters / (split * (kind == DataKind::Ddp ? 1 : sharers));
    return MemoryShape{.live = bytes.most(),
                       .parameters = parameters / (split * (kind == DataKind::Zero3 ? sharers : 1)),
                       .states = states,
                       .passing = bytes.peak - bytes.kept,
                       .cached = step.cached_per_state * states};
  };
  std::vector<MemoryShape> out;
  if (step.mesh.stages > 1) {
    out.push_back(shape(predicted.first, parameters_with(step, kEmbeddingPart)));
    out.push_back(shape(predicted.last, parameters_with(step, kHeadPart)));
  } else {
    out.push_back(shape(predicted.last, double(step.network.model(step.network.layers).parameter_count())));
  }
  return out;
}

double room_of(const Machine& machine) { return machine.cost->capacity(Tier::Device).base() * kReserve; }

std::vector<MemoryShape> watched_shapes(const PublishedStep& step, std::vector<MemoryShape> stages) {
  if (step.first_node_watched) stages.resize(1);
  return stages;
}

double needed_memory(const SoftwareProfile& profile, const std::vector<MemoryShape>& stages) {
  double most = 0;
  for (const MemoryShape& s : stages) most = std::max(most, profile.memory(s));
  return most;
}

double peak_memory(const SoftwareProfile& profile, const std::vector<MemoryShape>& stages, double room) {
  return with_cached(profile, fullest(profile, stages, room), room);
}

std::vector<MemoryCase> memory_cases(const CsvTable& table, const Wiring& wiring, std::string_view profile) {
  std::vector<MemoryCase> cases;
  for (std::size_t i = 0; i < table.num_rows(); ++i) {
    const CsvRow row = table.row(i);
    StepOfRow read = read_step(row, wiring.locations().clusters());
    auto* step = std::get_if<PublishedStep>(&read);
    if (!step) continue;
    const MeasuredStep measured = read_measured_step(row, *step);
    const bool ran = measured.seconds > 0 && !measured.out_of_memory;
    if (step->profile != profile || (!measured.peak_bytes && !ran)) continue;
    try {
      const Machine machine = wiring.machine(step->cluster);
      StepModel model{std::move(*step)};
      const PredictedStep predicted = model.predict(machine);
      std::vector<MemoryShape> shapes =
          memory_shapes(model.step(), measured.first_step ? predicted.at_first() : predicted);
      if (measured.peak_bytes) shapes = watched_shapes(model.step(), std::move(shapes));
      cases.push_back({std::string{row["row_id"]}, std::string{row["model"]}, measured.peak_bytes.value_or(0),
                       room_of(machine), std::move(shapes)});
    } catch (const UserError&) {  // a row that is skipped
    }
  }
  return cases;
}

MemoryFit fit_memory(SoftwareProfile start, const std::vector<MemoryCase>& cases) {
  MemoryFit fit{.profile = with(std::move(start), {})};
  std::vector<const MemoryCase*> seen, fitted, rest, held;
  for (const bool is_published : {true, false}) {
    std::vector<RowOfModel> rows;
    std::vector<const MemoryCase*> some;
    for (const MemoryCase& c : cases)
      if ((c.measured > 0) == is_published && (is_published || !is_refused({}, c)))
        rows.push_back({c.row_id, c.model}), some.push_back(&c);
    if (rows.empty()) continue;
    const ProfileSplit split = split_for_profile(rows);
    for (std::size_t i = 0; i < some.size(); ++i)
      if (split.fitted[i]) seen.push_back(some[i]);
    if (!is_published) continue;
    for (std::size_t i = 0; i < some.size(); ++i) {
      const bool out = std::find(split.held_out.begin(), split.held_out.end(), some[i]->model) != split.held_out.end();
      (split.fitted[i] ? fitted : out ? held : rest).push_back(some[i]);
    }
    fit.rows = some.size(), fit.fitted = fitted.size(), fit.held_out = split.held_out;
  }
  for (int round = 0; round < kRounds; ++round)
    fit.profile = with(std::move(fit.profile), least_squares(fit.profile, seen));
  fit.error_fitted = mean_error(fit.profile, fitted);
  fit.error_rest = mean_error(fit.profile, rest);
  fit.error_held_out = mean_error(fit.profile, held);
  for (const MemoryCase& c : cases) {
    if (c.measured > 0) continue;
    ++fit.ran;
    fit.refused += is_refused(fit.profile, c);
  }
  double squares = 0;
  for (const MemoryCase* c : fitted) squares += relative_error(fit.profile, *c) * relative_error(fit.profile, *c);
  fit.profile.memory_deviation =
      std::max(kLeastDeviation, std::sqrt(squares / double(std::max<std::size_t>(1, fitted.size()))));
  return fit;
}

}  // namespace orrery
