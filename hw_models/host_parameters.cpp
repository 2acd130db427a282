// SPDX-License-Identifier: Apache-2.0
#include "hw_models/host_parameters.hpp"

#include <fmt/format.h>

#include "hw_models/host_laws.hpp"

namespace orrery {
namespace {

std::vector<std::string> host_law_names() {
  std::vector<std::string> names;
  for (std::size_t slot = 0; slot < kNumSlots; ++slot)
    if (std::string name = slot_name(slot); !name.empty()) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> feature_names(const LawForm& form) {
  std::vector<std::string> names;
  for (const Feature& f : form.features) names.emplace_back(f.name);
  return names;
}

std::vector<std::string> axis_names(const LawForm& form) { return {form.axes.begin(), form.axes.end()}; }

std::size_t slot_named(std::string_view name) {
  for (std::size_t slot = 0; slot < kNumSlots; ++slot)
    if (slot_name(slot) == name) return slot;
  return kNumSlots;
}

bool is_among(const std::string& name, const std::vector<std::string>& known) {
  return std::find(known.begin(), known.end(), name) != known.end();
}

/// Names of one kind that are not known. Nobody writes them: they are of another version.
void check_law_keys(const Node& law, std::string_view part, std::string_view what,
                    const std::vector<std::string>& known, std::vector<Diagnostic>& unknown) {
  const Node* map = law.find(part);
  if (!map) return;
  for (const auto& [key, node] : map->fields)
    if (!is_among(key, known)) unknown.push_back(at_key(node, fmt::format("unknown {} {}", what, in_quotes(key))));
}

void check_ranges(const Node& law, std::vector<Diagnostic>& problems) {
  const Node* map = law.find("range");
  if (!map) return;
  for (const auto& [key, node] : map->fields)
    if (node.items.size() != 2)
      problems.push_back(at(node, fmt::format("the range of {} has {} numbers", in_quotes(key), node.items.size()),
                            "write [least, most]"));
}

void check_laws(const Node& document, std::vector<Diagnostic>& problems) {
  const Node* laws = document.find("laws");
  if (!laws) return;
  std::vector<Diagnostic> unknown;
  check_law_keys(document, "laws", "law", host_law_names(), unknown);
  for (const auto& [key, law] : laws->fields) {
    const std::size_t slot = slot_named(key);
    if (slot == kNumSlots) continue;
    check_law_keys(law, "coefficients", "feature", feature_names(form_of(slot)), unknown);
    check_law_keys(law, "range", "size", axis_names(form_of(slot)), unknown);
    check_ranges(law, problems);
  }
  if (unknown.empty()) return;
  Diagnostic first = in_file_order(unknown).front();
  if (unknown.size() > 1) first.message += fmt::format(", and {} more", unknown.size() - 1);
  first.hint = "parameters of another version: `orrery calibrate` measures them again";
  problems.push_back(std::move(first));
}

}  // namespace

HostParameters read_host_parameters(const Node& document) {
  HostParameters p;
  std::vector<Diagnostic> problems;
  read_options(document, p, problems);
  check_laws(document, problems);
  if (!problems.empty()) throw UserError{in_file_order(std::move(problems))};
  return p;
}

Node write_host_parameters(const HostParameters& parameters) { return write_options(parameters); }

}  // namespace orrery
