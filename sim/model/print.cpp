// SPDX-License-Identifier: Apache-2.0
#include "sim/model/print.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "sim/base/table.hpp"

namespace orrery {
namespace {

std::string with_commas(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (auto i = static_cast<std::int64_t>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<std::size_t>(i), ",");
  return digits;
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("{}", fmt::join(shape, "×")); }

/// The name with every number between dots replaced by '*': parameters that differ in a number only are alike.
std::string pattern_of(const std::string& name) {
  std::string out;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    const std::string part = name.substr(at, end - at);
    const bool is_number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); });
    out += is_number ? "*" : part;
    if (end < name.size()) out += '.';
    at = end + 1;
  }
  return out;
}

/// Parameters of one pattern and shape.
struct Row {
  std::string pattern;
  std::string shape;
  std::int64_t tensors = 0, elements = 0;
};

std::vector<Row> rows_of(const Model& model) {
  std::vector<Row> rows;
  std::map<std::pair<std::string, std::string>, std::size_t> index;
  for (const Parameter& p : model.parameters) {
    const std::pair key{pattern_of(p.name), shape_text(p.shape)};
    const auto [it, is_new] = index.try_emplace(key, rows.size());
    if (is_new) rows.push_back({key.first, key.second});
    rows[it->second].tensors += 1;
    rows[it->second].elements += p.elements();
  }
  return rows;
}

std::string blocks_text(const Model& model) {
  if (const auto* t = std::get_if<Transformer>(&model.network)) {
    if (t->encoder.empty()) return fmt::format("{} decoder blocks", t->decoder.size());
    if (t->decoder.empty()) return fmt::format("{} encoder blocks", t->encoder.size());
    return fmt::format("{} encoder and {} decoder blocks", t->encoder.size(), t->decoder.size());
  }
  if (const auto* s = std::get_if<Swin>(&model.network)) return fmt::format("{} stages", s->stages.size());
  return fmt::format("{} embedding tables", std::get<Dlrm>(model.network).tables.size());
}

}  // namespace

std::string count_text(std::int64_t count) {
  constexpr std::pair<double, std::string_view> kScales[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}};
  const auto value = static_cast<double>(count);
  for (const auto& [scale, suffix] : kScales) {
    const double scaled = value / scale;
    if (scaled < 0.9995) continue;
    const int decimals = scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f} {}", scaled, decimals, suffix);
  }
  return std::to_string(count);
}

std::string show_model(const Model& model) {
  const std::int64_t total = model.parameter_count(), active = model.active_parameter_count();
  std::string out = fmt::format("{} ({}), {}\n", model.name, model.family, blocks_text(model));
  out += fmt::format("{} parameters ({}), {} in {}\n", with_commas(total), count_text(total),
                     to_text(size_of(model.dtype, total)), name_of(model.dtype));
  if (active != total)
    out += fmt::format("{} of them work on one token ({})\n", with_commas(active), count_text(active));
  Table table{
      {{"parameter"}, {"shape"}, {"tensors", Align::Right}, {"elements", Align::Right}, {"share", Align::Right}}};
  for (const Row& row : rows_of(model))
    table.add({row.pattern, row.shape, with_commas(row.tensors), with_commas(row.elements),
               fmt::format("{:.1f} %", 100.0 * static_cast<double>(row.elements) / static_cast<double>(total))});
  return out + "\n" + table.text();
}

std::string list_parameters(const Model& model) {
  Table table{{{"parameter"}, {"shape"}, {"elements", Align::Right}}};
  for (const Parameter& p : model.parameters) table.add({p.name, shape_text(p.shape), with_commas(p.elements())});
  return table.text();
}

}  // namespace orrery
