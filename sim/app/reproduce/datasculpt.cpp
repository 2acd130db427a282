// SPDX-License-Identifier: Apache-2.0
// DataSculpt, Lu and others, arXiv 2409.00997: windows of 16,000 to 64,000 tokens for a decoder of 7 billion
// parameters, from a corpus whose lengths its repository has as figures. What is beside ours was computed from these
// figures by a program of its own, and is printed in no paper: one draw of 60 million tokens, in which there are some
// 50 of the longest documents, so that Σ L² is known to 3 to 9 %. Ours are means of eight draws. The figure does not
// say what its shares are of; both readings are here. Not here: what windows of like documents do for a network.
#include <fmt/format.h>

#include "sim/app/reproduce/reproduction.hpp"
#include "sim/program/campaign.hpp"
#include "sim/strategy/packing/corpus.hpp"
#include "sim/strategy/packing/packing.hpp"

namespace orrery::papers::datasculpt {
namespace {

constexpr const char* kFigures = "derived from the figures of arXiv 2409.00997";
constexpr const char* kWork = "derived: 15 B tokens at 182 TFLOP/s";
constexpr double kTrainedTokens = 15e9;

PackingStatistics mean_packing(ShareOf shares, PackerKind packer, std::int64_t window) {
  return datasculpt_packing(shares, {.packer = packer, .window = window}, 60'000'000, 8);
}

struct PackedCase {
  std::int64_t window;
  ShareOf shares;
  double cut, whole, alone;  // ΣL² of documents cut anywhere and kept whole; padding with one a window, 0: not known
};
constexpr PackedCase kCases[] = {
    {16000, ShareOf::Tokens, 0.245, 0.314, 89.6}, {16000, ShareOf::Documents, 0.335, 0.455, 86.5},
    {32000, ShareOf::Tokens, 0.177, 0.230, 0},    {32000, ShareOf::Documents, 0.266, 0.362, 0},
    {64000, ShareOf::Tokens, 0.128, 0.171, 0},    {64000, ShareOf::Documents, 0.211, 0.283, 0}};

void add_packing(const PackedCase& c, std::vector<Claim>& out) {
  constexpr double kNoise = 0.06;
  const std::string where = fmt::format("at {}k, shares of {}", c.window / 1000, enum_name(c.shares));
  const PackingStatistics cut = mean_packing(c.shares, PackerKind::Shuffle, c.window);
  out.push_back({"attention of documents cut anywhere " + where, kFigures, c.cut, cut.squares, "", kNoise,
                 fmt::format("{:.2f} cuts a window", cut.truncations_per_window)});
  const PackingStatistics whole = mean_packing(c.shares, PackerKind::BestFit, c.window);
  out.push_back({"attention of whole documents " + where, kFigures, c.whole, whole.squares, "", kNoise,
                 fmt::format("no cuts, {:.2f} % padding", 100 * whole.padding)});
  if (c.alone == 0) return;
  const PackingStatistics alone = mean_packing(c.shares, PackerKind::Alone, c.window);
  out.push_back({"padding of one document a window " + where, kFigures, c.alone, 100 * alone.padding, "%", 0.01, ""});
}

struct SculptInputs {
  std::string name;
  std::int64_t sequence = 65536;
  std::string recompute = "none", mesh = "dp8 tp8";
  std::vector<std::pair<std::string, double>> scales = {};
};

Report sculpt_step(const Reproducer& r, const SculptInputs& in) {
  const std::int64_t batch = 64 * 65536 / in.sequence;
  return r
      .predict(fmt::format("model: {{model_type: llama, hidden_size: 4096, intermediate_size: 11008, "
                           "num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 32, vocab_size: "
                           "64000, max_position_embeddings: 65536, rms_norm_eps: 0.000001, rope_theta: 10000.0, "
                           "tie_word_embeddings: false}}\ncluster: {}\nstrategy: [{{parallel: {{mesh: {}, "
                           "sequence_parallel: true, data: {{kind: zero1}}}}}}]\nworkload: {{train: {{batch: {}, "
                           "microbatches: 8, sequence: {}, dtype: bf16, recompute: {}}}}}\n",
                           r.cluster("hgx_a800", 8), in.mesh, batch, in.sequence, in.recompute),
               in.scales)
      .report;
}

double sculpt_hours(const Report& r) {
  return campaign({.tokens = kTrainedTokens, .step = r.step, .tokens_per_step = r.tokens_per_step}).wall / 3600;
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  Reproduction out;
  for (const PackedCase& c : kCases) {
    r.pause();
    add_packing(c, out.claims);
  }
  const SculptInputs stated{.name = "as stated"};
  const Report step = sculpt_step(r, stated);
  out.claims.push_back({"work of 15 B tokens at 64k", kWork, 1.40e21,
                        step.model_flops / step.tokens_per_step * kTrainedTokens, "FLOP", 0.03,
                        "all of a causal mask"});
  out.claims.push_back({"15 B tokens at 64k on 64 A800", kWork, 33, sculpt_hours(step), "hours", 0.2,
                        fmt::format("matrices in 8 parts, {} of a device", to_text(Bytes{double(step.memory.bytes)}))});
  out.quantities = {"hours", "TFLOP/s"};
  out.ablations = {{"derived", {33.0, 182.0}}};
  const SculptInputs others[] = {stated,
                                 {.name = "32k", .sequence = 32768},
                                 {.name = "16k", .sequence = 16384},
                                 {.name = "all run again", .recompute = "full"},
                                 {.name = "attention as FlashAttention-2", .scales = {{"attention.rate", 1.63}}}};
  for (const SculptInputs& in : others) {
    const Report s = sculpt_step(r, in);
    out.ablations.push_back({in.name, {sculpt_hours(s), s.model_flops / s.step / 64 * 1e-12}});
  }
  return out;
}

}  // namespace orrery::papers::datasculpt
