// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/sweep_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "sim/app/report.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

using nlohmann::json;

/// A cell as RFC 4180 wants it.
std::string sweep_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string{"\"\""} : std::string{c};
  return out + "\"";
}

std::string sweep_line(const std::vector<std::string>& cells) {
  std::string out;
  for (std::size_t i = 0; i < cells.size(); ++i) out += (i == 0 ? "" : ",") + sweep_cell(cells[i]);
  return out + "\n";
}

/// "step_time.seconds" → its value, for all values of a result.
std::map<std::string, std::string> flat(const json& result, const std::string& before = {}) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : result.items()) {
    const std::string name = before.empty() ? key : before + "." + key;
    if (value.is_object())
      out.merge(flat(value, name));
    else
      out[name] = value.is_string() ? value.get<std::string>() : value.is_null() ? std::string{} : value.dump();
  }
  return out;
}

json parse_saved(const std::string& text, const std::string& path) {
  json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) throw UserError{fmt::format("'{}' is no JSON", path)};
  return document;
}

void read_points(const std::string& folder, SweepResults& out) {
  const std::string path = folder + "/points.jsonl";
  std::set<std::string> known;
  for (const SweptPoint& p : out.points) known.insert(p.id);
  std::istringstream lines{read_file(path)};
  for (std::string line; std::getline(lines, line);) {
    const json j = parse_saved(line, path);
    SweptPoint p{j.at("id"), j.at("scenario"), j.at("values").get<SweptValues>()};
    if (!known.contains(p.id)) out.points.push_back(std::move(p));
  }
}

}  // namespace

const SweepRecord* SweepResults::record_of(const SweptPoint& point) const {
  const auto found = records.find(point.id);
  return found == records.end() ? nullptr : &found->second;
}

std::size_t SweepResults::count(PointStatus status) const {
  return static_cast<std::size_t>(std::count_if(points.begin(), points.end(), [&](const SweptPoint& p) {
    const SweepRecord* r = record_of(p);
    return r != nullptr && r->status == status;
  }));
}

std::size_t SweepResults::missing() const {
  return static_cast<std::size_t>(
      std::count_if(points.begin(), points.end(), [&](const SweptPoint& p) { return record_of(p) == nullptr; }));
}

bool SweepResults::is_whole() const { return conflicts.empty() && count(PointStatus::Done) == points.size(); }

void SweepResults::add(const SweepRecord& record) {
  const auto [at, is_new] = records.try_emplace(record.id, record);
  if (is_new) return;
  SweepRecord& known = at->second;
  if (known.status == PointStatus::Done && record.status == PointStatus::Done && !is_same_result(known, record))
    conflicts.push_back(record.id);
  if (record.status < known.status) known = record;
}

void read_shards(const std::string& folder, SweepResults& out) {
  for (const std::string& path : shards_in(folder + "/shards")) {
    const ShardContents shard = recover_shard(path);
    if (shard.torn > 0) out.notes.push_back(fmt::format("the last {} bytes of {} are no record", shard.torn, path));
    if (shard.damaged > 0) out.notes.push_back(fmt::format("{} bytes of {} are damaged", shard.damaged, path));
    for (const SweepRecord& r : shard.records) out.add(r);
  }
}

SweepResults load_sweeps(const std::vector<std::string>& folders) {
  SweepResults out;
  for (const std::string& folder : folders) {
    const std::string path = folder + "/sweep.json";
    try {
      const json j = parse_saved(read_file(path), path);
      const auto keys = j.at("keys").get<std::vector<std::string>>();
      if (&folder != &folders.front() && keys != out.keys)
        throw UserError{fmt::format("'{}' and '{}' are sweeps of different keys", folders.front(), folder)};
      out.keys = keys;
      read_points(folder, out);
    } catch (const json::exception& e) {
      throw UserError{fmt::format("'{}' is not the folder of a sweep: {}", folder, e.what())};
    }
    read_shards(folder, out);
  }
  return out;
}

void write_points(const std::string& folder, const std::vector<std::string>& keys,
                  const std::vector<SweptPoint>& points, const std::string& command) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw DeviceError{fmt::format("cannot make the folder '{}': {}", folder, failure.message())};
  std::string lines;
  for (const SweptPoint& p : points)
    lines += json{{"id", p.id}, {"scenario", p.scenario}, {"values", p.values}}.dump() + "\n";
  write_file_atomically(folder + "/points.jsonl", lines);
  write_file_atomically(
      folder + "/sweep.json",
      json{{"schema_version", kSchemaVersion}, {"keys", keys}, {"command", command}, {"tool", tool_version()}}.dump(2) +
          "\n");
}

void write_results(const std::string& path, const SweepResults& sweep) {
  std::set<std::string> columns;
  for (const SweptPoint& p : sweep.points)
    if (const SweepRecord* r = sweep.record_of(p); r != nullptr && r->status == PointStatus::Done)
      for (const auto& [name, value] : flat(r->result)) columns.insert(name);
  std::vector<std::string> head{"point", "id", "swept"};
  head.insert(head.end(), sweep.keys.begin(), sweep.keys.end());
  head.insert(head.end(), {"status", "attempts", "seconds", "error"});
  head.insert(head.end(), columns.begin(), columns.end());
  std::string text = sweep_line(head);
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const SweptPoint& p = sweep.points[i];
    std::vector<std::string> row{std::to_string(i), p.id, p.scenario};
    row.insert(row.end(), p.values.begin(), p.values.end());
    const SweepRecord* r = sweep.record_of(p);
    const std::vector<std::string> ended =
        r == nullptr ? std::vector<std::string>{"missing", "0", "", ""}
                     : std::vector<std::string>{std::string{enum_name(r->status)}, std::to_string(r->attempts),
                                                fmt::format("{:.6f}", r->seconds), r->error};
    row.insert(row.end(), ended.begin(), ended.end());
    const auto values = r == nullptr ? std::map<std::string, std::string>{} : flat(r->result);
    for (const std::string& c : columns) {
      const auto found = values.find(c);
      row.push_back(found == values.end() ? "" : found->second);
    }
    text += sweep_line(row);
  }
  write_file_atomically(path, text);
}

}  // namespace orrery
