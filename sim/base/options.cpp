// SPDX-License-Identifier: Apache-2.0
#include "sim/base/options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "sim/base/table.hpp"

namespace orrery {
namespace detail {
namespace {

std::string shown(const Node& n) {
  switch (n.kind) {
    case Node::Kind::Null:
      return "nothing";
    case Node::Kind::Scalar:
      return n.quoted ? "the text " + in_quotes(n.scalar) : in_quotes(n.scalar);
    case Node::Kind::List:
      return "a list";
    case Node::Kind::Map:
      return "a map";
  }
  bug("a node of no kind");
}

void report_type(const Node& n, std::string_view expected, std::vector<Diagnostic>& problems, std::string hint = {}) {
  problems.push_back(at(n, fmt::format("expected {}, got {}", expected, shown(n)), std::move(hint)));
}

bool is_bare(const Node& n) { return n.kind == Node::Kind::Scalar && !n.quoted; }

std::string words_of(Range range, const std::string& min, const std::string& max) {
  const bool has_min = range.min > -std::numeric_limits<double>::infinity();
  const bool has_max = range.max < std::numeric_limits<double>::infinity();
  const std::string_view from = range.above_min ? "more than" : "at least";
  const std::string_view to = range.below_max ? "less than" : "at most";
  if (has_min && has_max && !range.above_min && !range.below_max) return fmt::format("from {} to {}", min, max);
  if (has_min && has_max) return fmt::format("{} {} and {} {}", from, min, to, max);
  if (has_min) return fmt::format("{} {}", from, min);
  return has_max ? fmt::format("{} {}", to, max) : "";
}

}  // namespace

bool read_scalar(const Node& n, bool& out, std::vector<Diagnostic>& problems) {
  const bool yes = is_bare(n) && n.scalar == "true";
  if (!yes && !(is_bare(n) && n.scalar == "false")) {
    report_type(n, "true or false", problems);
    return false;
  }
  out = yes;
  return true;
}

bool read_scalar(const Node& n, std::int64_t& out, std::vector<Diagnostic>& problems) {
  std::int64_t value = 0;
  const char* const end = n.scalar.data() + n.scalar.size();
  const auto [stop, error] = std::from_chars(n.scalar.data(), end, value);
  if (!is_bare(n) || error == std::errc::invalid_argument || stop != end) {
    report_type(n, "an integer", problems);
    return false;
  }
  if (error != std::errc{}) {
    report_type(n, "an integer of 64 bits", problems);
    return false;
  }
  out = value;
  return true;
}

bool read_scalar(const Node& n, double& out, std::vector<Diagnostic>& problems) {
  const std::optional<double> value = is_bare(n) ? parse_number(n.scalar) : std::nullopt;
  if (!value) {
    const bool percent = n.kind == Node::Kind::Scalar && n.scalar.ends_with('%');
    report_type(n, "a number", problems, percent ? "ratios are numbers: 0.08 is 8 %" : "");
    return false;
  }
  out = *value;
  return true;
}

bool read_scalar(const Node& n, std::string& out, std::vector<Diagnostic>& problems) {
  if (n.kind != Node::Kind::Scalar) {
    report_type(n, "a text", problems);
    return false;
  }
  out = n.scalar;
  return true;
}

bool read_quantity(const Node& n, double& base_units, Dimension d, std::vector<Diagnostic>& problems) {
  if (n.kind != Node::Kind::Scalar) {
    report_type(n, dimension_name(d), problems, fmt::format("for example \"{}\"", dimension_example(d)));
    return false;
  }
  Diagnostic problem;
  const std::optional<double> value = parse_quantity(n.scalar, d, problem);
  if (!value) {
    problems.push_back(at(n, std::move(problem.message), std::move(problem.hint)));
    return false;
  }
  base_units = *value;
  return true;
}

bool expect_list(const Node& n, std::vector<Diagnostic>& problems) {
  if (n.kind == Node::Kind::List || n.kind == Node::Kind::Null) return true;
  report_type(n, "a list", problems, n.kind == Node::Kind::Scalar ? fmt::format("[{}]", n.scalar) : "");
  return false;
}

bool expect_map(const Node& n, std::vector<Diagnostic>& problems) {
  if (n.kind == Node::Kind::Map || n.kind == Node::Kind::Null) return true;
  report_type(n, "a map of options", problems);
  return false;
}

bool contains(Range range, double v) {
  return (range.below_max ? v < range.max : v <= range.max) && (range.above_min ? v > range.min : v >= range.min);
}

std::string range_text(Range range) { return words_of(range, number_text(range.min), number_text(range.max)); }

std::string range_text(Range range, Dimension dimension) {
  const auto text = [&](double v) { return std::isfinite(v) ? to_exact_text(v, dimension) : std::string{}; };
  return words_of(range, text(range.min), text(range.max));
}

void report_outside(const Node& n, const std::string& legal, std::vector<Diagnostic>& problems) {
  problems.push_back(at(n, fmt::format("{} is out of range", n.scalar), legal));
}

void throw_outside(std::string_view name, const std::string& value, const std::string& legal) {
  throw UserError{fmt::format("{} is {}, it must be {}", name, value, legal)};
}

void report_unknown_keys(const Node& map, const std::vector<std::string>& known, std::vector<Diagnostic>& problems) {
  for (const auto& [key, value] : map.fields)
    if (std::find(known.begin(), known.end(), key) == known.end())
      problems.push_back(at_key(value, fmt::format("unknown key {}", in_quotes(key)), name_hint("key", key, known)));
}

void report_missing_key(const Node& map, std::string_view name, const std::string& type, std::string_view summary,
                        std::vector<Diagnostic>& problems) {
  problems.push_back(at(map, fmt::format("missing key '{}'", name), fmt::format("{}: {} ({})", name, summary, type)));
}

void report_unknown_choice(const Node& n, const std::vector<std::string>& known, std::vector<Diagnostic>& problems) {
  problems.push_back(at(n, fmt::format("unknown value {}", in_quotes(n.scalar)), name_hint("value", n.scalar, known)));
}

Node bare_scalar(std::string text) {
  Node node = Node::of(text, {"default", 0, 0, {}});
  return node;
}

Node text_scalar(std::string text) {
  Node node = bare_scalar(std::move(text));
  node.quoted = true;
  return node;
}

std::string number_text(double v) { return fmt::format("{}", v); }

}  // namespace detail

std::string help_text(const std::vector<OptionInfo>& options) {
  Table table{{{"option"}, {"default"}, {"meaning", Align::Left, Wrap::Yes}}};
  for (const OptionInfo& o : options)
    table.add(
        {o.path, o.default_value.empty() ? "(required)" : o.default_value, fmt::format("{} ({})", o.summary, o.type)});
  return table.text();
}

}  // namespace orrery
