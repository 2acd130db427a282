// SPDX-License-Identifier: Apache-2.0
// Clusters from the columns of a table: the GPU and the size of a node choose a file of scenarios/clusters, what is
// said of the network between nodes replaces its card.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "calibrate/published/devices.hpp"
#include "sim/app/accuracy/published_step.hpp"
#include "sim/base/units.hpp"

namespace orrery {
namespace {

/// Which cluster file stands for servers of a device; of several the first that is there. An empty device is any other:
/// for what fits on one GPU the links do not matter.
struct Server {
  std::string_view device, cluster;
};
constexpr Server kServers[] = {
    {"gb300", "gb200_nvl72"},       {"gb200", "gb200_nvl72"},   {"b300", "dgx_b200"},
    {"b200", "dgx_b200"},           {"h200_sxm", "dgx_h200"},   {"h100_sxm", "dgx_h100"},
    {"a100_80g", "dgx_a100"},       {"a100_40g", "dgx_a100"},   {"a800", "dgx_a100"},
    {"v100", "dgx1_v100"},          {"h100_pcie", "pcie_a100"}, {"a100_pcie_80g", "pcie_a100"},
    {"a100_pcie_40g", "pcie_a100"}, {"l40s", "pcie_a100"},      {"l4", "pcie_a100"},
    {"a10", "pcie_a100"},           {"t4", "pcie_a100"},        {"", "dgx_h100"},
};

std::string_view server_of(std::string_view device, const std::string& folder) {
  for (const Server& s : kServers) {
    const bool fits = s.device.empty() || s.device == device;
    if (fits && std::filesystem::exists(fmt::format("{}/{}.yaml", folder, s.cluster))) return s.cluster;
  }
  return {};
}

/// GPUs of a node of which a table says that nobody named the link between them: by PCIe, as all servers have it.
constexpr std::string_view kNoLink = "link unspecified", kPcieServer = "pcie_a100";

/// Pods see neither each other's memory nor that they share a node, so NCCL takes the network between them: nodes of
/// one GPU each, at the rate at which A100 of two nodes were measured over Ethernet.
void apart(Cluster& cluster) {
  cluster.nic = Nic{};
  cluster.nic->name = "network of pods";
  cluster.nic->bandwidth = BytesPerSecond{12.5e9};
  cluster.nic->latency = Seconds{8e-6};
  cluster.nic->per = NicPlacement::PerNode;
  cluster.nic->fabric = "ethernet_100g_a100";
  cluster.devices_per_node = 1;
}

/// GB200 NVL72: trays of 4 GPUs in one domain of NVLink.
constexpr std::int64_t kNvlinkDomain = 64;

/// "8 x 200 Gb/s", "1600 Gbps/node", "800 Gb/s InfiniBand per node", "400 Gb/s RDMA per GPU".
void replace_card(std::string_view text, Cluster& cluster) {
  if (!cluster.nic) return;
  const std::string low = lower_case(text);
  const std::size_t rate = std::min(low.find("gb/s"), low.find("gbps"));
  if (rate == std::string::npos) return;
  const std::vector<double> numbers = numbers_in(std::string_view{low}.substr(0, rate));
  if (numbers.empty()) return;
  double gigabits = numbers.back();
  const std::size_t times = low.rfind(" x ", rate);
  const bool counted = times != std::string::npos && rate - times < 12 && numbers.size() > 1;
  const double cards = counted ? numbers[numbers.size() - 2] : 1;
  const bool per_gpu = contains(low, "per gpu");
  if (!counted && !per_gpu && !contains(low, "node")) return;
  gigabits *= cards;
  const double devices = double(cluster.devices_per_node);
  const BytesPerSecond whole{gigabits * 1e9 / 8};
  if (per_gpu || gigabits >= 200 * devices) {
    cluster.nic->per = NicPlacement::PerDevice;
    cluster.nic->bandwidth = per_gpu ? whole : whole / devices;
  } else {
    cluster.nic->per = NicPlacement::PerNode;
    cluster.nic->bandwidth = whole;
  }
  const bool four = counted && cards == 4 && numbers.back() == 100;
  if (four && contains(low, "roce")) cluster.nic->fabric = "roce_100g";
}

std::string_view column_of(const CsvRow& row, std::string_view name, std::string_view other) {
  return row.has(name) ? row[name] : row[other];
}

}  // namespace

std::vector<double> numbers_in(std::string_view text) {
  constexpr double kMost = 0x1p53;
  std::vector<double> out;
  for (std::size_t i = 0; i < text.size();) {
    if (!std::isdigit(static_cast<unsigned char>(text[i]))) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && (std::isdigit(static_cast<unsigned char>(text[end])) || text[end] == '.')) ++end;
    const bool in_word = i > 0 && std::isalpha(static_cast<unsigned char>(text[i - 1]));
    if (!in_word) out.push_back(std::min(std::strtod(std::string{text.substr(i, end - i)}.c_str(), nullptr), kMost));
    i = end;
  }
  return out;
}

std::vector<double> counts_in(std::string_view text) {
  constexpr double kMost = 0x1p31;
  if (const auto number = parse_number(text))
    return *number >= 1 && *number < kMost && *number == std::floor(*number) ? std::vector<double>{*number}
                                                                             : std::vector<double>{};
  return numbers_in(text);
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::string lower_case(std::string_view text) {
  std::string out{text};
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::variant<Cluster, Skip> read_cluster_of(const CsvRow& row, const std::string& folder) {
  const std::string_view gpu = column_of(row, "gpu", "accelerator");
  const std::string device = device_of(gpu);
  const auto ranks = row.integer(row.has("n_gpus") ? "n_gpus" : "n_accelerators");
  if (!ranks || *ranks < 1) return Skip{SkipReason::Incomplete, "n_gpus is empty"};
  if (device.empty()) return Skip{SkipReason::UnknownDevice, std::string{gpu}};
  const std::string_view links = column_of(row, "interconnect", "host_networking");
  if (contains(links, "across nodes") && contains(links, "unspecified"))
    return Skip{SkipReason::Incomplete, "the network between the nodes is not named"};
  const std::string_view server = contains(links, kNoLink) ? kPcieServer : server_of(device, folder);
  if (server.empty()) return Skip{SkipReason::UnknownDevice, fmt::format("no cluster file for servers of {}", device)};
  Cluster c = load_cluster(fmt::format("{}/{}.yaml", folder, server));
  c.device = device;
  const std::string_view size = row.has("gpus_per_node") ? "gpus_per_node" : "accelerators_per_node";
  c.devices_per_node = row.integer(size).value_or(std::min(c.devices_per_node, *ranks));
  if (contains(device, "gb200") || contains(device, "gb300")) c.devices_per_node = kNvlinkDomain;
  if (contains(links, kNoLink) && contains(row["section"], "pods")) apart(c);
  c.devices_per_node = std::max<std::int64_t>(1, c.devices_per_node);
  c.nodes = (*ranks + c.devices_per_node - 1) / c.devices_per_node;
  replace_card(links, c);
  return c;
}

}  // namespace orrery
