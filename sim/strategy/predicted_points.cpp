// SPDX-License-Identifier: Apache-2.0
// Gradients at several points of one step (OptEx, arXiv 2402.11427). All ranks keep the last T0 points and their
// gradients, fit a Gaussian process to them and go the same way, of updates with predicted gradients; each then
// computes the gradient at its own point of the way. With points z_s, s < N, and K of the history:
//   μ(z) = k(z, history)·(K + σ²I)⁻¹·G,   z_0 = θ,   z_{s+1} = update(z_s, μ(z_s)),   θ' = update(z_{N−1}, g_{N−1})
// α = (K + σ²I)⁻¹·k is solved for each point, so that a prediction is one pass over G, and no third array is kept. The
// states of the optimizer go along the way, so that a rank has them once.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/option_error.hpp"
#include "sim/base/random.hpp"
#include "sim/strategy/parameters.hpp"

namespace orrery {

TensorId ParameterStorage::point(TensorId all, std::int64_t i) {
  Layout row = Layout::contiguous(Shape{buckets_.front().elements});
  row.offset = i * buckets_.front().elements;
  return builder_->view(all, fmt::format("{}.{}", builder_->plan().name_of(all), i), row);
}

/// One of each of as many stretches of the weights, drawn once; none where distances are over all.
TensorId ParameterStorage::kernel_coordinates() {
  const std::int64_t used = data_.predict->kernel_elements, all = buckets_.front().elements;
  if (used > all)
    throw OptionError{{"kernel_elements"},
                      fmt::format("{} kernel_elements are more than the {} weights", used, all),
                      "use fewer, or 0 for all"};
  if (used == 0) return {};
  const TensorId t = builder_->tensor("kernel.coordinates", Shape{used},
                                      {.dtype = DType::I32, .role = TensorRole::Constant, .persistent = true});
  builder_->plan().constants.push_back({t, builder_->rank_class(), [used, all](std::span<const std::int64_t>) {
                                          std::vector<double> drawn;
                                          Random random{1};
                                          for (std::int64_t i = 0; i < used; ++i) {
                                            const std::int64_t first = all * i / used, end = all * (i + 1) / used;
                                            drawn.push_back(double(first) +
                                                            double(random.below(std::uint64_t(end - first))));
                                          }
                                          return drawn;
                                        }});
  return t;
}

void ParameterStorage::make_points(const OptimizerOptions& o) {
  const PredictOptions& p = *data_.predict;
  const Bucket& b = buckets_.front();
  const auto keep = [&](std::string_view name, std::int64_t rows) {
    return builder_->tensor(name, Shape{rows, b.elements},
                            {.dtype = dtype_, .role = TensorRole::OptimizerState, .persistent = true});
  };
  points_ = Points{.points = keep("points", p.points),
                   .slots = builder_->tensor("input.history_slots", Shape{p.points},
                                             {.dtype = DType::I32, .role = TensorRole::Input, .persistent = true}),
                   .history = keep("history.points", p.history),
                   .gradients = keep("history.gradients", p.history),
                   .update = update_state(b, o)};
  builder_->port("history_slots", points_->slots);
}

/// The factor of the history's covariances.
TensorId ParameterStorage::factor_history(const Covariance& kernel, TensorId coordinates) {
  Covariance own = kernel;
  own.points = kernel.history;
  own.own = true;
  own.noise = data_.predict->noise;
  const auto matrix = [&](std::string_view name) {
    return builder_->tensor(name, Shape{kernel.history, kernel.history}, {.dtype = dtype_});
  };
  const TensorId k = matrix("history.covariances"), factor = matrix("history.factor");
  std::vector<Operand> operands{reads(points_->history)};
  if (!coordinates.is_none()) operands.push_back(reads(coordinates));
  operands.push_back(writes(k));
  builder_->add("history.covariances", own, operands);
  builder_->add("history.factor", Cholesky{kernel.history, dtype_}, {reads(k), writes(factor)});
  return factor;
}

/// The gradient at a point of the way.
TensorId ParameterStorage::predict(const Covariance& kernel, TensorId coordinates, TensorId factor, std::int64_t from) {
  const std::int64_t n = kernel.history, d = kernel.columns;
  const auto name = [&](std::string_view what) { return fmt::format("predict.{}.{}", from, what); };
  const TensorId k = builder_->tensor(name("covariances"), Shape{1, n}, {.dtype = dtype_});
  const TensorId weights = builder_->tensor(name("weights"), Shape{1, n}, {.dtype = dtype_});
  const TensorId gradient =
      builder_->tensor(name("gradient"), Shape{d}, {.dtype = dtype_, .role = TensorRole::Gradient});
  std::vector<Operand> operands{reads(point(points_->points, from)), reads(points_->history)};
  if (!coordinates.is_none()) operands.push_back(reads(coordinates));
  operands.push_back(writes(k));
  builder_->add(name("covariances"), kernel, operands);
  builder_->add(name("weights"), CholeskySolve{n, 1, dtype_}, {reads(factor), reads(k), writes(weights)});
  builder_->add(name("gradient"), Gemm{.m = 1, .n = d, .k = n, .dtype = dtype_},
                {reads(weights), reads(points_->gradients), writes(gradient)});
  return gradient;
}

/// Of a gradient that all ranks have; none where it is not clipped.
TensorId ParameterStorage::norm_of(TensorId gradient, const std::string& name, const OptimizerOptions& o) {
  if (o.clip == 0) return {};
  const bool is_last = name == "grad_norm";
  const TensorId norm2 = builder_->tensor(
      name + "2", Shape{1},
      {.dtype = DType::F64, .role = is_last ? TensorRole::Result : TensorRole::Activation, .persistent = is_last});
  if (is_last) builder_->port(name + "2", norm2);
  builder_->add(name + ".zero", Fill{.elements = 1, .dtype = DType::F64}, {writes(norm2)});
  builder_->add(name, SumSquares{.elements = builder_->plan().shape(gradient).elements(), .dtype = dtype_},
                {reads(gradient), updates(norm2)});
  return norm2;
}

void ParameterStorage::begin_points(const OptimizerOptions& o) {
  if (!data_.predict) return;
  if (buckets_.size() != 1) bug("points of weights that are not in one bucket");
  const PredictOptions& p = *data_.predict;
  const Bucket& b = buckets_.front();
  const TensorId coordinates = kernel_coordinates();
  make_points(o);
  builder_->set_phase(Phase::Optimizer);
  builder_->set_layer(-1);
  const CopyRows copy{1, b.elements, dtype_};
  const Covariance kernel{.kind = p.kernel,
                          .history = p.history,
                          .columns = b.elements,
                          .used = p.kernel_elements,
                          .length = p.length_scale,
                          .known = Extent{0, Symbol::Context},
                          .dtype = dtype_};
  const TensorId factor = factor_history(kernel, coordinates);
  builder_->add("point.0", copy, {reads(b.weight), writes(point(points_->points, 0))});
  for (std::int64_t s = 1; s < p.points; ++s) {
    const TensorId gradient = predict(kernel, coordinates, factor, s - 1);
    const TensorId norm2 = norm_of(gradient, fmt::format("predict.{}.norm", s - 1), o);
    const TensorId here = point(points_->points, s);
    builder_->add(fmt::format("point.{}", s), copy, {reads(point(points_->points, s - 1)), writes(here)});
    emit_update(b, points_->update, {fmt::format("predict.{}.update", s - 1), here, gradient, norm2, s - 1}, o);
  }
  RankView own;
  std::copy(b.sum.begin(), b.sum.end(), own.axes.begin());
  own.stride = b.elements;
  builder_->add("point.own", copy,
                {reads(builder_->rank_view(points_->points, "point.own", Shape{b.elements}, own)), writes(b.weight)});
}

/// All ranks get all gradients, and step on from the last point of the way.
void ParameterStorage::finish_points(const OptimizerOptions& o) {
  const PredictOptions& p = *data_.predict;
  const Bucket& b = buckets_.front();
  builder_->set_phase(Phase::Optimizer);
  builder_->set_layer(-1);
  builder_->set_microbatch(0);
  const TensorId all = builder_->tensor("points.gradients", Shape{p.points, b.elements},
                                        {.dtype = dtype_, .role = TensorRole::Communication});
  collect(CollectiveKind::AllGather, "gather.gradients", b.sum, b.gradient, all, p.points * b.elements);
  const ScatterRows store{.rows = p.points, .cols = b.elements, .table_rows = p.history, .dtype = dtype_};
  builder_->add("history.keep_points", store,
                {reads(points_->points), reads(points_->slots), updates(points_->history)});
  builder_->add("history.keep_gradients", store, {reads(all), reads(points_->slots), updates(points_->gradients)});
  const TensorId last = point(all, p.points - 1);
  const TensorId norm2 = norm_of(last, "grad_norm", o);
  builder_->add("point.last", CopyRows{1, b.elements, dtype_},
                {reads(point(points_->points, p.points - 1)), writes(b.weight)});
  emit_update(b, points_->update, {"update." + b.name, b.weight, last, norm2, p.points - 1}, o);
}

}  // namespace orrery
