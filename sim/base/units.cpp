// SPDX-License-Identifier: Apache-2.0
#include "sim/base/units.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <vector>

namespace orrery {
namespace {

constexpr Dimension kBytes{1, 0, 0}, kSeconds{0, 1, 0}, kFlops{0, 0, 1}, kBytesPerSecond{1, -1, 0},
    kFlopsPerSecond{0, -1, 1}, kPerSecond{0, -1, 0}, kFlopsPerByte{-1, 0, 1};

/// For people a report uses one family of suffixes; files may use any; `Alias` is another spelling, or bits.
enum class Use { Report, File, Alias };

struct Unit {
  std::string_view symbol;
  double scale;  // in base units; the same constants as the literals, so that both give the same double
  Dimension dimension;
  Use use;
};

// Every suffix there is, by dimension and in ascending order of the scale within `Report` and within `File`.
constexpr Unit kUnits[] = {
    {"B", 1, kBytes, Use::Report},
    {"KiB", 1024.0, kBytes, Use::Report},
    {"MiB", 1048576.0, kBytes, Use::Report},
    {"GiB", 1073741824.0, kBytes, Use::Report},
    {"TiB", 1099511627776.0, kBytes, Use::Report},
    {"PiB", 1125899906842624.0, kBytes, Use::Report},
    {"KB", 1e3, kBytes, Use::File},
    {"MB", 1e6, kBytes, Use::File},
    {"GB", 1e9, kBytes, Use::File},
    {"TB", 1e12, kBytes, Use::File},
    {"PB", 1e15, kBytes, Use::File},
    {"kB", 1e3, kBytes, Use::Alias},
    {"Kb", 125.0, kBytes, Use::Alias},
    {"Mb", 125e3, kBytes, Use::Alias},
    {"Gb", 125e6, kBytes, Use::Alias},
    {"Tb", 125e9, kBytes, Use::Alias},

    {"ps", 1e-12, kSeconds, Use::Report},
    {"ns", 1e-9, kSeconds, Use::Report},
    {"us", 1e-6, kSeconds, Use::Report},
    {"ms", 1e-3, kSeconds, Use::Report},
    {"s", 1, kSeconds, Use::Report},
    {"min", 60.0, kSeconds, Use::Report},
    {"h", 3600.0, kSeconds, Use::Report},
    {"d", 86400.0, kSeconds, Use::Report},
    {"\u00B5s", 1e-6, kSeconds, Use::Alias},
    {"\u03BCs", 1e-6, kSeconds, Use::Alias},

    {"FLOP", 1, kFlops, Use::Report},
    {"KFLOP", 1e3, kFlops, Use::Report},
    {"MFLOP", 1e6, kFlops, Use::Report},
    {"GFLOP", 1e9, kFlops, Use::Report},
    {"TFLOP", 1e12, kFlops, Use::Report},
    {"PFLOP", 1e15, kFlops, Use::Report},
    {"EFLOP", 1e18, kFlops, Use::Report},
    {"ZFLOP", 1e21, kFlops, Use::Report},
    {"YFLOP", 1e24, kFlops, Use::Report},

    {"B/s", 1, kBytesPerSecond, Use::Report},
    {"KB/s", 1e3, kBytesPerSecond, Use::Report},
    {"MB/s", 1e6, kBytesPerSecond, Use::Report},
    {"GB/s", 1e9, kBytesPerSecond, Use::Report},
    {"TB/s", 1e12, kBytesPerSecond, Use::Report},
    {"PB/s", 1e15, kBytesPerSecond, Use::Report},
    {"KiB/s", 1024.0, kBytesPerSecond, Use::File},
    {"MiB/s", 1048576.0, kBytesPerSecond, Use::File},
    {"GiB/s", 1073741824.0, kBytesPerSecond, Use::File},
    {"TiB/s", 1099511627776.0, kBytesPerSecond, Use::File},
    {"kB/s", 1e3, kBytesPerSecond, Use::Alias},
    {"Kb/s", 125.0, kBytesPerSecond, Use::Alias},
    {"Mb/s", 125e3, kBytesPerSecond, Use::Alias},
    {"Gb/s", 125e6, kBytesPerSecond, Use::Alias},
    {"Tb/s", 125e9, kBytesPerSecond, Use::Alias},

    {"FLOP/s", 1, kFlopsPerSecond, Use::Report},
    {"KFLOP/s", 1e3, kFlopsPerSecond, Use::Report},
    {"MFLOP/s", 1e6, kFlopsPerSecond, Use::Report},
    {"GFLOP/s", 1e9, kFlopsPerSecond, Use::Report},
    {"TFLOP/s", 1e12, kFlopsPerSecond, Use::Report},
    {"PFLOP/s", 1e15, kFlopsPerSecond, Use::Report},
    {"EFLOP/s", 1e18, kFlopsPerSecond, Use::Report},

    {"Hz", 1, kPerSecond, Use::Report},
    {"kHz", 1e3, kPerSecond, Use::Report},
    {"MHz", 1e6, kPerSecond, Use::Report},
    {"GHz", 1e9, kPerSecond, Use::Report},
    {"/s", 1, kPerSecond, Use::Alias},

    {"FLOP/B", 1, kFlopsPerByte, Use::Report},
};

/// How a dimension is named in messages, and two numbers with suffix to propose.
struct DimensionWords {
  Dimension dimension;
  std::string_view name, example;
  std::string_view suffix, meaning, other_suffix, other_meaning;
};

constexpr DimensionWords kWords[] = {
    {kBytes, "a size in bytes", "80 GiB", "GiB", "2^30 bytes", "GB", "10^9 bytes"},
    {kSeconds, "a duration", "2.5 us", "us", "10^-6 seconds", "s", "seconds"},
    {kFlops, "an amount of work", "8.6 GFLOP", "GFLOP", "10^9 operations", "TFLOP", "10^12 operations"},
    {kBytesPerSecond, "a bandwidth", "3.35 TB/s", "GB/s", "10^9 bytes per second", "Gb/s", "10^9 bits per second"},
    {kFlopsPerSecond, "a compute rate", "989 TFLOP/s", "TFLOP/s", "10^12 operations per second", "GFLOP/s",
     "10^9 operations per second"},
    {kPerSecond, "a frequency", "1.7 GHz", "GHz", "10^9 per second", "/s", "per second"},
    {kFlopsPerByte, "an arithmetic intensity", "295 FLOP/B", "FLOP/B", "operations per byte", "", ""},
};

const DimensionWords& words_of(Dimension d) {
  for (const DimensionWords& words : kWords)
    if (words.dimension == d) return words;
  bug(fmt::format("no suffix is known for bytes^{} seconds^{} flops^{}", d.bytes, d.seconds, d.flops));
}

std::vector<std::string> suffixes_of(Dimension d) {
  std::vector<std::string> suffixes;
  for (const Unit& unit : kUnits)
    if (unit.dimension == d) suffixes.emplace_back(unit.symbol);
  return suffixes;
}

std::string suffix_list(Dimension d) {
  return fmt::format("{} takes one of {}", words_of(d).name, fmt::join(suffixes_of(d), ", "));
}

std::string report_text(double base, Dimension dimension) {
  const double next_unit = dimension == kBytes ? 1023.5 : 999.5;  // 999.5 would round to 1000
  const Unit* chosen = nullptr;
  for (const Unit& unit : kUnits) {
    if (unit.dimension != dimension || unit.use != Use::Report) continue;
    if (!chosen || base != 0) chosen = &unit;
    if (base == 0 && unit.scale == 1) chosen = &unit;
    if (base != 0 && std::abs(base / unit.scale) < next_unit) break;
  }
  const double number = base / chosen->scale;
  if (std::abs(number) >= 999.5) return fmt::format("{:.0f} {}", number, chosen->symbol);
  return fmt::format("{:.3g} {}", number, chosen->symbol);
}

std::string exact_text(double base, Dimension dimension) {
  std::string best;
  std::size_t best_length = 0;
  for (const Unit& unit : kUnits) {
    if (unit.dimension != dimension || unit.use == Use::Alias) continue;
    const double number = base / unit.scale;
    if (!std::isfinite(number) || number * unit.scale != base || (base == 0 && unit.scale != 1)) continue;
    std::string text = fmt::format("{} {}", number, unit.symbol);
    const std::size_t length = text.size() + (std::abs(number) < 1 ? 2 : 0);  // "500 ms" rather than "0.5 s"
    if (!best.empty() && length >= best_length) continue;
    best_length = length;
    best = std::move(text);
  }
  if (best.empty()) bug("a quantity that is not finite has no exact text");
  return best;
}

/// The number at the start of a text and what follows it.
struct NumberAndSuffix {
  std::string_view number, suffix;
};

NumberAndSuffix split(std::string_view text) {
  const auto trim = [](std::string_view s) {
    while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
    while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
    return s;
  };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const std::string_view all = trim(text);
  std::size_t end = !all.empty() && (all[0] == '-' || all[0] == '+') ? 1 : 0;
  while (end < all.size() && (is_digit(all[end]) || all[end] == '.')) ++end;
  if (end < all.size() && (all[end] == 'e' || all[end] == 'E')) {
    std::size_t exponent = end + 1;
    if (exponent < all.size() && (all[exponent] == '-' || all[exponent] == '+')) ++exponent;
    if (exponent < all.size() && is_digit(all[exponent])) {
      while (exponent < all.size() && is_digit(all[exponent])) ++exponent;
      end = exponent;
    }
  }
  return {all.substr(0, end), trim(all.substr(end))};
}

void report(Diagnostic& problem, std::string message, std::string hint) {
  problem.message = std::move(message);
  problem.hint = std::move(hint);
}

void report_unknown_suffix(std::string_view suffix, Dimension dimension, Diagnostic& problem) {
  const std::string nearest = nearest_name(suffix, suffixes_of(dimension));
  const std::string proposal = nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest);
  report(problem, fmt::format("unknown unit {}", in_quotes(suffix)), proposal + suffix_list(dimension));
}

void report_missing_suffix(std::string_view number, Dimension dimension, Diagnostic& problem) {
  const DimensionWords& w = words_of(dimension);
  std::string hint = fmt::format("\"{} {}\" ({})", number, w.suffix, w.meaning);
  if (!w.other_suffix.empty()) hint += fmt::format(" or \"{} {}\" ({})", number, w.other_suffix, w.other_meaning);
  report(problem, fmt::format("{} needs a unit", w.name), std::move(hint));
}

/// The unit of a suffix, of the wanted dimension if there is one; null when no dimension has it.
const Unit* find_unit(std::string_view suffix, Dimension dimension) {
  const Unit* found = nullptr;
  for (const Unit& unit : kUnits)
    if (unit.symbol == suffix && (!found || unit.dimension == dimension)) found = &unit;
  return found;
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const std::size_t first = text.starts_with('-') ? 1 : 0;
  if (first >= text.size() || !(text[first] == '.' || (text[first] >= '0' && text[first] <= '9'))) return {};
  double value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc{} || stop != end || !std::isfinite(value)) return {};
  return value;
}

std::string_view dimension_name(Dimension d) { return words_of(d).name; }
std::string_view dimension_example(Dimension d) { return words_of(d).example; }

std::optional<double> parse_quantity(std::string_view text, Dimension dimension, Diagnostic& problem) {
  const DimensionWords& words = words_of(dimension);
  const auto [number, suffix] = split(text);
  const std::optional<double> value = parse_number(number);
  if (!value) {
    report(problem, fmt::format("{} is not {}", in_quotes(text), words.name),
           fmt::format("a finite number and a unit, for example \"{}\"", words.example));
    return {};
  }
  if (suffix.empty()) {
    report_missing_suffix(number, dimension, problem);
    return {};
  }
  const Unit* unit = find_unit(suffix, dimension);
  if (!unit) {
    report_unknown_suffix(suffix, dimension, problem);
    return {};
  }
  if (!(unit->dimension == dimension)) {
    report(problem, fmt::format("{} is {}, not {}", in_quotes(text), words_of(unit->dimension).name, words.name),
           suffix_list(dimension));
    return {};
  }
  const double base = *value * unit->scale;
  if (std::isfinite(base)) return base;
  report(problem, fmt::format("{} is too large", in_quotes(text)), {});
  return {};
}

double parse_quantity(std::string_view text, Dimension dimension) {
  Diagnostic problem;
  const std::optional<double> value = parse_quantity(text, dimension, problem);
  if (!value) throw UserError{std::move(problem)};
  return *value;
}

std::string to_text(Bytes v) { return report_text(v.base(), kBytes); }
std::string to_text(Seconds v) { return report_text(v.base(), kSeconds); }
std::string to_text(Flops v) { return report_text(v.base(), kFlops); }
std::string to_text(BytesPerSecond v) { return report_text(v.base(), kBytesPerSecond); }
std::string to_text(FlopsPerSecond v) { return report_text(v.base(), kFlopsPerSecond); }
std::string to_text(PerSecond v) { return report_text(v.base(), kPerSecond); }
std::string to_text(FlopsPerByte v) { return report_text(v.base(), kFlopsPerByte); }

std::string to_exact_text(double base_units, Dimension dimension) { return exact_text(base_units, dimension); }
std::string to_exact_text(Bytes v) { return exact_text(v.base(), kBytes); }
std::string to_exact_text(Seconds v) { return exact_text(v.base(), kSeconds); }
std::string to_exact_text(Flops v) { return exact_text(v.base(), kFlops); }
std::string to_exact_text(BytesPerSecond v) { return exact_text(v.base(), kBytesPerSecond); }
std::string to_exact_text(FlopsPerSecond v) { return exact_text(v.base(), kFlopsPerSecond); }
std::string to_exact_text(PerSecond v) { return exact_text(v.base(), kPerSecond); }
std::string to_exact_text(FlopsPerByte v) { return exact_text(v.base(), kFlopsPerByte); }

}  // namespace orrery
