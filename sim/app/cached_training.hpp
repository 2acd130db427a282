// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/app/scenario.hpp"
#include "sim/app/wiring.hpp"
#include "sim/program/embedding/embedding_traffic.hpp"

namespace orrery {

/// Network cards that workers and servers send over, each full duplex.
struct ExchangeCards {
  struct Card {
    double rate = 0, latency = 0;  // B/s of one direction, s
  };
  std::vector<std::size_t> of_worker;  // into `cards`
  std::vector<Card> cards;
  Card server;                   // of each
  Card gather, reduce;           // of the rings that workers gather and sum in
  bool reduce_is_apart = false;  // sums load none of `cards`
};

/// How long the messages of a step take, by the cards that they cross.
struct ExchangeTimes {
  double servers = 0;  // from the first request to the last reply
  double ring = 0;     // sums and gathers among workers
  double all = 0;      // both side by side
};

/// A message holds the card that it leaves and the one that it enters for bytes / rate, and is there a latency later.
/// Workers send to one server after another, each beginning with another one; a server takes messages one by one and
/// answers in the order in which they came, so that replies leave while others arrive. Sums are a ring of
/// reduce-scatter and all-gather, 2 (n − 1) steps of bytes / n; gathered bytes go round in n − 1 steps. Rings and
/// messages run side by side, but no card carries more than its rate. Left out: time of servers and hosts, and what TCP
/// loses.
ExchangeTimes exchange_times(const StepTraffic& traffic, const ExchangeCards& cards);

/// A scenario of cached training in numbers; bytes and rows are of one worker and step in the mean.
struct CachedTrainingReport {
  std::string scenario;
  CachedTrainingOptions options;
  std::vector<std::string> unread;        // keys that were given and are not read, and why
  double compute = 0, low = 0, high = 0;  // seconds of a step, and the interval of a prediction
  bool predicted = false;                 // and not given
  ExchangeTimes times;                    // means over steps
  double up = 0, down = 0, ring_bytes = 0;
  double rows = 0, misses = 0, sent = 0, pushed = 0;
  double table_bytes = 0, cache_bytes = 0;
  double wall_seconds = 0;

  double step() const { return compute + times.all; }
  double samples_per_second() const { return double(options.batch * options.workers) / step(); }
  double miss_rate() const { return misses / rows; }
};

/// Simulates the exchange step by step. Throws UserError where the model has no tables, or workers do not fit or have
/// no network card.
CachedTrainingReport simulate_cached_training(const Scenario& scenario, const Wiring& wiring,
                                              const std::function<void()>& check);

nlohmann::json to_json(const CachedTrainingReport& report);
std::string to_text(const CachedTrainingReport& report);

}  // namespace orrery
