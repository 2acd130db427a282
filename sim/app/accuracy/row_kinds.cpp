// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/row_kind.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "calibrate/published/exchanges.hpp"
#include "calibrate/published/expert_exchanges.hpp"
#include "calibrate/published/kernels.hpp"
#include "sim/app/accuracy/exchanges.hpp"
#include "sim/app/accuracy/inference_rows.hpp"
#include "sim/app/accuracy/kernels.hpp"
#include "sim/app/accuracy/serving_rows.hpp"
#include "sim/app/accuracy/training_rows.hpp"

namespace orrery {
namespace {

/// Kinds besides those of kernels, whose table is calibrate/published/kernels.cpp.
const std::vector<RowKind>& other_kinds() {
  static const std::vector<RowKind> kinds = {
      {"training", "training steps of language models: layout, batch, seconds",
       "model gpu n_gpus seq/gbs/mbs/mfu_pct "
       "iter_time_s/samples_per_s/tokens_per_s/tokens_per_s_per_gpu/tflops_per_gpu/peak_mem_gb !isl",
       make_training_predictor},
      {"mlperf_training", "MLPerf training runs: layout where it is there, throughput",
       "benchmark accelerator n_accelerators median_step_time_s/median_throughput/time_to_train_min_mean",
       make_training_predictor},
      {"static_batch", "generation and encoding of a batch that stays together: latency or rate by lengths",
       "model gpu n_gpus software batch latency_ms/ttft_ms/tokens_per_s/tokens_per_s_per_gpu !mode !gbs",
       make_static_batch_predictor},
      {"fp32_passes", "forward and backward passes of one GPU in float", "mode model gpu gbs seq latency_ms",
       make_pass_predictor},
      {"served_clients", "servers under a number of clients: mean time to the first token and per token behind it",
       "model gpu software isl osl concurrency/batch ttft_ms/tpot_ms !layers", make_silicon_predictor},
      {"served_runs", "runs of a server: mean or median time to the first token and per token behind it",
       "model gpu software isl osl request_rate/concurrency latency_ms/ttft_ms/tpot_ms !batch",
       make_serving_run_predictor},
      {"served_offline", "engines that were given all requests at once: tokens per second",
       "model gpu software isl osl tokens_per_s/tokens_per_s_per_gpu !batch !request_rate !concurrency",
       make_offline_predictor},
      {"served_requests", "single requests of a server: time to the first token and to the last one",
       "run_id request_id input_tokens output_tokens ttft_from_queued_ms e2e_from_queued_ms",
       make_served_request_predictor},
      {"collectives", "collectives of ranks in a node or on several", kExchangeColumns, make_exchange_predictor},
      {"expert_exchanges", "dispatch and combine of the tokens of MoE layers", kExpertExchangeColumns,
       make_expert_exchange_predictor},
  };
  return kinds;
}

std::size_t lacks(const RowKind& kind, const CsvTable& table) { return lacking_columns(table, kind.columns).size(); }

/// "seq or gbs", "no batch".
std::string for_people(std::string asked) {
  if (asked.starts_with('!')) return "no " + asked.substr(1);
  for (std::size_t at = asked.find('/'); at != std::string::npos; at = asked.find('/')) asked.replace(at, 1, " or ");
  return asked;
}

RowKind nearest(const CsvTable& table) {
  const std::vector<RowKind> kinds = row_kinds();
  const auto num_columns = [](const RowKind& k) {
    return 1 + static_cast<std::size_t>(std::count(k.columns.begin(), k.columns.end(), ' '));
  };
  return *std::min_element(kinds.begin(), kinds.end(), [&](const RowKind& a, const RowKind& b) {
    const std::size_t n_a = num_columns(a), n_b = num_columns(b);
    const std::size_t share_a = lacks(a, table) * n_b, share_b = lacks(b, table) * n_a;
    return share_a != share_b ? share_a < share_b : n_a > n_b;
  });
}

}  // namespace

std::vector<RowKind> row_kinds() {
  std::vector<RowKind> all;
  for (const KernelTable& t : kernel_tables())
    all.push_back({t.name, t.summary, t.columns,
                   [read = t.read](const Wiring& wiring) { return make_kernel_predictor(wiring, read); }});
  all.insert(all.end(), other_kinds().begin(), other_kinds().end());
  return all;
}

std::optional<RowKind> find_kind(const CsvTable& table) {
  const RowKind best = nearest(table);
  if (lacks(best, table) > 0) return {};
  return best;
}

std::string nearest_kind(const CsvTable& table) {
  const RowKind best = nearest(table);
  std::vector<std::string> lacking = lacking_columns(table, best.columns);
  for (std::string& asked : lacking) asked = for_people(std::move(asked));
  return fmt::format("nearest is '{}', which also has the columns {}", best.name, fmt::join(lacking, ", "));
}

RowKind kind_of(const CsvTable& table) {
  if (auto found = find_kind(table)) return *std::move(found);
  std::vector<std::string> names;
  for (const RowKind& k : row_kinds()) names.emplace_back(k.name);
  throw UserError{Diagnostic{"the head of this table is that of no kind of table that is known",
                             fmt::format("{}; known kinds: {}", nearest_kind(table), fmt::join(names, ", ")),
                             table.file(),
                             1,
                             0,
                             {}}};
}

}  // namespace orrery
