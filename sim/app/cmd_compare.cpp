// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gui/core/alignment.hpp"
#include "gui/core/open_file.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/base/table.hpp"
#include "sim/timeline/compare.hpp"

namespace orrery {
namespace {

nlohmann::json matching_json(const gui::Companion& c) {
  nlohmann::json pairs = nlohmann::json::object();
  for (int t = 0; t < gui::kNumMatchTiers; ++t)
    pairs[std::string{name_of(static_cast<gui::MatchTier>(t))}] = c.matching.pairs[static_cast<std::size_t>(t)];
  return {{"pairs", pairs},
          {"fused", c.matching.fusions.size()},
          {"unmatched_reference", c.matching.unmatched_main_time.base()},
          {"unmatched_candidate", c.matching.unmatched_other_time.base()},
          {"residual", c.residual_ns * 1e-9}};
}

nlohmann::json repairs_json(const gui::Document& d) {
  nlohmann::json out = nlohmann::json::object();
  if (d.foreign() != nullptr)
    for (const Repair& r : d.foreign()->repairs) out[r.what] = r.count;
  return out;
}

/// What can be said of two timelines of which one has no plan: how their ops were matched.
std::string matching_text(const gui::Companion& c) {
  Table table{{{"matched by"}, {"ops", Align::Right}}};
  for (int t = 0; t < gui::kNumMatchTiers; ++t)
    table.add({std::string{name_of(static_cast<gui::MatchTier>(t))},
               std::to_string(c.matching.pairs[static_cast<std::size_t>(t)])});
  return table.text("  ") +
         fmt::format(
             "  {} fused kernels; without a partner: {} ops of the reference ({}), {} of the candidate ({})\n"
             "  starts of pairs are {} apart\n",
             c.matching.fusions.size(), c.matching.unmatched_main, to_text(c.matching.unmatched_main_time),
             c.matching.unmatched_other, to_text(c.matching.unmatched_other_time),
             to_text(Seconds{c.residual_ns * 1e-9}));
}

class Compare final : public Command {
 public:
  std::string_view name() const override { return "compare"; }
  std::string_view summary() const override { return "two timelines side by side, op by op"; }
  std::string_view arguments() const override { return "REFERENCE CANDIDATE"; }
  Arity arity() const override { return {2, 2}; }

  std::vector<Flag> flags() override {
    return {{"--rows", "N", "rows of each table; default 10",
             [this](const std::string& v) { rows_ = integer_option("--rows", v, 1); }},
            {"--strict", "", "refuse traces of other programs of which events had to be repaired",
             [this](const std::string&) { is_strict_ = true; }}};
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const gui::Document main = open(context, arguments[0]);
    const auto pairs = gui::compare_documents(main, open(context, arguments[1]), {});
    const gui::Document& other = pairs->document;
    if (main.trace() == nullptr || other.trace() == nullptr) {
      context.console.out(context.json ? nlohmann::json{{"schema_version", kSchemaVersion},
                                                        {"reference", main.name()},
                                                        {"candidate", other.name()},
                                                        {"repairs_of_reference", repairs_json(main)},
                                                        {"repairs_of_candidate", repairs_json(other)},
                                                        {"matching", matching_json(*pairs)}}
                                                 .dump(2) +
                                             "\n"
                                       : matching_text(*pairs));
      return exit_code::kOk;
    }
    const Comparison c = compare(*main.trace(), *other.trace());
    if (!context.json) {
      context.console.out(to_text(c, static_cast<std::size_t>(rows_)));
      return exit_code::kOk;
    }
    nlohmann::json document = to_json(c);
    document["matching"] = matching_json(*pairs);
    context.console.out(document.dump(2) + "\n");
    return exit_code::kOk;
  }

 private:
  /// A trace of any program. Says what had to be repaired in it.
  gui::Document open(AppContext& context, const std::string& path) const {
    gui::Document out = gui::open_document(path);
    if (out.foreign() == nullptr || out.foreign()->repairs.empty()) return out;
    std::string repairs;
    for (const Repair& r : out.foreign()->repairs)
      repairs += fmt::format("{}{} events {}", repairs.empty() ? "" : "; ", r.count, r.what);
    if (is_strict_) throw UserError{Diagnostic{repairs, "without --strict such traces are compared too", path}};
    context.console.warn(fmt::format("{}: {}", path, repairs));
    return out;
  }

  std::int64_t rows_ = 10;
  bool is_strict_ = false;
};

}  // namespace

std::unique_ptr<Command> make_compare() { return std::make_unique<Compare>(); }

}  // namespace orrery
