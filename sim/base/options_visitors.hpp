// SPDX-License-Identifier: Apache-2.0
// The visitors behind options.hpp, which includes this file: one value read, written or described by its type, then
// structs.
#pragma once

#include "sim/base/options.hpp"

namespace orrery {
namespace detail {

/// The range with its usual most (kMostCount, kMostAmount) where none is declared.
template <class T>
constexpr Range bounded(Range range) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const bool is_count = std::is_integral_v<T>;
  if (range.max == kNone && !(is_count && range.min == -kNone)) range.max = is_count ? kMostCount : kMostAmount;
  if (!is_count && range.min == -kNone) range.min = -kMostAmount;
  return range;
}

/// The range that a value misses: as declared, with the usual most only where that is what it misses.
template <class T>
Range missed(Range range, double v) {
  return contains(range, v) ? bounded<T>(range) : range;
}

template <class T>
void read_number(const Node& n, T& out, Range range, std::vector<Diagnostic>& problems) {
  if constexpr (std::is_floating_point_v<T>) {
    double v = 0;
    if (!read_scalar(n, v, problems)) return;
    if (!contains(bounded<T>(range), v)) return report_outside(n, range_text(missed<T>(range, v)), problems);
    out = static_cast<T>(v);
  } else {
    std::int64_t v = 0;
    if (!read_scalar(n, v, problems)) return;
    if (!std::in_range<T>(v))
      return report_outside(
          n, range_text(between(double(std::numeric_limits<T>::min()), double(std::numeric_limits<T>::max()))),
          problems);
    const auto number = static_cast<double>(v);
    if (!contains(bounded<T>(range), number)) return report_outside(n, range_text(missed<T>(range, number)), problems);
    out = static_cast<T>(v);
  }
}

template <class Q>
void read_quantity_field(const Node& n, Q& out, Range range, std::vector<Diagnostic>& problems) {
  double base = 0;
  if (!read_quantity(n, base, dimension_of(Q{}), problems)) return;
  if (!contains(bounded<Q>(range), base))
    return report_outside(n, range_text(missed<Q>(range, base), dimension_of(Q{})), problems);
  out = Q{base};
}

template <class E>
void read_choice(const Node& n, E& out, std::vector<Diagnostic>& problems) {
  std::string text;
  if (!read_scalar(n, text, problems)) return;
  for (const EnumName<E>& entry : enum_names(E{}))
    if (entry.name == text) {
      out = entry.value;
      return;
    }
  report_unknown_choice(n, choices<E>(), problems);
}

template <class T>
void read_value(const Node& n, T& out, Range range, std::vector<Diagnostic>& problems) {
  if constexpr (std::is_same_v<T, Node>) {
    out = n;
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    read_scalar(n, out, problems);
  } else if constexpr (std::is_arithmetic_v<T>) {
    read_number(n, out, range, problems);
  } else if constexpr (is_quantity<T>) {
    read_quantity_field(n, out, range, problems);
  } else if constexpr (std::is_enum_v<T>) {
    read_choice(n, out, problems);
  } else if constexpr (is_optional<T>) {
    if (n.kind == Node::Kind::Null) return out.reset();
    typename T::value_type value{};
    read_value(n, value, range, problems);
    out = std::move(value);
  } else if constexpr (is_vector<T>) {
    if (!expect_list(n, problems)) return;
    out.clear();
    for (const Node& item : n.items) {
      typename T::value_type value{};
      read_value(item, value, range, problems);
      out.push_back(std::move(value));
    }
  } else if constexpr (is_map<T>) {
    if (!expect_map(n, problems)) return;
    out.clear();
    for (const auto& [key, field] : n.fields) read_value(field, out[key], range, problems);
  } else {
    static_assert(Visitable<T>, "an option is of a type that cannot be read from a file");
    read_options(n, out, problems);
  }
}

template <class T>
Node write_value(T& value) {
  if constexpr (std::is_same_v<T, Node>) {
    return value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return bare_scalar(value ? "true" : "false");
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text_scalar(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return bare_scalar(number_text(value));
  } else if constexpr (std::is_integral_v<T>) {
    return bare_scalar(std::to_string(value));
  } else if constexpr (is_quantity<T>) {
    return text_scalar(to_exact_text(value.base(), dimension_of(value)));
  } else if constexpr (std::is_enum_v<T>) {
    return text_scalar(std::string{enum_name(value)});
  } else if constexpr (is_optional<T>) {
    return value ? write_value(*value) : Node{};
  } else if constexpr (is_vector<T>) {
    Node list = Node::list();
    for (typename T::value_type item : value) list.items.push_back(write_value(item));
    return list;
  } else if constexpr (is_map<T>) {
    Node map = Node::map();
    for (auto& [key, item] : value) map.fields.emplace_back(key, write_value(item));
    return map;
  } else {
    return write_options(value);
  }
}

template <class T>
std::string type_text(Range range) {
  const auto with = [](std::string type, const std::string& legal) {
    return legal.empty() ? type : type + ", " + legal;
  };
  if constexpr (std::is_same_v<T, Node>) {
    return "anything";
  } else if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "text";
  } else if constexpr (std::is_integral_v<T>) {
    return with("integer", range_text(range));
  } else if constexpr (std::is_floating_point_v<T>) {
    return with("number", range_text(range));
  } else if constexpr (is_quantity<T>) {
    const std::string_view name = dimension_name(dimension_of(T{}));
    return with(std::string{name.substr(name.find(' ') + 1)}, range_text(range, dimension_of(T{})));
  } else if constexpr (std::is_enum_v<T>) {
    std::string text;
    for (const std::string& name : choices<T>()) text += (text.empty() ? "one of: " : ", ") + name;
    return text;
  } else if constexpr (is_optional<T>) {
    return type_text<typename T::value_type>(range);
  } else if constexpr (is_vector<T>) {
    return "list of: " + type_text<typename T::value_type>(range);
  } else if constexpr (is_map<T>) {
    return "map of: " + type_text<typename T::mapped_type>(range);
  } else {
    return "options";
  }
}

/// The options of the structs inside of a type, below a path.
template <class T>
void describe_inside(const std::string& path, std::vector<OptionInfo>& out) {
  if constexpr (is_optional<T>) {
    describe_inside<typename T::value_type>(path, out);
  } else if constexpr (is_vector<T>) {
    describe_inside<typename T::value_type>(path + "[]", out);
  } else if constexpr (is_map<T>) {
    describe_inside<typename T::mapped_type>(path + ".<name>", out);
  } else if constexpr (Visitable<T>) {
    for (OptionInfo& info : describe_options<T>(path)) out.push_back(std::move(info));
  }
}

class OptionReader {
 public:
  OptionReader(const Node& map, std::vector<Diagnostic>& problems) : map_{map}, problems_{problems} {}

  template <class T>
  void field(std::string_view name, T& value, std::string_view, Range range = {}) {
    if (const Node* node = take(name)) read_value(*node, value, range, problems_);
  }

  template <class T>
  void required(std::string_view name, T& value, std::string_view summary, Range range = {}) {
    if (const Node* node = take(name)) return read_value(*node, value, range, problems_);
    report_missing_key(map_, name, type_text<T>(range), summary, problems_);
  }

  void finish() { report_unknown_keys(map_, known_, problems_); }

 private:
  const Node* take(std::string_view name) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end())
      bug("option '" + std::string{name} + "' is declared twice");
    known_.emplace_back(name);
    return map_.find(name);
  }

  const Node& map_;
  std::vector<Diagnostic>& problems_;
  std::vector<std::string> known_;
};

class OptionWriter {
 public:
  template <class T>
  void field(std::string_view name, T& value, std::string_view, Range = {}) {
    map_.fields.emplace_back(std::string{name}, write_value(value));
  }
  template <class T>
  void required(std::string_view name, T& value, std::string_view summary, Range range = {}) {
    field(name, value, summary, range);
  }
  Node take() { return std::move(map_); }

 private:
  Node map_ = Node::map();
};

class RangeChecker {
 public:
  template <class T>
  void field(std::string_view name, T& value, std::string_view, Range range = {}) {
    check(name, value, range);
  }
  template <class T>
  void required(std::string_view name, T& value, std::string_view, Range range = {}) {
    check(name, value, range);
  }

 private:
  template <class T>
  void check(std::string_view name, T& value, Range range) {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      const auto v = static_cast<double>(value);
      if (!contains(bounded<T>(range), v)) throw_outside(name, number_text(v), range_text(missed<T>(range, v)));
    } else if constexpr (is_quantity<T>) {
      const double v = value.base();
      const Dimension d = dimension_of(value);
      if (!contains(bounded<T>(range), v)) throw_outside(name, to_exact_text(v, d), range_text(missed<T>(range, v), d));
    } else if constexpr (is_optional<T>) {
      if (value) check(name, *value, range);
    } else if constexpr (is_vector<T>) {
      for (typename T::value_type& item : value) check(name, item, range);
    } else if constexpr (Visitable<T>) {
      value.visit(*this);
    }
  }
};

class OptionDescriber {
 public:
  explicit OptionDescriber(std::string_view prefix) : prefix_{prefix} {}

  template <class T>
  void field(std::string_view name, T& value, std::string_view summary, Range range = {}) {
    describe<T>(name, Visitable<T> ? std::string{} : to_flow_yaml(write_value(value)), summary, range);
  }
  template <class T>
  void required(std::string_view name, T&, std::string_view summary, Range range = {}) {
    describe<T>(name, {}, summary, range);
  }
  std::vector<OptionInfo> take() { return std::move(options_); }

 private:
  template <class T>
  void describe(std::string_view name, std::string default_value, std::string_view summary, Range range) {
    const std::string path = prefix_.empty() ? std::string{name} : prefix_ + "." + std::string{name};
    if constexpr (!Visitable<T>)
      options_.push_back({path, type_text<T>(range), std::move(default_value), std::string{summary}});
    describe_inside<T>(path, options_);
  }

  std::string prefix_;
  std::vector<OptionInfo> options_;
};

}  // namespace detail

template <class O>
void read_options(const Node& map, O& options, std::vector<Diagnostic>& problems) {
  if (!detail::expect_map(map, problems)) return;
  detail::OptionReader reader{map, problems};
  options.visit(reader);
  reader.finish();
}

template <class O>
void read_options(const Node& map, O& options) {
  std::vector<Diagnostic> problems;
  read_options(map, options, problems);
  if (!problems.empty()) throw UserError{in_file_order(std::move(problems))};
}

template <class O>
Node write_options(O options) {
  detail::OptionWriter writer;
  options.visit(writer);
  return writer.take();
}

template <class O>
void check_ranges(O options) {
  detail::RangeChecker checker;
  options.visit(checker);
}

template <class O>
std::vector<OptionInfo> describe_options(std::string_view prefix) {
  O options{};
  detail::OptionDescriber describer{prefix};
  options.visit(describer);
  return describer.take();
}

}  // namespace orrery
