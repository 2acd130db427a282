// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/parallel.hpp"

#include "sim/base/error.hpp"
#include "sim/strategy/single_device_checks.hpp"
#include "sim/strategy/train_step.hpp"

namespace orrery {
namespace {

class Parallel final : public Strategy {
 public:
  explicit Parallel(ParallelOptions options) : options_{std::move(options)} { parse_mesh(options_.mesh); }

  Plan train_step(const Model& model, const TrainOptions& o, const WorkspaceModel* workspaces) const override {
    check_train(model, o);
    return lower_train_step(model, o, options_, workspaces);
  }
  GenerationPlans generation(const Model&, const GenerateOptions&, const WorkspaceModel*) const override {
    throw UserError{"the strategy `parallel` lowers training only", "use `single` to generate"};
  }
  Plan inference(const Model&, const InferOptions&, const WorkspaceModel*) const override {
    throw UserError{"the strategy `parallel` lowers training only", "use `single` to infer"};
  }

 private:
  ParallelOptions options_;
};

}  // namespace

std::unique_ptr<Strategy> make_parallel(const Node& options) {
  ParallelOptions o;
  read_options(options, o);
  return std::make_unique<Parallel>(std::move(o));
}

std::vector<OptionInfo> parallel_options() { return describe_options<ParallelOptions>(); }

}  // namespace orrery
