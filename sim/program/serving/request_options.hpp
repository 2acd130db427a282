// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "sim/base/options.hpp"
#include "sim/base/units.hpp"
#include "sim/strategy/lengths.hpp"

namespace orrery {

/// How requests arrive: all at once; at even gaps; with exponential gaps (Poisson), with gamma gaps, whose spread `cv`
/// says; or as a Poisson stream that is faster for a part of each period.
enum class Arrival : std::uint8_t { AllAtOnce, Even, Poisson, Gamma, Bursty };
inline std::span<const EnumName<Arrival>> enum_names(Arrival) {
  static constexpr EnumName<Arrival> names[] = {{Arrival::AllAtOnce, "all_at_once"},
                                                {Arrival::Even, "even"},
                                                {Arrival::Poisson, "poisson"},
                                                {Arrival::Gamma, "gamma"},
                                                {Arrival::Bursty, "bursty"}};
  return names;
}

/// What becomes of a request whose prompt and output do not fit into the model's context.
enum class Overlong : std::uint8_t { Refuse, Cut, LeaveOut };
inline std::span<const EnumName<Overlong>> enum_names(Overlong) {
  static constexpr EnumName<Overlong> names[] = {
      {Overlong::Refuse, "refuse"}, {Overlong::Cut, "cut"}, {Overlong::LeaveOut, "leave_out"}};
  return names;
}

/// Who asks for what, when: a trace, or requests that are drawn.
struct TrafficOptions {
  std::string trace, run;
  Overlong overlong = Overlong::Refuse;
  Arrival arrival = Arrival::Poisson;
  double rate = 1;
  double cv = 1, burst = 4;
  Seconds period{60.0};
  LengthOptions prompt{.mean = 512}, output{.mean = 128};
  std::int64_t requests = 1000, clients = 0;
  std::int64_t groups = 0, shared = 0;
  std::int64_t seed = 1;

  template <class V>
  void visit(V& v) {
    v.field("trace", trace, "file of requests (CSV or JSON lines), relative to the scenario; empty: they are drawn");
    v.field("run", run, "trace: rows whose `run_id` is this; empty: all");
    v.field("overlong", overlong, "trace: what becomes of requests that do not fit into the model's context");
    v.field("arrival", arrival, "how requests arrive");
    v.field("rate", rate, "requests per second in the mean", more_than(0));
    v.field("cv", cv, "gamma: standard deviation of the gaps over their mean", more_than(0));
    v.field("burst", burst, "bursty: rate at the peak over the mean; the peak lasts 1/(2·burst) of a period",
            at_least(1));
    v.field("period", period, "bursty: from peak to peak", more_than(Seconds{0}));
    v.field("prompt", prompt, "tokens of a prompt");
    v.field("output", output, "tokens to generate");
    v.field("requests", requests, "how many are drawn; of a trace the most that are read, 0: all", at_least(0));
    v.field("clients", clients,
            "most requests that are under way at once: further ones are sent when others are answered; 0: no limit",
            at_least(0));
    v.field("groups", groups, "requests whose prompts begin alike come in so many groups; 0: none do", at_least(0));
    v.field("shared", shared, "tokens that the prompts of a group share", at_least(0));
    v.field("seed", seed, "of arrivals and lengths");
  }
};

}  // namespace orrery
