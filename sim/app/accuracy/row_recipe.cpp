// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/row_recipe.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace orrery {
namespace {

/// Modules of Megatron-Core's selective recomputation.
constexpr std::pair<std::string_view, RecomputePart> kModules[] = {
    {"core_attn", RecomputePart::Core},      {"layernorm", RecomputePart::Norms},
    {"mla_up_proj", RecomputePart::Latents}, {"moe_act", RecomputePart::Activations},
    {"mlp", RecomputePart::FeedForward},     {"moe", RecomputePart::Experts}};

/// "selective: mla_up_proj, mlp".
std::vector<RecomputePart> modules_in(std::string text) {
  std::vector<RecomputePart> parts;
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c != '_' && (c < 'a' || c > 'z'); }, ' ');
  std::istringstream words{text};
  for (std::string word; words >> word;)
    for (const auto& [module, part] : kModules)
      if (word == module) parts.push_back(part);
  return parts;
}

/// What a row tells of its software's options, in small letters.
std::string told(const CsvRow& row) { return lower_case(row["extra"]) + ";" + lower_case(row["notes"]); }

/// Megatron-Bridge's page balances routers by force.
bool is_unwritten(const std::string& said) { return contains(said, "force-balanced") && !contains(said, "recipe="); }

/// What recipes of Megatron-Bridge that are not written down are taken to be, as those are that are of the same kind:
/// on Grace from the release of June 2026 on graphs of whole steps and hidden exchanges; on H100 hidden ones for
/// DeepSeek.
struct Unwritten {
  bool whole_graphs = false, hidden = false;
};
Unwritten unwritten_of(const CsvRow& row) {
  constexpr double kWholeGraphs = 26.06;
  const std::string gpu = lower_case(row["gpu"]), said = told(row);
  if (!is_unwritten(said) || drops_tokens(row)) return {};
  const bool whole = contains(gpu, "gb200") && release_of(row) >= kWholeGraphs;
  return {whole, whole || (contains(gpu, "h100") && contains(lower_case(row["model"]), "deepseek"))};
}

/// Where a row of Transformer Engine's graphs does not name what they hold: router and preprocess, which hold in
/// Qwen3's recipe (Megatron-Bridge's skills/nemo-mbridge-perf-moe-hardware-configs, "Qwen3 30B-A3B on 16 H100").
constexpr double kUnnamedGraphs = 0.2;

/// What a row says of recomputation, in small letters; of DeepSeek-V3 under NVIDIA's scripts for NeMo what these say
/// (dgxc-benchmarking v25.05, deepseek_v3/pretraining/launch.sh: RM).
std::string recompute_text(const CsvRow& row) {
  const bool is_script = contains(lower_case(row["software"]), "dgxc-benchmarking v25.05");
  if (row["recompute"].empty() && is_script && contains(lower_case(row["model"]), "deepseek"))
    return contains(lower_case(row["gpu"]), "h100") ? "selective: mla_up_proj" : "selective: core_attn";
  return lower_case(row["recompute"]);
}

}  // namespace

Precision precision_of(const CsvRow& row) {
  const std::string text = lower_case(row["precision"]);
  if (contains(text, "fp16") && !contains(text, "bf16")) return Precision::F16;
  if (contains(text, "fp32") || contains(text, "tf32")) return Precision::F32;
  const bool is_old = contains(lower_case(row["gpu"]), "v100");  // which has no bf16
  return text.empty() && is_old ? Precision::F16 : Precision::BF16;
}

bool widens_weights(const CsvRow& row) {
  const std::string precision = lower_case(row["precision"]);
  return contains(precision, "nf4") || contains(precision, "int4") || contains(precision, "4-bit");
}

bool is_torchtitan(const CsvRow& row) { return contains(lower_case(row["software"]), "torchtitan"); }

double release_of(const CsvRow& row) {
  const std::vector<double> numbers = numbers_in(row["version_date"]);
  return numbers.empty() ? 0 : numbers.front();
}

Recomputed recompute_of(const CsvRow& row, std::int64_t layers, std::int64_t stages) {
  const std::string text = recompute_text(row);
  const std::vector<double> numbers = numbers_in(text);
  if (text.empty() || contains(text, "none")) return {};
  if (contains(text, " of ") && numbers.size() >= 2) return {Recompute::Full, numbers[0] / numbers[1]};
  if (const std::size_t at = text.find("full x"); at != std::string::npos)
    if (const std::vector<double> of_stage = numbers_in(text.substr(at + 6)); !of_stage.empty())
      return {Recompute::Full, std::min(1.0, of_stage[0] * double(stages) / double(layers))};
  if (contains(text, "full")) return {Recompute::Full};
  if (contains(text, "selective layer")) return {Recompute::Full, 0.5};
  if (std::vector<RecomputePart> parts = modules_in(text); !parts.empty())
    return {Recompute::Selective, 1, std::move(parts)};
  if (contains(text, "core")) return {Recompute::Selective};
  if (contains(text, "selective") && is_torchtitan(row))
    return {Recompute::Selective, 1, {RecomputePart::AllButEverySecondProduct}};
  return {};
}

bool drops_tokens(const CsvRow& row) {
  return contains(told(row), "token-drop") || contains(lower_case(row["model"]), "tokendrop");
}

bool hides_exchanges(const CsvRow& row) {
  const std::string said = told(row);
  if (contains(said, "a2a_overlap=true") || unwritten_of(row).hidden) return true;
  return contains(said, "ep overlap") && !contains(said, "no ep overlap") && !contains(said, "ep overlap off");
}

bool leaves_experts_whole(const CsvRow& row) { return contains(row["extra"], "etp=1") || is_unwritten(told(row)); }

bool sends_tokens_once(const CsvRow& row) {
  const std::string said = told(row);
  const bool is_open = is_unwritten(said) && !contains(said, "dispatcher=") && !drops_tokens(row);
  return is_open || contains(said, "hybridep") || contains(said, "deepep");
}

bool multiplies_in_pieces(const CsvRow& row) {
  const std::string model = lower_case(row["model"]);
  return !contains(model, "deepseek") && !contains(model, "moonlight") &&
         !contains(lower_case(row["precision"]), "fp4");
}

double share_of_graphs(const CsvRow& row) {
  if (unwritten_of(row).whole_graphs) return 1;
  const std::string said = told(row);
  const std::size_t at = said.find("cuda_graph=");
  const std::string graph = at == std::string::npos ? said : said.substr(at, said.find(';', at) - at);
  if (contains(graph, "full_iteration") && !contains(graph, "=none:")) return 1;
  if (!contains(graph, "transformer_engine:") && !contains(graph, "te cuda graphs")) return 0;
  double share = 0;
  for (const std::string_view half : {"attn", "mlp"}) share += contains(graph, half) ? 0.4 : 0;
  for (const std::string_view tenth : {"router", "preprocess"}) share += contains(graph, tenth) ? 0.1 : 0;
  return share > 0 || contains(graph, "transformer_engine:") ? share : kUnnamedGraphs;
}

bool waits_for_experts(const CsvRow& row) {
  const std::string said = told(row);
  const bool stays = drops_tokens(row) || contains(said, "hybridep") || contains(said, "deepep") ||
                     contains(said, "full_iteration") ||
                     (contains(said, "force-balanced") && !contains(said, "dispatcher=none"));
  return !stays;
}

}  // namespace orrery
