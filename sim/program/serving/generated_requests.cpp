// SPDX-License-Identifier: Apache-2.0
// Requests that are drawn from distributions.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/program/arrivals.hpp"
#include "sim/program/serving/request.hpp"

namespace orrery {
namespace {

constexpr int kMostDraws = 1000;  // of lengths that do not fit into the context
constexpr std::uint64_t kArrivals = 1, kLengths = 2, kGroups = 3;

class GeneratedRequests final : public RequestSource {
 public:
  GeneratedRequests(const TrafficOptions& o, std::int64_t context)
      : o_{o},
        context_{context},
        prompt_{o.prompt},
        output_{o.output},
        arrivals_{{o.arrival, o.rate, o.cv, o.burst, o.period.base()},
                  Random{static_cast<std::uint64_t>(o.seed), kArrivals}},
        lengths_{static_cast<std::uint64_t>(o.seed), kLengths},
        groups_{static_cast<std::uint64_t>(o.seed), kGroups} {
    if (o.groups > 0 && o.shared < 1)
      throw UserError{"groups of requests that share nothing", "set `shared`, the tokens that their prompts share"};
  }

  std::optional<Request> next() override {
    if (made_ == o_.requests) return std::nullopt;
    Request r;
    r.id = made_++;
    r.arrival = arrivals_.next();
    draw_lengths(r);
    if (o_.groups > 0) {
      r.group = static_cast<std::int64_t>(groups_.below(static_cast<std::uint64_t>(o_.groups)));
      r.shared = std::min(o_.shared, r.prompt);
    }
    return r;
  }

 private:
  void draw_lengths(Request& r) {
    for (int i = 0; i < kMostDraws; ++i) {
      r.prompt = prompt_.draw(lengths_);
      r.output = output_.draw(lengths_);
      if (context_ <= 0 || r.prompt + r.output <= context_) return;
    }
    throw UserError{fmt::format("prompts and outputs together are longer than the {} tokens of the context", context_),
                    "make them shorter on average, or set `most`"};
  }

  TrafficOptions o_;
  std::int64_t context_;
  LengthSampler prompt_, output_;
  ArrivalTimes arrivals_;
  Random lengths_, groups_;
  std::int64_t made_ = 0;
};

}  // namespace

std::unique_ptr<RequestSource> generated_requests(const TrafficOptions& options, std::int64_t context) {
  return std::make_unique<GeneratedRequests>(options, context);
}

std::unique_ptr<RequestSource> make_requests(const TrafficOptions& options, std::int64_t context) {
  return options.trace.empty() ? generated_requests(options, context) : traced_requests(options, context);
}

}  // namespace orrery
