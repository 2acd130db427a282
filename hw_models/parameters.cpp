// SPDX-License-Identifier: Apache-2.0
#include "hw_models/parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "hw_models/gpu_model.hpp"
#include "hw_models/host_model.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<DeviceModel> make_gpu(const Node& n, std::string_view name) {
  return std::make_unique<GpuModel>(std::string{name}, read_gpu_parameters(n));
}
std::unique_ptr<DeviceModel> make_host(const Node& n, std::string_view name) {
  return std::make_unique<HostModel>(std::string{name}, read_host_parameters(n));
}

struct DeviceKind {
  std::string_view name;
  std::unique_ptr<DeviceModel> (*make)(const Node& parameters, std::string_view name);
};
constexpr DeviceKind kKinds[] = {{"gpu", make_gpu}, {"host", make_host}};

}  // namespace

std::unique_ptr<DeviceModel> read_device(const Node& document, std::string_view name) {
  std::vector<std::string> known;
  for (const DeviceKind& kind : kKinds) known.emplace_back(kind.name);
  if (document.kind != Node::Kind::Map || document.fields.size() != 1)
    throw UserError{at(document, "a parameter file has one key, the kind of device",
                       "write `gpu:` or `host:` above the parameters")};
  const auto& [key, parameters] = document.fields.front();
  for (const DeviceKind& kind : kKinds)
    if (kind.name == key) return kind.make(parameters, name);
  throw UserError{at_key(parameters, fmt::format("unknown kind of device {}", orrery::quoted(key)),
                         name_hint("kind of device", key, known))};
}

std::unique_ptr<DeviceModel> load_device(const std::string& path) {
  return read_device(read_yaml(path), fs::path{path}.stem().string());
}

std::vector<std::string> device_names(const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  for (const std::string& folder : folders) {
    std::error_code missing;
    for (const fs::directory_entry& file : fs::directory_iterator{folder, missing})
      if (file.path().extension() == ".yaml") names.push_back(file.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::unique_ptr<DeviceModel> find_device(std::string_view name, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const fs::path path = fs::path{folder} / fmt::format("{}.yaml", name);
    if (fs::exists(path)) return load_device(path.string());
  }
  throw unknown_name("device", name, device_names(folders));
}

std::string parameters_folder() { return ORRERY_PARAMETERS_DIR; }

}  // namespace orrery
