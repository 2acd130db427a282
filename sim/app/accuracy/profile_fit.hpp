// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hw_models/software_profile.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {

/// The hash of an id as a number in [0, 1).
double place_of(std::string_view id);

/// Which of so many rows of models a fit may see: at most 30 % of them, and none of a model that is held out whole.
///   held out: models whose hash falls into the upper third, while another model is left
///   fitted:   of the others, by the hash of the row's id
/// Both hashes are the same on every machine.
struct ProfileSplit {
  std::vector<bool> fitted;
  std::vector<std::string> held_out;  // models
};
/// A row by its id and its model.
struct RowOfModel {
  std::string row_id, model;
};
ProfileSplit split_for_profile(const std::vector<RowOfModel>& rows);

/// A number of a profile that a fit may change, times in microseconds, and the bounds it stays in. `tries` are tested
/// before the search: where an effect is hidden until it is large, the search may not find it.
struct ProfileNumber {
  double (*get)(const SoftwareProfile& profile);
  void (*set)(SoftwareProfile& profile, double value);
  double least = 0.2, most = 2;
  std::vector<double> tries = {};
};
/// The six of programs that run steps: rates of products, attention, what memory limits, links and network; launch
/// time.
const std::vector<ProfileNumber>& step_numbers();
/// The same with the host's time per layer of experts in place of launch time, for programs whose host waits in them.
const std::vector<ProfileNumber>& expert_numbers();
/// The six of inference programs: in place of the network the host's time per pass.
const std::vector<ProfileNumber>& pass_numbers();
/// The same with the host's time per sequence that chooses a token in place of that per pass.
const std::vector<ProfileNumber>& sequence_numbers();
/// The seven of servers: rates of products and of what memory limits; launch time of ops that no graph starts; time of
/// the host per step, per sequence of a step, per request and per token of a prompt.
const std::vector<ProfileNumber>& server_numbers();

/// Rows of tables that can be predicted under any profile.
struct ProfileCases {
  std::vector<RowOfModel> rows;
  const std::vector<ProfileNumber>* numbers = nullptr;
  double last_step = 0.01;    // of the search, in logarithms
  std::size_t most = 100000;  // rows that are fitted
  /// ln(predicted / measured) of all that these rows measured; what cannot be predicted gives nothing.
  std::function<std::vector<double>(const std::vector<std::size_t>& rows, const SoftwareProfile& profile)> errors;
};

/// A published measurement that can be predicted under any profile.
struct ProfileCase {
  std::string row_id, model;  // the network's name, by which whole networks are held out
  Machine machine;            // without a profile
  double measured = 0;
  std::function<double(const Machine&, const SoftwareProfile&)> predict;
};
/// The same for `fit_profile`, which `cases` must outlive.
ProfileCases cases_of_steps(std::vector<ProfileCase>& cases, const std::vector<ProfileNumber>& numbers);

struct ProfileFit {
  SoftwareProfile profile;
  std::size_t rows = 0, fitted = 0;
  std::vector<std::string> held_out;
  double error_fitted = 0, error_rest = 0, error_held_out = 0;  // mean |predicted − measured| / measured
};

/// Fits the numbers of `start` by a pattern search on their logarithms: mean |ln(predicted / measured)| over the fitted
/// rows, plus a slight pull towards `start` for what the rows do not tell. Two numbers change at once only where the
/// effects of each alone, added up, promise to help. The deviation becomes the root mean square of
/// ln(measured / predicted) over them, at least 3 %.
ProfileFit fit_profile(const SoftwareProfile& start, const ProfileCases& cases);

}  // namespace orrery
