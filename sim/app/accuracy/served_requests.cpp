// SPDX-License-Identifier: Apache-2.0
// Single requests of a published run: the run is simulated once, and its rows compared one by one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/statistics.hpp"
#include "sim/app/accuracy/published_step.hpp"
#include "sim/app/accuracy/serving_rows.hpp"

namespace orrery {
namespace {

/// The requests of a table's run, as they came.
class TableRequests final : public RequestSource {
 public:
  explicit TableRequests(std::vector<Request> all) : all_{std::move(all)} {}
  std::optional<Request> next() override {
    if (next_ == all_.size()) return std::nullopt;
    return all_[next_++];
  }

 private:
  std::vector<Request> all_;
  std::size_t next_ = 0;
};

/// "lss-RTX4090-Llama-3.1-8B": the GPU, and the model behind it. Nothing for names of another form.
struct RunName {
  std::string gpu, model;
};
std::optional<RunName> parse_run(std::string_view run) {
  constexpr std::string_view kPrefix = "lss-";
  if (!run.starts_with(kPrefix)) return {};
  run.remove_prefix(kPrefix.size());
  const std::size_t dash = run.find('-');
  if (dash == std::string_view::npos) return {};
  return RunName{std::string{run.substr(0, dash)}, std::string{run.substr(dash + 1)}};
}

/// Nothing where the row does not say when it came or how long it is.
std::optional<Request> request_of(const CsvRow& row) {
  constexpr double kLatest = 1e7;  // seconds
  const auto arrival = row.number(row.has("queued_s") ? "queued_s" : "arrival_s");
  const auto prompt = row.integer("input_tokens"), output = row.integer("output_tokens");
  if (!arrival || *arrival < 0 || *arrival > kLatest || !is_count(prompt) || !is_count(output)) return {};
  Request r;
  r.arrival = *arrival, r.prompt = *prompt, r.output = *output;
  return r;
}

class RequestPredictor final : public RowPredictor {
 public:
  explicit RequestPredictor(const Wiring& wiring) : wiring_{wiring} {}

  RowResult predict(const CsvRow& row) const override {
    const auto ttft = row.number("ttft_from_queued_ms"), e2e = row.number("e2e_from_queued_ms");
    if (!ttft || !e2e || *ttft <= 0 || *e2e <= 0)
      return Skip{SkipReason::NoMeasurement, "ttft_from_queued_ms or e2e_from_queued_ms is empty"};
    if (!request_of(row)) return Skip{SkipReason::Incomplete, "arrival_s, input_tokens or output_tokens is empty"};
    try {
      const Run& run = of(row);
      if (run.skip) return *run.skip;
      const Answer& a = run.answers.at(std::string{row["request_id"]});
      const Intervals alone = run.others.intervals(a, {1, 1, 1}),
                      told = run.others.intervals(a, multiples_of(*run.profile));
      RowPrediction out;
      const auto add = [&](std::string_view name, RequestTime time, double milliseconds) {
        const auto of = static_cast<std::size_t>(time);
        Observation o = observe(row, {name, milliseconds * 1e-3, time_of(a, time), {}}, *run.profile);
        o.low = told[of].low, o.high = told[of].high;
        o.forecast = told_as(time);
        o.unit = unit_of(o, alone[of]);
        o.source = row["run_id"];
        out.observations.push_back(std::move(o));
      };
      add("e2e", RequestTime::Whole, *e2e);
      add("ttft", RequestTime::First, *ttft);
      if (const auto tpot = row.number("tpot_ms"); tpot && *tpot > 0 && a.output > 1)
        add("tpot", RequestTime::Token, *tpot);
      return out;
    } catch (const UserError& e) {
      return Skip{SkipReason::UnsupportedFeature, e.what()};
    }
  }

 private:
  struct Run {
    std::optional<Skip> skip;
    std::map<std::string, Answer> answers;  // by request id
    OtherAnswers others;
    const SoftwareProfile* profile = nullptr;
  };

  using Intervals = std::array<ServedInterval, kRequestTimes>;

  /// What deviations of a request's times are multiples of: its interval by errors of steps alone, on the side of what
  /// was measured.
  static double unit_of(const Observation& o, const ServedInterval& alone) {
    constexpr double kLeast = 1e-4;
    const double side =
        o.measured > o.predicted ? std::log(alone.high / o.predicted) : std::log(o.predicted / alone.low);
    return std::max(kLeast, side / kNinetyPercent);
  }

  const Run& of(const CsvRow& row) const {
    const std::lock_guard lock{mutex_};
    const std::string name{row["run_id"]};
    const auto [at, is_new] = runs_.try_emplace(name);
    if (is_new) simulate(row.table(), name, at->second);
    return at->second;
  }

  void simulate(const CsvTable& table, const std::string& name, Run& run) const {
    const auto parsed = parse_run(name);
    if (!parsed) {
      run.skip = Skip{SkipReason::Ambiguous, fmt::format("run '{}' does not name GPU and model", name)};
      return;
    }
    auto read = served_run(parsed->gpu, parsed->model, wiring_.locations());
    if (const auto* skip = std::get_if<Skip>(&read)) {
      run.skip = *skip;
      return;
    }
    ServedRow served = std::get<ServedRow>(std::move(read));
    std::vector<Request> requests;
    std::vector<std::string> ids;
    read_requests(table, name, requests, ids);
    served.requests = [requests] { return std::make_unique<TableRequests>(requests); };
    const SoftwareProfile& profile = profiles_.of(served.profile);
    run.profile = &profile;
    deployments_.simulate(served, profile,
                          [&](const Answer& a) { run.answers.emplace(ids[static_cast<std::size_t>(a.id)], a); });
    const auto others = other_runs(deployments_.doubt(served, profile));
    for (std::size_t i = 0; i < others.size(); ++i)
      deployments_.simulate(
          served, profile, [&](const Answer& a) { run.others.add(i, a); }, others[i]);
  }

  /// In order of arrival at the engine.
  static void read_requests(const CsvTable& table, const std::string& run, std::vector<Request>& requests,
                            std::vector<std::string>& ids) {
    struct Row {
      Request request;
      std::string id;
    };
    std::vector<Row> rows;
    for (std::size_t i = 0; i < table.num_rows(); ++i) {
      const CsvRow row = table.row(i);
      if (row["run_id"] != run) continue;
      if (const auto r = request_of(row)) rows.push_back({*r, std::string{row["request_id"]}});
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.request.arrival < b.request.arrival; });
    for (Row& r : rows) {
      r.request.id = static_cast<std::int64_t>(requests.size());
      requests.push_back(r.request);
      ids.push_back(r.id);
    }
  }

  const Wiring& wiring_;
  Profiles profiles_;
  mutable Deployments deployments_{wiring_};
  mutable std::mutex mutex_;
  mutable std::map<std::string, Run> runs_;
};

}  // namespace

std::unique_ptr<RowPredictor> make_served_request_predictor(const Wiring& wiring) {
  return std::make_unique<RequestPredictor>(wiring);
}

}  // namespace orrery
