// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "gui/core/alignment.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/timeline/compare.hpp"
#include "sim/timeline/trace_file.hpp"

namespace orrery {
namespace {

class Compare final : public Command {
 public:
  std::string_view name() const override { return "compare"; }
  std::string_view summary() const override { return "two timelines side by side, op by op"; }
  std::string_view arguments() const override { return "REFERENCE CANDIDATE"; }
  Arity arity() const override { return {2, 2}; }

  std::vector<Flag> flags() override {
    return {{"--rows", "N", "rows of each table; default 10",
             [this](const std::string& v) { rows_ = integer_option("--rows", v, 1); }}};
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    Trace reference = read_trace(arguments[0]), candidate = read_trace(arguments[1]);
    const Comparison c = compare(reference, candidate);
    const gui::Document main{std::move(reference), arguments[0]};
    const auto pairs = gui::compare_documents(main, {std::move(candidate), arguments[1]}, {});
    if (context.json) {
      nlohmann::json document = to_json(c);
      document["matching"] = matching_json(*pairs);
      context.console.out(document.dump(2) + "\n");
    } else {
      context.console.out(to_text(c, static_cast<std::size_t>(rows_)));
    }
    return exit_code::kOk;
  }

 private:
  static nlohmann::json matching_json(const gui::Companion& c) {
    nlohmann::json pairs = nlohmann::json::object();
    for (int t = 0; t < gui::kNumMatchTiers; ++t)
      pairs[std::string{name_of(static_cast<gui::MatchTier>(t))}] = c.matching.pairs[static_cast<std::size_t>(t)];
    return {{"pairs", pairs},
            {"fused", c.matching.fusions.size()},
            {"unmatched_reference", c.matching.unmatched_main_time.base()},
            {"unmatched_candidate", c.matching.unmatched_other_time.base()},
            {"residual", c.residual_ns * 1e-9}};
  }

  std::int64_t rows_ = 10;
};

}  // namespace

std::unique_ptr<Command> make_compare() { return std::make_unique<Compare>(); }

}  // namespace orrery
