// SPDX-License-Identifier: Apache-2.0
#include "sim/app/step_split.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "sim/strategy/model_parts.hpp"
#include "sim/strategy/pipeline/schedules.hpp"

namespace orrery {
namespace {

/// "0-3,8" of the blocks for which it is so.
std::string listed(const std::vector<LayerWay>& layers, const LayerWay& way) {
  std::string out;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!(layers[i] == way) || (i > 0 && layers[i - 1] == way)) continue;
    std::size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == way) ++last;
    out += out.empty() ? "" : ",";
    out += last == i ? fmt::format("{}", i) : fmt::format("{}-{}", i, last);
  }
  return out;
}

/// Each way that some block has, in the order of the blocks.
std::vector<LayerWay> ways_of(const std::vector<LayerWay>& layers) {
  std::vector<LayerWay> out;
  for (const LayerWay& w : layers)
    if (std::find(out.begin(), out.end(), w) == out.end()) out.push_back(w);
  return out;
}

/// "full in 12 of 32, else none": what blocks have that is not as everywhere else.
std::string shares(const std::vector<LayerWay>& layers, const std::string& usual,
                   const std::function<std::string(const LayerWay&)>& what) {
  std::vector<std::pair<std::string, std::size_t>> counts;
  for (const LayerWay& w : layers) {
    const std::string text = what(w);
    if (text == usual) continue;
    const auto known = std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == text; });
    if (known == counts.end())
      counts.emplace_back(text, 1);
    else
      ++known->second;
  }
  std::string out;
  for (const auto& [text, n] : counts)
    out += n == layers.size() ? fmt::format("{} in all blocks", text)
                              : fmt::format("{}{} in {}{}", out.empty() ? "" : ", ", text, n,
                                            out.empty() ? fmt::format(" of {}", layers.size()) : "");
  return out;
}

/// "11-9-10x6" of 11, 9, and six times 10.
std::string runs(const std::vector<std::int64_t>& sizes) {
  std::string out;
  for (std::size_t i = 0; i < sizes.size();) {
    std::size_t end = i;
    while (end < sizes.size() && sizes[end] == sizes[i]) ++end;
    out += fmt::format("{}{}", out.empty() ? "" : "-", sizes[i]);
    if (end - i > 1) out += fmt::format("x{}", end - i);
    i = end;
  }
  return out;
}

}  // namespace

std::string SplitMesh::text() const {
  std::string out;
  const auto axis = [&](const char* name, std::int64_t n) {
    if (n > 1) out += fmt::format("{}{}{}", out.empty() ? "" : " ", name, n);
  };
  axis("pp", pp), axis("dp", dp), axis("ep", ep), axis("cp", cp), axis("tp", tp);
  return out;
}

std::vector<std::size_t> stages_of_parts(const StepSplit& s, std::int64_t batch) {
  if (s.mesh.pp == 1) return {0};
  PipelineShape shape{static_cast<std::int32_t>(s.mesh.pp), static_cast<std::int32_t>(s.microbatches(batch)), {}};
  if (s.chunks > 0) shape.chunks = static_cast<std::int32_t>(s.chunks);
  const Schedule schedule = make_schedule(s.schedule, shape);
  std::vector<std::size_t> out;
  for (std::int32_t part = 0; part < schedule.parts; ++part)
    out.push_back(static_cast<std::size_t>(schedule.home(part, 0).stage));
  return out;
}

std::vector<std::int64_t> stage_sizes(const StepSplit& s, std::int64_t blocks, std::int64_t batch) {
  const std::vector<std::size_t> stages = stages_of_parts(s, batch);
  const std::vector<int> bounds = part_bounds(s.stage_layers, blocks, std::ssize(stages));
  std::vector<std::int64_t> out(static_cast<std::size_t>(s.mesh.pp), 0);
  for (std::size_t part = 0; part < stages.size(); ++part) out[stages[part]] += bounds[part + 1] - bounds[part];
  return out;
}

std::string StepSplit::strategy() const {
  const bool is_one = mesh == SplitMesh{};
  if (is_one && layers.empty()) return tiers ? tiers->entry("") : "single: {}";
  std::string out = fmt::format("mesh: {}", is_one ? "dp1" : mesh.text());
  if (mesh.pp > 1) out += fmt::format(", schedule: {}", schedule);
  if (mesh.pp > 1 && chunks > 0) out += fmt::format(", chunks: {}", chunks);
  if (!stage_layers.empty()) out += fmt::format(", stage_layers: [{}]", fmt::join(stage_layers, ", "));
  if (mesh.tp > 1 && sequence_parallel) out += ", sequence_parallel: true";
  if (mesh.tp > 1 && tensor_overlap) out += ", tensor_overlap: true";
  if (mesh.tp > 1 && tp_comm_overlap) out += ", tp_comm_overlap: true";
  if (mesh.cp > 1) out += fmt::format(", context: {}", context);
  if (has_replicas()) out += fmt::format(", data: {{kind: {}, bucket: {}}}", data, bucket);
  std::string own;
  for (const LayerWay& w : ways_of(layers)) {
    if (w == way()) continue;
    own += fmt::format("{}{{blocks: \"{}\"", own.empty() ? "" : ", ", listed(layers, w));
    if (!w.mesh.empty()) own += fmt::format(", mesh: {}", w.mesh);
    if (w.data != data) own += fmt::format(", data: {}", w.data);
    if (w.recompute != recompute) own += fmt::format(", recompute: {}", w.recompute);
    own += "}";
  }
  if (!own.empty()) out += fmt::format(", layers: [{}]", own);
  return tiers ? tiers->entry(out) : fmt::format("parallel: {{{}}}", out);
}

std::string StepSplit::recomputation(std::int64_t microbatches) const {
  return fmt::format("{}, microbatches: {}", recompute, microbatches);
}

std::string StepSplit::recomputed() const {
  const std::string own = shares(layers, recompute, [](const LayerWay& w) { return w.recompute; });
  return own.empty() ? recompute : fmt::format("{}, else {}", own, recompute);
}

std::string StepSplit::rest() const {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (tiers) add(tiers->name);
  if (mesh.pp > 1) add(chunks > 0 ? fmt::format("{} {}", schedule, chunks) : schedule);
  if (!stage_layers.empty()) add("stages of " + runs(stage_layers));
  if (has_replicas() && !(tiers && tiers->name.ends_with(data))) add(data);
  const std::string own = shares(
      layers, data, [](const LayerWay& w) { return w.mesh.empty() ? w.data : fmt::format("{} {}", w.mesh, w.data); });
  if (!own.empty()) add(own);
  if (mesh.cp > 1) add(context);
  if (mesh.tp > 1 && !sequence_parallel) add("rows not split");
  if (mesh.tp > 1 && tensor_overlap) add("tensor_overlap");
  if (mesh.tp > 1 && tp_comm_overlap) add("tp_comm_overlap");
  return out;
}

}  // namespace orrery
