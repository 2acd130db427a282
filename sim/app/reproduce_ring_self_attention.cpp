// SPDX-License-Identifier: Apache-2.0
// Ring self-attention, Li and others, arXiv 2105.13120: BERT-Base in half precision on Piz Daint (one P100 of 16 GB per
// node, so that every hop crosses the network), against Megatron's tensor parallelism, which 12 heads limit to 12 ranks.
// Memory and limits follow from the plans alone. Not published, and assumed: AdamW with masters in f32, no
// recomputation, and that frameworks take nothing of the 16 GB.
#include <fmt/format.h>

#include <algorithm>

#include "sim/app/reproduction.hpp"

namespace orrery {
namespace {

constexpr const char* kTable = "arXiv 2105.13120, weak scaling table (as reported by others)";
constexpr const char* kAbstract = "arXiv 2105.13120, abstract";
constexpr double kExact = 0.02, kRatio = 0.25, kLimit = 0.3;

struct Run {
  std::string strategy;
  std::int64_t batch = 64, sequence = 512;
};

std::string scenario(const Run& r) {
  return fmt::format(
      "model: {{model_type: bert, architectures: [BertForMaskedLM], hidden_size: 768, num_hidden_layers: 12, "
      "num_attention_heads: 12, intermediate_size: 3072, vocab_size: 30522, max_position_embeddings: {}, type_vocab_size: "
      "2}}\ncluster: piz_daint\nstrategy: [{}]\nworkload: {{train: {{batch: {}, sequence: {}, dtype: f16, dropout: 0.1}}}}\n",
      std::max<std::int64_t>(r.sequence, 512), r.strategy, r.batch, r.sequence);
}

std::string split_sequences(std::int64_t ranks) { return fmt::format("{{ring-self-attention: {{mesh: cp{}}}}}", ranks); }
std::string split_matrices(std::int64_t ranks) { return fmt::format("{{tensor: {{mesh: tp{}}}}}", ranks); }

}  // namespace

std::vector<Claim> reproduce_ring_self_attention(const Reproducer& r) {
  const auto peak = [&](const Run& run) { return double(r.predict(scenario(run)).memory.bytes); };
  const auto rate = [&](const Run& run) { return r.predict(scenario(run)).tokens_per_second; };
  const auto most_samples = [&](const std::string& strategy) {
    return double(r.largest_that_fits([&](std::int64_t n) { return scenario({strategy, n}); }, 1, 1 << 20));
  };
  const auto most_tokens = [&](const std::string& strategy) {
    return double(r.largest_that_fits([&](std::int64_t n) { return scenario({strategy, 64, n}); }, 64, 1 << 20));
  };
  const double matrices_on_one = peak({"single"});
  return {
      {"memory of 8 ranks over that of 2, with 4 times the batch", kTable, 8491.0 / 8479,
       peak({split_sequences(8), 512}) / peak({split_sequences(2), 128}), "x", kExact, "sequences split: flat"},
      {"memory of 4 ranks over that of one, with 4 times the batch", kTable, 12233.0 / 8477,
       peak({split_matrices(4), 256}) / matrices_on_one, "x", kRatio,
       "matrices split: what lies between blocks is on every rank"},
      {"memory of 4 ranks over that of 2, with twice the sequence", kTable, 6602.0 / 4671,
       peak({split_sequences(4), 64, 1024}) / peak({split_sequences(2), 64, 512}), "x", kRatio,
       "unconfirmed numbers; scores [s/n, s] grow with the sequence"},
      {"largest batch on 64 ranks over that of matrices split over 12", kAbstract, 13.7,
       most_samples(split_sequences(64)) / most_samples(split_matrices(12)), "x", kLimit,
       "sequences of 512 tokens; with matrices split, scores are not kept here"},
      {"longest sequence on 64 ranks over that of matrices split over 12", kAbstract, 3.0,
       most_tokens(split_sequences(64)) / most_tokens(split_matrices(12)), "x", kLimit,
       "batch of 64; with matrices split, scores are not kept here"},
      {"tokens per second of split sequences over split matrices, 4 ranks", kTable, 21270.0 / 20702,
       rate({split_sequences(4), 256}) / rate({split_matrices(4), 256}), "x", kLimit,
       "unconfirmed numbers; P100 and Aries from data sheets"},
  };
}

}  // namespace orrery
