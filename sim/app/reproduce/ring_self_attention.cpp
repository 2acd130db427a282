// SPDX-License-Identifier: Apache-2.0
// Ring self-attention, Li and others, arXiv 2105.13120: BERT-Base in half precision on Piz Daint (one P100 of 16 GB per
// node, so that every hop crosses the network), against Megatron's tensor parallelism, which 12 heads limit to 12
// ranks. Memory and limits follow from the plans alone. Both store their scores, as both codes did. Not published, and
// assumed: AdamW with masters in f32, what is run again, and that frameworks take nothing of the 16 GB.
// scenarios/ring-self-attention/README.md says what each input is worth.
#include <fmt/format.h>

#include <algorithm>

#include "sim/app/reproduce/reproduction.hpp"

namespace orrery::papers::ring_self_attention {
namespace {

constexpr const char* kTable = "arXiv 2105.13120, weak scaling table (as reported by others)";
constexpr const char* kAbstract = "arXiv 2105.13120, abstract";
constexpr double kExact = 0.02, kWithin = 0.15;

struct Run {
  std::string strategy;
  std::int64_t batch = 64, sequence = 512;
};

/// What the paper leaves to whoever repeats it.
struct Inputs {
  std::string name;
  const char *recompute = "none", *optimizer = "adamw";
  bool stored = true;  // scores of split matrices; those of split sequences are in any case
  std::int64_t hidden = 768, layers = 12, heads = 12, vocabulary = 30522;

  std::string scenario(const Run& r) const {
    return fmt::format(
        "model: {{model_type: bert, architectures: [BertForMaskedLM], hidden_size: {}, num_hidden_layers: {}, "
        "num_attention_heads: {}, intermediate_size: {}, vocab_size: {}, max_position_embeddings: {}, type_vocab_size: "
        "2}}\ncluster: piz_daint\nstrategy: [{}]\nworkload: {{train: {{batch: {}, sequence: {}, dtype: f16, dropout: "
        "0.1, "
        "recompute: {}, stored_scores: {}, optimizer: {{kind: {}}}}}}}\n",
        hidden, layers, heads, 4 * hidden, vocabulary, std::max<std::int64_t>(r.sequence, 512), r.strategy, r.batch,
        r.sequence, recompute, stored && !r.strategy.starts_with("{ring"), optimizer);
  }
};

std::string split_sequences(std::int64_t ranks) {
  return fmt::format("{{ring-self-attention: {{mesh: cp{}}}}}", ranks);
}
std::string split_matrices(std::int64_t ranks) { return fmt::format("{{tensor: {{mesh: tp{}}}}}", ranks); }

/// The paper's quantities under some inputs.
struct Results {
  const Reproducer& r;
  const Inputs& in;

  double megabytes(const Run& run) const { return double(r.predict(in.scenario(run)).report.memory.bytes) / 1e6; }
  double rate(const Run& run) const { return r.predict(in.scenario(run)).report.tokens_per_second; }
  double most_samples(const std::string& strategy) const {
    return double(r.largest_that_fits([&](std::int64_t n) { return in.scenario({strategy, n}); }, 1, 1 << 20));
  }
  double most_tokens(const std::string& strategy) const {
    return double(r.largest_that_fits([&](std::int64_t n) { return in.scenario({strategy, 64, n}); }, 64, 1 << 20));
  }
  double batches() const { return most_samples(split_sequences(64)) / most_samples(split_matrices(in.heads)); }
  double lengths() const { return most_tokens(split_sequences(64)) / most_tokens(split_matrices(in.heads)); }

  Ablation row() const {
    return {in.name,
            {batches(), lengths(), megabytes({"single"}), megabytes({split_matrices(4), 256}),
             megabytes({split_sequences(8), 512}), megabytes({"single", 64, 256}),
             megabytes({split_sequences(8), 64, 2048})}};
  }
};

/// What the paper's own table of memory says of the largest batches. With matrices split over N ranks and 64·N samples
/// it has M(N) = D + W/N + A·N, where A is what 64 samples keep on every rank, W the states that are split, and D the
/// rest, which is taken to be of samples and split: three rows give the three. Then batches of 16 GB on 64 and on 12
/// ranks.
double batches_of_their_table() {
  constexpr double one = 8477, two = 9520, four = 12233, all = 16000;
  const double w = (2 * (two - one) - (four - two)) / (0.25 - 1), a = two - one + w / 2, d = one - w - a;
  const double sequences = (all - w) / ((a + d) / 64), matrices = (all - w / 12) / (a + d / 12);
  return sequences / matrices;
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  const Inputs stated{.name = "as stated"};
  const Results o{r, stated};
  const Ablation as_stated = o.row();
  Reproduction out{
      {{"memory of 8 ranks over that of 2, with 4 times the batch", kTable, 8491.0 / 8479,
        *as_stated.values[4] / o.megabytes({split_sequences(2), 128}), "x", kExact, "sequences split: flat"},
       {"memory of 4 ranks over that of one, with 4 times the batch", kTable, 12233.0 / 8477,
        *as_stated.values[3] / *as_stated.values[2], "x", kWithin,
        "matrices split: what lies between blocks is on every rank"},
       {"memory of 4 ranks over that of 2, with twice the sequence", kTable, 6602.0 / 4671,
        o.megabytes({split_sequences(4), 64, 1024}) / o.megabytes({split_sequences(2), 64, 512}), "x", kWithin,
        "unconfirmed numbers; scores [s/n, s] grow with the sequence"},
       {"largest batch on 64 ranks over that of matrices split over 12", kAbstract, 13.7, *as_stated.values[0], "x",
        kWithin, "sequences of 512 tokens"},
       {"longest sequence on 64 ranks over that of matrices split over 12", kAbstract, 3.0, *as_stated.values[1], "x",
        kWithin, "batch of 64"},
       {"tokens per second of split sequences over split matrices, 4 ranks", kTable, 21270.0 / 20702,
        o.rate({split_sequences(4), 256}) / o.rate({split_matrices(4), 256}), "x", kWithin,
        "unconfirmed numbers; P100 and Aries from data sheets"}},
      {"batch x", "sequence x", "one rank MB", "tp4 b256 MB", "cp8 b512 MB", "s256 MB", "cp8 s2048 MB"},
      {{"paper (some recollected)", {13.7, 3.0, 8477.0, 12233.0, 8491.0, 3707.0, 10536.0}}, as_stated}};
  const Inputs others[] = {{.name = "fused attention of split matrices", .stored = false},
                           {.name = "blocks run again as far as read", .recompute = "full"},
                           {.name = "blocks run again to their end", .recompute = "whole"},
                           {.name = "SGD with momentum", .optimizer = "sgd"},
                           {.name = "vocabulary of 1,024", .vocabulary = 1024},
                           {.name = "BERT-Large", .hidden = 1024, .layers = 24, .heads = 16}};
  for (const Inputs& in : others) out.ablations.push_back(Results{r, in}.row());
  out.ablations.push_back(
      {"the paper's own rows of memory, carried on", {batches_of_their_table(), {}, {}, {}, {}, {}, {}}});
  return out;
}

}  // namespace orrery::papers::ring_self_attention
