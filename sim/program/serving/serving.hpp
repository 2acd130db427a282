// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sim/program/serving/histogram.hpp"
#include "sim/program/serving/scheduler.hpp"

namespace orrery {

/// How long steps and transfers take. Asked in order of the simulated time.
class StepTimes {
 public:
  virtual ~StepTimes() = default;
  /// Seconds of a step of one replica, from the decision to the tokens in the hands of the host.
  virtual double step(const BatchShape& shape) = 0;
  /// Seconds from the arrival of a request to when the scheduler knows it: its text becomes tokens meanwhile.
  virtual double front(std::int64_t prompt) = 0;
  /// Seconds to copy so many blocks between a replica's device and its host.
  virtual double swap(std::int64_t blocks) = 0;
  /// Seconds to send the keys and values of so many tokens from replica to replica.
  virtual double hand_over(std::int64_t tokens) = 0;
  /// Seconds in which one generated token is handed to its client, by a process beside the steps that takes tokens of a
  /// replica in their order.
  virtual double answer() = 0;
};

/// One answered request.
struct Answer {
  std::int64_t id = 0, prompt = 0, output = 0, shared = 0, preemptions = 0, replica = 0;
  double arrival = 0, first_token = 0, last_token = 0;

  double ttft() const { return first_token - arrival; }
  double e2e() const { return last_token - arrival; }
  /// Seconds per token behind the first; 0 for answers of one.
  double tpot() const { return output > 1 ? (last_token - first_token) / double(output - 1) : 0; }
};

/// One step of one replica, as it begins; of no rows and 0 seconds where the replica has nothing to do from then on.
struct ServedStep {
  std::size_t replica = 0;
  double start = 0, seconds = 0;
  const BatchShape& shape;
  double held = 0;                        // part of the pool
  std::int64_t running = 0, waiting = 0;  // requests
};

/// What came of serving. Times in seconds.
struct ServingResult {
  std::int64_t requests = 0, answered = 0, refused = 0, overlong = 0, within_slo = 0;
  bool trace_goes_on = false;  // behind the last request that was asked for
  std::int64_t prompt_tokens = 0, output_tokens = 0, shared_tokens = 0;
  std::int64_t steps = 0, preemptions = 0;
  double seconds = 0;  // from the first arrival to the last token
  Histogram ttft, tpot, itl, e2e, batch;
  double mean_kv = 0, peak_kv = 0;  // part of the pool that is held: mean over time and replicas, and most of a replica
  std::int64_t most_waiting = 0, waiting_at_end = 0;  // the latter when the last request arrived
  double busy = 0;                                    // part of the time that replicas were computing

  /// Requests came faster than they were answered: some were refused, or more than the last one waited when it came,
  /// and more than a fifth of all.
  bool is_overloaded() const;
  double goodput() const { return seconds > 0 ? double(within_slo) / seconds : 0; }
  double output_rate() const { return seconds > 0 ? double(output_tokens) / seconds : 0; }
  double request_rate() const { return seconds > 0 ? double(answered) / seconds : 0; }
};

/// Replicas of a model under traffic, as a discrete-event simulation over steps: each replica decides, computes, and
/// decides again. Memory is that of the requests that wait or run. `on_answer` (may be empty) sees each answer,
/// `on_step` (likewise) each step, `check` (likewise) is called now and then and may throw to stop.
struct ServingRequest {
  const ServeOptions& options;
  KvBlocks::Sizes blocks;  // of each replica
  RequestSource& source;
  StepTimes& times;
  std::function<void(const Answer&)> on_answer = {};
  std::function<void(const ServedStep&)> on_step = {};
  std::function<void()> check = {};
};
ServingResult serve(const ServingRequest& request);

}  // namespace orrery
