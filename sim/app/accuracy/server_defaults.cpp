// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/server_defaults.hpp"

#include <fmt/format.h>

#include "sim/app/accuracy/named_models.hpp"
#include "sim/app/accuracy/published_step.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr ServerDefaults kServerDefaults[] = {{"vllm", "vllm", "vllm_v1", 1024, 8192, 0.9},
                                              {"sglang", "sglang", "sglang", 4096, 8192, 0.82},
                                              {"trtllm", "tensorrt_llm", "tensorrt_llm", 2048, 8192, 0.9, true},
                                              {"tensorrt", "tensorrt_llm", "tensorrt_llm", 2048, 8192, 0.9, true}};
constexpr std::int64_t kSmallStep = 2048;  // of vLLM on GPUs with less than 70 GB, and on A100

/// Of the first that fits; names have these parts, if any. On Blackwell kernels are others (experts in 4 bits, launches
/// that overlap), whatever the version of a server; engines before 1.0 do not let launches overlap.
struct ServerProfile {
  std::string_view server, device, software, profile;
  Asked asked = Asked::Server;
};
constexpr ServerProfile kServerProfiles[] = {
    {"vllm", "b200", "", "vllm_blackwell"},
    {"vllm", "b300", "", "vllm_blackwell"},
    {"vllm", "rtx_4090", "", "vllm_rtx_4090"},
    {"vllm", "", " 0.10.", "vllm_0_10"},
    {"vllm", "", "", "vllm"},
    {"sglang", "b200", "", "sglang_blackwell"},
    {"sglang", "b300", "", "sglang_blackwell"},
    {"sglang", "", "2024", "sglang_2024"},
    {"sglang", "", "", "sglang"},
    {"tensorrt_llm", "", " 0.", "tensorrt_llm_offline", Asked::Engine},
    {"tensorrt_llm", "b200", "", "tensorrt_llm_blackwell"},
    {"tensorrt_llm", "b300", "", "tensorrt_llm_blackwell"},
    {"tensorrt_llm", "", "", "tensorrt_llm_offline", Asked::Engine},
    {"tensorrt_llm", "", "", "tensorrt_llm"},
};

}  // namespace

bool is_blackwell(std::string_view device) { return contains(device, "b200") || contains(device, "b300"); }

const ServerDefaults* find_server(std::string_view software) {
  const std::string low = lower_case(software);
  for (const ServerDefaults& e : kServerDefaults)
    if (contains(low, e.part)) return &e;
  return nullptr;
}

std::string_view profile_of(const ServerDefaults& server, Asked asked, std::string_view software,
                            std::string_view device) {
  for (const ServerProfile& p : kServerProfiles)
    if (p.server == server.name && (p.asked == asked || p.asked == Asked::Server) && contains(device, p.device) &&
        contains(software, p.software))
      return p.profile;
  bug("a server without a profile");
}

void apply_server(ServedRow& r, const ServerDefaults& e, std::string_view software, Asked asked) {
  r.server = e.name;
  r.profile = profile_of(e, asked, software, r.cluster.device);
  const bool is_narrow = r.options.weights == "fp8" || r.options.weights == "fp4";
  r.options.replica.kv_type = e.narrow_keys && is_narrow ? KvType::F8 : KvType::Model;
  r.options.replica.scheduler = e.scheduler;
  r.options.replica.max_sequences = e.max_sequences;
  r.options.replica.max_tokens = e.max_tokens;
  r.options.replica.memory = e.memory;
  r.options.replica.prefix_sharing = false;
  const bool small = contains(r.cluster.device, "a100") || contains(r.cluster.device, "rtx");
  if (e.name == "vllm" && small) {
    r.options.replica.max_tokens = kSmallStep;
    r.options.replica.max_sequences = kVllmSequences;
  }
}

ServedRowOf read_model_of_sizes(const CsvRow& row, const Locations& locations, Asked asked) {
  ServedRow r{.row_id = std::string{row["row_id"]}, .model_name = std::string{row["model"]}};
  const ServerDefaults* server = find_server(row["software"]);
  if (!server) return Skip{SkipReason::UnsupportedFeature, fmt::format("software '{}'", row["software"])};
  const auto network = read_network(row);
  if (const auto* skip = std::get_if<Skip>(&network)) return *skip;
  const auto cluster = read_cluster_of(row, locations.clusters());
  if (const auto* skip = std::get_if<Skip>(&cluster)) return *skip;
  r.cluster = std::get<Cluster>(cluster);
  r.tp = row.integer("tp").value_or(row.integer("n_gpus").value_or(1));  // a server takes all of its GPUs
  if (r.tp < 1) return Skip{SkipReason::Incomplete, "tp is empty"};
  RowNetwork n = std::get<RowNetwork>(network);
  replicate_keys(n.config, r.tp);
  Model model = n.model(n.layers);
  std::get<Transformer>(model.network).max_positions = kLongContext;
  r.model = std::make_shared<const Model>(std::move(model));
  r.options.weights = weights_of(row["model"], lower_case(row["precision"]));
  apply_server(r, *server, row["software"], asked);
  return r;
}

/// Experts of gpt-oss are in 4 bits (MXFP4), all else in 16: tables call that nvfp4.
std::string weights_of(std::string_view model, const std::string& quant) {
  if (contains(lower_case(model), "gpt-oss")) return "fp4_experts";
  return quant.starts_with("fp8") ? "fp8" : contains(quant, "fp4") ? "fp4" : "model";
}

}  // namespace orrery
