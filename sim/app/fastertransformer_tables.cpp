// SPDX-License-Identifier: Apache-2.0
#include "sim/app/fastertransformer_tables.hpp"

#include <fmt/format.h>

#include <cmath>

#include "sim/app/accuracy/inference_rows.hpp"
#include "sim/base/csv.hpp"

namespace orrery {
namespace {

constexpr const char* kGptGuide = "FasterTransformer, docs/gpt_guide.md @ 07fdd2f";
constexpr std::int64_t kGuideBatches[] = {1, 2, 4, 8, 16, 32, 128};

struct GuideModel {
  const char* name;
  std::int64_t layers, width, heads;
};
constexpr GuideModel k175B{"GPT-175B", 96, 12288, 96}, k89B{"GPT-89B", 48, 12288, 96}, k20B{"GPT-20B", 44, 6144, 48};

/// Milliseconds of a prompt and the tokens behind it, by kGuideBatches; 0: not printed.
struct GuideSetting {
  GuideModel network;
  std::int64_t ranks, prompt, tokens;
  double ms[std::size(kGuideBatches)];
};
constexpr GuideSetting kGuideSettings[] = {{k175B, 8, 128, 8, {488.9, 509.5, 629.6, 749.9, 1037.5, 1547.4}},
                                           {k175B, 8, 512, 32, {1720.0, 1830.6, 2092.6, 2630.0, 3706.2}},
                                           {k89B, 8, 128, 8, {279.4, 280.2, 317.7, 377.5, 524.8, 786.6}},
                                           {k89B, 8, 512, 32, {887.5, 940.1, 1133.2, 1415.0, 1952.2}},
                                           {k20B, 1, 20, 8, {225, 0, 0, 239, 0, 331, 726}},
                                           {k20B, 2, 20, 8, {147, 0, 0, 169, 0, 230, 484}},
                                           {k20B, 4, 20, 8, {102, 0, 0, 121, 0, 155, 318}},
                                           {k20B, 8, 20, 8, {89, 0, 0, 107, 0, 127, 256}},
                                           {k20B, 1, 60, 20, {560, 0, 0, 635, 0, 933, 2218}},
                                           {k20B, 2, 60, 20, {358, 0, 0, 429, 0, 620, 1384}},
                                           {k20B, 4, 60, 20, {248, 0, 0, 299, 0, 418, 928}},
                                           {k20B, 8, 60, 20, {212, 0, 0, 247, 0, 325, 699}},
                                           {k20B, 1, 128, 20, {566, 0, 0, 740, 0, 1335, 3830}},
                                           {k20B, 2, 128, 20, {362, 0, 0, 487, 0, 862, 2365}},
                                           {k20B, 4, 128, 20, {254, 0, 0, 333, 0, 547, 1439}},
                                           {k20B, 8, 128, 20, {217, 0, 0, 267, 0, 418, 1072}},
                                           {k20B, 1, 80, 200, {5609}},
                                           {k20B, 2, 80, 200, {3532}},
                                           {k20B, 4, 80, 200, {2438}},
                                           {k20B, 8, 80, 200, {2053}}};

/// A cell as a row of the table that `orrery accuracy` reads.
std::string guide_row(const GuideSetting& s, std::size_t batch) {
  return fmt::format(
      "{0},{1},{2},{3},{3},{4},{5},gelu (2 "
      "matrices),51200,A100-SXM4-80GB,{6},FasterTransformer,FP16,{6},1,{7},{8},{9},{10}\n",
      s.network.name, s.network.layers, s.network.width, s.network.heads, s.network.width / s.network.heads,
      4 * s.network.width, s.ranks, kGuideBatches[batch], s.prompt, s.tokens, s.ms[batch]);
}

double predicted_ms(const RowPredictor& predictor, const GuideSetting& s, std::size_t batch) {
  const CsvTable table{
      "model,layers,hidden,heads,kv_heads,head_dim,ffn,ffn_type,vocab,gpu,n_gpus,software,precision,tp,pp,batch,isl,"
      "osl,latency_ms\n" +
          guide_row(s, batch),
      kGptGuide};
  const RowResult result = predictor.predict(table.row(0));
  if (const auto* skip = std::get_if<Skip>(&result))
    bug("a row of FasterTransformer's guide was skipped: " + skip->detail);
  return 1e3 * std::get<RowPrediction>(result).observations.front().predicted;
}

/// Mean error over the cells of one network.
struct TableError {
  double sum = 0, worst = 0;
  int cells = 0, near = 0;

  void add(double error) {
    sum += error, worst = std::max(worst, error);
    ++cells, near += error <= 0.15;
  }
  Claim claim(const GuideModel& n) const {
    return {fmt::format("{}: mean error over its tables", n.name),
            kGptGuide,
            1,
            1 + sum / cells,
            "factor",
            0.15,
            fmt::format("{} of {} cells within 15 %, the worst off by {:.0f} %", near, cells, 100 * worst)};
  }
};

}  // namespace

PublishedTables fastertransformer_tables(const Reproducer& reproducer) {
  PublishedTables out;
  for (const std::int64_t b : kGuideBatches) out.quantities.push_back(fmt::format("batch {}", b));
  const auto predictor = make_static_batch_predictor(reproducer.wiring);
  for (const GuideModel& n : {k175B, k89B, k20B}) {
    TableError error;
    for (const GuideSetting& s : kGuideSettings) {
      if (s.network.name != n.name) continue;
      reproducer.pause();
      std::vector<std::optional<double>> paper, ours;
      for (std::size_t i = 0; i < std::size(kGuideBatches); ++i) {
        const bool printed = s.ms[i] > 0;
        paper.push_back(printed ? std::optional{s.ms[i]} : std::nullopt);
        ours.push_back(printed ? std::optional{predicted_ms(*predictor, s, i)} : std::nullopt);
        if (printed) error.add(std::abs(*ours.back() / s.ms[i] - 1));
      }
      const std::string setting = fmt::format("{} tp{}, {} + {}, ms", n.name, s.ranks, s.prompt, s.tokens);
      out.cells.push_back({setting + ", guide", std::move(paper)});
      out.cells.push_back({setting, std::move(ours)});
    }
    out.claims.push_back(error.claim(n));
  }
  return out;
}

}  // namespace orrery
