// SPDX-License-Identifier: Apache-2.0
// What people call a GPU, and which parameter file that is. The first line all of whose words a name has decides.
#include "calibrate/published/devices.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>
#include <vector>

namespace orrery {
namespace {

struct DeviceEntry {
  std::string_view words;  // in small letters, each a word of the name
  std::string_view device;
};

constexpr DeviceEntry kPublishedDevices[] = {
    {"gb300", "gb300"},
    {"gb200", "gb200"},
    {"b300", "b300"},
    {"b200", "b200"},
    {"gh200", "gh200"},
    {"h200 nvl", "h200_nvl"},
    {"h200", "h200_sxm"},
    {"h800", "h800"},
    {"h100 pcie", "h100_pcie"},
    {"h100 hbm2e", "h100_hbm2e"},
    {"h100", "h100_sxm"},
    {"a800", "a800"},
    {"a100 80gb pcie", "a100_pcie_80g"},
    {"a100 pcie", "a100_pcie_40g"},
    {"a100 40gb", "a100_40g"},
    {"a100", "a100_80g"},
    {"v100 pcie", "v100_pcie"},
    {"v100", "v100"},
    {"p100", "p100"},
    {"rtx pro 6000", "rtx_pro_6000"},
    {"rtxpro6000", "rtx_pro_6000"},
    {"rtx 5000", "rtx_5000"},
    {"rtx 4090", "rtx_4090"},
    {"rtx4090", "rtx_4090"},
    {"l40s", "l40s"},
    {"mi300x", "mi300x"},
    {"a10", "a10"},
    {"p4", "p4"},
    {"t4", "t4"},
    {"l4", "l4"},
};

/// "A100-SXM4-80GB" → a100, sxm4, 80gb.
std::vector<std::string> words_of(std::string_view text) {
  std::string spaced;
  for (const char c : text)
    spaced += std::isalnum(static_cast<unsigned char>(c))
                  ? static_cast<char>(std::tolower(static_cast<unsigned char>(c)))
                  : ' ';
  std::istringstream in{spaced};
  return {std::istream_iterator<std::string>{in}, {}};
}

bool has_all(const std::vector<std::string>& name, std::string_view wanted) {
  const std::vector<std::string> words = words_of(wanted);
  return std::all_of(words.begin(), words.end(),
                     [&](const std::string& w) { return std::find(name.begin(), name.end(), w) != name.end(); });
}

}  // namespace

std::string device_of(std::string_view gpu) {
  const std::vector<std::string> name = words_of(gpu);
  for (const DeviceEntry& e : kPublishedDevices)
    if (has_all(name, e.words)) return std::string{e.device};
  return {};
}

}  // namespace orrery
