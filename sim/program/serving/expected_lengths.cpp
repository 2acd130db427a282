// SPDX-License-Identifier: Apache-2.0
#include "sim/program/serving/expected_lengths.hpp"

#include <algorithm>

#include "sim/program/serving/scheduler.hpp"

namespace orrery {
namespace {

constexpr double kFirstRatio = 0.7, kLeastPart = 0.14, kDecaySteps = 600;
constexpr std::int64_t kMostExpected = 4096;  // of one answer
constexpr std::int64_t kStepsAfter = 20;      // that are counted as generated when requests were taken back
constexpr std::int64_t kSpare = 1;            // tokens of each request where lengths are known

std::int64_t to_go(const Sequence& s) { return std::max<std::int64_t>(0, s.request.output - s.generated); }
double expected(const Sequence& s) { return double(std::min(to_go(s), kMostExpected)); }

}  // namespace

ExpectedLengths::ExpectedLengths(const ReplicaOptions& o)
    : first_{std::min(1.0, kFirstRatio * o.conservativeness)},
      least_{kLeastPart * first_},
      decay_{(first_ - least_) / kDecaySteps},
      ratio_{first_},
      page_{o.block},
      known_{o.known_lengths && !o.prefix_sharing} {}

void ExpectedLengths::look_at(std::span<const std::unique_ptr<Sequence>> running) {
  to_come_ = 0;
  has_taken_ = false;
  states_.clear();
  for (const auto& s : running) {
    if (s->decodes()) to_come_ += ratio_ * expected(*s);
    if (known_) states_.emplace_back(to_go(*s), s->known());
  }
  std::sort(states_.begin(), states_.end());
}

void ExpectedLengths::take(const Sequence& s) {
  to_come_ += expected(s);
  has_taken_ = true;
}

bool ExpectedLengths::fits(const Sequence& s, std::int64_t rows, std::int64_t free) {
  if (known_) return (!has_taken_ || to_come_ < double(free)) && fit_to_the_end(s, rows, free);
  return double(rows + page_) + expected(s) < double(free) - to_come_;
}

bool ExpectedLengths::fit_to_the_end(const Sequence& s, std::int64_t rows, std::int64_t free) {
  const State state{to_go(s), s.known()};
  states_.insert(std::upper_bound(states_.begin(), states_.end(), state), state);
  std::int64_t left = free - rows, n = static_cast<std::int64_t>(states_.size());
  for (const auto& [to_go, held] : states_) {
    if (left - to_go * n <= kSpare * n) return false;
    left += held;
    --n;
  }
  return true;
}

void ExpectedLengths::taken_back(std::span<Sequence* const> left) {
  double generated = 0, most = 1;
  for (const Sequence* s : left) {
    generated += double(s->generated + kStepsAfter);
    most += double(s->request.output);
  }
  ratio_ = std::min(1.0, generated / most);
}

}  // namespace orrery
