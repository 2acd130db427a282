// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/row_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

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
       "row_id model layers hidden heads ffn vocab seq gpu n_gpus software precision tp pp dp mbs gbs iter_time_s",
       make_training_predictor},
      {"mlperf_training", "MLPerf training runs: layout where it is there, throughput",
       "row_id benchmark accelerator n_accelerators global_batch_size median_step_time_s median_throughput model "
       "layers hidden",
       make_training_predictor},
      {"static_batch", "generation and encoding of a batch that stays together: latency or rate by lengths",
       "row_id model layers hidden heads gpu n_gpus software precision tp pp batch isl osl",
       make_static_batch_predictor},
      {"fp32_passes", "forward and backward passes of one GPU in float",
       "row_id mode model layers hidden heads gpu precision fusion gbs seq latency_ms", make_pass_predictor},
      {"served_clients", "servers under a number of clients: mean time to the first token and per token behind it",
       "row_id model gpu software mode gemm_quant isl osl concurrency batch tp ttft_ms tpot_ms",
       make_silicon_predictor},
      {"served_runs", "runs of a server: mean or median time to the first token and per token behind it",
       "row_id model layers hidden heads gpu n_gpus software precision tp request_rate isl osl ttft_ms tpot_ms extra",
       make_serving_run_predictor},
      {"served_offline", "engines that were given all requests at once: tokens per second",
       "model gpu n_gpus software precision tp pp isl osl tokens_per_s tokens_per_s_per_gpu",
       make_offline_predictor},
      {"served_requests", "single requests of a server: time to the first token and to the last one",
       "run_id request_id arrival_s input_tokens output_tokens ttft_from_queued_ms e2e_from_queued_ms",
       make_served_request_predictor},
      {"collectives", "collectives of ranks in a node or on several", kExchangeColumns, make_exchange_predictor},
      {"expert_exchanges", "dispatch and combine of the tokens of MoE layers", kExpertExchangeColumns,
       make_expert_exchange_predictor},
  };
  return kinds;
}

std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string{text}};
  return {std::istream_iterator<std::string>{in}, {}};
}

/// The columns of a kind that a table lacks.
std::vector<std::string> lacking(const RowKind& kind, const CsvTable& table) {
  std::vector<std::string> columns = words(kind.columns);
  std::erase_if(columns, [&](const std::string& c) { return table.column(c).has_value(); });
  return columns;
}

std::string joined(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

}  // namespace

std::vector<RowKind> row_kinds() {
  std::vector<RowKind> all;
  for (const KernelTable& t : kernel_tables())
    all.push_back({t.name, t.summary, t.columns,
                   [read = t.read](const Wiring& wiring) { return make_kernel_predictor(wiring, read); }});
  all.insert(all.end(), other_kinds().begin(), other_kinds().end());
  return all;
}

RowKind kind_of(const CsvTable& table) {
  const std::vector<RowKind> kinds = row_kinds();
  const auto lacks = [&](const RowKind& k) { return lacking(k, table).size(); };
  const auto nearer = [&](const RowKind& a, const RowKind& b) {
    if (lacks(a) != lacks(b)) return lacks(a) < lacks(b);
    return words(a.columns).size() > words(b.columns).size();
  };
  const RowKind& best = *std::min_element(kinds.begin(), kinds.end(), nearer);
  if (lacks(best) == 0) return best;
  std::vector<std::string> names;
  for (const RowKind& k : kinds) names.emplace_back(k.name);
  throw UserError{Diagnostic{"the head of this table is that of no kind of table that is known",
                             fmt::format("nearest is '{}', which also has the columns {}; known kinds: {}", best.name,
                                         joined(lacking(best, table)), joined(names)),
                             table.file(),
                             1,
                             0,
                             {}}};
}

}  // namespace orrery
