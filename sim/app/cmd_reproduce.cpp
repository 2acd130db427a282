// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/reproduce/reproduction.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

nlohmann::json to_json(const ReproductionEntry& entry, const Claim& c) {
  return {{"reproduction", entry.name},
          {"name", c.name},
          {"source", c.source},
          {"paper", c.paper},
          {"ours", c.ours},
          {"unit", c.unit},
          {"within", c.within},
          {"holds", c.holds()},
          {"calibrated", c.calibrated},
          {"note", c.note}};
}

nlohmann::json to_json(const ReproductionEntry& entry, const Reproduction& r, const Ablation& a) {
  nlohmann::json values;
  for (std::size_t i = 0; i < a.values.size(); ++i)
    values[r.quantities[i]] = a.values[i] ? nlohmann::json(*a.values[i]) : nlohmann::json{};
  return {{"reproduction", entry.name}, {"inputs", a.inputs}, {"values", values}};
}

/// What the claims owe to each input.
std::string ablation_text(const Reproduction& r) {
  if (r.ablations.empty()) return {};
  std::vector<Table::Column> columns{{"inputs"}};
  for (const std::string& q : r.quantities) columns.push_back({q, Align::Right});
  Table table{columns};
  for (const Ablation& a : r.ablations) {
    std::vector<std::string> cells{a.inputs};
    for (const auto& v : a.values) cells.push_back(v ? fmt::format("{:.4g}", *v) : std::string{});
    table.add(cells);
  }
  return "\n" + table.text("  ");
}

std::string to_text(const ReproductionEntry& entry, const Reproduction& r, const Console& console) {
  const std::vector<Claim>& claims = r.claims;
  std::string text = fmt::format("{}: {} ({})\n", console.bold(entry.name), entry.summary, entry.source);
  Table table{
      {{"claim"}, {"paper", Align::Right}, {"ours", Align::Right}, {"unit"}, {"within", Align::Right}, {""}, {"note"}}};
  for (const Claim& c : claims)
    table.add({c.name, fmt::format("{:.4g}", c.paper), fmt::format("{:.4g}", c.ours), c.unit,
               fmt::format("{:.3g} %", 100 * c.within),
               c.calibrated ? "calibrated"
               : c.holds()  ? "holds"
                            : "does not hold",
               c.note});
  const auto holding = std::count_if(claims.begin(), claims.end(), [](const Claim& c) { return c.holds(); });
  const auto set = std::count_if(claims.begin(), claims.end(), [](const Claim& c) { return c.calibrated; });
  return text + table.text("  ") + fmt::format("  {} of {} hold", holding, std::ssize(claims) - set) +
         (set > 0 ? fmt::format("; calibrated on {} more\n", set) : "\n") + ablation_text(r);
}

class Reproduce final : public Command {
 public:
  std::string_view name() const override { return "reproduce"; }
  std::string_view summary() const override { return "published results beside what is predicted here"; }
  std::string_view arguments() const override { return "[NAME…]"; }
  Arity arity() const override { return {0, 100}; }
  std::vector<std::string> choices() const override {
    std::vector<std::string> names;
    for (const ReproductionEntry& e : reproductions()) names.emplace_back(e.name);
    return names;
  }
  std::vector<Flag> flags() override {
    return {{"--all", "", "all reproductions", [this](const std::string&) { all_ = true; }},
            {"--fail", "", "exit with 1 when a claim does not hold", [this](const std::string&) { fail_ = true; }}};
  }
  std::string details() const override {
    std::string text = "Reproductions:\n";
    Table table{{{"name"}, {"summary"}, {"source", Align::Left, Wrap::Yes}}};
    for (const ReproductionEntry& e : reproductions())
      table.add({std::string{e.name}, std::string{e.summary}, std::string{e.source}});
    return text + table.text("  ");
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const Reproducer reproducer{context.wiring, [&] { context.interrupt.check(); }};
    nlohmann::json rows = nlohmann::json::array(), ablations = nlohmann::json::array();
    std::string text;
    bool holds = true;
    for (const ReproductionEntry* entry : chosen(arguments)) {
      context.console.progress(entry->name, 0);
      const Reproduction made = entry->make(reproducer);
      context.console.end_progress();
      for (const Ablation& a : made.ablations) ablations.push_back(to_json(*entry, made, a));
      for (const Claim& c : made.claims) {
        rows.push_back(to_json(*entry, c));
        holds = holds && c.holds();
      }
      text += (text.empty() ? "" : "\n") + to_text(*entry, made, context.console);
    }
    context.console.out(
        context.json
            ? nlohmann::json{{"schema_version", kSchemaVersion}, {"claims", rows}, {"ablations", ablations}}.dump(2) +
                  "\n"
            : text);
    return fail_ && !holds ? exit_code::kMissed : exit_code::kOk;
  }

 private:
  std::vector<const ReproductionEntry*> chosen(const std::vector<std::string>& arguments) const {
    std::vector<const ReproductionEntry*> out;
    for (const std::string& a : arguments) out.push_back(&find_reproduction(a));
    if (all_ && !out.empty()) throw UserError{"--all and names exclude each other"};
    if (!all_ && out.empty())
      throw UserError{"which reproduction is missing", fmt::format("give {}, or --all", fmt::join(choices(), ", "))};
    if (all_)
      for (const ReproductionEntry& e : reproductions()) out.push_back(&e);
    return out;
  }

  bool all_ = false, fail_ = false;
};

}  // namespace

std::unique_ptr<Command> make_reproduce() { return std::make_unique<Reproduce>(); }

}  // namespace orrery
