// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

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
    const Comparison c = compare(read_trace(arguments[0]), read_trace(arguments[1]));
    context.console.out(context.json ? to_json(c).dump(2) + "\n" : to_text(c, static_cast<std::size_t>(rows_)));
    return exit_code::kOk;
  }

 private:
  std::int64_t rows_ = 10;
};

}  // namespace

std::unique_ptr<Command> make_compare() { return std::make_unique<Compare>(); }

}  // namespace orrery
