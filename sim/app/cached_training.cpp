// SPDX-License-Identifier: Apache-2.0
#include "sim/app/cached_training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "sim/app/report.hpp"
#include "sim/program/data.hpp"

namespace orrery {
namespace {

/// When both ends of a card are free.
struct CardClock {
  double out = 0, in = 0;
};

/// A message to a server that has arrived.
struct Arrived {
  double time = 0;
  std::int64_t worker = 0;
};

class ServerExchange {
 public:
  ServerExchange(const StepTraffic& traffic, const ExchangeCards& cards)
      : t_{traffic},
        c_{cards},
        workers_{std::ssize(cards.of_worker)},
        clocks_(cards.cards.size()),
        servers_(static_cast<std::size_t>(traffic.servers)),
        arrivals_(servers_.size()) {}

  double run() {
    for (std::int64_t turn = 0; turn < t_.servers; ++turn)
      for (std::int64_t w = 0; w < workers_; ++w) ask(w, (w + turn) % t_.servers);
    for (auto& arrived : arrivals_)
      std::stable_sort(arrived.begin(), arrived.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
    double last = 0;
    std::vector<std::size_t> answered(arrivals_.size());
    for (std::int64_t left = workers_ * t_.servers; left > 0; --left) {
      const std::int64_t s = next_to_answer(answered);
      const auto i = static_cast<std::size_t>(s);
      last = std::max(last, answer(arrivals_[i][answered[i]++], s));
    }
    return last;
  }

 private:
  std::size_t card_of(std::int64_t worker) const { return c_.of_worker[static_cast<std::size_t>(worker)]; }
  double seconds(std::int64_t bytes, std::size_t card) const {
    return double(bytes) / std::min(c_.cards[card].rate, c_.server.rate);
  }
  double latency(std::size_t card) const { return std::max(c_.cards[card].latency, c_.server.latency); }

  void ask(std::int64_t worker, std::int64_t server) {
    const std::size_t card = card_of(worker);
    double& out = clocks_[card].out;
    double& in = servers_[static_cast<std::size_t>(server)].in;
    out = in = std::max(out, in) + seconds(t_.up[t_.at(worker, server)], card);
    arrivals_[static_cast<std::size_t>(server)].push_back({out + latency(card), worker});
  }
  double start(const Arrived& a, std::int64_t server) const {
    return std::max({servers_[static_cast<std::size_t>(server)].out, clocks_[card_of(a.worker)].in, a.time});
  }
  /// The server whose next reply leaves first.
  std::int64_t next_to_answer(const std::vector<std::size_t>& answered) const {
    std::int64_t best = -1;
    double first = 0;
    for (std::int64_t s = 0; s < t_.servers; ++s) {
      const auto& arrived = arrivals_[static_cast<std::size_t>(s)];
      const std::size_t next = answered[static_cast<std::size_t>(s)];
      if (next == arrived.size()) continue;
      const double time = start(arrived[next], s);
      if (best < 0 || time < first) best = s, first = time;
    }
    return best;
  }
  double answer(const Arrived& a, std::int64_t server) {
    const std::size_t card = card_of(a.worker);
    double& out = servers_[static_cast<std::size_t>(server)].out;
    double& in = clocks_[card].in;
    out = in = start(a, server) + seconds(t_.down[t_.at(a.worker, server)], card);
    return out + latency(card);
  }

  const StepTraffic& t_;
  const ExchangeCards& c_;
  std::int64_t workers_;
  std::vector<CardClock> clocks_, servers_;
  std::vector<std::vector<Arrived>> arrivals_;  // of each server
};

/// Bytes that each of n workers passes on.
double reduced_bytes(const StepTraffic& t, double n) { return 2 * (n - 1) / n * double(t.reduced); }
double gathered_bytes(const StepTraffic& t, double n) { return (n - 1) * double(t.gathered); }

/// How long the busiest card carries what it has to.
double busiest_card(const StepTraffic& t, const ExchangeCards& c, double of_ring) {
  double most = 0;
  for (const auto* way : {&t.up, &t.down}) {
    std::vector<double> bytes(c.cards.size(), of_ring);
    for (std::size_t w = 0; w < c.of_worker.size(); ++w)
      for (std::int64_t s = 0; s < t.servers; ++s)
        bytes[c.of_worker[w]] += double((*way)[t.at(static_cast<std::int64_t>(w), s)]);
    for (std::size_t i = 0; i < bytes.size(); ++i) most = std::max(most, bytes[i] / c.cards[i].rate);
  }
  return most;
}

ExchangeCards cards_of(const Scenario& s, const CachedTrainingOptions& o) {
  const Cluster& cluster = s.cluster;
  check_fits(cluster, o.workers);
  ExchangeCards out;
  std::vector<std::int64_t> nodes;  // of each card; −1 of a device's own
  for (std::int64_t w = 0; w < o.workers; ++w) {
    const RankId rank{static_cast<std::uint32_t>(w)};
    const NodeGroup& group = cluster.group_of(rank);
    if (!group.nic)
      throw UserError{fmt::format("{} has no network cards to reach parameter servers over", told(cluster)),
                      "give it a `nic`"};
    const bool shared = group.nic->per == NicPlacement::PerNode;
    const std::int64_t node = shared ? cluster.node_of(rank) : -1;
    if (!shared || nodes.empty() || nodes.back() != node) {
      nodes.push_back(node);
      out.cards.push_back({group.nic->bandwidth.base(), group.nic->latency.base()});
    }
    out.of_worker.push_back(out.cards.size() - 1);
  }
  out.server = {cluster.nic->bandwidth.base(), cluster.nic->latency.base()};
  out.gather = out.server;
  for (const auto& card : out.cards) out.gather.rate = std::min(out.gather.rate, card.rate);
  out.reduce = out.gather;
  if (o.reduce_bandwidth) out.reduce.rate = o.reduce_bandwidth->base();
  out.reduce_is_apart = o.reduce_bandwidth.has_value();
  return out;
}

/// Throws UserError at a key that no cached training reads; returns those that this one does not.
std::vector<std::string> unread_keys(const Scenario& s, const CachedTrainingOptions& o) {
  const auto refuse = [&](const char* key, const char* why) {
    if (const Node* node = s.document.find(key))
      throw UserError{at(*node, fmt::format("`{}` is not read: {}", key, why))};
  };
  refuse("expect", "a cached training has no expectations");
  refuse("strategy", "workers of a cached training have the whole dense part");
  std::vector<std::string> out;
  const Node* own = s.document.find("workload")->find("cached_training");
  const auto unless = [&](bool is_read, std::initializer_list<const char*> keys, const char* why) {
    for (const char* key : keys)
      if (!is_read && own->find(key)) out.push_back(fmt::format("{}: {}", key, why));
  };
  unless(o.system == EmbeddingSystem::Het, {"staleness", "cache", "policy", "warm"}, "there are no caches");
  unless(o.system != EmbeddingSystem::AllGather, {"servers"}, "there are no servers");
  unless(o.system != EmbeddingSystem::ParameterServer, {"reduce_bandwidth"}, "servers sum gradients");
  return out;
}

void check_skew(const Dlrm& model, const std::vector<double>& skew) {
  if (skew.size() != 1 && skew.size() != model.tables.size())
    throw UserError{fmt::format("{} exponents for {} tables", skew.size(), model.tables.size()),
                    "give `skew` one exponent, or one for each table"};
}

std::string widths_of(const std::vector<Linear>& layers) {
  std::vector<std::int64_t> widths;
  for (const Linear& l : layers) widths.push_back(l.out);
  return fmt::format("[{}]", fmt::join(widths, ", "));
}

/// The dense part's step, predicted as one of the model with tables of one row.
void predict_compute(const Scenario& s, const Dlrm& model, const Wiring& wiring, CachedTrainingReport& r) {
  Node document = s.document;
  const auto replace = [&](std::string_view key, const std::string& yaml) {
    std::erase_if(document.fields, [&](const auto& f) { return f.first == key; });
    document.fields.emplace_back(key, parse_yaml(yaml, "the dense part"));
  };
  replace("model", fmt::format("{{model_type: dlrm, architectures: [DLRM], dtype: float32, dense_features: {}, "
                               "embedding_dim: {}, bottom_mlp: {}, top_mlp: {}, table_sizes: [{}]}}",
                               model.dense_features, model.dim, widths_of(model.bottom), widths_of(model.top),
                               fmt::join(std::vector<int>(model.tables.size(), 1), ", ")));
  replace("strategy", "[single: {}]");
  replace("workload", fmt::format("{{train: {{batch: {}, optimizer: {{kind: sgd}}}}}}", r.options.batch));
  const Scenario dense = make_scenario(document, s.name, wiring.locations());
  const Machine machine = wiring.machine(dense.options, dense.cluster);
  const Simulation one = simulate_scenario(dense, machine, wiring, 1, [](std::size_t) {});
  const Report report = make_report({dense, *one.program, one.recording, &machine});
  r.compute = report.step, r.low = report.low, r.high = report.high;
  r.predicted = true;
}

void add(CachedTrainingReport& r, const StepTraffic& t, const ExchangeTimes& times) {
  const double steps = double(r.options.steps), each = steps * double(r.options.workers);
  r.times.servers += times.servers / steps;
  r.times.ring += times.ring / steps;
  r.times.all += times.all / steps;
  for (const std::int64_t bytes : t.up) r.up += double(bytes) / each;
  for (const std::int64_t bytes : t.down) r.down += double(bytes) / each;
  const double n = double(r.options.workers);
  r.ring_bytes += (reduced_bytes(t, n) + gathered_bytes(t, n)) / steps;
  r.rows += double(t.rows) / each;
  r.misses += double(t.misses) / each;
  r.sent += double(t.sent) / each;
  r.pushed += double(t.pushed) / each;
}

}  // namespace

ExchangeTimes exchange_times(const StepTraffic& t, const ExchangeCards& cards) {
  const double n = double(cards.of_worker.size()), reduced = reduced_bytes(t, n), gathered = gathered_bytes(t, n);
  ExchangeTimes times;
  if (t.reduced > 0) times.ring += reduced / cards.reduce.rate + 2 * (n - 1) * cards.reduce.latency;
  if (t.gathered > 0) times.ring += gathered / cards.gather.rate + (n - 1) * cards.gather.latency;
  const bool asks = std::any_of(t.up.begin(), t.up.end(), [](std::int64_t bytes) { return bytes > 0; });
  if (asks) times.servers = ServerExchange{t, cards}.run();
  times.all =
      std::max({times.servers, times.ring, busiest_card(t, cards, gathered + (cards.reduce_is_apart ? 0 : reduced))});
  return times;
}

CachedTrainingReport simulate_cached_training(const Scenario& s, const Wiring& wiring,
                                              const std::function<void()>& check) {
  const auto started = std::chrono::steady_clock::now();
  const auto* model = std::get_if<Dlrm>(&s.model.network);
  if (model == nullptr)
    throw UserError{fmt::format("{} has no embedding tables for a cached training", s.model.name), "give a dlrm"};
  if (model->lookups_per_table != 1)
    throw UserError{
        fmt::format("cached training looks up one row a table, {} has {}", s.model.name, model->lookups_per_table)};
  CachedTrainingReport r{.scenario = s.name, .options = *s.options.workload.cached_training};
  const CachedTrainingOptions& o = r.options;
  r.unread = unread_keys(s, o);
  const ExchangeCards cards = cards_of(s, o);
  check_skew(*model, o.skew);
  const IdStream stream = id_stream(*model, o.skew, static_cast<std::uint64_t>(o.seed));
  r.table_bytes = 4.0 * double(stream.rows() * model->dim);
  if (o.system == EmbeddingSystem::Het) r.cache_bytes = o.cache * r.table_bytes;
  const std::int64_t dense = o.dense_parameters.value_or(s.model.parameter_count() - stream.rows() * model->dim);
  if (o.compute)
    r.compute = r.low = r.high = o.compute->base();
  else
    predict_compute(s, *model, wiring, r);
  EmbeddingTraffic traffic{o, stream, model->dim, dense};
  for (std::int64_t step = -o.warm_up; step < o.steps; ++step) {
    check();
    const StepTraffic t = traffic.step();
    if (step >= 0) add(r, t, exchange_times(t, cards));
  }
  r.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return r;
}

nlohmann::json to_json(const CachedTrainingReport& r) {
  return {{"schema_version", kSchemaVersion},
          {"scenario", r.scenario},
          {"workload", "cached_training"},
          {"system", enum_name(r.options.system)},
          {"step_time", {{"seconds", r.step()}, {"low", r.low + r.times.all}, {"high", r.high + r.times.all}}},
          {"compute", {{"seconds", r.compute}, {"predicted", r.predicted}}},
          {"communication", {{"seconds", r.times.all}, {"servers", r.times.servers}, {"ring", r.times.ring}}},
          {"samples_per_second", r.samples_per_second()},
          {"bytes_per_worker", {{"up", r.up}, {"down", r.down}, {"ring", r.ring_bytes}}},
          {"rows_per_worker", {{"read", r.rows}, {"missed", r.misses}, {"sent", r.sent}, {"pushed", r.pushed}}},
          {"miss_rate", r.miss_rate()},
          {"table_bytes", r.table_bytes},
          {"cache_bytes", r.cache_bytes},
          {"unread", r.unread},
          {"calibrated", false},
          {"wall_seconds", r.wall_seconds}};
}

std::string to_text(const CachedTrainingReport& r) {
  const CachedTrainingOptions& o = r.options;
  const auto line = [](std::string_view name, const std::string& value) {
    return fmt::format("  {:<16} {}\n", name, value);
  };
  const auto seconds = [](double s) { return to_text(Seconds{s}); };
  const auto bytes = [](double b) { return to_text(Bytes{b}); };
  std::string text = fmt::format("{}: {} of {} samples by {} workers, {} server{}\n", r.scenario, enum_name(o.system),
                                 o.batch * o.workers, o.workers, o.servers, o.servers == 1 ? "" : "s");
  text += line("step", fmt::format("{}, {} samples/s", seconds(r.step()), rate_text(r.samples_per_second())));
  text += line("compute", fmt::format("{} ({})", seconds(r.compute), r.predicted ? "predicted" : "given"));
  text += line("communication", fmt::format("{}: servers {}, among workers {}", seconds(r.times.all),
                                            seconds(r.times.servers), seconds(r.times.ring)));
  text += line("of a worker", fmt::format("{} to servers, {} from them, {} to other workers", bytes(r.up),
                                          bytes(r.down), bytes(r.ring_bytes)));
  text += line("rows of a batch",
               fmt::format("{:.1f}, of which {:.1f} are sent and {:.1f} pushed", r.rows, r.sent, r.pushed));
  if (o.system == EmbeddingSystem::Het)
    text += line("cache", fmt::format("{} of {} of rows, {}, staleness {}; {:.2f} % of rows miss", bytes(r.cache_bytes),
                                      bytes(r.table_bytes), enum_name(o.policy), o.staleness, 100 * r.miss_rate()));
  for (const std::string& key : r.unread) text += line("not read", key);
  return text + line("simulated", fmt::format("{} steps behind {} (seed {})", o.steps, o.warm_up, o.seed));
}

}  // namespace orrery
