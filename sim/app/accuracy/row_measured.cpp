// SPDX-License-Identifier: Apache-2.0
// What rows of training steps measured, in whichever column it stands.
#include "sim/app/accuracy/published_step.hpp"
#include "sim/app/accuracy/row_recipe.hpp"

namespace orrery {
namespace {

/// Megatron-Bridge prints memory once, behind the first step that changes weights (report_memory_flag of its
/// training_log). Rows that do not say which steps their peak is of are taken for that.
bool is_of_first_step(const CsvRow& row) {
  return contains(lower_case(row["software"]), "megatron-bridge") && !contains(row["notes"], "iteration");
}

/// The first positive number of these columns.
std::optional<double> first_of(const CsvRow& row, std::initializer_list<std::string_view> columns) {
  for (const std::string_view column : columns)
    if (const auto v = row.number(column); v && *v > 0) return v;
  return {};
}

/// MLPerf's logs of GPT-3 give samples or tokens a second and do not say which. A sample is 2048 tokens of 2 PFLOP: no
/// device does one in a hundredth of a second, and none as few as ten tokens in one.
constexpr double kMostSamples = 10;
bool counts_tokens(const CsvRow& row, double rate) {
  return contains(row["benchmark"], "gpt3") && rate > kMostSamples * row.number("n_accelerators").value_or(1);
}

/// Samples of the step over their rate.
double seconds_by_rate(const CsvRow& row, const PublishedStep& step) {
  const double samples = double(step.train.batch);
  const double tokens = samples * double(step.train.sequence + step.train.target_sequence);
  if (const auto rate = first_of(row, {"samples_per_s", "median_throughput"}))
    return counts_tokens(row, *rate) ? tokens / *rate : samples / *rate;
  if (const auto rate = first_of(row, {"tokens_per_s"})) return tokens / *rate;
  const auto each = first_of(row, {"tokens_per_s_per_gpu"});
  return each ? tokens / (*each * double(step.mesh.inner_ranks * step.mesh.stages)) : 0;
}

}  // namespace

MeasuredStep read_measured_step(const CsvRow& row, const PublishedStep& step) {
  MeasuredStep m;
  // torchtitan prints the most memory that the allocator had, in GiB.
  if (const auto gb = row.number("peak_mem_gb"); gb && *gb > 0)
    m.peak_bytes = *gb * (is_torchtitan(row) ? 0x1p30 : 1e9);
  m.first_step = is_of_first_step(row);
  m.out_of_memory = contains(lower_case(row["extra"]), "out of memory") || contains(lower_case(row["notes"]), "oom");
  const auto seconds = first_of(row, {"median_step_time_s", "iter_time_s"});
  m.seconds = seconds ? *seconds : seconds_by_rate(row, step);
  return m;
}

}  // namespace orrery
