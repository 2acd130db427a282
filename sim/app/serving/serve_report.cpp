// SPDX-License-Identifier: Apache-2.0
#include "sim/app/serving/serve_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/base/table.hpp"

namespace orrery {
namespace {

constexpr int kSchemaVersion = 2;

/// A time that is reported: its name, and where it stands in a result.
struct Measure {
  std::string_view name, summary;
  Histogram ServingResult::*member;
  RequestTime time;
};
constexpr Measure kMeasures[] = {{"ttft", "to the first token", &ServingResult::ttft, RequestTime::First},
                                 {"tpot", "per token behind it", &ServingResult::tpot, RequestTime::Token},
                                 {"itl", "between two tokens", &ServingResult::itl, RequestTime::Token},
                                 {"e2e", "to the last token", &ServingResult::e2e, RequestTime::Whole}};

/// Of the mean.
std::optional<ServedInterval> interval_of(const ServeReport& r, const Measure& m) {
  if (r.others.empty()) return {};
  Extremes extremes;
  for (std::size_t run = 0; run < r.others.size(); ++run)
    extremes[kind_of_run(run)].add((r.others[run].*m.member).mean());
  return interval_of((r.result.*m.member).mean(), extremes, r.multiples[static_cast<std::size_t>(m.time)]);
}

nlohmann::json distribution(const ServeReport& r, const Measure& m) {
  const Histogram& h = r.result.*m.member;
  nlohmann::json j = {{"mean", h.mean()},        {"p50", h.quantile(0.5)},  {"p90", h.quantile(0.9)},
                      {"p95", h.quantile(0.95)}, {"p99", h.quantile(0.99)}, {"max", h.most()}};
  if (const auto interval = interval_of(r, m)) j["low"] = interval->low, j["high"] = interval->high;
  return j;
}

std::string seconds(double s) { return to_text(Seconds{s}); }

std::string line(std::string_view name, const std::string& value) { return fmt::format("  {:<18} {}\n", name, value); }

std::string memory_text(const ServeReport& r, const Console& console) {
  const ReplicaMemory& m = r.memory;
  if (!r.fits())
    return line("memory", console.bad(fmt::format("does not fit: {} of weights and {} of activations in {}",
                                                  to_text(m.weights), to_text(m.activations), to_text(m.capacity))));
  return line("memory of a rank",
              fmt::format("{} weights, {} activations, {} keys and values of {}", to_text(m.weights),
                          to_text(m.activations), to_text(m.pool), to_text(m.capacity))) +
         line("pool", fmt::format("{} blocks of {} tokens; {:.1f} % held in the mean, {:.1f} % at most", m.blocks,
                                  r.options.replica.block, 100 * r.result.mean_kv, 100 * r.result.peak_kv));
}

std::string times_text(const ServeReport& r) {
  const bool intervals = !r.others.empty();
  std::vector<Table::Column> columns{{"", Align::Left}, {"mean", Align::Right}};
  if (intervals) columns.push_back({"90 % interval", Align::Right});
  for (const char* quantile : {"p50", "p90", "p99"}) columns.push_back({quantile, Align::Right});
  Table table{columns};
  for (const Measure& m : kMeasures) {
    const Histogram& h = r.result.*m.member;
    if (h.count() == 0) continue;
    std::vector<std::string> row{fmt::format("{} {}", m.name, m.summary), seconds(h.mean())};
    if (const auto interval = interval_of(r, m))
      row.push_back(fmt::format("{} … {}", seconds(interval->low), seconds(interval->high)));
    for (const double q : {0.5, 0.9, 0.99}) row.push_back(seconds(h.quantile(q)));
    table.add(row);
  }
  return table.text("  ");
}

bool has_slo(const SloOptions& slo) { return slo.ttft < SloOptions{}.ttft || slo.tpot < SloOptions{}.tpot; }

}  // namespace

nlohmann::json to_json(const ServeReport& r) {
  const ServingResult& s = r.result;
  const ReplicaMemory& m = r.memory;
  nlohmann::json j = {{"schema_version", kSchemaVersion},
                      {"scenario", r.scenario},
                      {"scheduler", r.options.replica.scheduler},
                      {"replicas", r.options.replicas},
                      {"prefill_replicas", r.options.prefill_replicas},
                      {"ranks", r.ranks * (r.options.replicas + r.options.prefill_replicas)},
                      {"seed", r.options.traffic.seed},
                      {"unread", r.unread},
                      {"requests", s.requests},
                      {"answered", s.answered},
                      {"refused", s.refused},
                      {"overlong", s.overlong},
                      {"trace_goes_on", s.trace_goes_on},
                      {"overloaded", s.is_overloaded()},
                      {"most_waiting", s.most_waiting},
                      {"seconds", s.seconds},
                      {"requests_per_second", s.request_rate()},
                      {"output_tokens_per_second", s.output_rate()},
                      {"goodput", s.goodput()},
                      {"within_slo", s.answered > 0 ? double(s.within_slo) / double(s.answered) : 0},
                      {"prompt_tokens", s.prompt_tokens},
                      {"output_tokens", s.output_tokens},
                      {"shared_tokens", s.shared_tokens},
                      {"steps", s.steps},
                      {"rows_per_step", s.batch.mean()},
                      {"preemptions", s.preemptions},
                      {"busy", s.busy},
                      {"kv", {{"blocks", m.blocks}, {"mean", s.mean_kv}, {"peak", s.peak_kv}}},
                      {"memory",
                       {{"capacity", m.capacity.base()},
                        {"weights", m.weights.base()},
                        {"activations", m.activations.base()},
                        {"pool", m.pool.base()},
                        {"fits", r.fits()}}},
                      {"deviation", {{"decodes", r.doubt.decodes}, {"prompts", r.doubt.prompts}}},
                      {"templates", r.templates},
                      {"wall_seconds", r.wall_seconds}};
  for (const Measure& measure : kMeasures) j[std::string{measure.name}] = distribution(r, measure);
  return j;
}

std::string to_text(const ServeReport& r, const Console& console) {
  const ServingResult& s = r.result;
  const ServeOptions& o = r.options;
  std::string text = line(
      "served by", o.prefill_replicas > 0
                       ? fmt::format("{} replicas that read prompts and {} that decode, {} rank{} each",
                                     o.prefill_replicas, o.replicas, r.ranks, r.ranks == 1 ? "" : "s")
                       : fmt::format("{} replica{} of {} rank{}, scheduler {}", o.replicas, o.replicas == 1 ? "" : "s",
                                     r.ranks, r.ranks == 1 ? "" : "s", o.replica.scheduler));
  for (const std::string& key : r.unread) text += line("not read", key);
  text += memory_text(r, console);
  if (!r.fits()) return text;
  const std::string seed = o.traffic.trace.empty() ? fmt::format(" (seed {})", o.traffic.seed) : "";
  text += line("requests", fmt::format("{} answered of {} in {}{}", s.answered, s.requests, seconds(s.seconds), seed));
  if (s.trace_goes_on) text += line("", "the trace goes on: `requests` is the most that are read of it, 0 reads all");
  if (s.overlong > 0)
    text += line("", fmt::format("{} {} longer than the context", s.overlong, s.overlong == 1 ? "was" : "were"));
  if (s.is_overloaded())
    text += line("overload", console.bad(fmt::format("requests come faster than they are answered: up to {} waited, {} "
                                                     "were refused",
                                                     s.most_waiting, s.refused)));
  text += line("throughput", fmt::format("{:.4g} requests/s, {:.5g} tokens/s", s.request_rate(), s.output_rate()));
  if (has_slo(o.slo))
    text += line("goodput", fmt::format("{:.4g} requests/s; {:.1f} % are within the SLO", s.goodput(),
                                        s.answered > 0 ? 100 * double(s.within_slo) / double(s.answered) : 0));
  text += line("steps", fmt::format("{} of {:.4g} rows, replicas are busy {:.1f} % of the time", s.steps,
                                    s.batch.mean(), 100 * s.busy));
  if (s.preemptions > 0) text += line("preemptions", fmt::format("{}", s.preemptions));
  if (s.shared_tokens > 0)
    text += line("shared", fmt::format("{:.1f} % of the tokens of prompts",
                                       100 * double(s.shared_tokens) / double(s.prompt_tokens)));
  return text + "\n" + times_text(r) + fmt::format("\n  {} in {} of wall time\n", r.scenario, seconds(r.wall_seconds));
}

}  // namespace orrery
