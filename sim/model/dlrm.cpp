// SPDX-License-Identifier: Apache-2.0
// DLRM has no Hugging Face configuration; this is ours. Every key but model_type, architectures and dtype:
//   dense_features     number of dense inputs                                          13
//   embedding_dim      width of the embeddings                                         16
//   table_sizes        rows of every embedding table                                   required
//   bottom_mlp         widths of the bottom network; the last is embedding_dim         [512, 256, embedding_dim]
//   top_mlp            widths of the top network; the last is 1                        [512, 256, 1]
//   lookups_per_table  rows summed per table and sample                                1
// Names are those of facebookresearch/dlrm: emb_l.N, bot_l.N and top_l.N with an activation at every odd N.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/model/families.hpp"
#include "sim/model/parameters.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMaxTables = 4096, kMaxWidths = 64;

struct DlrmSettings {
  std::int64_t dense, dim, lookups;
  std::vector<std::int64_t> tables, bottom, top;

  /// Width of the top network's input: the bottom's output and the dot products of all pairs of the n + 1 vectors.
  std::int64_t interactions() const {
    const auto vectors = static_cast<std::int64_t>(tables.size()) + 1;
    return dim + vectors * (vectors - 1) / 2;
  }
};

void refuse_unknown_keys(ConfigReader& c) {
  const std::vector<std::string> known = {
      "model_type",    "architectures", "dtype",      "torch_dtype", "_name_or_path",    "dense_features",
      "embedding_dim", "table_sizes",   "bottom_mlp", "top_mlp",     "lookups_per_table"};
  for (const auto& [key, node] : c.config().fields) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const Diagnostic d = unknown_name("key", key, known).diagnostics().front();
    c.report(at_key(node, d.message, d.hint));
  }
}

DlrmSettings dlrm_settings(ConfigReader& c) {
  DlrmSettings s{};
  refuse_unknown_keys(c);
  s.dense = c.integer("dense_features", 13, 1, 1 << 20);
  s.dim = c.integer("embedding_dim", 16, 1, 1 << 20);
  s.lookups = c.integer("lookups_per_table", 1, 1, 1 << 20);
  s.tables = c.integers("table_sizes", {}, kMaxTables, 1, std::int64_t{1} << 40);
  s.bottom = c.integers("bottom_mlp", {512, 256, s.dim}, kMaxWidths, 1, 1 << 24);
  s.top = c.integers("top_mlp", {512, 256, 1}, kMaxWidths, 1, 1 << 24);
  if (s.tables.empty())
    c.problem("table_sizes", "a recommendation model needs at least one embedding table", "table_sizes: [1000, 20000]");
  if (s.bottom.empty() || s.bottom.back() != s.dim)
    c.problem("bottom_mlp", fmt::format("the last width of bottom_mlp must be embedding_dim, {}", s.dim));
  if (s.top.empty() || s.top.back() != 1) c.problem("top_mlp", "the last width of top_mlp must be 1, the logit");
  c.finish();
  return s;
}

/// Weights start normal with deviation sqrt(2/(in + out)), biases with sqrt(1/out).
std::vector<Linear> build_mlp(const std::string& name, std::int64_t in, const std::vector<std::int64_t>& widths,
                              ParameterSet& p) {
  std::vector<Linear> layers;
  for (const std::int64_t out : widths) {
    const std::string prefix = fmt::format("{}.{}", name, 2 * layers.size());
    Linear linear{.in = in, .out = out};
    linear.weight = p.matrix(prefix + ".weight", {out, in}, std::sqrt(2.0 / static_cast<double>(in + out)));
    linear.bias = p.add({.name = prefix + ".bias",
                         .shape = {out},
                         .deviation = std::sqrt(1.0 / static_cast<double>(out)),
                         .decay = false});
    layers.push_back(linear);
    in = out;
  }
  return layers;
}

}  // namespace

void build_dlrm(const BuildInput& input, Model& model) {
  const DlrmSettings s = dlrm_settings(input.config);
  ParameterSet p{model, input.config.config(), 0.02};
  Dlrm dlrm{.dense_features = s.dense, .lookups_per_table = s.lookups, .dim = s.dim};
  for (const std::int64_t rows : s.tables) {
    // the original draws from ±1/sqrt(rows) evenly, whose deviation is 1/sqrt(3·rows)
    const double deviation = 1.0 / std::sqrt(3.0 * static_cast<double>(rows));
    dlrm.tables.push_back(p.embedding(fmt::format("emb_l.{}", dlrm.tables.size()), rows, s.dim, deviation));
  }
  dlrm.bottom = build_mlp("bot_l", s.dense, s.bottom, p);
  dlrm.top = build_mlp("top_l", s.interactions(), s.top, p);
  model.network = std::move(dlrm);
}

}  // namespace orrery
