// SPDX-License-Identifier: Apache-2.0
// EAGLE, Li and others, arXiv 2401.15077 (tokens per step of its static tree of 25 nodes) and EAGLE-3, arXiv 2503.01840
// (throughput under SGLang on one H100, LLaMA-3.1-8B, chains of 3, batch 2 to 64, over the same without speculation).
// Acceptance given the path is right is published for the first choice; that of the second, third and fourth, given the
// first is wrong, is not: 0.40, 0.15 and 0.08 are taken.
//
// SGLang of that spring decides plain steps while the one before runs, and rounds of speculation one after the other
// (server_args.py turns the overlapping scheduler off), so that its host takes a time per round and per sequence of it.
// Both are those with which two cells of the paper's table come out, EAGLE-3 at batch 2 and 16; the other 16 follow.
// Acceptance is that of runs of one sequence with trees of 64, in the pull request that brought EAGLE-3 to SGLang. The
// benchmark asks the 80 questions of MT-bench, two turns each: when they run out, fewer sequences than clients are
// left.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/app/speculation_study.hpp"
#include "sim/base/random.hpp"

namespace orrery {
namespace {

constexpr double kFurther[] = {0.40, 0.15, 0.08};
constexpr const char *kFirst = "arXiv 2401.15077", *kServing = "arXiv 2503.01840, SGLang on one H100",
                     *kRuns = "github.com/sgl-project/sglang, pull request 4247";
constexpr std::size_t kServedSizes = 9, kOfRounds = 0, kOfSequences = 3;  // the calibrated cells, 2 and 16
constexpr std::array<std::int64_t, kServedSizes> kServedBatches{2, 4, 8, 16, 24, 32, 48, 56, 64};
constexpr std::array<double, kServedSizes> kEagle{1.40, 1.38, 1.23, 1.02, 0.93, 0.94, 0.88, 0.99, 0.99},
    kEagle3{1.81, 1.82, 1.62, 1.48, 1.39, 1.32, 1.38, 1.34, 1.38};

/// Of choices of which the first is right with these probabilities, by depth.
std::string hits(const std::vector<double>& first) {
  std::string text;
  for (const double a : first)
    text += fmt::format("{}[{}, {}, {}, {}]", text.empty() ? "" : ", ", a, (1 - a) * kFurther[0], (1 - a) * kFurther[1],
                        (1 - a) * kFurther[2]);
  return "accuracy: {hits: [" + text + "]}";
}

/// A method under SGLang, and what a run of one sequence with trees of 64 tokens and 8 choices a node came to.
struct TreeRun {
  const char* options;
  double tokens, rate;  // of a round; per second

  std::string tree(const std::string& more) const {
    return fmt::format("{{{}, tree: dynamic, depth: 8, nodes: 63, width: 8, {}}}", options, more);
  }
  std::string chain(const std::string& more) const {
    return fmt::format("{{{}, tree: chain, depth: 3, {}}}", options, more);
  }
  /// The first choice's accuracy at which such a tree gives the tokens of the run.
  double accuracy() const {
    double low = 0.3, high = 0.999;
    for (int i = 0; i < 12; ++i) {
      const double middle = (low + high) / 2;
      (drawn_tokens_per_round(speculate_options(tree(hits({middle}))), 3, 4'000) < tokens ? low : high) = middle;
    }
    return (low + high) / 2;
  }
};
constexpr const char *kOf3 = "method: eagle3, network: {vocabulary: 32000}", *kOf2 = "method: eagle";
constexpr TreeRun kThird{kOf3, 5.39, 378.57}, kSecond{kOf2, 3.76, 230.08};
constexpr double kPlainRate = 158.34;

GenerationSpeed sglang_speed(const Reproducer& r, std::int64_t batch, const std::string& speculate) {
  return generation_speed(r, {"llama-3-8b", "dgx_h100", {}, batch, 512, "bf16", true}, speculate);
}

/// Seconds of a step by batch, between the batches that were simulated on a line.
struct StepCurve {
  std::vector<double> batch, seconds;
  double tokens = 1;  // of a round

  double at(double n) const {
    const auto end = std::upper_bound(batch.begin() + 1, batch.end() - 1, n);
    const auto i = static_cast<std::size_t>(end - batch.begin());
    return seconds[i - 1] + (seconds[i] - seconds[i - 1]) * (n - batch[i - 1]) / (batch[i] - batch[i - 1]);
  }
};

StepCurve step_curve(const Reproducer& r, const std::string& speculate) {
  StepCurve s;
  for (const std::int64_t b : {1, 2, 4, 8, 16, 24, 32, 48, 64}) {
    const GenerationSpeed one = sglang_speed(r, b, speculate);
    s.batch.push_back(double(b)), s.seconds.push_back(one.step);
    s.tokens = one.tokens;
  }
  return s;
}

/// Host times of a round, beside kernels.
struct HostTimes {
  double round = 0, sequence = 0;

  std::string text() const { return fmt::format("host: {{round: {:.9f} s, sequence: {:.9f} s}}", round, sequence); }
  StepCurve added_to(StepCurve s) const {
    for (std::size_t k = 0; k < s.seconds.size(); ++k) s.seconds[k] += round + s.batch[k] * sequence;
    return s;
  }
};

/// Seconds in which `clients` ask 80 questions of two turns one after another: all sequences that run get the tokens of
/// a round in the time that it takes with so many. Lengths of turns are drawn, exponential: they are not published.
double mt_bench_seconds(const StepCurve& s, std::int64_t clients, Random& random) {
  constexpr std::size_t kQuestions = 80;
  std::vector<double> waiting, running;
  for (std::size_t i = 0; i < kQuestions; ++i)
    waiting.push_back(-std::log(1 - random.uniform()) - std::log(1 - random.uniform()));
  double seconds = 0;
  while (!waiting.empty() || !running.empty()) {
    while (!waiting.empty() && std::ssize(running) < clients) running.push_back(waiting.back()), waiting.pop_back();
    const auto next = std::min_element(running.begin(), running.end());
    const double tokens = *next;
    seconds += tokens / s.tokens * s.at(double(running.size()));
    running.erase(next);
    for (double& left : running) left -= tokens;
  }
  return seconds;
}

/// Over 32 draws of lengths: one alone moves a gain by 2 %.
double served_gain(const StepCurve& plain, const StepCurve& speculating, std::int64_t clients) {
  constexpr int kDraws = 32;
  const auto seconds = [&](const StepCurve& s) {
    Random random{5};
    double sum = 0;
    for (int i = 0; i < kDraws; ++i) sum += mt_bench_seconds(s, clients, random);
    return sum;
  };
  return seconds(plain) / seconds(speculating);
}

/// The times with which both calibrated cells come out: each in turn, as one hardly moves the other's cell.
HostTimes host_times(const StepCurve& plain, const StepCurve& kernels) {
  HostTimes h;
  const auto calibrate = [&](double& time, std::size_t cell) {
    double low = 0, high = 2e-2;
    for (int i = 0; i < 30; ++i) {
      time = (low + high) / 2;
      (served_gain(plain, h.added_to(kernels), kServedBatches[cell]) > kEagle3[cell] ? low : high) = time;
    }
  };
  for (int i = 0; i < 20; ++i) calibrate(h.round, kOfRounds), calibrate(h.sequence, kOfSequences);
  return h;
}

void add_trees(Reproduction& out) {
  const std::vector<double> of_7b{.79, .74, .72, .73}, of_70b{.75, .69, .65, .64};
  const auto add = [&](const char* name, double paper, const std::vector<double>& first) {
    const double chosen = drawn_tokens_per_round(
        speculate_options(fmt::format("{{method: eagle, depth: 5, nodes: 25, {}}}", hits(first))), 5);
    const double ours =
        expected_tokens(eagle_shape(), speculate_options(fmt::format("{{method: eagle, {}}}", hits(first))).accuracy);
    out.claims.push_back({fmt::format("{}: tokens per step, static tree", name), kFirst, paper, ours, "tokens", 0.05,
                          fmt::format("a tree of 25 chosen by these accuracies: {:.2f}", chosen)});
  };
  add("Vicuna 7B", 3.94, of_7b);
  add("LLaMA2-Chat 70B", 3.81, of_70b);
}

/// Tokens per second of a run of one sequence with trees.
double rate_of(const Reproducer& r, const TreeRun& m, const HostTimes& host, double accuracy) {
  return m.tokens / sglang_speed(r, 1, m.tree(hits({accuracy}) + ", " + host.text())).step;
}

}  // namespace

Reproduction reproduce_eagle(const Reproducer& r) {
  Reproduction out{{}, {"EAGLE paper", "EAGLE", "kernels alone", "EAGLE-3 paper", "EAGLE-3", "its kernels alone"}, {}};
  add_trees(out);
  const double third = kThird.accuracy(), second = kSecond.accuracy();
  const StepCurve plain = step_curve(r, {}), kernels3 = step_curve(r, kThird.chain(hits({third}))),
                  kernels = step_curve(r, kSecond.chain(hits({second})));
  const HostTimes host = host_times(plain, kernels3);
  const StepCurve eagle3 = host.added_to(kernels3), eagle = host.added_to(kernels);
  double slower = 0, least = 10, sum = 0;
  for (std::size_t i = 0; i < kServedSizes; ++i) {
    const std::int64_t b = kServedBatches[i];
    const double one = served_gain(plain, eagle, b), three = served_gain(plain, eagle3, b);
    const bool calibrated = i == kOfRounds || i == kOfSequences;
    if (one < 1 && slower == 0) slower = double(b);
    least = std::min(least, three);
    sum += std::abs(std::log(one / kEagle[i])) + (calibrated ? 0 : std::abs(std::log(three / kEagle3[i])));
    out.ablations.push_back(
        {fmt::format("batch {}", b),
         {kEagle[i], one, served_gain(plain, kernels, b), kEagle3[i], three, served_gain(plain, kernels3, b)}});
    if (calibrated)
      out.claims.push_back({fmt::format("EAGLE-3, chains of 3, batch {}: gain", b), kServing, kEagle3[i], three, "x",
                            0.1,
                            i == kOfRounds ? fmt::format("gives {:.2f} ms a round", 1e3 * host.round)
                                           : fmt::format("gives {:.3f} ms a sequence of it", 1e3 * host.sequence),
                            true});
  }
  out.ablations.push_back(
      {"one sequence, no speculation, tokens/s", {kPlainRate, 1 / plain.seconds[0], {}, {}, {}, {}}});
  out.ablations.push_back(
      {"one sequence, trees of 64 of depth 8, tokens/s",
       {kSecond.rate, rate_of(r, kSecond, host, second), {}, kThird.rate, rate_of(r, kThird, host, third), {}}});
  out.claims.push_back({"the batch from which EAGLE is slower than none", kServing, 24, slower > 0 ? slower : 128,
                        "sequences", 0.3,
                        fmt::format("each draft right with probability {:.3f}: {:.2f} tokens in trees of 64 ({})",
                                    second, kSecond.tokens, kRuns)});
  out.claims.push_back(
      {"the least gain of EAGLE-3 up to batch 64", kServing, 1.32, least, "x", 0.15,
       fmt::format("each draft right with probability {:.3f}: {:.2f} tokens there", third, kThird.tokens)});
  out.claims.push_back({"gains at all batches, mean factor to the table", kServing, 1,
                        std::exp(sum / double(2 * kServedSizes - 2)), "factor", 0.15,
                        "16 cells, without the calibrated ones"});
  return out;
}

}  // namespace orrery
