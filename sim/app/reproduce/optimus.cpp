// SPDX-License-Identifier: Apache-2.0
// Optimus, Xu and others, arXiv 2104.05343: 24 layers in single precision on the rtx nodes of Frontera (4 Quadro RTX
// 5000 of 16 GB), sequences of 512 tokens, against Megatron's tensor parallelism. Sizes of the weak scaling rows are
// those of the paper; of its table only what follows from the abstract is confirmed. From the released code: rings of
// NCCL, blocking; tiles of 2x2 ranks on a node; inputs of blocks kept and the blocks run again to their end; scores
// stored; no optimizer, here plain SGD, which has no state. Assumed: links of the cluster file, a vocabulary of 1,024
// in place of none, no dropout. scenarios/optimus-2d/README.md says what each input is worth.
#include <fmt/format.h>

#include "sim/app/reproduce/reproduction.hpp"

namespace orrery::papers::optimus {
namespace {

constexpr const char* kAbstract = "arXiv 2104.05343, abstract";
constexpr double kWithin = 0.15;

struct Row {
  std::int64_t side, batch, hidden, heads;
};
constexpr Row kSmallStripes{2, 60, 2048, 32}, kSmallSquares{2, 96, 2048, 32}, kLargeStripes{8, 30, 8192, 128},
    kLargeSquares{8, 384, 8192, 128};

/// What the paper leaves to whoever repeats it.
struct Inputs {
  std::string name;
  std::string algorithms = "{all_reduce: ring, broadcast: ring, reduce: ring}";
  bool tiled = true, stored = true;
  const char *recompute = "whole", *stripes = "";
  std::vector<std::pair<std::string, double>> scales = {};
};

std::string scenario(const Inputs& in, const std::string& strategy, const Row& r) {
  return fmt::format(
      "model: {{model_type: gpt2, n_embd: {}, n_layer: 24, n_head: {}, n_positions: 512, vocab_size: 1024}}\n"
      "cluster: frontera_rtx\nstrategy: [{}]\nalgorithms: {}\nworkload: {{train: {{batch: {}, sequence: 512, dtype: "
      "f32, "
      "recompute: {}, stored_scores: {}, optimizer: {{kind: sgd, momentum: 0, clip: 0}}}}}}\n",
      r.hidden, r.heads, strategy, in.algorithms, r.batch, in.recompute, in.stored);
}

std::string stripes(const Inputs& in, const Row& r) {
  return scenario(in, fmt::format("{{tensor: {{mesh: tp{}{}}}}}", r.side * r.side, in.stripes), r);
}
std::string squares(const Inputs& in, const Row& r) {
  const std::string order = in.tiled ? fmt::format("order: row{0} col{0} row2 col2\n", r.side / 2) : std::string{};
  return order + scenario(in, fmt::format("{{optimus-2d: {{mesh: row{0} col{0}}}}}", r.side), r);
}

/// Seconds per sequence.
struct Speed {
  double step = 0, forward = 0;
};

/// What comes out: the rows of the paper's table, and from them its ratios.
struct Results {
  Speed small_stripes, small_squares, large_stripes, large_squares;

  double training() const { return large_stripes.step / large_squares.step; }
  double inference() const { return large_stripes.forward / large_squares.forward; }
  Ablation row(std::string name, std::optional<double> batch) const {
    return {std::move(name),
            {training(), inference(), batch, large_stripes.step, large_squares.step, small_stripes.step,
             small_squares.step}};
  }
};

Speed speed(const Reproducer& r, const Inputs& in, const std::string& text, const Row& row) {
  const Prediction p = r.predict(text, in.scales);
  return {p.report.step / double(row.batch), p.forward_seconds / double(row.batch)};
}

Results results(const Reproducer& r, const Inputs& in) {
  return {
      speed(r, in, stripes(in, kSmallStripes), kSmallStripes), speed(r, in, squares(in, kSmallSquares), kSmallSquares),
      speed(r, in, stripes(in, kLargeStripes), kLargeStripes), speed(r, in, squares(in, kLargeSquares), kLargeSquares)};
}

/// The largest batches that fit on 64 devices.
struct Batches {
  double stripes = 0, squares = 0;
  double ratio() const { return squares / stripes; }
};

Batches batches(const Reproducer& r, const Inputs& in, std::int64_t hidden, std::int64_t heads) {
  const auto most = [&](std::string (*text)(const Inputs&, const Row&), std::int64_t step) {
    return double(r.largest_that_fits([&](std::int64_t n) { return text(in, {8, n, hidden, heads}); }, step, 1 << 15));
  };
  return {most(stripes, 1), most(squares, 8)};
}

/// The rows that the paper's sizes give, without their batches where memory is not what changes.
std::vector<Ablation> ablations(const Reproducer& r, const Results& stated, const Batches& most) {
  std::vector<Ablation> out{{"paper (seconds: recollected)", {1.48, 1.78, 8.0, 1.5601, 1.0537, 0.3406, 0.3272}},
                            stated.row("as stated", most.ratio())};
  const Inputs faster[] = {
      {.name = "formulas: ring or tree, hierarchical", .algorithms = "{}"},
      {.name = "rows of ranks in place of tiles", .tiled = false},
      {.name = "nothing run again that backward does not read", .recompute = "full"},
      {.name = "products at 60 % of their rate", .scales = {{"gemm.rate", 0.6}}},
      {.name = "card between nodes at 80 %", .scales = {{"nic.bandwidth", 0.8}}},
      {.name = "card between nodes of 100 Gb/s", .scales = {{"nic.bandwidth", 100.0 / 56}}},
      {.name = "products at 60 %, card at 80 %", .scales = {{"gemm.rate", 0.6}, {"nic.bandwidth", 0.8}}}};
  for (const Inputs& in : faster) out.push_back(results(r, in).row(in.name, std::nullopt));
  const auto only_batch = [&](const std::string& name, const Inputs& in, std::int64_t hidden, std::int64_t heads) {
    const Batches b = batches(r, in, hidden, heads);
    out.push_back({fmt::format("{}: batches {:.0f} and {:.0f}", name, b.stripes, b.squares),
                   {{}, {}, b.ratio(), {}, {}, {}, {}}});
  };
  only_batch("fused attention", {.stored = false}, 8192, 128);
  only_batch("width 4,096", {}, 4096, 64);
  only_batch("width 2,048", {}, 2048, 64);
  only_batch("stripes with rows between blocks split", {.stripes = ", sequence_parallel: true"}, 8192, 128);
  out.push_back({"the paper's own table: batches 30 and 384", {{}, {}, 384.0 / 30, {}, {}, {}, {}}});
  return out;
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  const Inputs stated{.name = "as stated"};
  const Results o = results(r, stated);
  const Batches most = batches(r, stated, 8192, 128);
  return {
      {{"training speed of squares over stripes on 64 devices", kAbstract, 1.48, o.training(), "x", kWithin,
        "batches of 384 and 30"},
       {"inference speed of squares over stripes on 64 devices", kAbstract, 1.78, o.inference(), "x", kWithin,
        "forward passes of the same"},
       {"largest batch of squares over stripes on 64 devices", kAbstract, 8.0, most.ratio(), "x", kWithin,
        fmt::format("{:.0f} and {:.0f} in 16 GB; the paper's own table has 384 and 30", most.squares, most.stripes)}},
      {"training x", "inference x", "batch x", "stripes 64 s", "squares 64 s", "stripes 4 s", "squares 4 s"},
      ablations(r, o, most)};
}

}  // namespace orrery::papers::optimus
