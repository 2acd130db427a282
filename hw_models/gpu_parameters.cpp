// SPDX-License-Identifier: Apache-2.0
#include "hw_models/gpu_parameters.hpp"

#include <fmt/format.h>

namespace orrery {
namespace {

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(DType::Bool); ++i) names.emplace_back(name_of(static_cast<DType>(i)));
  return names;
}

void check_peaks(const Node& document, std::vector<Diagnostic>& problems) {
  const Node* peaks = document.find("peak");
  if (!peaks) return;
  const std::vector<std::string> known = dtype_names();
  for (const auto& [key, node] : peaks->fields)
    if (std::find(known.begin(), known.end(), key) == known.end())
      problems.push_back(
          at_key(node, fmt::format("unknown data type {}", quoted(key)), name_hint("data type", key, known)));
}

}  // namespace

std::span<const EnumName<FitStatus>> enum_names(FitStatus) {
  static constexpr EnumName<FitStatus> kNames[] = {{FitStatus::Unfitted, "unfitted"}, {FitStatus::Fitted, "fitted"}};
  return kNames;
}

GpuParameters read_gpu_parameters(const Node& document) {
  GpuParameters p;
  std::vector<Diagnostic> problems;
  read_options(document, p, problems);
  check_peaks(document, problems);
  if (const Node* tiles = document.find("tiles"); tiles && p.tiles.empty() && problems.empty())
    problems.push_back(at(*tiles, "a GPU without output tiles", "add one, such as {m: 128, n: 128}"));
  if (!problems.empty()) throw UserError{in_file_order(std::move(problems))};
  return p;
}

}  // namespace orrery
