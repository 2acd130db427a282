// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/serving_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/app/accuracy/published_step.hpp"
#include "sim/base/error.hpp"
#include "sim/strategy/model_parts.hpp"

namespace orrery {

/// Times, with what they were made of.
struct Deployments::Entry {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<PlanTimes> times;
  std::mutex mutex;
};

Deployments::Deployments(const Wiring& wiring, std::size_t most) : wiring_{wiring}, most_{most} {}
Deployments::~Deployments() = default;

StepDoubt Deployments::doubt(const ServedRow& row, const SoftwareProfile& profile) {
  return find(row, profile)->times->doubt();
}

void Deployments::forget_oldest() {
  const auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                       [](const auto& a, const auto& b) { return a.second.asked < b.second.asked; });
  entries_.erase(oldest);
}

std::shared_ptr<Deployments::Entry> Deployments::find(const ServedRow& row, const SoftwareProfile& profile) {
  const ServeOptions& o = row.options;
  const std::string key = fmt::format("{} {} {} {} {} {} {} {} tp{} {} {} {} {}", profile.name, profile.products,
                                      profile.streams, profile.launch, row.model_name, row.model->parameter_count(),
                                      row.cluster.device, row.cluster.num_ranks(), row.tp, int(o.dtype), o.weights,
                                      int(o.replica.kv_type), row.cluster.devices_per_node);
  const std::lock_guard lock{mutex_};
  if (const auto known = entries_.find(key); known != entries_.end()) {
    known->second.asked = ++questions_;
    return known->second.entry;
  }
  if (entries_.size() >= most_) forget_oldest();
  auto made = std::make_shared<Entry>();
  made->model = row.model;
  made->strategy = find_strategy("parallel").make(parse_yaml(fmt::format("{{mesh: tp{}}}", row.tp), "row"));
  made->times = std::make_unique<PlanTimes>(Deployment{.model = *made->model,
                                                       .strategy = *made->strategy,
                                                       .wiring = wiring_,
                                                       .cluster = row.cluster,
                                                       .profile = profile,
                                                       .options = o});
  entries_[key] = {made, ++questions_};
  return made;
}

namespace {

/// The first requests of clients that have been at it for a while are at random places of their answers: they are cut
/// to what is left, so that the others find the server as it is in the middle of a run.
class WarmRequests final : public RequestSource {
 public:
  WarmRequests(std::unique_ptr<RequestSource> inner, std::int64_t warm, std::uint64_t seed)
      : inner_{std::move(inner)}, warm_{warm}, random_{seed, 11} {}
  std::optional<Request> next() override {
    std::optional<Request> r = inner_->next();
    if (!r || r->id >= warm_) return r;
    r->output = 1 + static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(r->output)));
    return r;
  }

 private:
  std::unique_ptr<RequestSource> inner_;
  std::int64_t warm_;
  Random random_;
};

}  // namespace

ServingResult Deployments::simulate(const ServedRow& row, const SoftwareProfile& profile,
                                    const std::function<void(const Answer&)>& on_answer, const StepFactors& factors) {
  const std::shared_ptr<Entry> kept = find(row, profile);
  Entry& entry = *kept;
  const std::lock_guard lock{entry.mutex};
  SoftwareProfile host = profile;
  host.host_token = row.reading * profile.host_token;
  host.host_answer = row.handing * profile.host_answer;
  entry.times->set_host(host);
  ServeOptions o = row.options;
  ReplicaMemory memory = entry.times->memory(o.replica);
  if (row.limits) {
    row.limits(memory, o);
    memory = entry.times->memory(o.replica);
  }
  if (memory.blocks == 0) throw UserError{"weights and activations leave no room for keys and values"};
  const std::unique_ptr<RequestSource> source =
      row.requests ? row.requests()
                   : std::make_unique<WarmRequests>(make_requests(o.traffic, 0), row.first,
                                                    static_cast<std::uint64_t>(o.traffic.seed));
  ScaledTimes scaled{*entry.times, factors};
  return serve(
      {.options = o, .blocks = memory.pool_of(o.replica), .source = *source, .times = scaled, .on_answer = on_answer});
}

double Deployments::first_wave(const ServedRow& row, const SoftwareProfile& profile) {
  ServedRow wave = row;
  wave.first = 0;
  wave.options.traffic.requests = row.options.traffic.clients;
  wave.options.traffic.output = {.mean = 1};
  double sum = 0;
  const ServingResult result = simulate(wave, profile, [&](const Answer& a) { sum += a.ttft(); });
  return sum / double(std::max<std::int64_t>(1, result.answered));
}

namespace {

/// Times of the requests that count.
struct Times {
  std::vector<double> ttft, tpot, e2e;
  std::int64_t tokens = 0;
  double start = std::numeric_limits<double>::infinity(), end = 0;

  void add(const Answer& a) {
    ttft.push_back(a.ttft());
    e2e.push_back(a.e2e());
    tokens += a.output;
    if (a.output > 1) tpot.push_back(a.tpot());
    start = std::min(start, a.arrival);
    end = std::max(end, a.last_token);
  }
};

void summarise(const std::string& name, std::vector<double> values, std::map<std::string, double>& out) {
  double sum = 0;
  for (const double v : values) sum += v;
  out[name] = out[name + "_median"] = sum / double(std::max<std::size_t>(1, values.size()));
  if (values.empty()) return;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  out[name + "_median"] = *middle;
}

}  // namespace

std::map<std::string, double> Deployments::predict(const ServedRow& row, const SoftwareProfile& profile) {
  Times times;
  const ServingResult result = simulate(row, profile, [&](const Answer& a) {
    if (a.id >= row.first) times.add(a);
  });
  if (times.e2e.empty()) throw UserError{"no request of the row fits into the pool of keys and values"};
  std::map<std::string, double> out;
  summarise("ttft", times.ttft, out);
  summarise("tpot", times.tpot, out);
  summarise("e2e", times.e2e, out);
  out["itl"] = result.itl.mean();
  out["itl_median"] = result.itl.quantile(0.5);
  out["duration"] = times.end - times.start;
  out["rate"] = double(times.tokens) / out["duration"];
  if (row.at_once > 0) out["ttft"] += row.at_once * (first_wave(row, profile) - out["ttft"]);
  return out;
}

namespace {

/// The kind of forecast that a measured number of a server is.
std::string_view forecast_of(std::string_view quantity) {
  if (contains(quantity, "ttft")) return "first";
  if (contains(quantity, "e2e")) return "request";
  return contains(quantity, "tpot") || contains(quantity, "itl") ? "token" : quantity;
}

class ServedPredictor final : public RowPredictor {
 public:
  ServedPredictor(const Wiring& wiring, ReadServed read)
      : read_{read}, models_{wiring.locations()}, deployments_{wiring} {}

  RowResult predict(const CsvRow& row) const override {
    try {
      const ServedRowOf read = read_(row, models_);
      if (const auto* skip = std::get_if<Skip>(&read)) return *skip;
      const ServedRow& served = std::get<ServedRow>(read);
      const SoftwareProfile& profile = profiles_.of(served.profile);
      const auto predicted = deployments_.predict(served, profile);
      RowPrediction out;
      for (const auto& [name, seconds] : served.measured) {
        const Forecast forecast{
            .kind = forecast_of(name), .device = served.cluster.device, .experts = has_experts(*served.model)};
        out.observations.push_back(observe(row, {name, seconds, predicted.at(name), forecast}, profile));
        out.observations.back().source = row["software"];
      }
      return out;
    } catch (const UserError& e) {
      return Skip{SkipReason::UnsupportedFeature, e.what()};
    }
  }
  /// What is served, on what and how: rows of one deployment, whose times are made once.
  std::string shared_by(const CsvRow& row) const override {
    std::string name;
    for (const std::string_view column :
         {"software", "software_version", "model", "gpu", "n_gpus", "tp", "precision", "gemm_quant"})
      if (row.has(column)) name += fmt::format("{} ", row[column]);
    return name;
  }

 private:
  ReadServed read_;
  mutable NamedModels models_;
  Profiles profiles_;
  mutable Deployments deployments_;
};

}  // namespace

std::unique_ptr<RowPredictor> make_silicon_predictor(const Wiring& wiring) {
  return std::make_unique<ServedPredictor>(wiring, read_silicon_row);
}
std::unique_ptr<RowPredictor> make_serving_run_predictor(const Wiring& wiring) {
  return std::make_unique<ServedPredictor>(wiring, read_serving_run);
}
std::unique_ptr<RowPredictor> make_offline_predictor(const Wiring& wiring) {
  return std::make_unique<ServedPredictor>(wiring, read_offline_row);
}

bool is_count(const std::optional<double>& v) {
  constexpr double kMost = 1e7;
  return v && *v >= 1 && *v <= kMost;
}

ReadServed served_reader(std::string_view kind) {
  if (kind == "served_clients") return read_silicon_row;
  if (kind == "served_runs") return read_serving_run;
  return kind == "served_offline" ? read_offline_row : nullptr;
}

}  // namespace orrery
