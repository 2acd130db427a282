// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/serving_fit.hpp"

#include <array>
#include <cmath>

#include "sim/app/accuracy/left_out.hpp"
#include "sim/app/accuracy/serving_rows.hpp"
#include "sim/base/parallel.hpp"

namespace orrery {
namespace {

constexpr double kLastStep = 0.04;

/// ln(predicted / measured) of both times of each row; rows that cannot be predicted give nothing.
std::vector<double> errors(Deployments& deployments, const std::vector<ServedRow>& all,
                           const std::vector<std::size_t>& which, const SoftwareProfile& profile) {
  std::vector<std::vector<double>> each(which.size());
  in_parallel(which.size(), [&](std::size_t i) {
    const ServedRow& row = all[which[i]];
    try {
      const auto predicted = deployments.predict(row, profile);
      for (const auto& [name, seconds] : row.measured) each[i].push_back(std::log(predicted.at(name) / seconds));
    } catch (const UserError&) {  // a row that is skipped
    }
  });
  std::vector<double> out;
  for (const auto& e : each) out.insert(out.end(), e.begin(), e.end());
  return out;
}

}  // namespace

ProfileCases served_cases(const std::vector<CsvTable>& tables, const Wiring& wiring, std::string_view profile) {
  ProfileCases out{.rows = {}, .numbers = &server_numbers(), .last_step = kLastStep, .errors = {}};
  const auto rows = std::make_shared<std::vector<ServedRow>>();
  NamedModels models{wiring.locations()};
  for (const CsvTable& table : tables) {
    const ReadServed reader = served_reader(kind_of(table).name);
    if (!reader) continue;
    for (std::size_t i = 0; i < table.num_rows(); ++i) {
      const CsvRow row = table.row(i);
      if (left_out(row)) continue;
      auto read = reader(row, models);
      auto* served = std::get_if<ServedRow>(&read);
      if (!served || served->profile != profile) continue;
      out.rows.push_back({served->row_id, served->model_name});
      rows->push_back(std::move(*served));
    }
  }
  // Times of the device stay as long as its rates do: most tries of a search change the host only.
  struct Known {
    std::array<double, 3> rates;
    std::unique_ptr<Deployments> deployments;
  };
  const auto known = std::make_shared<Known>();
  out.errors = [&wiring, rows, known](const std::vector<std::size_t>& which, const SoftwareProfile& p) {
    const std::array rates{p.products, p.streams, p.launch};
    if (!known->deployments || known->rates != rates)
      *known = {rates, std::make_unique<Deployments>(wiring, rows->size())};
    return errors(*known->deployments, *rows, which, p);
  };
  return out;
}

}  // namespace orrery
