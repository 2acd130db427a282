// SPDX-License-Identifier: Apache-2.0
// Requests that are drawn from distributions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "sim/base/error.hpp"
#include "sim/program/arrivals.hpp"
#include "sim/program/serving/request.hpp"

namespace orrery {
namespace {

constexpr int kMostDraws = 1000;  // of lengths that do not fit into the context
constexpr std::uint64_t kArrivals = 1, kLengths = 2, kGroups = 3;

std::vector<std::int64_t> read_lengths(const std::string& path) {
  std::ifstream in{path};
  if (!in)
    throw UserError{fmt::format("cannot read the lengths in {}", orrery::quoted(path)), "give one length a line"};
  std::vector<std::int64_t> all;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    char* end = nullptr;
    const long long value = std::strtoll(line.c_str(), &end, 10);
    if (end == line.c_str() || (*end != '\0' && *end != '\r') || value < 1)
      throw UserError{Diagnostic{fmt::format("{} is no length", orrery::quoted(line)),
                                 "lengths are whole numbers from 1 on", path, number, 1, line}};
    all.push_back(value);
  }
  if (all.empty()) throw UserError{fmt::format("{} has no lengths", orrery::quoted(path)), "give one length a line"};
  return all;
}

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

LengthSampler::LengthSampler(const LengthOptions& o) : options_{o} {
  if (o.kind == LengthKind::Uniform && o.most < o.least)
    throw UserError{fmt::format("lengths from {} to {}", o.least, o.most), "set `most` to at least `least`"};
  if (o.kind == LengthKind::Empirical) values_ = read_lengths(o.file);
}

std::int64_t LengthSampler::draw(Random& random) const {
  double value = options_.mean;
  switch (options_.kind) {
    case LengthKind::Fixed:
      break;
    case LengthKind::Uniform:
      return options_.least +
             static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(options_.most - options_.least + 1)));
    case LengthKind::Lognormal: {
      const double ratio = options_.deviation / options_.mean, s2 = std::log1p(ratio * ratio);
      value = options_.mean * std::exp(random.normal(-s2 / 2, std::sqrt(s2)));
      break;
    }
    case LengthKind::Empirical:
      value = double(values_[random.below(values_.size())]);
      break;
  }
  const auto length = std::max(options_.least, static_cast<std::int64_t>(std::llround(std::min(value, 1e12))));
  return options_.most > 0 ? std::min(options_.most, length) : length;
}

double LengthSampler::mean() const {
  if (options_.kind == LengthKind::Uniform) return 0.5 * double(options_.least + options_.most);
  if (options_.kind != LengthKind::Empirical) return options_.mean;
  double sum = 0;
  for (const std::int64_t v : values_) sum += double(v);
  return sum / double(values_.size());
}

std::unique_ptr<RequestSource> generated_requests(const TrafficOptions& options, std::int64_t context) {
  return std::make_unique<GeneratedRequests>(options, context);
}

std::unique_ptr<RequestSource> make_requests(const TrafficOptions& options, std::int64_t context) {
  return options.trace.empty() ? generated_requests(options, context) : traced_requests(options, context);
}

}  // namespace orrery
