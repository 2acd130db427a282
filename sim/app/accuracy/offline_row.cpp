// SPDX-License-Identifier: Apache-2.0
// Rates of engines that were given all requests of a set at once, as trtllm-bench does.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/app/accuracy/published_step.hpp"
#include "sim/app/accuracy/server_defaults.hpp"

namespace orrery {
namespace {

constexpr double kPoolOfFree = 0.95;       // `--kv_cache_free_gpu_mem_fraction`
constexpr std::int64_t kMostBatch = 4096;  // trtllm-bench builds for no more sequences, and no more tokens of a step
constexpr std::int64_t kMostTokens = 32768, kLeastTokens = 2048;

/// Requests of a set by the lengths of prompt and answer: docs/source/performance/perf-overview.md of TensorRT-LLM
/// 0.17, "Preparing a Dataset".
struct RequestSet {
  std::int64_t prompt, output, requests;
};
constexpr RequestSet kSets[] = {{128, 128, 30000},  {128, 2048, 3000},  {128, 4096, 1500},
                                {2048, 128, 3000},  {2048, 2048, 1500}, {5000, 500, 1500},
                                {1000, 1000, 3000}, {500, 2000, 3000},  {20000, 2000, 1000}};
constexpr std::int64_t kOtherRequests = 3000;
/// Sets of more are cut to this many batches: the rate of what is between changes no more.
constexpr std::int64_t kBatches = 4;

std::int64_t requests_of(std::int64_t prompt, std::int64_t output) {
  for (const RequestSet& s : kSets)
    if (s.prompt == prompt && s.output == output) return s.requests;
  return kOtherRequests;
}

std::int64_t rounded_up(double value, std::int64_t unit) {
  return unit * static_cast<std::int64_t>(std::ceil(value / double(unit)));
}

/// Tokens of a step that trtllm-bench builds for, where so many sequences find room (tensorrt_llm/bench/build/
/// tuning.py): those of the sequences and of the prompts that come meanwhile.
std::int64_t tokens_of_step(double sequences, double prompt, double output) {
  const double tokens = std::min(sequences * (1 + prompt / output), double(kMostTokens));
  return std::max(kLeastTokens, rounded_up(tokens, tokens < 4096 ? 256 : tokens < 8192 ? 512 : 1024));
}

/// By it the largest batch is a little more than what finds room, so that room alone limits it.
void set_limits(std::int64_t prompt, std::int64_t output, const ReplicaMemory& memory, ServeOptions& o) {
  const double room = memory.sequences(prompt + output, o.replica.block);
  o.replica.max_tokens = tokens_of_step(std::min(room, double(kMostBatch)), double(prompt), double(output));
  const auto batch = std::clamp<std::int64_t>(static_cast<std::int64_t>(room), 1, kMostBatch);
  o.traffic.requests = std::min(o.traffic.requests, std::max<std::int64_t>(kBatches * batch, kOtherRequests));
}

}  // namespace

ServedRowOf read_offline_row(const CsvRow& row, NamedModels& models) {
  ServedRowOf read = read_model_of_sizes(row, models.locations(), Asked::Engine);
  if (std::holds_alternative<Skip>(read)) return read;
  ServedRow r = std::get<ServedRow>(std::move(read));
  if (r.server != "tensorrt_llm")
    return Skip{SkipReason::UnsupportedFeature, fmt::format("software '{}'", row["software"])};
  if (row.integer("pp").value_or(1) > 1) return Skip{SkipReason::UnsupportedFeature, "stages of a server"};
  const auto prompt = row.integer("isl"), output = row.integer("osl");
  if (!is_count(prompt) || !is_count(output)) return Skip{SkipReason::Incomplete, "isl or osl is empty"};
  const auto all = row.number("tokens_per_s"), each = row.number("tokens_per_s_per_gpu");
  if (all.value_or(0) <= 0 && each.value_or(0) <= 0) return Skip{SkipReason::NoMeasurement, "tokens_per_s is empty"};
  r.measured = {{"rate", all.value_or(0) > 0 ? *all : *each * double(r.tp)}};
  ServeOptions& o = r.options;
  o.dtype = o.weights == "model" ? precision_of(row) : Precision::BF16;
  o.replica.scheduler = "tensorrt_llm_chunked";
  o.replica.memory_of = MemoryOf::Free;
  o.replica.memory = kPoolOfFree;
  o.replica.max_sequences = kMostBatch;
  o.traffic.arrival = Arrival::AllAtOnce;
  o.traffic.requests = requests_of(*prompt, *output);
  o.traffic.prompt = {.mean = double(*prompt)};
  o.traffic.output = {.mean = double(*output)};
  o.bucket = 64;
  r.limits = [p = *prompt, n = *output](const ReplicaMemory& m, ServeOptions& options) {
    set_limits(p, n, m, options);
  };
  return r;
}

}  // namespace orrery
