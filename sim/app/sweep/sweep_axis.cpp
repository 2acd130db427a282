// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/sweep_axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "sim/base/shuffle.hpp"
#include "sim/base/units.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMostPoints = 1'000'000;

/// `what`: the option and its value.
[[noreturn]] void fail_axis(const std::string& what, std::string why, std::string hint = {}) {
  throw UserError{what + ": " + why, std::move(hint)};
}

/// The number in a bound, with what stands before and behind it.
struct Bound {
  std::string before, after;
  double number = 0;
  bool whole = false;
};

std::optional<Bound> parse_bound(std::string_view text) {
  Bound b;
  if (text.starts_with('x')) b.before = "x", text.remove_prefix(1);
  const std::size_t end = std::min(text.find_first_not_of("0123456789.eE+-"), text.size());
  const std::optional<double> number = parse_number(text.substr(0, end));
  if (!number) return {};
  b.number = *number;
  b.after = text.substr(end);
  b.whole = b.before.empty() && b.after.empty() && text.find_first_of(".eE") == std::string_view::npos;
  return b;
}

/// The arguments of `name(…)`; nothing for other texts.
std::optional<std::vector<std::string>> arguments_of(std::string_view text, std::string_view name) {
  if (!text.starts_with(name) || !text.substr(name.size()).starts_with('(') || !text.ends_with(')')) return {};
  text.remove_prefix(name.size() + 1);
  text.remove_suffix(1);
  return split_outside(text, ',');
}

void fill_linear(SweptAxis& axis, const std::string& what, const std::vector<std::string>& arguments) {
  if (arguments.size() != 2 && arguments.size() != 3)
    fail_axis(what, fmt::format("lin has {} arguments", arguments.size()),
              "write lin(from,to,count), or lin(from,to) with --sample");
  axis.range = range_between(what, arguments[0], arguments[1]);
  if (arguments.size() == 2) return;
  const std::optional<double> n = parse_number(arguments[2]);
  if (!n || *n != std::floor(*n) || *n < 1 || *n > double(kMostPoints))
    fail_axis(what, fmt::format("{} is no count", in_quotes(arguments[2])), "give an integer of at least 1");
  const SweptRange& r = *axis.range;
  for (double i = 0; i < *n; ++i)
    axis.rows.push_back({r.text(*n == 1 ? r.from : (r.from * (*n - 1 - i) + r.to * i) / (*n - 1))});
}

void fill_powers(SweptAxis& axis, const std::string& what, const std::vector<std::string>& arguments) {
  if (arguments.size() != 2)
    fail_axis(what, fmt::format("log2 has {} arguments", arguments.size()), "write log2(from,to)");
  axis.range = range_between(what, arguments[0], arguments[1]);
  axis.range->logarithmic = true;
  if (!(axis.range->from > 0)) fail_axis(what, "log2 starts at more than 0");
  for (double v = axis.range->from; v <= axis.range->to * (1 + 1e-12); v *= 2) {
    axis.rows.push_back({axis.range->text(v)});
    if (axis.rows.size() > kMostPoints) fail_axis(what, "there are more than a million values");
  }
}

void fill_list(SweptAxis& axis, const std::string& what, std::string_view values) {
  for (const std::string& item : split_outside(values, ',')) {
    std::vector<std::string> row = axis.keys.size() == 1 ? std::vector<std::string>{item} : split_outside(item, ':');
    if (row.size() != axis.keys.size())
      fail_axis(what, fmt::format("{} has {} values for {} keys", in_quotes(item), row.size(), axis.keys.size()),
                "write a,b=1:2,3:4");
    for (const std::string& value : row)
      if (value.empty()) fail_axis(what, "a value is empty", "write a=1,2,4");
    axis.rows.push_back(std::move(row));
  }
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<std::string> split_outside(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0)
      quote = c == quote ? '\0' : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '[' || c == '{' || c == '(')
      ++depth;
    else if (c == ']' || c == '}' || c == ')')
      --depth;
    if (c == separator && depth == 0 && quote == 0)
      parts.emplace_back(trimmed(part)), part.clear();
    else
      part += c;
  }
  parts.emplace_back(trimmed(part));
  return parts;
}

std::string SweptRange::text(double value) const { return fmt::format("{}{}{}", before, value, after); }

std::string SweptRange::at(double part) const {
  double v = logarithmic ? from * std::pow(to / from, part) : from + (to - from) * part;
  if (whole) return text(std::round(v));
  // Six digits are less than anybody means by a range, and read well.
  return fmt::format("{}{:.6g}{}", before, v, after);
}

SweptRange range_between(const std::string& what, const std::string& first, const std::string& last) {
  const std::optional<Bound> from = parse_bound(first), to = parse_bound(last);
  if (!from || !to)
    fail_axis(what, fmt::format("{} is no number", in_quotes(from ? last : first)), "such as 8, x0.5 or 50 GB/s");
  if (from->before != to->before || from->after != to->after)
    fail_axis(what, fmt::format("{} and {} have different units", in_quotes(first), in_quotes(last)),
              "write both bounds in one unit");
  if (!(from->number <= to->number))
    fail_axis(what, fmt::format("{} is more than {}", in_quotes(first), in_quotes(last)));
  return {from->before, from->after, from->number, to->number, false, from->whole && to->whole};
}

SweptAxis parse_axis(const std::string& text) {
  const std::string what = fmt::format("--sweep {}", in_quotes(text));
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    fail_axis(what, "there is no key with values", "write path=1,2,4, path=log2(1,64) or path=lin(1,8,8)");
  SweptAxis axis;
  axis.keys = split_outside(text.substr(0, equals), ',');
  for (const std::string& key : axis.keys)
    if (key.empty()) fail_axis(what, "a key is empty");
  const std::string values{trimmed(std::string_view{text}.substr(equals + 1))};
  const auto linear = arguments_of(values, "lin"), powers = arguments_of(values, "log2");
  if ((linear || powers) && axis.keys.size() > 1)
    fail_axis(what, "a range is of one key", "list the values: a,b=1:2,3:4");
  if (linear)
    fill_linear(axis, what, *linear);
  else if (powers)
    fill_powers(axis, what, *powers);
  else
    fill_list(axis, what, values);
  return axis;
}

std::vector<SweptValues> product_of(const std::vector<SweptAxis>& axes) {
  std::size_t n = 1;
  for (const SweptAxis& axis : axes) {
    if (axis.rows.empty())
      throw UserError{fmt::format("lin of {} says no count", in_quotes(axis.keys.front())),
                      "write lin(from,to,count), or give --sample"};
    n *= axis.rows.size();
    if (n > kMostPoints) throw UserError{"there are more than a million points", "give --sample, or fewer values"};
  }
  std::vector<SweptValues> points(n);
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t later = n, rest = i;
    for (const SweptAxis& axis : axes) {
      later /= axis.rows.size();
      const auto& row = axis.rows[rest / later];
      points[i].insert(points[i].end(), row.begin(), row.end());
      rest %= later;
    }
  }
  return points;
}

std::vector<SweptValues> sample_of(const std::vector<SweptAxis>& axes, std::int64_t n, std::uint64_t seed) {
  if (n > std::int64_t{kMostPoints}) throw UserError{"there are more than a million points", "give a lower --sample"};
  std::vector<SweptValues> points(static_cast<std::size_t>(n));
  for (std::size_t a = 0; a < axes.size(); ++a) {
    Random random{seed, a};
    std::vector<std::size_t> parts(points.size());
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = i;
    shuffle(parts, random);
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double part = (double(parts[i]) + random.uniform()) / double(n);
      const SweptAxis& axis = axes[a];
      if (axis.range) {
        points[i].push_back(axis.range->at(part));
        continue;
      }
      const auto& row =
          axis.rows[std::min(static_cast<std::size_t>(part * double(axis.rows.size())), axis.rows.size() - 1)];
      points[i].insert(points[i].end(), row.begin(), row.end());
    }
  }
  return points;
}

}  // namespace orrery
