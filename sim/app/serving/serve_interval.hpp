// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include "hw_models/software_profile.hpp"
#include "sim/program/serving/serving.hpp"

namespace orrery {

/// How far a server's steps may be off, as standard deviations of ln(measured / predicted) that all steps of a kind
/// share in a run: those of sequences that decode alone, and those that read prompts.
struct StepDoubt {
  double decodes = 0, prompts = 0;
};

/// How many times as long steps of either kind take.
struct StepFactors {
  double decodes = 1, prompts = 1;
};

/// Times of steps, each kind so many times as long; with prompts goes what a request takes before its scheduler knows
/// it, and the way of its keys to another replica.
class ScaledTimes final : public StepTimes {
 public:
  ScaledTimes(StepTimes& times, StepFactors factors) : times_{times}, f_{factors} {}
  double step(const BatchShape& shape) override {
    return (shape.prompts > 0 ? f_.prompts : f_.decodes) * times_.step(shape);
  }
  double front(std::int64_t prompt) override { return f_.prompts * times_.front(prompt); }
  double swap(std::int64_t blocks) override { return f_.decodes * times_.swap(blocks); }
  double hand_over(std::int64_t tokens) override { return f_.prompts * times_.hand_over(tokens); }
  double answer() override { return f_.decodes * times_.answer(); }

 private:
  StepTimes& times_;
  StepFactors f_;
};

/// The other runs of the same requests that an interval is made of: steps of one kind as much shorter, then as much
/// longer, as nine in ten are at most.
constexpr std::size_t kOtherRuns = 4;
std::array<StepFactors, kOtherRuns> other_runs(const StepDoubt& doubt);
/// Whose steps are another in a run of these.
constexpr std::size_t kind_of_run(std::size_t run) { return run / 2; }

/// The least and the most that something comes to.
template <class T>
struct LeastMost {
  T least = std::numeric_limits<T>::infinity(), most = 0;
  void add(T value) { least = std::min(least, value), most = std::max(most, value); }
};
/// Over the two other runs of each kind.
using Extremes = std::array<LeastMost<double>, 2>;

struct ServedInterval {
  double low = 0, high = 0;
};
/// The 90 % interval of a time x that requests take, single ones or in the mean:
///
///   high = x · exp( m · √( Σ over kinds  max(0, ln(most / x))² ) ),    low likewise with the least
///
/// So a first token that waits in a queue is as unsure as the sum of the steps before it, near saturation more, and one
/// that does not as its own step. m is that of `multiples_of`. Left out: errors that steps of a kind do not share,
/// of which few are left over many steps.
ServedInterval interval_of(double x, const Extremes& extremes, double multiple);

/// Times of a request, by which rows tell of them.
enum class RequestTime : std::uint8_t { First, Token, Whole };
constexpr std::size_t kRequestTimes = 3;
constexpr RequestTime request_time(std::size_t number) { return static_cast<RequestTime>(number); }
double time_of(const Answer& answer, RequestTime time);
/// "each_first", "each_token", "each_request": the names of `SoftwareProfile::deviations` for it.
std::string_view told_as(RequestTime time);
/// How many times as far as steps' deviations say each of the times was off in a run of this software; 1 where no row
/// tells.
std::array<double, kRequestTimes> multiples_of(const SoftwareProfile& profile);

/// What each request comes to in the other runs: 48 bytes a request.
class OtherAnswers {
 public:
  void add(std::size_t run, const Answer& answer);
  /// Of all times of the answer to the same request as predicted.
  std::array<ServedInterval, kRequestTimes> intervals(const Answer& answer,
                                                      const std::array<double, kRequestTimes>& multiples) const;

 private:
  using Bounds = std::array<std::array<LeastMost<float>, kRequestTimes>, 2>;  // by kind and time
  std::vector<Bounds> bounds_;                                                // by request
};

}  // namespace orrery
