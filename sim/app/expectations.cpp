// SPDX-License-Identifier: Apache-2.0
#include "sim/app/expectations.hpp"

#include <fmt/format.h>

#include <cmath>

namespace orrery {
namespace {

/// How a metric is written in a file, and shown. Work is a plain number of FLOP in a file.
enum class Form { Time, Size, Work, Number, Truth };

struct Metric {
  std::string_view name;
  Form form;
  double (*value)(const Report&);
};

constexpr Metric kMetrics[] = {
    {"step_time", Form::Time, [](const Report& r) { return r.step; }},
    {"prefill_time", Form::Time, [](const Report& r) { return r.prefill.value_or(0); }},
    {"exposed_communication", Form::Time, [](const Report& r) { return r.exposed_communication; }},
    {"peak_memory", Form::Size, [](const Report& r) { return double(r.memory.bytes); }},
    {"tokens_per_second", Form::Number, [](const Report& r) { return r.tokens_per_second; }},
    {"tokens_per_step", Form::Number, [](const Report& r) { return r.tokens_per_step; }},
    {"model_flops", Form::Work, [](const Report& r) { return r.model_flops; }},
    {"mfu", Form::Number, [](const Report& r) { return r.mfu; }},
    {"bubble", Form::Number, [](const Report& r) { return r.bubble; }},
    {"ops", Form::Number, [](const Report& r) { return double(r.ops); }},
    {"ranks", Form::Number, [](const Report& r) { return double(r.ranks); }},
    {"fits", Form::Truth, [](const Report& r) { return all_fits(r) ? 1.0 : 0.0; }},
};

double read_in(const Node& n, Form form) {
  std::vector<Diagnostic> problems;
  double value = 0;
  bool truth = false;
  if (form == Form::Time)
    detail::read_quantity(n, value, dimension_of(Seconds{}), problems);
  else if (form == Form::Size)
    detail::read_quantity(n, value, dimension_of(Bytes{}), problems);
  else if (form == Form::Work || form == Form::Number)
    detail::read_scalar(n, value, problems);
  else if (detail::read_scalar(n, truth, problems))
    value = truth ? 1 : 0;
  if (!problems.empty()) throw UserError{std::move(problems)};
  return value;
}

/// "3 %" of the value, or a difference in its unit.
double tolerance_of(const Expectation& e, double value, Form form) {
  const Node& n = e.within;
  if (n.kind == Node::Kind::Null) return 0;
  if (n.kind == Node::Kind::Scalar && n.scalar.ends_with('%')) {
    std::string_view text{n.scalar};
    text.remove_suffix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    const std::optional<double> percent = parse_number(text);
    if (!percent || *percent < 0)
      throw UserError{at(n, fmt::format("{} is no tolerance", in_quotes(n.scalar)), "for example 3 %")};
    return std::abs(value) * *percent / 100;
  }
  const double within = read_in(n, form);
  if (within < 0) throw UserError{at(n, fmt::format("{} is no tolerance", in_quotes(n.scalar)), "for example 3 %")};
  return within;
}

std::string shown(double value, Form form) {
  if (form == Form::Time) return to_text(Seconds{value});
  if (form == Form::Size) return to_text(Bytes{value});
  if (form == Form::Work) return to_text(Flops{value});
  if (form == Form::Truth) return value != 0 ? "true" : "false";
  return fmt::format("{:.6g}", value);
}

ExpectationResult check(const Metric& m, const Expectation& e, const Report& report) {
  ExpectationResult r{std::string{m.name}, read_in(e.value, m.form), m.value(report), 0, false, {}};
  r.tolerance = tolerance_of(e, r.expected, m.form);
  r.holds = std::abs(r.actual - r.expected) <= r.tolerance;
  r.text = fmt::format("{} is {}, expected {}", m.name, shown(r.actual, m.form), shown(r.expected, m.form));
  if (r.tolerance > 0) r.text += fmt::format(" within {}", shown(r.tolerance, m.form));
  if (!e.why.empty()) r.text += fmt::format(" ({})", e.why);
  return r;
}

}  // namespace

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const Metric& m : kMetrics) names.emplace_back(m.name);
  return names;
}

std::vector<ExpectationResult> check_expectations(const Scenario& scenario, const Report& report) {
  std::vector<ExpectationResult> results;
  for (const auto& [name, e] : scenario.options.expect) {
    const auto* m = std::find_if(std::begin(kMetrics), std::end(kMetrics),
                                 [&, &name = name](const Metric& k) { return k.name == name; });
    if (m == std::end(kMetrics))
      throw UserError{
          at(e.value, fmt::format("unknown metric {}", in_quotes(name)), name_hint("metric", name, metric_names()))};
    results.push_back(check(*m, e, report));
  }
  return results;
}

}  // namespace orrery
