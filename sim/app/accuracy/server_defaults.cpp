// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/server_defaults.hpp"

#include <fmt/format.h>

#include "sim/app/accuracy/published_step.hpp"

namespace orrery {
namespace {

constexpr ServerDefaults kServerDefaults[] = {{"vllm", "vllm", "vllm_v1", 1024, 8192, 0.9},
                                              {"sglang", "sglang", "sglang", 4096, 8192, 0.82},
                                              {"trtllm", "tensorrt_llm", "tensorrt_llm", 2048, 8192, 0.9},
                                              {"tensorrt", "tensorrt_llm", "tensorrt_llm", 2048, 8192, 0.9}};
constexpr std::int64_t kSmallStep = 2048;  // of vLLM on GPUs with less than 70 GB, and on A100

}  // namespace

const ServerDefaults* find_server(std::string_view software) {
  const std::string low = lower_case(software);
  for (const ServerDefaults& e : kServerDefaults)
    if (contains(low, e.part)) return &e;
  return nullptr;
}

void apply_server(ServedRow& r, const ServerDefaults& e) {
  r.profile = e.profile;
  r.options.replica.scheduler = e.scheduler;
  r.options.replica.max_sequences = e.max_sequences;
  r.options.replica.max_tokens = e.max_tokens;
  r.options.replica.memory = e.memory;
  r.options.replica.prefix_sharing = false;
  const bool small = contains(r.cluster.device, "a100") || contains(r.cluster.device, "rtx");
  if (e.profile == "vllm" && small) {
    r.options.replica.max_tokens = kSmallStep;
    r.options.replica.max_sequences = kVllmSequences;
  }
}

std::string profile_on(const std::string& profile, std::string_view device) {
  const bool blackwell = contains(device, "b200") || contains(device, "b300");
  return blackwell ? profile + "_blackwell" : profile;
}

ServedRowOf read_model_of_sizes(const CsvRow& row, const Locations& locations) {
  ServedRow r{.row_id = std::string{row["row_id"]}, .model_name = std::string{row["model"]}};
  const ServerDefaults* server = find_server(row["software"]);
  if (!server) return Skip{SkipReason::UnsupportedFeature, fmt::format("software '{}'", row["software"])};
  const auto network = read_network(row);
  if (const auto* skip = std::get_if<Skip>(&network)) return *skip;
  const RowNetwork& n = std::get<RowNetwork>(network);
  Model model = n.model(n.layers);
  std::get<Transformer>(model.network).max_positions = kLongContext;
  r.model = std::make_shared<const Model>(std::move(model));
  const auto cluster = read_cluster_of(row, locations.clusters());
  if (const auto* skip = std::get_if<Skip>(&cluster)) return *skip;
  r.cluster = std::get<Cluster>(cluster);
  r.tp = row.integer("tp").value_or(1);
  apply_server(r, *server);
  r.options.weights = weights_of(row["model"], lower_case(row["precision"]));
  return r;
}

/// Experts of gpt-oss are in 4 bits (MXFP4), all else in 16: tables call that nvfp4.
std::string weights_of(std::string_view model, const std::string& quant) {
  if (contains(lower_case(model), "gpt-oss")) return "fp4_experts";
  return quant.starts_with("fp8") ? "fp8" : contains(quant, "fp4") ? "fp4" : "model";
}

}  // namespace orrery
