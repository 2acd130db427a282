// SPDX-License-Identifier: Apache-2.0
#include "hw_models/parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "hw_models/gpu_model.hpp"
#include "hw_models/host_model.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

using Folders = std::vector<std::string>;

std::optional<std::string> file_of(std::string_view device, const Folders& folders) {
  for (const std::string& folder : folders) {
    const fs::path path = fs::path{folder} / fmt::format("{}.yaml", device);
    if (fs::exists(path)) return path.string();
  }
  return {};
}

/// The document of a parameter file, parsed again only when its text has changed: each prediction reads a few of them.
std::shared_ptr<const Node> document_of(const std::string& path) {
  struct Parsed {
    std::string text;
    std::shared_ptr<const Node> document;
  };
  static std::mutex mutex;
  static std::map<std::string, Parsed> all;  // by path
  std::string text = read_file(path, ReadLimits{}.bytes);
  const std::lock_guard lock{mutex};
  Parsed& parsed = all[path];
  if (parsed.document == nullptr || parsed.text != text) {
    parsed.document = std::make_shared<const Node>(parse_yaml(text, path));
    parsed.text = std::move(text);
  }
  return parsed.document;
}

/// The laws of the devices that this one is said to be like.
std::vector<BorrowedLaws> borrowed_laws(const GpuParameters& p, const Folders& folders) {
  std::vector<BorrowedLaws> all;
  for (const std::string& device : p.like) {
    const std::optional<std::string> file = file_of(device, folders);
    if (!file) throw unknown_name("device", device, device_names(folders));
    const std::shared_ptr<const Node> document = document_of(*file);
    const Node* gpu = document->find("gpu");
    if (!gpu) throw UserError{fmt::format("device '{}' is no GPU", device), "name GPUs under `like`"};
    all.push_back({device, read_gpu_parameters(*gpu).laws});
  }
  return all;
}

std::unique_ptr<DeviceModel> make_gpu(const Node& n, std::string_view name, const Folders& folders) {
  GpuParameters p = read_gpu_parameters(n);
  const std::vector<BorrowedLaws> borrowed = borrowed_laws(p, folders);
  return std::make_unique<GpuModel>(std::string{name}, std::move(p), borrowed);
}
std::unique_ptr<DeviceModel> make_host(const Node& n, std::string_view name, const Folders&) {
  return std::make_unique<HostModel>(std::string{name}, read_host_parameters(n));
}

struct DeviceKind {
  std::string_view name;
  std::unique_ptr<DeviceModel> (*make)(const Node& parameters, std::string_view name, const Folders& folders);
};
constexpr DeviceKind kKinds[] = {{"gpu", make_gpu}, {"host", make_host}};

}  // namespace

std::unique_ptr<DeviceModel> read_device(const Node& document, std::string_view name,
                                         const std::vector<std::string>& folders) {
  std::vector<std::string> known;
  for (const DeviceKind& kind : kKinds) known.emplace_back(kind.name);
  if (document.kind != Node::Kind::Map || document.fields.size() != 1)
    throw UserError{at(document, "a parameter file has one key, the kind of device",
                       "write `gpu:` or `host:` above the parameters")};
  const auto& [key, parameters] = document.fields.front();
  for (const DeviceKind& kind : kKinds)
    if (kind.name == key) return kind.make(parameters, name, folders);
  throw UserError{at_key(parameters, fmt::format("unknown kind of device {}", in_quotes(key)),
                         name_hint("kind of device", key, known))};
}

std::unique_ptr<DeviceModel> load_device(const std::string& path) {
  return read_device(*document_of(path), fs::path{path}.stem().string(), {fs::path{path}.parent_path().string()});
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
  if (const std::optional<std::string> file = file_of(name, folders))
    return read_device(*document_of(*file), name, folders);
  throw unknown_name("device", name, device_names(folders));
}

std::string parameters_folder() { return ORRERY_PARAMETERS_DIR; }

}  // namespace orrery
