// SPDX-License-Identifier: Apache-2.0
// Optimus, Xu and others, arXiv 2104.05343: 24 layers in single precision with every layer's input kept and the rest
// computed again, sequences of 512 tokens, on the rtx nodes of Frontera (4 Quadro RTX 5000 of 16 GB), against Megatron's
// tensor parallelism. Sizes of the weak scaling rows are those of the paper; of its table only what follows from the
// abstract is confirmed. Assumed: links of the cluster file, plain SGD, a vocabulary of 1,024 in place of none, causal
// attention in place of whole, ranks in rows rather than in tiles of four.
#include <fmt/format.h>

#include "sim/app/reproduction.hpp"

namespace orrery {
namespace {

constexpr const char* kAbstract = "arXiv 2104.05343, abstract";
constexpr const char* kTable = "arXiv 2104.05343, weak scaling table (recollected, unconfirmed)";
constexpr double kRatio = 0.25, kRow = 0.5;

struct Row {
  std::int64_t side, batch, hidden, heads;
};

std::string scenario(const std::string& strategy, const Row& r) {
  return fmt::format(
      "model: {{model_type: gpt2, n_embd: {}, n_layer: 24, n_head: {}, n_positions: 512, vocab_size: 1024}}\n"
      "cluster: frontera_rtx\nstrategy: [{}]\nworkload: {{train: {{batch: {}, sequence: 512, dtype: f32, recompute: full, "
      "optimizer: {{kind: sgd, momentum: 0, clip: 0}}}}}}\n",
      r.hidden, r.heads, strategy, r.batch);
}

std::string stripes(const Row& r) { return scenario(fmt::format("{{tensor: {{mesh: tp{}}}}}", r.side * r.side), r); }
std::string squares(const Row& r) {
  return scenario(fmt::format("{{optimus-2d: {{mesh: row{0} col{0}}}}}", r.side), r);
}

}  // namespace

std::vector<Claim> reproduce_optimus(const Reproducer& r) {
  const auto seconds = [&](const std::string& text, const Row& row) { return r.predict(text).step / double(row.batch); };
  const auto most = [&](std::string (*text)(const Row&), std::int64_t step) {
    return double(r.largest_that_fits([&](std::int64_t n) { return text({8, n, 8192, 128}); }, step, 1 << 14));
  };
  constexpr Row kSmallStripes{2, 60, 2048, 32}, kSmallSquares{2, 96, 2048, 32};
  constexpr Row kLargeStripes{8, 30, 8192, 128}, kLargeSquares{8, 384, 8192, 128};
  const double large_stripes = seconds(stripes(kLargeStripes), kLargeStripes);
  const double large_squares = seconds(squares(kLargeSquares), kLargeSquares);
  return {
      {"training speed of squares over stripes on 64 devices", kAbstract, 1.48, large_stripes / large_squares, "x", kRatio,
       "batches of 384 and 30; rows and columns of squares are not tiled over nodes here"},
      {"largest batch of squares over stripes on 64 devices", kAbstract, 8.0, most(squares, 8) / most(stripes, 1), "x", kRatio,
       "all of 16 GB; the paper tried batches up to 384"},
      {"stripes on 4 devices, a sequence", kTable, 0.0793 + 0.2613, seconds(stripes(kSmallStripes), kSmallStripes), "s", kRow, ""},
      {"squares on 4 devices, a sequence", kTable, 0.0827 + 0.2445, seconds(squares(kSmallSquares), kSmallSquares), "s", kRow, ""},
      {"stripes on 64 devices, a sequence", kTable, 0.4638 + 1.0963, large_stripes, "s", kRow,
       "network between nodes is an assumption"},
  };
}

}  // namespace orrery
