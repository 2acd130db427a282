// SPDX-License-Identifier: Apache-2.0
// MEMO, Zhao and others, arXiv 2407.12117: a GPT of 7 billion parameters on sequences of up to a million tokens and
// eight A800. The step is simulated as the strategy `memo` lowers it, copies and what runs again among its ops, with
// matrices and rows split over the eight. Taken: feed-forward layers that are gated and as large as 4h (10,752 is
// 8/3·h in tiles of 64 columns on each rank; there is no table of positions), steps of one sequence, copies that reach
// 0.83 of PCIe 4.0 x16 with two GPUs behind each switch, all of the node's 2 TiB. Attention runs as FlashAttention-2
// does on an A100 where no mask gets in its way, at up to 73 % of its peak forward and 63 % backward (Dao, arXiv
// 2307.08691): of a causal mask over 100,000 tokens and more its blocks of 128 waste a thousandth. That is 1.63 times
// our law, which is fitted to kernels of TensorRT-LLM. Not published: whether the MFU counts a causal mask. It is taken
// to; the other convention is a column of what the claims owe to the inputs.
#include <fmt/format.h>

#include <algorithm>

#include "sim/app/reproduce/reproduction.hpp"
#include "sim/strategy/offload/memo.hpp"

namespace orrery::papers::memo {
namespace {

constexpr const char* kAbstract = "arXiv 2407.12117, abstract";
constexpr const char* kFigure = "arXiv 2407.12117, figure 1b";
constexpr double kLayers = 32, kHidden = 4096, kVocabulary = 50304, kRanks = 8, kPeak = 312e12;
constexpr double kMillion = 1 << 20, kK = 1024, kHost = 2.0 * 1024 * kK * kK * kK;
constexpr double kFlashAttention2 = 1.63, kSlower = 1.35;  // times our law
constexpr double kMfuWithin = 4.0 / 52.3, kCrossoverWithin = 0.1, kAlphaWithin = 0.03 / 0.467;

struct Inputs {
  std::string name;
  std::vector<std::pair<std::string, double>> scales = {};
};

class Memo {
 public:
  Memo(const Reproducer& r, const Inputs& in) : r_{r}, in_{in} {}

  /// Seconds of the forward pass of one layer.
  double forward(double sequence) const {
    return predict(sequence, 2, plain()).forward_seconds - predict(sequence, 1, plain()).forward_seconds;
  }

  SwapBounds bounds(double sequence, double forward) const {
    return swap_bounds(SwappedLayer::of_gpt(1, sequence, kHidden, kRanks), static_cast<std::int64_t>(kLayers),
                       Seconds{forward}, link(), Bytes{kHost / kRanks});
  }

  /// A step of the whole model. The strategy counts the FLOP of a layer as this does: half of attention behind the
  /// mask.
  Report step(double sequence) const {
    const double flops = sequence * kHidden * (24 * kHidden + 2 * sequence) / kRanks;
    return predict(
               sequence, static_cast<int>(kLayers),
               fmt::format("memo: {{rate: {:.0f} FLOP/s, link: {:.0f} B/s, host_memory: {:.0f} B, parallel: {{mesh: "
                           "tp8, sequence_parallel: true}}}}",
                           flops / forward(sequence), link().base(), kHost / kRanks))
        .report;
  }

  /// The shortest sequence, to within 4K tokens, whose layer is computed as fast as it is swapped whole.
  double crossover() const {
    double low = 16 * kK, high = 1024 * kK;
    while (high - low > 4 * kK) {
      const double middle = std::max(4 * kK, std::floor((low + high) / 2 / (4 * kK)) * 4 * kK);
      (bounds(middle, forward(middle)).link >= 1 ? high : low) = middle;
    }
    return high;
  }

 private:
  static std::string plain() { return "tensor: {mesh: tp8, sequence_parallel: true}"; }
  Prediction predict(double sequence, int layers, const std::string& strategy) const {
    const auto tokens = static_cast<std::int64_t>(sequence);
    const std::string text = fmt::format(
        "model: {{model_type: llama, hidden_size: 4096, intermediate_size: 10752, num_hidden_layers: {}, "
        "num_attention_heads: 32, num_key_value_heads: 32, vocab_size: 50304, max_position_embeddings: {}, "
        "rms_norm_eps: 0.00001, rope_theta: 10000.0, tie_word_embeddings: false}}\ncluster: hgx_a800\nstrategy: "
        "[{{{}}}]\nworkload: {{train: {{batch: 1, sequence: {}, dtype: bf16}}}}\n",
        layers, tokens, strategy, tokens);
    return r_.predict(text, in_.scales);
  }

  BytesPerSecond link() const {
    const Cluster cluster = read_cluster(read_yaml(r_.wiring.locations().clusters() + "/hgx_a800.yaml"), "hgx_a800");
    const HostLink& l = cluster.host_link.value();
    return l.bandwidth * l.to_host / double(l.devices_per_switch);
  }

  const Reproducer& r_;
  const Inputs& in_;
};

/// FLOP of a step that the model needs: 6 per parameter and token, and of attention 12·s·h per token and layer, half of
/// it behind a causal mask.
double model_flops(double sequence, bool causal) {
  const double parameters = kLayers * 12 * kHidden * kHidden + kVocabulary * kHidden;
  return sequence * (6 * parameters + kLayers * 12 * sequence * kHidden * (causal ? 0.5 : 1));
}

double mfu(double sequence, double seconds, bool causal) {
  return 100 * model_flops(sequence, causal) / (seconds * kRanks * kPeak);
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  const Inputs stated{.name = "attention as FlashAttention-2", .scales = {{"attention.rate", kFlashAttention2}}};
  const Memo memo{r, stated};
  const Report step = memo.step(kMillion);
  const double crossover = memo.crossover() / kK, alpha = memo.bounds(kMillion, memo.forward(kMillion)).host;
  const double causal = mfu(kMillion, step.step, true), whole = mfu(kMillion, step.step, false);
  Reproduction out{{{"MFU at a million tokens", kAbstract, 52.3, causal, "%", kMfuWithin,
                     fmt::format("7B, 8 A800, {} of a device; the paper does not say which it counts",
                                 to_text(Bytes{double(step.memory.together)}))},
                    {"tokens from which a layer is swapped whole while the next one runs", kFigure, 192, crossover, "K",
                     kCrossoverWithin, "13.1 GB/s per GPU, two behind a PCIe switch"},
                    {"part of the tokens that 2 TiB have room for, at a million", "arXiv 2407.12117, formula of α",
                     0.467, alpha, "", kAlphaWithin, "derived from the formula, not printed in the paper"}},
                   {"MFU causal %", "MFU all %", "crossover K"},
                   {{"paper", {52.3, 52.3, 192.0}}, {stated.name, {causal, whole, crossover}}}};
  const Inputs others[] = {
      {.name = "attention as fitted, to TensorRT-LLM"},
      {.name = "attention at 60 % of the peak forward, 51 backward", .scales = {{"attention.rate", kSlower}}},
      {.name = "products at 0.8 of the rate", .scales = {{"attention.rate", kFlashAttention2}, {"gemm.rate", 0.8}}},
      {.name = "links between GPUs at 0.8 of the rate",
       .scales = {{"attention.rate", kFlashAttention2}, {"link.bandwidth", 0.8}}}};
  for (const Inputs& in : others) {
    const Memo m{r, in};
    const double seconds = m.step(kMillion).step;
    out.ablations.push_back(
        {in.name, {mfu(kMillion, seconds, true), mfu(kMillion, seconds, false), m.crossover() / kK}});
  }
  return out;
}

}  // namespace orrery::papers::memo
