// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"
#include "sim/app/wiring.hpp"
#include "sim/model/load.hpp"
#include "sim/model/print.hpp"

namespace orrery {
namespace {

class ModelShow final : public Command {
 public:
  std::string_view name() const override { return "model show"; }
  std::string_view summary() const override { return "layers, shapes and parameters of a model"; }
  std::string_view arguments() const override { return "MODEL"; }
  Arity arity() const override { return {1, 1}; }

  std::vector<Flag> flags() override {
    return {{"--parameters", "", "one line per parameter", [this](const std::string&) { parameters_ = true; }}};
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const Model model = load_model(context.wiring.locations().find_model(arguments[0]));
    if (context.json)
      context.console.out(document(model).dump(2) + "\n");
    else
      context.console.out(parameters_ ? list_parameters(model) : show_model(model));
    return exit_code::kOk;
  }

 private:
  nlohmann::json document(const Model& m) const {
    nlohmann::json out = {{"schema_version", kSchemaVersion},
                          {"name", m.name},
                          {"family", m.family},
                          {"dtype", name_of(m.dtype)},
                          {"parameters", m.parameter_count()},
                          {"active_parameters", m.active_parameter_count()},
                          {"tensors", m.parameters.size()}};
    if (!parameters_) return out;
    for (const Parameter& p : m.parameters)
      out["list"].push_back({{"name", p.name}, {"shape", p.shape}, {"elements", p.elements()}});
    return out;
  }

  bool parameters_ = false;
};

}  // namespace

std::unique_ptr<Command> make_model_show() { return std::make_unique<ModelShow>(); }

}  // namespace orrery
