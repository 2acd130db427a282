// SPDX-License-Identifier: Apache-2.0
#include "runtime/whole_arrays.hpp"

#include <algorithm>
#include <string>

#include "sim/plan/placement.hpp"

namespace orrery {
namespace {

/// Calls f(rank, coordinates) for every rank of a class.
template <class F>
void for_each_rank(const Plan& plan, ClassId rank_class, F f) {
  const RankClass& c = plan.classes[rank_class.index()];
  for (std::size_t r = 0; r < static_cast<std::size_t>(plan.mesh.size()); ++r) {
    const std::vector<std::int64_t> at = plan.mesh.coordinates(RankId{r});
    if (c.contains(at)) f(RankId{r}, std::span<const std::int64_t>{at});
  }
}

template <class T>
void write_rows(Executor& executor, const Plan& plan, std::string_view name, std::span<const T> values) {
  plan.find_port(name);
  for (const Port& port : plan.ports) {
    if (port.name != name) continue;
    const std::int64_t elements = plan.shape(port.tensor).elements();
    for_each_rank(plan, port.rank_class, [&](RankId rank, std::span<const std::int64_t> at) {
      const std::vector<T> mine = rows_of(port, at, values, elements);
      executor.write(plan, port.tensor, rank, std::span<const T>{mine});
    });
  }
}

/// Puts the rows that a rank holds where they stand in the whole array.
void place_rows(const std::vector<std::int64_t>& rows, const std::vector<double>& values, std::vector<double>& whole) {
  const std::size_t width = values.size() / std::max<std::size_t>(1, rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(rows[i]) * width;
    whole.resize(std::max(whole.size(), at + width));
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                whole.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

std::vector<double> read_stored(const Executor& executor, const Plan& plan, ParameterId parameter,
                                std::int64_t elements, Stored ParameterPlacement::*part) {
  std::vector<double> out;
  for (const ParameterPlacement& p : plan.placements) {
    const Stored& stored = p.*part;
    if (p.parameter != parameter || stored.tensor.is_none()) continue;
    out.resize(static_cast<std::size_t>(elements));
    for_each_rank(plan, p.rank_class, [&](RankId rank, std::span<const std::int64_t> at) {
      const std::vector<ElementRun> runs = runs_of(plan, stored, at);
      if (!runs.empty()) gather(runs, executor.fetch(plan, stored.tensor, rank), out);
    });
  }
  return out;
}

}  // namespace

void write_constants(Executor& executor, const Plan& plan) {
  for (const Constant& c : plan.constants)
    for_each_rank(plan, c.rank_class, [&](RankId rank, std::span<const std::int64_t> at) {
      executor.write(plan, c.tensor, rank, std::span<const double>{c.values(at)});
    });
}

void write_port(Executor& executor, const Plan& plan, std::string_view port, std::span<const std::int32_t> values) {
  write_rows(executor, plan, port, values);
}

void write_port(Executor& executor, const Plan& plan, std::string_view port, std::span<const double> values) {
  write_rows(executor, plan, port, values);
}

std::vector<double> read_port(const Executor& executor, const Plan& plan, std::string_view name) {
  plan.find_port(name);
  std::vector<double> out;
  for (const Port& port : plan.ports) {
    if (port.name != name) continue;
    for_each_rank(plan, port.rank_class, [&](RankId rank, std::span<const std::int64_t> at) {
      if (port.rows)
        place_rows(port.rows(at), executor.fetch(plan, port.tensor, rank), out);
      else if (out.empty())
        out = executor.fetch(plan, port.tensor, rank);
    });
  }
  return out;
}

void write_parameter(Executor& executor, const Plan& plan, ParameterId parameter, std::span<const double> values) {
  for (const ParameterPlacement& p : plan.placements) {
    if (p.parameter != parameter) continue;
    for_each_rank(plan, p.rank_class, [&](RankId rank, std::span<const std::int64_t> at) {
      const std::vector<ElementRun> runs = runs_of(plan, p.weight, at);
      if (runs.empty() || !executor.holds(plan, rank)) return;
      const std::int64_t elements = plan.shape(p.weight.tensor).elements();
      const bool whole = runs.size() == 1 && runs.front().count == elements;
      if (whole && static_cast<std::int64_t>(values.size()) == elements)
        return executor.write(plan, p.weight.tensor, rank, values);
      std::vector<double> contents =
          whole ? std::vector<double>(static_cast<std::size_t>(elements)) : executor.read(plan, p.weight.tensor, rank);
      scatter(runs, values, contents);
      executor.write(plan, p.weight.tensor, rank, std::span<const double>{contents});
    });
  }
}

std::vector<double> read_parameter(const Executor& executor, const Plan& plan, ParameterId parameter,
                                   std::int64_t elements) {
  return read_stored(executor, plan, parameter, elements, &ParameterPlacement::weight);
}

std::vector<double> read_gradient(const Executor& executor, const Plan& plan, ParameterId parameter,
                                  std::int64_t elements) {
  return read_stored(executor, plan, parameter, elements, &ParameterPlacement::gradient);
}

void write_master_copies(Executor& executor, const Plan& plan) {
  constexpr std::size_t kWeights = 0, kMaster = 4;  // operands of AdamW
  const auto stays = [&](const Operand& o) { return plan.tensors[plan.owner(o.tensor()).index()].persistent; };
  const std::vector<ClassId> classes = plan.class_of_ranks();
  for (std::size_t rank = 0; rank < classes.size(); ++rank) {
    if (!executor.holds(plan, RankId{rank})) continue;
    for (const Op& op : plan.ops_of(plan.classes[classes[rank].index()])) {
      const auto* update = std::get_if<AdamW>(&plan.work(op));
      if (!update || !update->master) continue;
      const auto operands = plan.operands_of(op);
      if (!stays(operands[kWeights]) || !stays(operands[kMaster])) continue;
      executor.write(plan, operands[kMaster].tensor(), RankId{rank},
                     executor.read(plan, operands[kWeights].tensor(), RankId{rank}));
    }
  }
}

}  // namespace orrery
