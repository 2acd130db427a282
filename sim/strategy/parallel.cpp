// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/parallel.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/option_error.hpp"
#include "sim/strategy/generate.hpp"
#include "sim/strategy/pipeline/schedules.hpp"
#include "sim/strategy/preset.hpp"
#include "sim/strategy/serving.hpp"
#include "sim/strategy/single_device_checks.hpp"
#include "sim/strategy/train_step.hpp"

namespace orrery {
namespace {

class Parallel final : public Strategy {
 public:
  Parallel(std::string_view name, ParallelOptions options) : name_{name}, options_{std::move(options)} {
    stage_meshes(options_);
  }

  Plan train_step(const Model& model, const TrainOptions& o, const WorkspaceModel* workspaces) const override {
    check_train(model, o);
    if (options_.data_attention)
      throw OptionError{{"data_attention"},
                        "data_attention is for generation and inference",
                        "leave it out where the workload trains"};
    if (options_.blocking && (!roles_of(parse_mesh(options_.mesh)).pp || options_.schedule != "1f1b"))
      throw OptionError{{"blocking"},
                        "blocking is for pipelines, and for the schedule 1f1b where they train",
                        "leave it out, or give the mesh an axis pp"};
    return lower_train_step(model, o, options_, workspaces);
  }
  GenerationPlans generation(const Model& model, const GenerateOptions& o,
                             const WorkspaceModel* workspaces) const override {
    check_generate(model, o);
    return lower_generation(model, o, options_, workspaces);
  }
  Plan serving_step(const Model& model, const ServingStepOptions& o, const WorkspaceModel* workspaces) const override {
    check_serving_step(model, o);
    return lower_serving_step(model, o, options_, workspaces);
  }
  Plan serving_swap(const Model& model, const ServingStepOptions& o, const ServingSwapOptions& swap,
                    const WorkspaceModel* workspaces) const override {
    check_serving_step(model, o);
    return lower_serving_swap(model, o, swap, options_, workspaces);
  }
  Plan inference(const Model& model, const InferOptions& o, const WorkspaceModel* workspaces) const override {
    check_infer(model, o);
    return lower_inference(model, o, options_, workspaces);
  }
  Mesh mesh() const override { return parse_mesh(options_.mesh); }
  std::optional<Schedule> schedule(const TrainOptions& o) const override {
    const Roles roles = roles_of(parse_mesh(options_.mesh));
    if (!roles.pp) return {};
    return schedule_of(options_, roles.pp.ranks, o.microbatches);
  }

 private:
  std::string_view name_;
  ParallelOptions options_;
};

/// "dp fsdp" → "`dp` and `fsdp`".
std::string listed(std::string_view words) {
  std::string out;
  for (std::size_t first = 0; first < words.size();) {
    const std::size_t end = std::min(words.find(' ', first), words.size());
    out += fmt::format("{}`{}`",
                       out.empty()           ? ""
                       : end == words.size() ? " and "
                                             : ", ",
                       words.substr(first, end - first));
    first = end + 1;
  }
  return out;
}

void check_axes(const Preset& p, const Mesh& mesh) {
  const std::string all = fmt::format("{}{}{}", p.splits, p.also.empty() ? "" : " ", p.also);
  bool splits = false;
  for (const Axis& a : mesh.axes) {
    if (!has_word(all, a.name))
      throw OptionError{{"mesh"},
                        fmt::format("the strategy `{}` has no axis `{}`", p.name, a.name),
                        fmt::format("its axes are {}; `parallel` takes all", listed(all))};
    splits = splits || (a.size > 1 && has_word(p.splits, a.name));
  }
  if (!splits)
    throw OptionError{{"mesh"},
                      fmt::format("the strategy `{}` needs at least 2 ranks on {}", p.name, listed(p.splits)),
                      fmt::format("mesh is {}", p.mesh)};
}

}  // namespace

std::unique_ptr<Strategy> make_parallel(const Node& options) {
  ParallelOptions o;
  read_options(options, o);
  return std::make_unique<Parallel>("parallel", std::move(o));
}

std::vector<OptionInfo> parallel_options() { return describe_options<ParallelOptions>(); }

std::unique_ptr<Strategy> make_preset(const Preset& preset, ParallelOptions options) {
  const Mesh mesh = parse_mesh(options.mesh);
  roles_of(mesh);
  check_axes(preset, mesh);
  return std::make_unique<Parallel>(preset.name, std::move(options));
}

}  // namespace orrery
