// SPDX-License-Identifier: Apache-2.0
#include "sim/app/serving/layer_period.hpp"

#include <set>
#include <variant>

namespace orrery {
namespace {

/// Whether plans of two blocks do the same work.
bool alike(const Block& a, const Block& b) {
  return a.attention.window == b.attention.window && a.attention.rope.has_value() == b.attention.rope.has_value() &&
         a.attention.growth == b.attention.growth && a.ffn.index() == b.ffn.index() &&
         a.attention.projections.index() == b.attention.projections.index();
}

/// How many blocks at the end are, each, like the one `period` before it.
std::int64_t repeated(const std::vector<Block>& blocks, std::size_t period) {
  std::int64_t count = 0;
  for (std::size_t i = blocks.size(); i-- > period && alike(blocks[i], blocks[i - period]);) ++count;
  return count;
}

}  // namespace

LayerPeriod period_of(const std::vector<Block>& blocks) {
  const auto n = static_cast<std::int64_t>(blocks.size());
  LayerPeriod best{.lead = 0, .period = n, .times = 1};
  for (std::int64_t p = 1; 2 * p <= n; ++p) {
    const std::int64_t times = repeated(blocks, static_cast<std::size_t>(p)) / p + 1;
    const std::int64_t fewest = best.times > 1 ? best.lead + 2 * best.period : n;
    if (times > 1 && n - times * p + 2 * p < fewest) best = {.lead = n - times * p, .period = p, .times = times};
  }
  return best;
}

namespace {

/// Numbers of what is read behind the blocks, which may stand behind all of them.
std::vector<ParameterId*> behind_blocks(Transformer& t) {
  std::vector<ParameterId*> ids{&t.output.weight, &t.output.bias};
  for (auto* n : {&t.encoder_norm, &t.decoder_norm, &t.transform_norm})
    if (*n) ids.insert(ids.end(), {&(*n)->weight, &(*n)->bias});
  for (auto* l : {&t.project_out, &t.transform, &t.pooler})
    if (*l) ids.insert(ids.end(), {&(*l)->weight, &(*l)->bias});
  return ids;
}

/// Without the parameters of blocks from `layers` on, where all others but those behind the blocks keep their numbers.
void drop_parameters(Model& model, std::int64_t layers) {
  std::vector<ParameterId> now(model.parameters.size());
  std::vector<Parameter> kept;
  std::size_t unmoved = 0;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (model.parameters[i].layer >= layers) continue;
    now[i] = ParameterId{kept.size()};
    unmoved += kept.size() == i;
    kept.push_back(model.parameters[i]);
  }
  std::set<std::size_t> moved;
  const std::vector<ParameterId*> behind = behind_blocks(std::get<Transformer>(model.network));
  for (const ParameterId* id : behind)
    if (!id->is_none() && now[id->index()] != *id) moved.insert(id->index());
  if (unmoved + moved.size() < kept.size()) return;
  for (ParameterId* id : behind)
    if (!id->is_none()) *id = now[id->index()];
  model.parameters = std::move(kept);
}

}  // namespace

Model first_layers(Model model, std::int64_t layers) {
  auto& t = std::get<Transformer>(model.network);
  t.decoder.resize(static_cast<std::size_t>(layers));
  if (t.encoder.empty()) drop_parameters(model, layers);
  return model;
}

}  // namespace orrery
