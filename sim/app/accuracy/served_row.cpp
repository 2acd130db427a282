// SPDX-License-Identifier: Apache-2.0
// Served models from the columns of a table.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/app/accuracy/named_models.hpp"
#include "sim/app/accuracy/published_step.hpp"
#include "sim/app/accuracy/server_defaults.hpp"
#include "sim/strategy/model_parts.hpp"

namespace orrery {
namespace {

/// The part of the memory that SGLang took by default until 2025, by the number of GPUs of a replica
/// (python/sglang/srt/server_args.py of 0.4, `mem_fraction_static`).
double sglang_memory_2024(std::int64_t tp) {
  return tp >= 16 ? 0.79 : tp >= 8 ? 0.81 : tp >= 4 ? 0.85 : tp >= 2 ? 0.87 : 0.88;
}

/// "n_requests=3000;total_in=…": the number behind a key.
std::optional<double> extra(const CsvRow& row, std::string_view key) {
  const std::string text = fmt::format(";{};", row["extra"]), wanted = fmt::format(";{}=", key);
  const std::size_t at = text.find(wanted);
  if (at == std::string::npos) return {};
  return std::strtod(text.c_str() + at + wanted.size(), nullptr);
}

/// SGLang's own benchmark sends all requests at once; the others keep a number of clients busy.
bool is_burst(const CsvRow& row) {
  return row["software"] == "sglang" && row["software_version"].starts_with("0.5.1.");
}

/// InferenceMAX draws lengths between four fifths of what it names and all of it: tables have its rows by the day. The
/// others are runs by which aiconfigurator is checked, with all lengths as they are named.
bool is_drawn(const CsvRow& row) { return row["origin"].starts_with("20") || row["origin"].starts_with("db-dump"); }

/// Clients send so many requests each in a run, the first ones all at once (InferenceMAX by default; aiconfigurator
/// gives genai-perf a `--request-count` of ten times its `--concurrency`).
constexpr std::int64_t kWaves = 10;
/// Of runs with drawn lengths the middle is simulated: two requests of each client behind one that fills the server.
constexpr std::int64_t kMiddle = 2;
/// Prompts of tokens that were drawn at random take so many times as long to read as text: by hand, with half of the
/// rows of vLLM and gpt-oss in view.
constexpr double kRandomText = 3;
/// Different prompts that genai-perf makes where `--num-dataset-entries` is not given.
constexpr std::int64_t kEntries = 100;

/// Whether the same prompts come again and again to a server that keeps them, as rows of vLLM 0.12 and TensorRT-LLM 1.2
/// in 8 bits show. In other runs each request has its own prompt.
bool repeats_prompts(const CsvRow& row, const ServedRow& r) {
  return !is_drawn(row) && r.server != "sglang" && r.options.weights == "fp8" &&
         !row["software_version"].starts_with("1.0.");
}

/// What runs of TensorRT-LLM 1.0.0rc3 in 16 bits show by Little's law: of c clients one waits for a whole answer of the
/// others (TTFT ≈ prompt + osl·TPOT / (c − 1)), so the server takes one sequence less than there are clients. Those in
/// 8 bits do not show it.
bool lacks_a_place(const CsvRow& row) {
  return row["software"] == "trtllm" && row["software_version"] == "1.0.0rc3" && !row["gemm_quant"].starts_with("fp8");
}

bool is_positive(const std::optional<double>& v) { return v && *v > 0; }

LengthOptions length_of(const CsvRow& row, std::int64_t tokens) {
  if (!is_drawn(row)) return {.mean = double(tokens)};
  return {.kind = LengthKind::Uniform, .mean = 0.9 * double(tokens), .least = tokens * 4 / 5, .most = tokens};
}

/// How InferenceMAX starts servers of gpt-oss and DeepSeek-R1 (benchmarks/*_h200*.sh of its repository, 2025 and 2026):
/// vLLM with --async-scheduling, SGLang with --mem-fraction-static and chunks of 32768 tokens, TensorRT-LLM with a part
/// of the free memory and steps of 20000 tokens for gpt-oss, of one prompt beside all that decode for DeepSeek-R1.
/// SGLang hands ten tokens out at once (--stream-interval), TensorRT-LLM as many, or twenty of gpt-oss. On Blackwell
/// (*_b200*.sh) all keep keys in 8 bits, and SGLang looks for requests every 10th step, from 16 clients on every 30th.
void set_recipe(const CsvRow& row, ServedRow& r) {
  ReplicaOptions& o = r.options.replica;
  const std::int64_t clients = r.options.traffic.clients;
  r.reading = kRandomText;
  if (is_blackwell(r.cluster.device)) o.kv_type = KvType::F8;
  if (o.scheduler == "vllm_v1") {
    o.scheduler = "vllm_v1_async";
    o.max_sequences = clients;
  } else if (o.scheduler == "sglang") {
    o.max_tokens = 32768;
    o.memory_of = MemoryOf::WeightsAndPool;
    r.handing = 0.1;
    if (is_blackwell(r.cluster.device)) o.notice_every = clients >= 16 ? 30 : 10;
  } else {
    const bool is_gpt_oss = r.options.weights == "fp4_experts";
    o.max_tokens = is_gpt_oss ? 20000 : clients + row.integer("isl").value_or(0) + 64;
    o.max_sequences = clients;
    o.memory_of = MemoryOf::Free;
    o.memory = is_gpt_oss ? 0.85 : 0.75;
    r.handing = is_gpt_oss ? 0.05 : 0.1;
  }
}

/// Servers of aiconfigurator's runs take a step of one prompt beside all that decode (`max_num_tokens` of its
/// templates); SGLang's mix prompts with sequences that decode (`--enable-mixed-chunk`). Others as they are by default:
/// in TensorRT-LLM prompts go in whole.
void set_limits(const CsvRow& row, ServedRow& r) {
  ReplicaOptions& o = r.options.replica;
  const std::int64_t clients = r.options.traffic.clients, one_prompt = row.integer("isl").value_or(0) + clients;
  if (is_burst(row)) return;
  if (is_drawn(row) && has_experts(*r.model)) set_recipe(row, r);
  if (o.scheduler == "sglang" && !is_drawn(row))
    o.scheduler = "sglang_mixed";
  else if (!is_drawn(row))
    o.max_tokens = one_prompt;
  else if (o.scheduler == "tensorrt_llm" && !has_experts(*r.model))
    o.max_tokens = std::max(o.max_tokens, one_prompt);
  if (lacks_a_place(row)) o.max_sequences = std::max<std::int64_t>(1, clients - 1);
}

/// Which requests are simulated, and which of them count.
void set_requests(const CsvRow& row, ServedRow& r) {
  TrafficOptions& t = r.options.traffic;
  t.arrival = Arrival::AllAtOnce;
  t.requests = kWaves * t.clients;
  if (is_burst(row)) t.requests = t.clients;
  if (is_drawn(row)) {
    t.requests = (1 + kMiddle) * t.clients;
    r.first = t.clients;
    r.at_once = 1.0 / double(kWaves);
  }
  if (!repeats_prompts(row, r)) return;
  r.options.replica.prefix_sharing = true;
  t.groups = kEntries;
  t.shared = row.integer("isl").value_or(1);
}

/// Conversations of ShareGPT, of which tables give means: benchmarks leave out prompts of more than 1024 tokens, those
/// of more than 2048 with their answers, and either with fewer than 4. How far lengths spread is told by no table: of a
/// nearly idle server (sgl-0014, one of the rows to which `sglang_2024` is fitted) the median request takes 0.62 of the
/// time of the mean one, and lengths with a logarithm distributed normally have this ratio at √(0.62⁻² − 1).
constexpr double kShareGptSpread = 1.27;
constexpr std::int64_t kShareGptLeast = 4, kShareGptPrompt = 1024, kShareGptAll = 2048;

LengthOptions drawn_lengths(const CsvRow& row, std::string_view most_key, double mean, std::int64_t most) {
  if (const auto m = extra(row, most_key); m && extra(row, "range_ratio") == 0.0)
    return {.kind = LengthKind::Uniform, .least = 1, .most = static_cast<std::int64_t>(*m)};
  if (contains(row["extra"], "dataset=sharegpt;"))
    return {.kind = LengthKind::Lognormal,
            .mean = mean,
            .deviation = kShareGptSpread * mean,
            .least = kShareGptLeast,
            .most = most};
  return {.mean = mean};
}

/// Benchmarks that draw prompts with a fixed seed send the same ones again when they are started again: earlier runs
/// left the first ones in the server's cache. These go first here, and the run itself long behind them.
class RepeatedPrompts final : public RequestSource {
 public:
  RepeatedPrompts(const TrafficOptions& run, std::int64_t seen)
      : before_{all_at_once(run, seen)}, run_{generated_requests(run, 0)}, seen_{seen} {}

  std::optional<Request> next() override {
    constexpr double kPause = 1e6;  // seconds, until all before are answered
    const bool is_before = made_ < seen_;
    std::optional<Request> r = is_before ? before_->next() : run_->next();
    if (!r) return r;
    r->group = is_before ? made_ : made_ - seen_;
    r->shared = r->prompt;
    if (!is_before) r->arrival += kPause;
    r->id = made_++;
    return r;
  }

 private:
  static std::unique_ptr<RequestSource> all_at_once(TrafficOptions o, std::int64_t count) {
    o.arrival = Arrival::AllAtOnce;
    o.requests = count;
    return generated_requests(o, 0);
  }

  std::unique_ptr<RequestSource> before_, run_;
  std::int64_t seen_, made_ = 0;
};

/// How many of a run's prompts its server has answered before, where it keeps them: the first one, with which the
/// benchmark tries the server, and those of the runs above it on the page, up to one of more prompts: there the server
/// was started anew.
std::int64_t seen_before(const CsvRow& row, std::int64_t requests) {
  if (!contains(row["notes"], "prefix caching on")) return 0;
  std::int64_t seen = 1;
  for (std::size_t i = row.index(); i-- > 0;) {
    const CsvRow above = row.table().row(i);
    const auto count = above.integer("concurrency");
    if (above["section"] != row["section"] || !count || *count > requests) break;
    if (above["isl"] == row["isl"]) seen = std::max(seen, *count);
  }
  return std::min(seen, requests);
}

/// Both of what pages of vLLM and SGLang print, means where there are some.
void read_measured_run(const CsvRow& row, ServedRow& r) {
  const bool medians = contains(row["notes"], "median");
  const auto add = [&](std::string_view name, std::string_view mean_key, std::string_view column) {
    if (const auto mean = extra(row, mean_key); is_positive(mean))
      r.measured.emplace_back(name, *mean * 1e-3);
    else if (const auto ms = row.number(column); is_positive(ms))
      r.measured.emplace_back(fmt::format("{}{}", name, medians ? "_median" : ""), *ms * 1e-3);
  };
  add("tpot", "mean_tpot_ms", "tpot_ms");
  add("ttft", "mean_ttft_ms", "ttft_ms");
  if (const auto ms = extra(row, "median_itl_ms"); is_positive(ms)) r.measured.emplace_back("itl_median", *ms * 1e-3);
  const bool whole = contains(row["notes"], "latency_ms is the duration");
  if (!whole) add("e2e", "mean_e2e_ms", "latency_ms");
  if (const auto s = extra(row, "duration_s"); is_positive(s))
    r.measured.emplace_back("duration", *s);
  else if (const auto ms = row.number("latency_ms"); whole && is_positive(ms))
    r.measured.emplace_back("duration", *ms * 1e-3);
}

/// What no server here does, and rows that their own table doubts.
std::optional<Skip> unsupported_server(const CsvRow& row) {
  const auto more_than_one = [&](std::string_view column) { return row.number(column).value_or(1) > 1; };
  if (row.has("quality") && row["quality"] != "clean")
    return Skip{SkipReason::Ambiguous, fmt::format("quality '{}'", row["quality"])};
  if (row.has("mode") && row["mode"] != "agg")
    return Skip{SkipReason::UnsupportedFeature, "prompts and answers on different workers"};
  if (more_than_one("pp")) return Skip{SkipReason::UnsupportedFeature, "stages of a server"};
  if (more_than_one("attention_dp") || more_than_one("dp"))
    return Skip{SkipReason::UnsupportedFeature, "requests that are split over the ranks of a server"};
  return {};
}

}  // namespace

ServedRowOf read_silicon_row(const CsvRow& row, NamedModels& models) {
  ServedRow r{.row_id = std::string{row["row_id"]}};
  if (const auto skip = unsupported_server(row)) return *skip;
  const ServerDefaults* server = find_server(row["software"]);
  if (!server) return Skip{SkipReason::UnsupportedFeature, fmt::format("software '{}'", row["software"])};
  r.tp = std::max<std::int64_t>(1, row.integer("tp").value_or(1));
  r.model = models.find(row["model"], r.tp);
  if (!r.model) return Skip{SkipReason::UnknownModel, std::string{row["model"]}};
  r.model_name = row["model"];
  const auto cluster = read_cluster_of(row, models.locations().clusters());
  if (const auto* skip = std::get_if<Skip>(&cluster)) return *skip;
  r.cluster = std::get<Cluster>(cluster);
  const auto clients = row.integer(row.has("concurrency") ? "concurrency" : "batch"), in = row.integer("isl"),
             out = row.integer("osl"), tp = row.integer("tp");
  if (!is_count(clients) || !is_count(in) || !is_count(out) || !is_count(tp))
    return Skip{SkipReason::Incomplete, "concurrency, isl, osl or tp is empty"};
  const auto ttft = row.number("ttft_ms"), tpot = row.number("tpot_ms");
  r.options.weights = weights_of(row["model"], lower_case(row["gemm_quant"]));
  apply_server(r, *server, row["software"], Asked::Server);
  if (!is_positive(ttft) && !is_positive(tpot)) return Skip{SkipReason::NoMeasurement, "ttft_ms and tpot_ms are empty"};
  if (r.options.replica.scheduler == "vllm_v1" && *clients > kVllmSequences)
    return Skip{SkipReason::Incomplete, "more clients than vLLM takes sequences, and the limit is not named"};
  TrafficOptions& t = r.options.traffic;
  t.prompt = length_of(row, *in);
  t.output = length_of(row, *out);
  t.clients = *clients;
  set_limits(row, r);
  set_requests(row, r);
  r.options.bucket = 16;
  if (is_positive(tpot)) r.measured.emplace_back("tpot", *tpot * 1e-3);
  if (is_positive(ttft)) r.measured.emplace_back("ttft", *ttft * 1e-3);
  return r;
}

ServedRowOf served_run(std::string_view gpu, std::string_view model_name, const Locations& locations) {
  const std::string low = lower_case(model_name);
  const std::size_t split = low.rfind("-tp");
  const std::vector<double> ranks =
      split == std::string::npos ? std::vector<double>{} : numbers_in(low.substr(split + 3));
  const auto tp = ranks.empty() ? std::int64_t{1} : std::max<std::int64_t>(1, static_cast<std::int64_t>(ranks.front()));
  const CsvTable table{fmt::format("gpu,n_gpus\n{},{}\n", gpu, tp), "run"};
  const auto cluster = read_cluster_of(table.row(0), locations.clusters());
  if (const auto* skip = std::get_if<Skip>(&cluster)) return *skip;
  const std::shared_ptr<const Model> model = named_model(model_name, tp, locations);
  if (!model) return Skip{SkipReason::UnknownModel, std::string{model_name}};
  ServedRow r{.model_name = std::string{model_name}, .model = model, .cluster = std::get<Cluster>(cluster), .tp = tp};
  apply_server(r, *find_server("vllm"), "vllm", Asked::Server);
  return r;
}

ServedRowOf read_serving_run(const CsvRow& row, NamedModels& models) {
  if (const auto skip = unsupported_server(row)) return *skip;
  ServedRowOf read = read_model_of_sizes(row, models.locations(), Asked::Server);
  if (std::holds_alternative<Skip>(read)) return read;
  ServedRow r = std::get<ServedRow>(std::move(read));
  const auto in = row.number("isl"), out = row.number("osl");
  const double requests = extra(row, "n_requests").value_or(row.number("concurrency").value_or(0));
  if (!is_count(in) || !is_count(out) || !is_count(requests))
    return Skip{SkipReason::Incomplete, "isl, osl or the number of requests is empty"};
  if (r.server == "sglang" && contains(row["software"], "2024")) {
    r.options.replica.memory = sglang_memory_2024(r.tp);
    r.options.replica.memory_of = MemoryOf::WeightsAndPool;
  }
  // bench_serving asks for answers of their whole length.
  r.options.replica.known_lengths = r.server == "sglang" && contains(row["software"], "radix cache off");
  TrafficOptions& t = r.options.traffic;
  std::optional<double> rate = row.number("request_rate");
  if (!is_positive(rate) || std::isinf(*rate)) rate.reset();
  t.arrival = rate ? Arrival::Poisson : Arrival::AllAtOnce;
  if (rate) t.rate = *rate;
  t.prompt = drawn_lengths(row, "random_input_max", *in, kShareGptPrompt);
  t.output = drawn_lengths(row, "random_output_max", *out, kShareGptAll - kShareGptLeast);
  t.requests = static_cast<std::int64_t>(requests);
  if (const auto gib = extra(row, "kv_cache_gib_per_gpu"))
    r.options.replica.kv_tokens = static_cast<std::int64_t>(
        *gib * 1073741824.0 / kv_bytes_per_token(*r.model, dtype_of(r.options.dtype), r.tp).base());
  if (const auto most = extra(row, "max_num_seqs")) r.options.replica.max_sequences = static_cast<std::int64_t>(*most);
  if (const auto most = extra(row, "max_num_batched_tokens"))
    r.options.replica.max_tokens = static_cast<std::int64_t>(*most);
  r.options.bucket = 16;
  read_measured_run(row, r);
  if (r.measured.empty()) return Skip{SkipReason::NoMeasurement, "no time of the run or of its requests"};
  if (const std::int64_t seen = seen_before(row, t.requests); seen > 0) {
    r.options.replica.prefix_sharing = true;
    r.requests = [run = t, seen] { return std::make_unique<RepeatedPrompts>(run, seen); };
    r.first = seen;
  }
  return r;
}

}  // namespace orrery
