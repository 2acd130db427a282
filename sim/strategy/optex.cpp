// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/optex.hpp"

#include <fmt/format.h>

#include "sim/base/option_error.hpp"
#include "sim/strategy/single_device_checks.hpp"
#include "sim/strategy/training_strategy.hpp"

namespace orrery {

inline std::span<const EnumName<CovarianceKind>> enum_names(CovarianceKind) {
  static constexpr EnumName<CovarianceKind> names[] = {{CovarianceKind::Matern52, "matern52"},
                                                       {CovarianceKind::Matern32, "matern32"},
                                                       {CovarianceKind::SquaredExponential, "squared_exponential"}};
  return names;
}

namespace {

struct OptexOptions {
  PredictOptions predict;

  template <class V>
  void visit(V& v) {
    v.field("parallel_iterations", predict.points,
            "ranks, and points of a step whose gradients they compute side by side, each on its part of the batch; 1: "
            "the plain step on one device",
            between(1, 1024));
    v.field("history", predict.history, "latest points and gradients that predictions are made from", between(2, 4096));
    v.field("kernel", predict.kernel, "how alike gradients at two points are taken to be by their distance");
    v.field("length_scale", predict.length_scale, "distance of weights over which gradients change", more_than(0));
    v.field("noise", predict.noise, "variance of the noise of a gradient, over that of the kernel", more_than(0));
    v.field("kernel_elements", predict.kernel_elements,
            "weights that distances are over, drawn once from all; 0: all of them", at_least(0));
  }
};

/// On one rank there is nothing to predict.
ParallelOptions mesh_of(const PredictOptions& predict) {
  ParallelOptions p;
  if (predict.points == 1) return p;
  p.mesh = fmt::format("dp{}", predict.points);
  p.data.overlap = false;
  p.data.predict = predict;
  return p;
}

class Optex final : public TrainingStrategy {
 public:
  explicit Optex(const OptexOptions& o) : TrainingStrategy{"optex", mesh_of(o.predict)} {}

  Plan train_step(const Model& model, const TrainOptions& o, const WorkspaceModel* workspaces) const override {
    check_train(model, o);
    if (parallel().data.predict) check(o);
    return lower_train_step(model, o, parallel(), workspaces);
  }

 private:
  static void check(const TrainOptions& o) {
    if (o.dtype != Precision::F32 && o.dtype != Precision::F64)
      throw OptionError{{"dtype"}, "optex predicts gradients in f32 or f64", "use `dtype: f32`"};
    if (o.frozen) throw OptionError{{"frozen"}, "optex predicts gradients of all weights", "leave frozen out"};
  }
};

}  // namespace

std::unique_ptr<Strategy> make_optex(const Node& node) {
  OptexOptions o;
  read_options(node, o);
  return std::make_unique<Optex>(o);
}

std::vector<OptionInfo> optex_options() { return describe_options<OptexOptions>(); }

}  // namespace orrery
