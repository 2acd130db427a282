// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/bisection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/app/sweep/sweep_report.hpp"
#include "sim/base/error.hpp"
#include "sim/base/units.hpp"

namespace orrery {
namespace {

constexpr double kNarrow = 0.01;  // of a value: nearer its neighbour need not be

[[noreturn]] void fail_condition(const std::string& text, const std::string& why) {
  throw UserError{fmt::format("--until {}: {}", in_quotes(text), why),
                  "such as 'tokens_per_second>=95%', 'step_time<=10 s', 'peak_memory<=70 GiB' or 'fits'"};
}

/// A plain number, or one of seconds or bytes in their units.
std::optional<double> bound_in(std::string_view text) {
  if (const auto number = parse_number(text)) return number;
  Diagnostic ignored;
  if (const auto seconds = parse_quantity(text, dimension_of(Seconds{}), ignored)) return seconds;
  return parse_quantity(text, dimension_of(Bytes{}), ignored);
}

/// The nearest number of so many digits.
double rounded(double value, int digits) { return *parse_number(fmt::format("{:.{}g}", value, digits)); }

double metric_of(const Condition& condition, const nlohmann::json& result) {
  if (const auto value = metric_in(result, condition.metric)) return *value;
  throw UserError{
      fmt::format("--until {}: results have no value {}", in_quotes(condition.text), in_quotes(condition.metric)),
      "values are those of `orrery simulate --json`, or `serve`, such as tokens_per_second or ttft.p99"};
}

}  // namespace

Condition parse_condition(const std::string& text) {
  Condition c{.text = text};
  if (text == "fits") return c;
  const std::size_t at = text.find_first_of("<>");
  if (at == std::string::npos || at == 0 || at + 1 >= text.size() || text[at + 1] != '=')
    fail_condition(text, "it says neither >= nor <=");
  c.metric = trimmed(std::string_view{text}.substr(0, at));
  c.is_least = text[at] == '>';
  std::string_view bound = trimmed(std::string_view{text}.substr(at + 2));
  c.is_part = bound.ends_with('%');
  if (c.is_part) bound = trimmed(bound.substr(0, bound.size() - 1));
  const std::optional<double> value = c.is_part ? parse_number(bound) : bound_in(bound);
  if (!value) fail_condition(text, fmt::format("{} is no number, time or size", in_quotes(bound)));
  c.bound = c.is_part ? *value / 100 : *value;
  return c;
}

bool meets(const Condition& c, const nlohmann::json& result, double better) {
  if (!fits(result)) return false;
  if (c.metric.empty()) return true;
  const double value = metric_of(c, result), bound = c.is_part ? c.bound * better : c.bound;
  return c.is_least ? value >= bound : value <= bound;
}

double better_of(const Condition& c, const std::vector<const nlohmann::json*>& results) {
  std::optional<double> better;
  for (const nlohmann::json* r : results) {
    if (c.metric.empty() || !fits(*r)) continue;
    const double value = metric_of(c, *r);
    if (!better || (c.is_least ? value > *better : value < *better)) better = value;
  }
  return better.value_or(0);
}

BisectedKey parse_bisection(const std::string& text) {
  const std::string what = fmt::format("--bisect {}", in_quotes(text));
  const std::size_t equals = text.find('=');
  const std::vector<std::string> parts =
      split_outside(equals == std::string::npos ? "" : std::string_view{text}.substr(equals + 1), ',');
  if (equals == std::string::npos || equals == 0 || parts.size() < 2 || parts.size() > 3)
    throw UserError{what + ": there is no key with two ends", "write KEY=FROM,TO or KEY=FROM,TO,STEP"};
  BisectedKey out{std::string{trimmed(std::string_view{text}.substr(0, equals))},
                  range_between(what, parts[0], parts[1])};
  const SweptRange& range = out.range;
  if (range.from == range.to) throw UserError{what + ": both ends are the same"};
  if (parts.size() == 2) {
    out.step = range.whole ? 1 : 0;
    return out;
  }
  const SweptRange step = range_between(what, parts[2], parts[2]);
  if (step.before != range.before || step.after != range.after || !(step.from > 0))
    throw UserError{fmt::format("{}: {} is no step", what, in_quotes(parts[2])),
                    "give more than 0 in the unit of the ends"};
  out.step = step.from;
  return out;
}

Boundary::Boundary(const BisectedKey& key) : key_{key} {}

std::vector<double> Boundary::next(std::size_t most) const {
  if (state_ != State::Open) return {};
  if (!has_ends_) return {key_.range.from, key_.range.to};
  std::vector<double> out;
  const std::size_t parts = std::max<std::size_t>(most, 1) + 1;
  for (std::size_t i = 1; i < parts; ++i)
    if (const auto value = between(double(i) / double(parts)); value && std::ranges::count(out, *value) == 0)
      out.push_back(*value);
  return out;
}

void Boundary::tell(const std::map<double, bool>& seen) {
  if (!has_ends_) {
    const bool first = seen.at(key_.range.from), last = seen.at(key_.range.to);
    has_ends_ = true;
    state_ = first && last ? State::Everywhere : first || last ? State::Open : State::Nowhere;
    holds_ = first ? key_.range.from : key_.range.to;
    fails_ = first ? key_.range.to : key_.range.from;
  } else {
    std::vector<std::pair<double, bool>> from_held{seen.begin(), seen.end()};
    if (holds_ > fails_) std::reverse(from_held.begin(), from_held.end());
    const auto first_failing =
        std::find_if(from_held.begin(), from_held.end(), [](const auto& at) { return !at.second; });
    changes_again_ =
        changes_again_ || std::any_of(first_failing, from_held.end(), [](const auto& at) { return at.second; });
    if (first_failing != from_held.begin()) holds_ = std::prev(first_failing)->first;
    if (first_failing != from_held.end()) fails_ = first_failing->first;
  }
  if (state_ == State::Open && is_narrow()) state_ = State::Found;
}

std::optional<double> Boundary::between(double part) const {
  const double low = std::min(holds_, fails_), high = std::max(holds_, fails_);
  double value = low + (high - low) * part;
  if (key_.step > 0) {
    const auto at = [&](double steps) { return rounded(key_.range.from + key_.step * steps, 12); };
    const double steps = std::round((value - key_.range.from) / key_.step);
    value = at(steps);
    // Rounding may have brought it to an end though there are values between: one step from there.
    if (value <= low) value = at(steps + 1);
    if (value >= high) value = at(steps - 1);
  } else {
    if (low > 0) value = low * std::pow(high / low, part);
    value = rounded(value, 4);
  }
  return value > low && value < high ? std::optional{value} : std::nullopt;
}

bool Boundary::is_narrow() const {
  const double apart = std::abs(holds_ - fails_), size = std::min(std::abs(holds_), std::abs(fails_));
  if (key_.step == 0 && apart <= kNarrow * (size > 0 ? size : key_.range.to - key_.range.from)) return true;
  return !between(0.5);
}

}  // namespace orrery
