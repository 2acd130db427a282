// SPDX-License-Identifier: Apache-2.0
// Clover, Xiao and others, arXiv 2405.00263: trees of 4 drafts against Medusa with trees of the same size, on
// Baichuan-Small (7B) and Baichuan-Large (over 100B), batch 4 to 48. Not published: the hardware, prompts, the size of
// the large model, and the accuracy of any head. Taken: A100 in half precision; one of 8 ranks of a network of 103 B
// parameters without its exchanges (every eighth head, row of the feed-forward network and token); contexts of 512.
// Each table gives the tokens per second of plain decoding too. What its steps take beyond kernels here is the engine's
// time per step, and a time per sequence for each of its tokens: prompts are in the metric, and no drafter shortens
// them. Both are inputs, a line through the plain rows of a task; speeds over plain decoding are what is predicted.
// How often Medusa is right is taken from its gain in mathematics at batch 4, of each model; how many more drafts of
// Clover are right (1.5 to 1.76 times as many, by task) from its gain there with the small one. For larger batches one
// scalar per task and method is fitted to its speed-up at batch 4, and the engine builds and walks the trees of a round
// one after the other: for how long is taken from Medusa in mathematics at batch 48.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "calibrate/fit.hpp"
#include "sim/app/speculation_study.hpp"

namespace orrery::papers::clover {
namespace {

constexpr const char *kSmallTable = "arXiv 2405.00263, table 1", *kLargeTable = "arXiv 2405.00263, table 2";
constexpr std::int64_t kBatches[] = {4, 8, 16, 24, 32, 48};
constexpr const char
    *kSmall =
        "{model_type: llama, hidden_size: 4096, intermediate_size: 11008, num_hidden_layers: 32, num_attention_heads: "
        "32, "
        "vocab_size: 125696}",
    *kLarge =
        "{model_type: llama, hidden_size: 10240, intermediate_size: 3424, num_hidden_layers: 80, num_attention_heads: "
        "10, num_key_value_heads: 10, head_dim: 128, vocab_size: 15712}";
constexpr const char *kMedusa = "{method: medusa, depth: 3, nodes: 4}",
                     *kClover = "{method: clover, accuracy: {hits: [[0.56, 0.112, 0.055, 0.033]]}}";
/// Tokens per second of plain decoding with the small model, mathematics, up to batch 24: from 32 on the table's steps
/// are a third shorter than those of smaller batches.
constexpr std::array<double, 4> kSmallPlain{121.5, 233.5, 428.5, 591.6};

/// Tokens per second, the table's.
struct Task {
  const char* name;
  std::array<double, 6> clover, medusa, plain;
};
constexpr Task kTasks[] = {{"retrieval",
                            {120.7, 186.2, 270.2, 309.5, 346.2, 372.5},
                            {108.0, 160.7, 234.5, 271.4, 287.2, 300.3},
                            {67.9, 117.5, 195.9, 237.6, 279.4, 295.1}},
                           {"chat",
                            {121.1, 175.9, 262.7, 324.4, 383.8, 408.9},
                            {101.9, 152.9, 222.4, 282.7, 303.5, 324.4},
                            {72.1, 127.4, 204.4, 266.9, 324.6, 346.2}},
                           {"information",
                            {145.6, 240.5, 361.9, 467.8, 542.8, 650.9},
                            {116.4, 196.9, 299.9, 389.4, 470.0, 501.3},
                            {74.9, 145.5, 268.9, 348.3, 416.6, 531.2}},
                           {"reasoning",
                            {194.3, 330.0, 526.1, 733.3, 837.8, 1076.1},
                            {154.4, 248.9, 423.3, 552.3, 688.6, 804.9},
                            {101.6, 188.2, 374.4, 541.9, 701.8, 984.1}},
                           {"mathematics",
                            {207.3, 342.1, 549.5, 715.4, 874.3, 1067.8},
                            {159.1, 269.8, 401.3, 557.0, 705.7, 781.8},
                            {84.2, 168.3, 302.9, 440.9, 535.2, 780.9}},
                           {"questions",
                            {164.9, 271.1, 447.2, 573.0, 710.0, 802.3},
                            {127.5, 213.4, 349.2, 457.3, 565.4, 623.6},
                            {88.6, 179.9, 343.2, 498.2, 617.2, 805.4}}};

constexpr std::size_t kMathematics = 4;

/// Kernels of a step, by batch, in seconds.
struct Steps {
  std::array<double, 6> plain{}, clover{}, medusa{};
};

Steps steps(const Reproducer& r, const char* model, std::size_t batches) {
  Steps s;
  for (std::size_t i = 0; i < batches; ++i) {
    const GenerationCase at{model, "dgx_a100", {}, kBatches[i], 512, "f16"};
    s.plain[i] = generation_speed(r, at, {}).step;
    s.clover[i] = generation_speed(r, at, kClover).step;
    s.medusa[i] = generation_speed(r, at, kMedusa).step;
  }
  return s;
}

/// What a step takes beyond kernels, what each token of a sequence does, and what a sequence does in each round of
/// speculation (a tree is built and walked), in seconds.
struct EngineTimes {
  double step = 0, token = 0, sequence = 0;

  double plain(double kernels, double batch) const { return kernels + step + batch * token; }
  double round(double kernels, double batch, double tokens) const {
    return kernels + step + batch * (tokens * token + sequence);
  }
  double speedup(double plain_kernels, double kernels, double batch, double tokens) const {
    return tokens * plain(plain_kernels, batch) / round(kernels, batch, tokens);
  }
  /// Tokens of a round at which a method is so many times as fast.
  double tokens(double plain_kernels, double kernels, double batch, double speedup) const {
    return speedup * (kernels + step + batch * sequence) / (plain(plain_kernels, batch) - speedup * batch * token);
  }
};

/// The line nearest to the steps of plain decoding (`speeds`: tokens per second), less their kernels; no part below 0.
EngineTimes engine_of(std::span<const double> speeds, const std::array<double, 6>& kernels, double sequence) {
  std::vector<std::vector<double>> sizes;
  std::vector<double> beyond;
  for (std::size_t i = 0; i < speeds.size(); ++i) {
    const auto batch = double(kBatches[i]);
    sizes.push_back({1, batch});
    beyond.push_back(batch / speeds[i] - kernels[i]);
  }
  const std::vector<double> line = nonnegative_least_squares(sizes, beyond);
  return {line[0], line[1], sequence};
}

struct Prediction6 {
  std::array<double, 6> paper{}, ours{};
  /// The first batch at which it is slower than plain decoding; one more than there are when never.
  static std::size_t slower(const std::array<double, 6>& speedups) {
    return static_cast<std::size_t>(std::find_if(speedups.begin(), speedups.end(), [](double s) { return s < 1; }) -
                                    speedups.begin());
  }
};

/// What one scalar, fitted at batch 4, makes of a task: published and predicted speed-ups of larger batches.
Prediction6 predict(const std::array<double, 6>& method, const std::array<double, 6>& plain, const EngineTimes& engine,
                    const std::array<double, 6>& plain_kernels, const std::array<double, 6>& kernels) {
  Prediction6 p;
  const double tokens = engine.tokens(plain_kernels[0], kernels[0], double(kBatches[0]), method[0] / plain[0]);
  for (std::size_t i = 0; i < 6; ++i) {
    p.paper[i] = method[i] / plain[i];
    p.ours[i] = engine.speedup(plain_kernels[i], kernels[i], double(kBatches[i]), tokens);
  }
  return p;
}

/// Seconds of a sequence in a round with which Medusa's speed-up in mathematics at batch 48 is that of the table.
double time_of_sequence(const Steps& large) {
  const Task& t = kTasks[kMathematics];
  double low = 0, high = 1e-2;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    const Prediction6 p =
        predict(t.medusa, t.plain, engine_of(t.plain, large.plain, middle), large.plain, large.medusa);
    (p.ours[5] > p.paper[5] ? low : high) = middle;
  }
  return (low + high) / 2;
}

constexpr double kSmallMedusa = 54, kSmallClover = 91, kLargeMedusa = 89, kLargeClover = 146;  // mathematics, batch 4

/// Gains in mathematics at batch 4.
void add_gains(Reproduction& out, const EngineTimes& of_small, const Steps& small, const EngineTimes& of_large,
               const Steps& large) {
  const auto batch = double(kBatches[0]);
  const auto drafts = [&](const EngineTimes& e, const Steps& s, double kernels, double gain) {
    return e.tokens(s.plain[0], kernels, batch, 1 + gain / 100) - 1;
  };
  const auto gain = [&](const EngineTimes& e, const Steps& s, double kernels, double right) {
    return 100 * (e.speedup(s.plain[0], kernels, batch, 1 + right) - 1);
  };
  const double medusa = drafts(of_small, small, small.medusa[0], kSmallMedusa),
               more = drafts(of_small, small, small.clover[0], kSmallClover) / medusa,
               medusa_large = drafts(of_large, large, large.medusa[0], kLargeMedusa),
               clover = gain(of_large, large, large.clover[0], more * medusa_large);
  const auto claim = [&](const std::string& what, const char* table, double paper, double ours, std::string note,
                         bool calibrated) {
    out.claims.push_back({fmt::format("{}, mathematics, batch 4", what), table, paper, ours, "points", 8 / paper,
                          std::move(note), calibrated});
  };
  claim("Small: gain of Medusa", kSmallTable, kSmallMedusa, gain(of_small, small, small.medusa[0], medusa),
        fmt::format("gives {:.2f} right drafts a round", medusa), true);
  claim("Small: gain of Clover", kSmallTable, kSmallClover, gain(of_small, small, small.clover[0], more * medusa),
        fmt::format("gives {:.2f} times as many; the paper says 1.50 to 1.76", more), true);
  claim("Large: gain of Medusa", kLargeTable, kLargeMedusa, gain(of_large, large, large.medusa[0], medusa_large),
        fmt::format("gives {:.2f} right drafts a round", medusa_large), true);
  claim("Large: gain of Clover", kLargeTable, kLargeClover, clover,
        fmt::format("{:.0f} points more than Medusa for {:.0f} in the table", clover - kLargeMedusa,
                    kLargeClover - kLargeMedusa),
        false);
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  Reproduction out{{}, {"batch 4", "8", "16", "24", "32", "48"}, {}};
  const Steps small = steps(r, kSmall, kSmallPlain.size()), large = steps(r, kLarge, 6);
  const double sequence = time_of_sequence(large);
  add_gains(out, engine_of(kSmallPlain, small.plain, sequence), small,
            engine_of(kTasks[kMathematics].plain, large.plain, sequence), large);
  const Task& calibrated = kTasks[kMathematics];
  out.claims.push_back({"Large: Medusa over plain decoding, mathematics, batch 48", kLargeTable,
                        calibrated.medusa[5] / calibrated.plain[5],
                        predict(calibrated.medusa, calibrated.plain, engine_of(calibrated.plain, large.plain, sequence),
                                large.plain, large.medusa)
                            .ours[5],
                        "x", 0.1, fmt::format("gives {:.2f} ms of a sequence in a round", 1e3 * sequence), true});
  std::vector<double> errors;
  double in_order = 0;
  const auto row = [&](std::string name, const std::array<double, 6>& values) {
    out.ablations.push_back({std::move(name), {values.begin(), values.end()}});
  };
  const auto over = [&](const std::array<double, 6>& kernels) {
    std::array<double, 6> ratio{};
    for (std::size_t i = 0; i < 6; ++i) ratio[i] = kernels[i] / large.plain[i];
    return ratio;
  };
  row("kernels of Clover over plain ones, Large", over(large.clover));
  row("kernels of Medusa over plain ones, Large", over(large.medusa));
  for (const Task& t : kTasks) {
    const EngineTimes engine = engine_of(t.plain, large.plain, sequence);
    const Prediction6 clover = predict(t.clover, t.plain, engine, large.plain, large.clover),
                      medusa = predict(t.medusa, t.plain, engine, large.plain, large.medusa);
    for (const Prediction6* p : {&clover, &medusa})
      for (std::size_t i = 1; i < 6; ++i)  // without the cell that the engine's time of a sequence is from
        if (i < 5 || p != &medusa || &t != &kTasks[kMathematics])
          errors.push_back(std::abs(std::log(p->ours[i] / p->paper[i])));
    in_order += Prediction6::slower(medusa.ours) <= Prediction6::slower(clover.ours) && medusa.ours[5] < clover.ours[5];
    row(fmt::format("{}: Clover, paper", t.name), clover.paper);
    row(fmt::format("{}: Clover", t.name), clover.ours);
    row(fmt::format("{}: Medusa, paper", t.name), medusa.paper);
    row(fmt::format("{}: Medusa", t.name), medusa.ours);
  }
  std::nth_element(errors.begin(), errors.begin() + std::ssize(errors) / 2, errors.end());
  out.claims.push_back({"Large, batch 8 to 48: median factor between ours and the table", kLargeTable, 1,
                        std::exp(errors[errors.size() / 2]), "factor", 0.1,
                        "59 cells; one scalar per row, of batch 4"});
  out.claims.push_back({"Large: tasks on which Medusa loses its gain no later than Clover", kLargeTable, 6, in_order,
                        "tasks", 1e-9, "all in the table"});
  return out;
}

}  // namespace orrery::papers::clover
