// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sim/base/yaml.hpp"

namespace orrery {

// Options are declared once: a struct with defaults and a `visit` member that names each field with one sentence.
//
//   struct PipelineOptions {
//     int64_t stages = 1;
//     Bytes send_buffer = 64.0_MB;
//     template <class V> void visit(V& v) {
//       v.required("stages", stages, "pipeline stages; must divide the number of layers", at_least(1));
//       v.field("send_buffer", send_buffer, "memory kept per stage for activations in transit");
//     }
//   };
//
// Parsing, --help, Markdown and the echoed `resolved` scenario all derive from it. A field's type may be bool, an
// integer, double, std::string, any Quantity, another visitable struct, Node (anything), or an enum with
//   std::span<const EnumName<E>> enum_names(E)    // found by argument-dependent look-up
// and std::optional, std::vector and std::map<std::string, …> of these.

template <class E>
struct EnumName {
  E value;
  std::string_view name;
};

/// What options call a value.
template <class E>
std::string_view enum_name(E value) {
  for (const EnumName<E>& e : enum_names(value))
    if (e.value == value) return e.name;
  bug("a value of an enum without a name");
}

/// The legal values of a number, or of the base units of a quantity. For lists, of each element.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // the minimum itself is not legal
  bool below_max = false;  // the maximum itself is not legal
};
constexpr Range at_least(double min) { return {.min = min}; }
constexpr Range more_than(double min) { return {.min = min, .above_min = true}; }
constexpr Range between(double min, double max) { return {.min = min, .max = max}; }
/// From 0 on: probabilities of which 1 makes no sense, decays.
constexpr Range less_than(double max) { return {.min = 0, .max = max, .below_max = true}; }

/// The most of an integer with a least and of any other number where nothing is declared: beyond it arithmetic with
/// counts overflows, and no clock and no memory reaches it.
constexpr double kMostCount = 1e12, kMostAmount = 1e18;
template <int B, int S, int F>
constexpr Range at_least(Quantity<B, S, F> min) {
  return {.min = min.base()};
}
template <int B, int S, int F>
constexpr Range more_than(Quantity<B, S, F> min) {
  return {.min = min.base(), .above_min = true};
}
template <int B, int S, int F>
constexpr Range between(Quantity<B, S, F> min, Quantity<B, S, F> max) {
  return {.min = min.base(), .max = max.base()};
}

/// What one declared option looks like, for help, documentation, schemas and `config explain`.
struct OptionInfo {
  std::string path;           // "workload.train.batch"
  std::string type;           // "integer", "size in bytes", "one of: a, b"
  std::string default_value;  // as it would stand in a file; empty when required
  std::string summary;
};

namespace detail {

/// Each appends to `problems` and leaves `out` alone when the node is not of the type.
bool read_scalar(const Node& n, bool& out, std::vector<Diagnostic>& problems);
bool read_scalar(const Node& n, std::int64_t& out, std::vector<Diagnostic>& problems);
bool read_scalar(const Node& n, double& out, std::vector<Diagnostic>& problems);
bool read_scalar(const Node& n, std::string& out, std::vector<Diagnostic>& problems);
bool read_quantity(const Node& n, double& base_units, Dimension d, std::vector<Diagnostic>& problems);

/// False, and a problem, when the node is of another kind. A null passes as an empty list or map.
bool expect_list(const Node& n, std::vector<Diagnostic>& problems);
bool expect_map(const Node& n, std::vector<Diagnostic>& problems);

bool contains(Range range, double v);
/// "at least 1", "from 0 to 1"; empty for the whole line. With units when the bounds are of a quantity.
std::string range_text(Range range);
std::string range_text(Range range, Dimension dimension);
void report_outside(const Node& n, const std::string& legal, std::vector<Diagnostic>& problems);
[[noreturn]] void throw_outside(std::string_view name, const std::string& value, const std::string& legal);

void report_unknown_keys(const Node& map, const std::vector<std::string>& known, std::vector<Diagnostic>& problems);
void report_missing_key(const Node& map, std::string_view name, const std::string& type, std::string_view summary,
                        std::vector<Diagnostic>& problems);
void report_unknown_choice(const Node& n, const std::vector<std::string>& known, std::vector<Diagnostic>& problems);

Node bare_scalar(std::string text);
Node text_scalar(std::string text);
std::string number_text(double v);

struct AnyVisitor {
  template <class T>
  void field(std::string_view, T&, std::string_view, Range = {}) {}
  template <class T>
  void required(std::string_view, T&, std::string_view, Range = {}) {}
};
template <class T>
concept Visitable = requires(T& t, AnyVisitor& v) {
  t.visit(v);
};

template <class T>
inline constexpr bool is_quantity = false;
template <int B, int S, int F>
inline constexpr bool is_quantity<Quantity<B, S, F>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_map = false;
template <class T>
inline constexpr bool is_map<std::map<std::string, T>> = true;

template <class E>
std::vector<std::string> choices() {
  std::vector<std::string> names;
  for (const EnumName<E>& entry : enum_names(E{})) names.emplace_back(entry.name);
  return names;
}

}  // namespace detail

/// Fills `options` from a map and appends what is wrong: unknown and missing keys, wrong types and units, values out of
/// range. Fields that the map does not name keep their values. A null is an empty map.
template <class O>
void read_options(const Node& map, O& options, std::vector<Diagnostic>& problems);

/// The same; throws UserError with all problems.
template <class O>
void read_options(const Node& map, O& options);

/// The options as a map, every field written out with its unit: reads back as exactly the same options.
template <class O>
Node write_options(O options);

/// Every option of a struct with its default, nested ones as "a.b", elements of lists as "a[].b", of maps as
/// "a.<name>.b".
template <class O>
std::vector<OptionInfo> describe_options(std::string_view prefix = {});

/// Checks options that no file filled by the ranges of their declaration; throws UserError with the name.
template <class O>
void check_ranges(O options);

/// The options as a table for people, as wide as help.
std::string help_text(const std::vector<OptionInfo>& options);

}  // namespace orrery

#include "sim/base/options_visitors.hpp"
