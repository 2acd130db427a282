// SPDX-License-Identifier: Apache-2.0
// Meshes as written, and the mesh of a plan whose layers split the same ranks in several ways.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/base/option_error.hpp"
#include "sim/strategy/pipeline/schedules.hpp"
#include "sim/strategy/preset.hpp"
#include "sim/strategy/train_step.hpp"

namespace orrery {
namespace {

/// The ranks of a stage that an axis runs over: those that are [first, last) places apart, in steps of `first`.
struct AxisRange {
  std::int64_t first = 1, last = 1;
};

/// Of each axis; an axis pp lies between stages and has none.
std::vector<AxisRange> axis_ranges(const Mesh& mesh) {
  std::vector<AxisRange> out(mesh.axes.size());
  std::int64_t stride = 1;
  for (std::size_t i = mesh.axes.size(); i-- > 0;) {
    const std::int64_t size = mesh.axes[i].name == "pp" ? 1 : mesh.axes[i].size;
    out[i] = {stride, stride * size};
    stride *= size;
  }
  return out;
}

std::int64_t stage_ranks(const Mesh& mesh) { return mesh.axes.empty() ? 1 : axis_ranges(mesh).front().last; }

void check_axes(const Mesh& plan, const Mesh& layer, const LayerOptions& l, const std::string& text,
                const std::string& plan_text) {
  for (const Axis& a : plan.axes)
    if (!has_word("dp fsdp tp pp", a.name))
      throw UserError{fmt::format("layers cannot have a mesh of their own beside the axis {}", a.name),
                      "axes of the plan's mesh can be dp, fsdp, tp and pp"};
  for (const Axis& a : layer.axes)
    if (!has_word("dp fsdp tp", a.name))
      throw UserError{fmt::format("the mesh of blocks {} has an axis {}", l.blocks, a.name),
                      "its axes can be dp, fsdp and tp"};
  if (stage_ranks(layer) != stage_ranks(plan))
    throw UserError{fmt::format("the mesh `{}` of blocks {} has {} ranks, a stage of `{}` has {}", text, l.blocks,
                                stage_ranks(layer), plan_text, stage_ranks(plan)),
                    fmt::format("its axes need {} ranks together", stage_ranks(plan))};
}

/// Where axes of the meshes begin and end; each divides the next.
std::vector<std::int64_t> cuts_of(const std::vector<Mesh>& meshes) {
  std::set<std::int64_t> cuts;
  for (const Mesh& m : meshes)
    for (const AxisRange& s : axis_ranges(m)) cuts.insert({s.first, s.last});
  std::vector<std::int64_t> out{cuts.begin(), cuts.end()};
  for (std::size_t i = 0; i + 1 < out.size(); ++i)
    if (out[i + 1] % out[i] != 0)
      throw OptionError{
          {"layers"},
          fmt::format("layers cut a stage into groups of {} and of {} neighbouring ranks", out[i], out[i + 1]),
          "sizes of such groups must divide each other, like 2, 4 and 8"};
  return out;
}

/// The axes of the plan, cut where a layer needs it.
Mesh refined(const Mesh& plan, const std::vector<std::int64_t>& cuts) {
  Mesh out;
  const std::vector<AxisRange> whole = axis_ranges(plan);
  for (std::size_t i = 0; i < plan.axes.size(); ++i) {
    std::vector<std::int64_t> inside;  // from the slow end
    for (std::size_t c = cuts.size(); c-- > 0;)
      if (cuts[c] >= whole[i].first && cuts[c] <= whole[i].last) inside.push_back(cuts[c]);
    if (inside.size() <= 2) {
      out.axes.push_back(plan.axes[i]);
      continue;
    }
    for (std::size_t k = 0; k + 1 < inside.size(); ++k)
      out.axes.push_back({fmt::format("{}.{}", plan.axes[i].name, k), inside[k] / inside[k + 1]});
  }
  if (out.axes.size() > static_cast<std::size_t>(kMaxMeshAxes))
    throw OptionError{{"layers"},
                      fmt::format("layers cut the mesh into {} axes", out.axes.size()),
                      fmt::format("at most {}: let meshes of layers have groups of equal sizes", kMaxMeshAxes)};
  return out;
}

/// What a written mesh is for, in axes of the refined one.
Roles roles_in(const Mesh& fine, const Mesh& written) {
  Roles roles = roles_of(written);
  const std::vector<AxisRange> wanted = axis_ranges(written), there = axis_ranges(fine);
  for (Split* s : {&roles.dp, &roles.fsdp, &roles.tp}) {
    if (s->axes.empty()) continue;
    const AxisRange& w = wanted[static_cast<std::size_t>(s->axes.front())];
    s->axes.clear();
    for (std::size_t i = 0; i < fine.axes.size(); ++i)
      if (there[i].first >= w.first && there[i].last <= w.last && there[i].first < there[i].last)
        s->axes.push_back(static_cast<std::int8_t>(i));
  }
  roles.pp = {};
  for (std::size_t i = 0; i < fine.axes.size(); ++i)
    if (fine.axes[i].name == "pp") roles.pp = {{static_cast<std::int8_t>(i)}, fine.axes[i].size, {}};
  return roles;
}

/// Options of pipelines, where the mesh has none.
void check_stages(const Mesh& mesh, const ParallelOptions& p) {
  find_schedule(p.schedule);
  const bool has_stages = std::any_of(mesh.axes.begin(), mesh.axes.end(), [](const Axis& a) { return a.name == "pp"; });
  if (has_stages || (p.stage_layers.empty() && p.chunks == 0)) return;
  throw OptionError{{p.stage_layers.empty() ? "chunks" : "stage_layers"},
                    fmt::format("{} cuts the stages of a pipeline, and the mesh has no axis pp",
                                p.stage_layers.empty() ? "chunks" : "stage_layers"),
                    "leave it out, or give the mesh an axis pp"};
}

/// `key`: mesh or ffn_mesh.
Mesh mesh_of_layer(const Mesh& plan, const ParallelOptions& p, std::size_t index, std::string_view key,
                   const std::string& text) {
  try {
    Mesh mesh = parse_mesh(text);
    roles_of(mesh);
    check_axes(plan, mesh, p.layers[index], text, p.mesh);
    return mesh;
  } catch (const UserError& e) {
    throw OptionError{{fmt::format("layers[{}].{}", index, key)}, e};
  }
}

}  // namespace

Mesh parse_mesh(const std::string& text) {
  Mesh mesh;
  std::size_t i = 0;
  while (i < text.size()) {
    const std::size_t first = i;
    while (i < text.size() && text[i] >= 'a' && text[i] <= 'z') ++i;
    const std::size_t digits = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    if (digits == first || i == digits || i - digits > 6)
      throw OptionError{
          {"mesh"}, fmt::format("{} is no mesh", in_quotes(text)), "write axes and sizes, like `dp2 pp4 tp8`"};
    const std::int64_t size = std::stoll(text.substr(digits, i - digits));
    if (size < 1)
      throw OptionError{{"mesh"},
                        fmt::format("axis {} has no ranks", text.substr(first, digits - first)),
                        "an axis has at least 1 rank"};
    mesh.axes.push_back({text.substr(first, digits - first), size});
    while (i < text.size() && (text[i] == ' ' || text[i] == ',')) ++i;
  }
  if (mesh.axes.size() > static_cast<std::size_t>(kMaxMeshAxes))
    throw OptionError{{"mesh"}, fmt::format("a mesh has at most {} axes", kMaxMeshAxes)};
  double ranks = 1;
  for (const Axis& a : mesh.axes) ranks *= double(a.size);
  if (ranks > double(kMaxRanks))
    throw OptionError{{"mesh"}, fmt::format("a mesh of {:.0f} ranks", ranks), fmt::format("at most {}", kMaxRanks)};
  return mesh;
}

StageMeshes stage_meshes(const ParallelOptions& p) {
  const Mesh plan = parse_mesh(p.mesh);
  check_stages(plan, p);
  std::vector<Mesh> written{plan};
  bool own = false;
  const auto add = [&](std::size_t i, std::string_view key, const std::string& text, const Mesh& otherwise) {
    written.push_back(text.empty() ? otherwise : mesh_of_layer(plan, p, i, key, text));
    own |= !text.empty();
  };
  for (std::size_t i = 0; i < p.layers.size(); ++i) add(i, "mesh", p.layers[i].mesh, plan);
  for (std::size_t i = 0; i < p.layers.size(); ++i)
    if (p.layers[i].has_own_feed_forward()) add(i, "ffn_mesh", p.layers[i].ffn_mesh, Mesh{written[1 + i]});
  if (!own) return {plan, std::vector<Roles>(written.size(), roles_of(plan))};
  StageMeshes out{refined(plan, cuts_of(written)), {}};
  for (const Mesh& m : written) out.roles.push_back(roles_in(out.mesh, m));
  return out;
}

}  // namespace orrery
