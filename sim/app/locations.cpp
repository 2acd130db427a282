// SPDX-License-Identifier: Apache-2.0
#include "sim/app/locations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "hw_models/parameters.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

std::string value_of(const Environment& environment, const std::string& name) {
  const auto it = environment.find(name);
  return it == environment.end() ? std::string{} : it->second;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::vector<std::string> stems_in(const std::string& folder, std::string_view extension) {
  std::vector<std::string> names;
  std::error_code missing;
  for (const fs::directory_entry& file : fs::directory_iterator{folder, missing})
    if (file.path().extension() == extension) names.push_back(file.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string find_named(std::string_view what, const std::string& name, const std::string& folder,
                       std::string_view extension) {
  if (is_there(name)) return name;
  const fs::path named = fs::path{folder} / (name + std::string{extension});
  if (name.find('/') == std::string::npos && is_there(named)) return named.string();
  throw unknown_name(what, name, stems_in(folder, extension));
}

}  // namespace

Locations::Locations(const Environment& environment) : scenarios_{ORRERY_SCENARIOS_DIR} {
  home_ = value_of(environment, "ORRERY_HOME");
  if (!home_.empty()) return;
  const std::string user = value_of(environment, "HOME");
  home_ = (user.empty() ? std::string{"."} : user) + "/.local/share/orrery";
}

std::string Locations::scenarios() const { return scenarios_; }

std::vector<std::string> Locations::parameter_folders() const { return {own_parameters(), parameters_folder()}; }

std::string Locations::find_scenario(const std::string& name) const {
  const auto file_of = [](const fs::path& path) { return is_folder(path) ? path / "scenario.yaml" : path; };
  if (is_there(name)) {
    if (is_there(file_of(name))) return file_of(name).string();
    throw UserError{fmt::format("folder {} holds no scenario.yaml", in_quotes(name))};
  }
  const fs::path named = file_of(fs::path{scenarios_} / name);
  if (name.find('/') == std::string::npos && !name.empty() && is_there(named)) return named.string();
  throw unknown_name("scenario", name, scenario_names());
}

std::string Locations::find_model(const std::string& name) const {
  return find_named("model", name, models(), ".json");
}
std::string Locations::find_cluster(const std::string& name) const {
  return find_named("cluster", name, clusters(), ".yaml");
}

std::string Locations::find_model(const Node& value) const {
  const std::string path = file_named_by(value);
  return path.empty() ? find_model(value.scalar) : path;
}
std::string Locations::find_cluster(const Node& value) const {
  const std::string path = file_named_by(value);
  return path.empty() ? find_cluster(value.scalar) : path;
}

std::vector<std::string> Locations::scenario_names() const {
  std::vector<std::string> names;
  std::error_code missing;
  for (const fs::directory_entry& folder : fs::directory_iterator{scenarios_, missing})
    if (is_there(folder.path() / "scenario.yaml")) names.push_back(folder.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> Locations::model_names() const { return stems_in(models(), ".json"); }
std::vector<std::string> Locations::cluster_names() const { return stems_in(clusters(), ".yaml"); }

std::string file_named_by(const Node& value) {
  const fs::path named{value.scalar};
  if (value.scalar.empty()) return {};
  if (named.is_absolute()) return is_there(named) ? named.string() : std::string{};
  if (value.origin.line > 0) {
    const fs::path beside = fs::path{value.origin.source}.parent_path() / named;
    if (is_there(beside)) return beside.string();
  }
  return is_there(named) ? named.string() : std::string{};
}

}  // namespace orrery
