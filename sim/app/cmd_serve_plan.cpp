// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/serving/serve_search.hpp"
#include "sim/base/table.hpp"
#include "sim/base/units.hpp"
#include "sim/model/load.hpp"

namespace orrery {
namespace {

constexpr std::size_t kShown = 12;

double number_option(const std::string& flag, const std::string& value, double least, double most) {
  const std::optional<double> number = parse_number(value);
  if (!number || *number < least || *number > most)
    throw UserError{fmt::format("option {} is {}", flag, in_quotes(value)),
                    fmt::format("give a number from {:g} to {:g}", least, most)};
  return *number;
}

/// "ttft=500ms,tpot=30ms".
SloOptions parse_slo(const std::string& text) {
  std::string yaml = "{";
  for (const char c : text) yaml += c == '=' ? ": " : c == ',' ? ", " : std::string(1, c);
  SloOptions slo;
  read_options(parse_yaml(yaml + "}", "--slo"), slo);
  return slo;
}

class ServePlan final : public Command {
 public:
  std::string_view name() const override { return "serve-plan"; }
  std::string_view summary() const override { return "the cheapest way to serve a model within an SLO"; }
  std::string_view arguments() const override { return "MODEL"; }
  Arity arity() const override { return {1, 1}; }
  std::string details() const override {
    return "Searches ranks per replica, replicas, schedulers, limits of a step, and prompts on replicas of their own.\n"
           "Each candidate is simulated under the whole traffic; the cheapest has the fewest GPUs.\n";
  }

  std::vector<Flag> flags() override {
    TrafficOptions& t = options_.traffic;
    const auto length = [](LengthOptions& to, const char* flag) {
      return [&to, flag](const std::string& v) { to.mean = double(integer_option(flag, v, 1)); };
    };
    return {{"--cluster", "CLUSTER", "file, or name of `orrery list clusters`",
             [this](const std::string& v) { cluster_ = v; }},
            {"--slo", "ttft=T,tpot=T", "what is promised: ttft=500ms,tpot=30ms",
             [this](const std::string& v) { options_.slo = parse_slo(v); }},
            {"--attain", "PART", "part of the requests that have to be within it; default 0.9",
             [this](const std::string& v) { attain_ = number_option("--attain", v, 0, 1); }},
            {"--trace", "FILE", "requests (CSV or JSON lines)", [&t](const std::string& v) { t.trace = v; }},
            {"--rate", "R", "requests per second, where there is no trace; default 1",
             [&t](const std::string& v) { t.rate = number_option("--rate", v, 1e-6, 1e6); }},
            {"--prompt", "TOKENS", "mean length of prompts; default 512", length(t.prompt, "--prompt")},
            {"--output", "TOKENS", "mean length of answers; default 128", length(t.output, "--output")},
            {"--requests", "N", "requests that are simulated; default 500",
             [&t](const std::string& v) { t.requests = integer_option("--requests", v, 1); }},
            {"--seed", "N", "of arrivals and lengths",
             [&t](const std::string& v) { t.seed = integer_option("--seed", v, 0); }},
            {"--gpus", "N", "at most; default: all of the cluster",
             [this](const std::string& v) { gpus_ = integer_option("--gpus", v, 1); }},
            {"--profile", "NAME", "of `orrery list profiles`; default vllm",
             [this](const std::string& v) { profile_ = v; }},
            {"--weights", "TYPE", "model, fp8, int8 or fp4", [this](const std::string& v) { options_.weights = v; }},
            {"--no-disaggregation", "", "prompts and answers on the same replicas only",
             [this](const std::string&) { disaggregate_ = false; }}};
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const Locations& locations = context.wiring.locations();
    const Model model = load_model(locations.find_model(arguments[0]));
    if (cluster_.empty()) throw UserError{"there is no cluster", "name one of `orrery list clusters` with --cluster"};
    options_.traffic.prompt.kind = options_.traffic.output.kind = LengthKind::Lognormal;
    options_.traffic.prompt.deviation = options_.traffic.prompt.mean / 2;
    options_.traffic.output.deviation = options_.traffic.output.mean / 2;
    options_.bucket = 32;
    const ServeSearch found = search_serving({.model = model,
                                              .wiring = context.wiring,
                                              .cluster = load_cluster(locations.find_cluster(cluster_)),
                                              .profile = find_profile(profile_),
                                              .options = options_,
                                              .attain = attain_,
                                              .gpus = gpus_,
                                              .disaggregate = disaggregate_});
    context.console.out(context.json ? document(found) : text(found));
    return !found.candidates.empty() && found.candidates.front().meets ? exit_code::kOk : exit_code::kMissed;
  }

 private:
  static nlohmann::json row(const ServeCandidate& c) {
    return {{"gpus", c.gpus()},
            {"tp", c.tp},
            {"replicas", c.replicas},
            {"prefill_replicas", c.prefill_replicas},
            {"scheduler", c.scheduler},
            {"max_sequences", c.max_sequences},
            {"max_tokens", c.max_tokens},
            {"meets", c.meets},
            {"within_slo", c.within},
            {"ttft", c.ttft},
            {"tpot", c.tpot},
            {"goodput", c.goodput},
            {"peak_kv", c.kv}};
  }

  std::string document(const ServeSearch& found) const {
    nlohmann::json j = {{"schema_version", 1},
                        {"seed", options_.traffic.seed},
                        {"simulations", found.simulations},
                        {"wall_seconds", found.wall_seconds},
                        {"candidates", nlohmann::json::array()}};
    for (const ServeCandidate& c : found.candidates) j["candidates"].push_back(row(c));
    if (!found.candidates.empty() && found.candidates.front().meets) j["best"] = row(found.candidates.front());
    return j.dump(2) + "\n";
  }

  static std::string replicas_of(const ServeCandidate& c) {
    const auto counted = [&](std::int64_t n) { return fmt::format("{} replica{} of {}", n, n == 1 ? "" : "s", c.tp); };
    if (c.prefill_replicas == 0) return counted(c.replicas);
    return fmt::format("{} for prompts and {} for answers", counted(c.prefill_replicas), counted(c.replicas));
  }

  std::string text(const ServeSearch& found) const {
    if (found.candidates.empty()) return "no replica fits into the memory of its devices\n";
    const std::string quantile = fmt::format("p{:g}", 100 * attain_);
    Table table{{{"GPUs", Align::Right},
                 {"tp", Align::Right},
                 {"replicas", Align::Right},
                 {"scheduler", Align::Left},
                 {"sequences", Align::Right},
                 {"tokens", Align::Right},
                 {"TTFT " + quantile, Align::Right},
                 {"TPOT " + quantile, Align::Right},
                 {"within SLO", Align::Right},
                 {"goodput", Align::Right}}};
    for (std::size_t i = 0; i < std::min(kShown, found.candidates.size()); ++i) {
      const ServeCandidate& c = found.candidates[i];
      table.add({fmt::format("{}", c.gpus()), fmt::format("{}", c.tp),
                 c.prefill_replicas > 0 ? fmt::format("{} + {}", c.prefill_replicas, c.replicas)
                                        : fmt::format("{}", c.replicas),
                 c.scheduler, fmt::format("{}", c.max_sequences), fmt::format("{}", c.max_tokens),
                 to_text(Seconds{c.ttft}), to_text(Seconds{c.tpot}), fmt::format("{:.1f} %", 100 * c.within),
                 fmt::format("{:.3g} /s", c.goodput)});
    }
    const ServeCandidate& best = found.candidates.front();
    std::string head =
        best.meets ? fmt::format("{} GPU{} enough: {} by {}\n\n", best.gpus(), best.gpus() == 1 ? " is" : "s are",
                                 replicas_of(best), best.scheduler)
                   : fmt::format("not met: at best {:.1f} % of the requests are within the SLO\n\n", 100 * best.within);
    return head + table.text() +
           fmt::format("\n{} ways in {} simulations, seed {}, {}\n", found.candidates.size(), found.simulations,
                       options_.traffic.seed, to_text(Seconds{found.wall_seconds}));
  }

  static ServeOptions defaults() {
    ServeOptions o;
    o.traffic.requests = 500;
    return o;
  }
  ServeOptions options_ = defaults();
  std::string cluster_, profile_ = "vllm";
  double attain_ = 0.9;
  std::int64_t gpus_ = 0;
  bool disaggregate_ = true;
};

}  // namespace

std::unique_ptr<Command> make_serve_plan() { return std::make_unique<ServePlan>(); }

}  // namespace orrery
