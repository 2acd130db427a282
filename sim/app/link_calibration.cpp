// SPDX-License-Identifier: Apache-2.0
#include "sim/app/link_calibration.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "calibrate/published/exchanges.hpp"
#include "calibrate/published/expert_exchanges.hpp"
#include "calibrate/published/split.hpp"
#include "calibrate/this_machine.hpp"
#include "sim/app/accuracy/evaluate.hpp"
#include "sim/app/accuracy/left_out.hpp"
#include "sim/app/report.hpp"
#include "sim/app/run_directory.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using Tables = std::vector<CsvTable>;

using nlohmann::json;

/// Parameter files by name, and what was fitted, for people and for programs.
struct Fitted {
  std::map<std::string, std::string> files;
  Table summary;
  json rows = json::array();
};

std::string sources_of(const Tables& tables) {
  std::string text;
  for (const CsvTable& t : tables) text += (text.empty() ? "" : ", ") + fs::path{t.file()}.filename().string();
  return text;
}

/// What `orrery accuracy` calls an exchange: parts are taken of each gpu and op.
std::string op_label(const PublishedExchange& x) { return exchange_label(enum_name(x.sample.op), x.sample.bytes); }

/// The rows that a fit may see, with the same parts as `orrery accuracy` has.
std::vector<PublishedExchange> exchanges_to_fit(const CsvTable& table) {
  std::vector<PublishedExchange> rows;
  std::vector<std::string> groups;
  std::set<std::string> known;
  for (std::size_t i = 0; i < table.num_rows(); ++i) {
    if (left_out(table.row(i))) continue;
    ExchangeRow row = read_exchange_row(table.row(i));
    if (auto* x = std::get_if<PublishedExchange>(&row)) {
      groups.push_back(x->gpu + " " + op_label(*x));
      rows.push_back(std::move(*x));
    }
  }
  std::map<std::string, std::size_t> first;  // repeats go where the first of them goes
  std::vector<SplitItem> items;
  std::vector<std::size_t> item_of;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto [it, fresh] = first.try_emplace(rows[i].key(), items.size());
    if (fresh) items.push_back({rows[i].row_id, groups[i], rows[i].sample.bytes.base()});
    item_of.push_back(it->second);
  }
  const std::vector<RowSplit> parts = split_rows(items);
  std::vector<PublishedExchange> kept;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (parts[item_of[i]] == RowSplit::Fit) kept.push_back(std::move(rows[i]));
  return kept;
}

Fitted fit_exchange_tables(const Tables& tables) {
  std::map<std::string, std::vector<ExchangeSample>> samples;
  for (const CsvTable& table : tables)
    for (PublishedExchange& x : exchanges_to_fit(table)) samples[x.fabric].push_back(std::move(x.sample));
  Fitted out{{},
             Table{{{"fabric"},
                    {"rows", Align::Right},
                    {"curves", Align::Right},
                    {"segments", Align::Right},
                    {"bus", Align::Right}}}};
  for (const auto& [name, rows] : samples) {
    FabricParameters p = fit_fabric(find_fabric(name, {fabrics_folder()}), rows);
    if (p.curves.empty()) continue;
    p.provenance.status = FitStatus::Fitted;
    p.provenance.date = today();
    p.provenance.tool = tool_version();
    p.provenance.source = sources_of(tables) + ", parts random and largest left out";
    std::size_t segments = 0;
    for (const CollectiveCurve& c : p.curves) segments += c.segments.size();
    out.summary.add(
        {name, std::to_string(rows.size()), std::to_string(p.curves.size()), std::to_string(segments), to_text(p.bus)});
    out.rows.push_back({{"name", name},
                        {"rows", rows.size()},
                        {"curves", p.curves.size()},
                        {"segments", segments},
                        {"bus", p.bus.base()}});
    out.files[name] = fabric_file(p);
  }
  return out;
}

Fitted fit_expert_tables(const Tables& tables) {
  std::vector<PublishedExpertExchange> rows;
  std::string machine;
  for (const CsvTable& table : tables) {
    std::vector<std::vector<PublishedExpertExchange>> read;
    std::vector<SplitItem> items;
    std::vector<std::string> groups, ids;
    ids.reserve(table.num_rows()), groups.reserve(table.num_rows());
    for (std::size_t i = 0; i < table.num_rows(); ++i) {
      ExpertExchangeRow row = read_expert_exchange_row(table.row(i));
      auto* some = std::get_if<std::vector<PublishedExpertExchange>>(&row);
      if (!some) continue;
      machine = table.row(i)["gpu"];
      ids.emplace_back(table.row(i)["row_id"]);
      groups.push_back(machine + " " + std::string{table.row(i)["mode"]});
      items.push_back({ids.back(), groups.back(), some->front().shape.bytes().base()});
      read.push_back(std::move(*some));
    }
    const std::vector<RowSplit> parts = split_rows(items);
    for (std::size_t i = 0; i < read.size(); ++i)
      if (parts[i] == RowSplit::Fit) rows.insert(rows.end(), read[i].begin(), read[i].end());
  }
  ExpertExchangeModel model = fit_expert_exchange(rows);
  model.provenance = {FitStatus::Fitted, "8 " + machine + " on NVSwitch", today(), tool_version(),
                      sources_of(tables) + ", parts random and largest left out"};
  Fitted out{{}, Table{{{"law"}, {"deviation", Align::Right}}}};
  for (const ExpertExchangeLaw& l : model.laws) {
    const std::string name = fmt::format("{} {}", l.mode == ExpertMode::Normal ? "normal" : "low_latency",
                                         l.direction == ExpertDirection::Dispatch ? "dispatch" : "combine");
    out.summary.add({name, fmt::format("{:.1f} %", 100 * l.deviation)});
    out.rows.push_back({{"name", name}, {"deviation", l.deviation}});
  }
  out.files["deepep_h100"] = expert_exchange_file(model);
  return out;
}

/// Kinds of tables (row_kinds.cpp) whose rows have a fit; files go to a folder of this name.
struct TableFit {
  std::string_view kind, folder;
  Fitted (*fit)(const Tables& tables);
};
constexpr TableFit kFits[] = {{"collectives", "fabrics", fit_exchange_tables},
                              {"expert_exchanges", "exchanges", fit_expert_tables}};

const TableFit& fit_of(const CsvTable& table) {
  const RowKind kind = kind_of(table);
  std::vector<std::string> known;
  for (const TableFit& f : kFits) {
    if (f.kind == kind.name) return f;
    known.emplace_back(f.kind);
  }
  throw UserError{fmt::format("{} is a table of kind '{}', which no fit reads", table.file(), kind.name),
                  fmt::format("tables that are fitted: {}", fmt::join(known, ", "))};
}

}  // namespace

int fit_tables(const std::vector<std::string>& paths, const std::string& folder, AppContext& context) {
  if (paths.empty())
    throw UserError{"--from without tables to fit",
                    "name tables of collectives or expert exchanges, or of kernels with --device and -o"};
  std::map<const TableFit*, Tables> tables;
  for (const std::string& path : paths) {
    CsvTable table = read_csv(path);
    const TableFit& fit = fit_of(table);
    tables[&fit].push_back(std::move(table));
  }
  json fits = json::array();
  for (const auto& [fit, some] : tables) {
    context.interrupt.check();
    const Fitted fitted = fit->fit(some);
    fits.push_back({{"kind", fit->kind}, {"laws", fitted.rows}, {"files", json::array()}});
    if (!context.json) context.console.out(fitted.summary.text());
    if (folder.empty()) continue;
    const auto lock = context.interrupt.writing();
    const fs::path into = fs::path{folder} / fit->folder;
    fs::create_directories(into);
    for (const auto& [name, text] : fitted.files) {
      const std::string path = (into / (name + ".yaml")).string();
      write_file_atomically(path, text);
      fits.back()["files"].push_back(path);
    }
  }
  if (context.json) context.console.out(json{{"schema_version", kSchemaVersion}, {"fits", fits}}.dump(2) + "\n");
  return exit_code::kOk;
}

}  // namespace orrery
