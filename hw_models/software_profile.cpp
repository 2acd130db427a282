// SPDX-License-Identifier: Apache-2.0
#include "hw_models/software_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "hw_models/cluster_cost_model.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKey = "profile";
constexpr double kNone = 1e-9;     // of a time: factors are above 0
constexpr double kUnfitted = 0.3;  // relative standard deviation of a step without a profile

SoftwareProfile load_profile(const fs::path& path) {
  const Node document = read_yaml(path.string());
  const Node* map = document.find(kKey);
  if (!map || document.fields.size() != 1)
    throw UserError{at(document, "a profile file has one key, `profile`", "write `profile:` above the parameters")};
  SoftwareProfile p;
  read_options(*map, p);
  p.name = path.stem().string();
  return p;
}

std::vector<fs::path> files() {
  std::vector<fs::path> all;
  std::error_code missing;  // no folder: no profiles
  for (const fs::directory_entry& file : fs::directory_iterator{profiles_folder(), missing})
    if (file.path().extension() == ".yaml") all.push_back(file.path());
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

double SoftwareProfile::deviation_of(const Forecast& f) const {
  const double least = f.kind == "memory" ? memory_deviation : deviation;
  const auto told = deviations.find(std::string{told_by(f)});
  if (told == deviations.end()) return least;
  return f.kind == "memory" || f.kind == "step" ? std::max(least, told->second) : told->second;
}

std::string_view SoftwareProfile::told_by(const Forecast& f) const {
  const std::string_view kind = f.device.substr(0, f.device.find('_'));
  const bool elsewhere =
      !kind.empty() && !devices.empty() && std::find(devices.begin(), devices.end(), kind) == devices.end();
  if (f.kind == "memory") return elsewhere ? "memory_elsewhere" : "memory";
  if (f.kind == "token" && f.experts) return "token_experts";
  if (f.kind != "step") return f.kind;
  return elsewhere ? "elsewhere" : f.experts ? "experts" : "step";
}

void SoftwareProfile::apply(ClusterCostModel& cost) const {
  cost.scale_parameter("gemm.rate", products);
  cost.scale_parameter("attention.rate", attention);
  cost.scale_parameter("memory.bandwidth", streams);
  cost.scale_parameter("launch.enqueue", launch);
  cost.scale_parameter("launch.overhead", starts);
  // Above 1 it stands for exchanges that hide; a bus of all devices gives no more than was measured.
  const bool is_bus = cost.cluster().layout == NodeLayout::Pcie;
  cost.scale_parameter("link.bandwidth", is_bus ? std::min(links, 1.0) : links);
  cost.scale_parameter("nic.bandwidth", network);
  cost.scale_parameter("gemm.conversion", std::max(conversion, kNone));
  KernelChoice choice = kernels;
  choice.host_experts = host_experts.base();
  cost.choose_kernels(choice);
}

std::vector<SoftwareProfile> software_profiles() {
  std::vector<SoftwareProfile> all;
  for (const fs::path& path : files()) all.push_back(load_profile(path));
  return all;
}

SoftwareProfile find_profile(std::string_view name) {
  std::vector<std::string> names;
  for (const fs::path& path : files()) {
    if (path.stem().string() == name) return load_profile(path);
    names.push_back(path.stem().string());
  }
  throw unknown_name("profile", name, names);
}

Profiles::Profiles() : known_{software_profiles()} { none_.deviation = kUnfitted; }

const SoftwareProfile& Profiles::of(std::string_view name) const {
  const auto found =
      std::find_if(known_.begin(), known_.end(), [&](const SoftwareProfile& p) { return p.name == name; });
  return found == known_.end() ? none_ : *found;
}

std::string to_text(const SoftwareProfile& profile) {
  Node document = Node::map();
  document.fields.emplace_back(std::string{kKey}, write_options(profile));
  return "# SPDX-License-Identifier: Apache-2.0\n" + to_yaml(document);
}

std::string profiles_folder() { return ORRERY_PROFILES_DIR; }

}  // namespace orrery
