// SPDX-License-Identifier: Apache-2.0
// Keys that several families share: activations and labels.
#include <vector>

#include "sim/model/families.hpp"

namespace orrery {
namespace {

struct ActivationEntry {
  std::string_view name;
  ActivationKind kind;
};

constexpr ActivationEntry kActivations[] = {
    {"relu", ActivationKind::Relu},
    {"gelu", ActivationKind::GeluErf},
    {"gelu_new", ActivationKind::GeluTanh},
    {"gelu_pytorch_tanh", ActivationKind::GeluTanh},
    {"gelu_fast", ActivationKind::GeluTanh},
    {"gelu_python", ActivationKind::GeluErf},
    {"quick_gelu", ActivationKind::QuickGelu},
    {"silu", ActivationKind::Silu},
    {"swish", ActivationKind::Silu},
    {"tanh", ActivationKind::Tanh},
    {"sigmoid", ActivationKind::Sigmoid},
};

}  // namespace

ActivationKind activation_named(ConfigReader& config, std::string_view keys, std::string_view name) {
  std::vector<std::string> known;
  for (const ActivationEntry& a : kActivations) {
    if (a.name == name) return a.kind;
    known.emplace_back(a.name);
  }
  const Diagnostic d = unknown_name("activation", name, known).diagnostics().front();
  config.problem(keys, d.message, d.hint);
  return ActivationKind::Relu;
}

ActivationKind read_activation(ConfigReader& config, std::string_view keys, std::string_view fallback) {
  return activation_named(config, keys, config.text(keys, fallback));
}

std::int64_t read_labels(ConfigReader& config) {
  const Node* labels = config.find("id2label");
  const bool is_map = labels && labels->kind == Node::Kind::Map && !labels->fields.empty();
  const auto fallback = is_map ? static_cast<std::int64_t>(labels->fields.size()) : 2;
  return config.integer("num_labels", fallback);
}

}  // namespace orrery
