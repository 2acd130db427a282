// SPDX-License-Identifier: Apache-2.0
#include "gui/core/workspace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/base/error.hpp"

namespace orrery::gui {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;

template <class E>
void read_word(const json& j, const char* key, E& out) {
  if (!j.contains(key)) return;
  const auto word = j.at(key).get<std::string>();
  std::vector<std::string> known;
  for (const EnumName<E>& e : enum_names(E{})) {
    known.emplace_back(e.name);
    if (e.name == word) {
      out = e.value;
      return;
    }
  }
  throw unknown_name(key, word, known);
}

template <class T>
void read_value(const json& j, const char* key, T& out) {
  if (j.contains(key)) out = j.at(key).get<T>();
}

json to_json(const View& v) {
  json marks = json::array();
  for (const Mark& m : v.marks) marks.push_back({{"at", m.at}, {"label", m.label}});
  json j = {{"begin", v.time.begin},
            {"end", v.time.end},
            {"scroll", v.scroll},
            {"theme", name_of(v.theme)},
            {"scale", v.scale},
            {"colour_by", word_of(v.colour_by)},
            {"compare_mode", word_of(v.compare_mode)},
            {"error_channel", word_of(v.error_channel)},
            {"group_by", v.group_by},
            {"counters", v.show_counters},
            {"flows", v.show_flows},
            {"critical_path", v.show_critical_path},
            {"folded", v.folded},
            {"pinned", v.pinned},
            {"marks", marks}};
  if (v.range) j["range"] = {v.range->begin, v.range->end};
  if (v.selected && v.selected->side == Side::Main) j["selected"] = v.selected->event;
  return j;
}

View view_of(const json& j) {
  View v;
  read_value(j, "begin", v.time.begin);
  read_value(j, "end", v.time.end);
  read_value(j, "scroll", v.scroll);
  read_value(j, "scale", v.scale);
  read_word(j, "colour_by", v.colour_by);
  read_word(j, "compare_mode", v.compare_mode);
  read_word(j, "error_channel", v.error_channel);
  read_value(j, "group_by", v.group_by);
  read_value(j, "counters", v.show_counters);
  read_value(j, "flows", v.show_flows);
  read_value(j, "critical_path", v.show_critical_path);
  read_value(j, "folded", v.folded);
  read_value(j, "pinned", v.pinned);
  if (j.value("theme", "light") == "dark") v.theme = ThemeName::Dark;
  v.scale = std::clamp(v.scale, 1.0, 2.0);
  for (const json& m : j.value("marks", json::array())) v.marks.push_back({m.at("at"), m.at("label")});
  if (j.contains("range")) v.range = TimeRange{j.at("range").at(0), j.at("range").at(1)};
  if (j.contains("selected")) v.selected = Selected{Side::Main, j.at("selected")};
  if (v.time.length() <= 0) v.time = {0, 1'000'000};
  return v;
}

}  // namespace

std::string write_workspace(const Workspace& w) {
  return json{{"orrery_workspace", kVersion},
              {"file", w.file},
              {"other", w.other},
              {"alignment", word_of(w.compare.alignment)},
              {"manual_ps", w.compare.manual_ps},
              {"view", to_json(w.view)}}
             .dump(2) +
         "\n";
}

Workspace read_workspace(const std::string& text, const std::string& file) {
  try {
    const json j = json::parse(text);
    if (j.value("orrery_workspace", 0) != kVersion)
      throw UserError{fmt::format("cannot read '{}' as a workspace: it is none of version {}", file, kVersion)};
    Workspace w;
    read_value(j, "file", w.file);
    read_value(j, "other", w.other);
    read_word(j, "alignment", w.compare.alignment);
    read_value(j, "manual_ps", w.compare.manual_ps);
    if (j.contains("view")) w.view = view_of(j.at("view"));
    return w;
  } catch (const json::exception& e) {
    throw UserError{fmt::format("cannot read '{}' as a workspace: {}", file, e.what())};
  }
}

}  // namespace orrery::gui
