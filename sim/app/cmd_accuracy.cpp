// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "sim/app/accuracy/left_out.hpp"
#include "sim/app/accuracy/plot.hpp"
#include "sim/app/accuracy/report.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

class Accuracy final : public Command {
 public:
  std::string_view name() const override { return "accuracy"; }
  std::string_view summary() const override { return "published measurements beside what is predicted here"; }
  std::string_view arguments() const override { return "TABLE.csv|FOLDER…"; }
  Arity arity() const override { return {1, 1000}; }
  std::vector<Flag> flags() override {
    return {
        {"--per-row", "", "every row with its prediction and interval, in the JSON document",
         [this](const std::string&) { per_row_ = PerRow::Yes; }},
        {"--plot", "FILE", "picture (SVG) of predicted against measured", [this](const std::string& v) { plot_ = v; }}};
  }
  std::string details() const override {
    Table kinds{{{"kind of table"}, {"rows are, and the columns that tell it", Align::Left, Wrap::Yes}}};
    for (const RowKind& k : row_kinds()) {
      kinds.add({std::string{k.name}, std::string{k.summary}});
      kinds.add({"", fmt::format("  {}", k.columns)});
    }
    Table reasons{{{"skipped as"}, {"because"}}};
    for (const EnumName<SkipReason>& r : enum_names(SkipReason{}))
      reasons.add({std::string{r.name}, std::string{summary_of(r.value)}});
    Table rules{{{"left out where"}, {"says"}, {"because"}}};
    for (const LeftOutRule& r : left_out_rules())
      rules.add({std::string{r.column}, std::string{r.says}, std::string{r.why}});
    return "Each row belongs to one of three parts. `random`: a fifth of the rows, by a hash of their ids; `largest`: "
           "the\n"
           "fifth with the most work of each GPU and op; `fit`: the rest. Laws are fitted to the rows of `fit` alone, "
           "so the\n"
           "errors of the other two are those of rows that no fit has seen.\n\n" +
           kinds.text("  ") + "\n" + reasons.text("  ") + "\n" + rules.text("  ");
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    if (per_row_ == PerRow::Yes && !context.json)
      throw UserError{"--per-row is part of the JSON document", "add --json"};
    std::vector<JudgedTable> tables;
    std::vector<UnknownTable> unknown;
    for (const std::string& path : arguments) {
      if (!std::filesystem::is_directory(path)) {
        const CsvTable table = read_csv(path);
        tables.push_back(judge_table(context, table, kind_of(table)));
        continue;
      }
      for (const std::string& file : tables_in(path)) {
        const CsvTable table = read_csv(file);
        if (const auto kind = find_kind(table))
          tables.push_back(judge_table(context, table, *kind));
        else
          unknown.push_back({file, nearest_kind(table)});
      }
    }
    context.console.end_progress();
    if (!plot_.empty()) {
      const auto lock = context.interrupt.writing();
      write_file_atomically(plot_, plot_svg(tables));
    }
    context.console.out(context.json ? document(tables, unknown) : text(tables, unknown, context.console));
    return exit_code::kOk;
  }

 private:
  /// A table of a folder that is of no known kind, and what it lacks.
  struct UnknownTable {
    std::string file, why;
  };

  static std::vector<std::string> tables_in(const std::string& folder) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator{folder})
      if (entry.path().extension() == ".csv") files.push_back(entry.path().string());
    if (files.empty()) throw UserError{fmt::format("no table in folder {}", in_quotes(folder)), "tables end in .csv"};
    std::sort(files.begin(), files.end());
    return files;
  }

  static JudgedTable judge_table(AppContext& context, const CsvTable& table, const RowKind& kind) {
    return judge(evaluate(table, kind, context.wiring, [&](double done) {
      context.interrupt.check();
      context.console.progress(table.file(), done);
    }));
  }

  std::string document(const std::vector<JudgedTable>& tables, const std::vector<UnknownTable>& unknown) const {
    nlohmann::json all = nlohmann::json::array(), others = nlohmann::json::array();
    for (const JudgedTable& t : tables) all.push_back(to_json(t, per_row_));
    for (const UnknownTable& u : unknown) others.push_back({{"file", u.file}, {"why", u.why}});
    return nlohmann::json{
               {"schema_version", kSchemaVersion}, {"tables", std::move(all)}, {"unknown_tables", std::move(others)}}
               .dump(2) +
           "\n";
  }

  static std::string text(const std::vector<JudgedTable>& tables, const std::vector<UnknownTable>& unknown,
                          const Console& console) {
    std::string all;
    for (const JudgedTable& t : tables) all += (all.empty() ? "" : "\n") + to_text(t, console);
    for (const UnknownTable& u : unknown)
      all += fmt::format("{}{}: skipped, of no kind that is known\n  {}\n", all.empty() ? "" : "\n",
                         console.bold(u.file), u.why);
    return all;
  }

  PerRow per_row_ = PerRow::No;
  std::string plot_;
};

}  // namespace

std::unique_ptr<Command> make_accuracy() { return std::make_unique<Accuracy>(); }

}  // namespace orrery
