// SPDX-License-Identifier: Apache-2.0
#include "hw_models/gpu_parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace orrery {
namespace {

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(DType::Bool); ++i) names.emplace_back(name_of(static_cast<DType>(i)));
  return names;
}

std::vector<std::string> gpu_law_names() {
  std::vector<std::string> names;
  for (std::size_t s = 0; s < num_law_slots(); ++s) names.push_back(law_name(static_cast<LawSlot>(s)));
  return names;
}

void check_keys(const Node& document, std::string_view part, std::string_view what,
                const std::vector<std::string>& known, std::vector<Diagnostic>& problems) {
  const Node* map = document.find(part);
  if (!map) return;
  for (const auto& [key, node] : map->fields)
    if (std::find(known.begin(), known.end(), key) == known.end())
      problems.push_back(at_key(node, fmt::format("unknown {} {}", what, in_quotes(key)), name_hint(what, key, known)));
}

std::size_t count(const std::vector<std::vector<double>>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::size_t{0},
                         [](std::size_t n, const auto& r) { return n + r.size(); });
}

/// A law has all coefficients of its form and no others; its correction and spread are whole or absent.
void check_law(const Node& node, const GpuLaw& law, const GpuLawForm& form, std::vector<Diagnostic>& problems) {
  std::vector<std::string> names;
  for (const LawParameter& p : form.parameters) {
    names.emplace_back(p.name);
    if (!law.parameters.contains(names.back()))
      problems.push_back(
          at(node, fmt::format("the law has no {}", in_quotes(names.back())), "give all coefficients of its form"));
  }
  check_keys(node, "parameters", "coefficient", names, problems);
  const auto check_count = [&](std::string_view what, std::size_t n) {
    if (n != 0 && n != basis_size(form))
      problems.push_back(at(node, fmt::format("the {} has {} coefficients", what, n),
                            fmt::format("it has {}, or none", basis_size(form))));
  };
  check_count("correction", count(law.correction));
  check_count("spread", count(law.spread));
  for (const auto& [axis, range] : law.range)
    if (range.size() != 2)
      problems.push_back(at(node, fmt::format("the range of {} has {} numbers", in_quotes(axis), range.size()),
                            "write [least, most]"));
}

/// Those under a key of the document.
void check_laws(const Node& document, std::string_view key, const std::map<std::string, GpuLaw>& laws,
                std::vector<Diagnostic>& problems) {
  const Node* map = document.find(key);
  if (!map) return;
  for (std::size_t s = 0; s < num_law_slots(); ++s) {
    const std::string name = law_name(static_cast<LawSlot>(s));
    if (const Node* node = map->find(name))
      check_law(*node, laws.at(name), law_form(static_cast<LawSlot>(s)), problems);
  }
}

void check_runtime(const Node& runtime, const GpuRuntime& r, std::vector<Diagnostic>& problems) {
  check_keys(runtime, "products", "law", gpu_law_names(), problems);
  if (problems.empty()) check_laws(runtime, "products", r.products, problems);
  const std::vector<std::string> features{kernel_features().begin(), kernel_features().end()};
  if (const Node* kernels = runtime.find("kernels"))
    for (const auto& [name, law] : kernels->fields) check_keys(law, "seconds", "feature", features, problems);
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
  check_keys(document, "peak", "data type", dtype_names(), problems);
  check_keys(document, "laws", "law", gpu_law_names(), problems);
  if (problems.empty()) check_laws(document, "laws", p.laws, problems);
  if (problems.empty() && p.runtime) check_runtime(*document.find("runtime"), *p.runtime, problems);
  if (!problems.empty()) throw UserError{in_file_order(std::move(problems))};
  return p;
}

}  // namespace orrery
