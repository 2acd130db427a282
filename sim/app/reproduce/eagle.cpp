// SPDX-License-Identifier: Apache-2.0
// EAGLE, Li and others, arXiv 2401.15077 (tokens per step of its static tree of 25 nodes) and EAGLE-3, arXiv 2503.01840
// (throughput under SGLang on one H100, LLaMA-3.1-8B, chains of 3, batch 2 to 64, over the same without speculation).
// Acceptance given the path is right is published for the first choice; that of the second, third and fourth, given the
// first is wrong, is not: 0.40, 0.15 and 0.08 are taken.
//
// SGLang of that spring decides plain steps while the one before runs, and rounds of speculation one after the other
// (server_args.py turns the overlapping scheduler off), so that its host takes a time per round and per sequence of it.
// Both are those with which two cells of the paper's table come out, EAGLE-3 at batch 2 and 16; the other 16 follow.
// Acceptance is that of runs of one sequence with trees of 64, in the pull request that brought EAGLE-3 to SGLang,
// which gives 2.08 and 2.81 tokens a round; vLLM measured 2.29 and 2.79 with chains of 3 of the same model (its issue
// 20780). SGLang's benchmark/mtbench/bench_sglang_eagle.py asks the 80 questions of MT-bench, two turns each, from as
// many threads as the batch has sequences, and divides all tokens by the whole time: when questions run out, fewer are
// left. At most 32 of them run at a time, which SGLang's pull request 3986 has servers with EAGLE do where no limit is
// given; that the server without did so too is taken from the table, which falls no more from 32 on for either method.
// A prompt stops all that run for the kernels of its pass; the first of all threads are one pass. Lengths of
// answers are from 80 first ones of Llama 3.1 8B, `Asking`. Up to 4 heads over one of keys were decoded without tensor
// cores (`sglang_kernels_2025`) and verified with them.
// Left out: time of the host that prompts take; graphs that are padded to the next size, or end.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <numeric>

#include "sim/app/speculation_study.hpp"
#include "sim/base/random.hpp"

namespace orrery::papers::eagle {
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
constexpr double kStartedPrompt = 22.8e-3;  // of 208 tokens, as profile sglang_2024 starts kernels; `orrery serve`

GenerationSpeed sglang_speed(const Reproducer& r, std::int64_t batch, const std::string& speculate,
                             std::int64_t prompt = 512) {
  return generation_speed(r, {"llama-3-8b", "dgx_h100", "sglang_kernels_2025", batch, prompt, "bf16", true}, speculate);
}

constexpr std::int64_t kQuestionTokens = 64,
                       kSystemTokens = 128;  // about those of MT-bench, and of the script's prompt

/// Seconds of a step by batch, between the batches that were simulated on a line, and those of prompts.
struct StepCurve {
  std::vector<double> batch, seconds;
  double tokens = 1;                // of a round
  double prompt = 0, together = 0;  // passes over one, and over 64 that are the first

  double first_prompts(double n) const { return prompt + (together - prompt) * (n - 1) / 63; }
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
  s.prompt = sglang_speed(r, 1, speculate, kQuestionTokens).prefill;  // what was asked and said before is cached
  s.together = sglang_speed(r, 64, speculate, kSystemTokens + kQuestionTokens).prefill;
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

constexpr std::size_t kQuestions = 80, kTurns = 2, kDraws = 400;
constexpr std::int64_t kAtATime = 32;                    // SGLang's limit with EAGLE where none is given, of March 2025
constexpr double kTurnTokens = 450, kMostTokens = 2048;  // of a turn: the mean, and the benchmark's limit

/// How MT-bench is asked. Of 80 first answers of Llama 3.1 8B (github.com/jeqcho/llama-alpacaeval-mt-bench,
/// outputs/mt_bench_llama3_instruct.jsonl, the model by its generate_llama3.py, temperature 0.7) 25 are cut at 512
/// tokens and 8 have fewer than 100; the likeliest gamma distribution behind all of them, tokens estimated from their
/// texts, has a shape of 1.5 and this mean; a normal one from 0 on fits as well, and ends earlier. Second answers are
/// not there: they are drawn alike, each by itself.
struct Asking {
  bool alike = false;         // both answers to a question are equally long
  double most = kMostTokens;  // tokens of an answer,
  std::size_t endless = 0;    // but for so many, which go on to the limit of the benchmark
  std::int64_t at_a_time = kAtATime, plain_at_a_time = kAtATime;  // with and without speculation; the others wait
};

using Answers = std::array<double, kTurns>;  // tokens of those to a question

std::vector<Answers> drawn_questions(const Asking& asking, Random& random) {
  const auto drawn = [&] {
    const double normal = random.normal();
    return std::min(asking.most, kTurnTokens / 1.5 * (random.exponential(1) + normal * normal / 2));
  };
  std::vector<Answers> questions(kQuestions);
  for (auto& [first, second] : questions) {
    first = drawn();
    second = asking.alike ? first : drawn();
  }
  for (std::size_t i = 0; i < asking.endless; ++i) questions[random.below(kQuestions)] = {kMostTokens, drawn()};
  return questions;
}

struct Turn {
  double tokens;  // that its answer still lacks
  std::size_t question, number;
};

/// Of one run: tokens that a sequence gets while n run, by n, when `clients` ask their next turn when one is answered,
/// and `at_a_time` of them run, the others waiting in order; all that run get the tokens of a step together.
std::vector<double> tokens_by_running(std::int64_t clients, std::int64_t at_a_time,
                                      const std::vector<Answers>& questions) {
  std::vector<double> tokens(static_cast<std::size_t>(at_a_time) + 1);
  std::deque<Turn> waiting;
  std::vector<Turn> running;
  std::size_t asked = 0;
  const auto ask = [&](std::size_t question, std::size_t turn) {
    if (question < questions.size()) waiting.push_back({questions[question][turn], question, turn});
  };
  while (std::ssize(waiting) < clients) ask(asked++, 0);
  while (true) {
    while (!waiting.empty() && std::ssize(running) < at_a_time) running.push_back(waiting.front()), waiting.pop_front();
    if (running.empty()) return tokens;
    const auto first = std::ranges::min_element(running, {}, &Turn::tokens);
    const Turn answered = *first;
    tokens[running.size()] += answered.tokens;
    running.erase(first);
    for (Turn& left : running) left.tokens -= answered.tokens;
    answered.number + 1 < kTurns ? ask(answered.question, answered.number + 1) : ask(asked++, 0);
  }
}

/// The same of many runs: lengths of one alone move a gain at 64 by 5 %.
std::vector<std::vector<double>> runs_of(std::int64_t clients, std::int64_t at_a_time, const Asking& asking) {
  std::vector<std::vector<double>> runs;
  Random random{5};
  for (std::size_t draw = 0; draw < kDraws; ++draw)
    runs.push_back(tokens_by_running(clients, at_a_time, drawn_questions(asking, random)));
  return runs;
}

/// Seconds of a run, if `step` tells those of a step that gives one token.
double seconds_of(const std::vector<double>& tokens, const auto& step) {
  double sum = 0;
  for (std::size_t n = 1; n < tokens.size(); ++n) sum += tokens[n] * step(double(n));
  return sum;
}

double seconds_of_prompts(const StepCurve& s, std::int64_t clients) {
  return s.first_prompts(double(clients)) + (double(kQuestions * kTurns) - double(clients)) * s.prompt;
}

std::vector<double> seconds_of_runs(const StepCurve& s, std::int64_t clients, std::int64_t at_a_time,
                                    const Asking& asking) {
  std::vector<double> seconds;
  for (const std::vector<double>& run : runs_of(clients, at_a_time, asking))
    seconds.push_back(seconds_of(run, [&](double n) { return s.at(n) / s.tokens; }) +
                      seconds_of_prompts(s, std::min(clients, at_a_time)));
  return seconds;
}

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// How much faster a method answers the questions in single runs with the same answers; `mean`: all runs together.
struct ServedGain {
  double mean = 0;
  std::vector<double> single;  // in order

  double part(double p) const { return single[static_cast<std::size_t>(p * double(single.size()))]; }
};

ServedGain served_gains(const StepCurve& plain, const StepCurve& speculating, std::int64_t clients,
                        const Asking& asking) {
  const std::vector<double> without = seconds_of_runs(plain, clients, asking.plain_at_a_time, asking),
                            with = seconds_of_runs(speculating, clients, asking.at_a_time, asking);
  ServedGain gain{sum_of(without) / sum_of(with), {}};
  for (std::size_t i = 0; i < with.size(); ++i) gain.single.push_back(without[i] / with[i]);
  std::sort(gain.single.begin(), gain.single.end());
  return gain;
}

double served_gain(const StepCurve& plain, const StepCurve& speculating, std::int64_t clients,
                   const Asking& asking = {}) {
  return served_gains(plain, speculating, clients, asking).mean;
}

/// The times with which both calibrated cells come out: seconds of a cell are linear in them.
HostTimes host_times(const StepCurve& plain, const StepCurve& kernels, const Asking& asking = {}) {
  double missing[2], rounds[2], sequences[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t cell = i == 0 ? kOfRounds : kOfSequences;
    const std::int64_t clients = kServedBatches[cell];
    missing[i] = sum_of(seconds_of_runs(plain, clients, asking.plain_at_a_time, asking)) / kEagle3[cell] -
                 sum_of(seconds_of_runs(kernels, clients, asking.at_a_time, asking));
    rounds[i] = sequences[i] = 0;
    for (const std::vector<double>& run : runs_of(clients, asking.at_a_time, asking)) {
      rounds[i] += seconds_of(run, [&](double) { return 1 / kernels.tokens; });
      sequences[i] += seconds_of(run, [&](double n) { return n / kernels.tokens; });
    }
  }
  const double determinant = rounds[0] * sequences[1] - rounds[1] * sequences[0];
  return {(missing[0] * sequences[1] - missing[1] * sequences[0]) / determinant,
          (rounds[0] * missing[1] - rounds[1] * missing[0]) / determinant};
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

/// Steps without speculation, and rounds of both methods by their kernels.
struct ServedSteps {
  StepCurve plain, eagle, eagle3;
};

/// The last batch when it is asked in other ways, each with host times from the same two cells, and EAGLE with the
/// tokens of a round that vLLM measured.
void add_variations(Reproduction& out, const ServedSteps& steps) {
  const std::size_t last = kServedSizes - 1;
  const auto add = [&](const std::string& inputs, std::size_t cell, const Asking& asking, const ServedSteps& s) {
    const HostTimes host = host_times(s.plain, s.eagle3, asking);
    const auto gain = [&](const StepCurve& c) {
      return served_gain(s.plain, host.added_to(c), kServedBatches[cell], asking);
    };
    out.ablations.push_back({inputs, {kEagle[cell], gain(s.eagle), {}, kEagle3[cell], gain(s.eagle3), {}}});
  };
  add("batch 64, both answers to a question equally long", last, {.alike = true}, steps);
  add("batch 64, no answer has more than 700 tokens", last, {.most = 700}, steps);
  add("batch 64, but for one that has 2,048", last, {.most = 700, .endless = 1}, steps);
  add("batch 64, all of it at a time", last, {.at_a_time = 64, .plain_at_a_time = 64}, steps);
  add("batch 64, without speculation all of it at a time", last, {.plain_at_a_time = 64}, steps);
  for (const std::size_t cell : {std::size_t{4}, last}) {
    ServedSteps started = steps;
    for (StepCurve* c : {&started.plain, &started.eagle, &started.eagle3}) c->prompt = kStartedPrompt;
    add(fmt::format("batch {}, prompts of {:.1f} ms", kServedBatches[cell], 1e3 * kStartedPrompt), cell, {}, started);
  }
  const HostTimes host = host_times(steps.plain, steps.eagle3);
  const auto single = [&](const StepCurve& c) { return served_gains(steps.plain, host.added_to(c), 64, {}); };
  const ServedGain one = single(steps.eagle), three = single(steps.eagle3);
  for (const double part : {0.1, 0.9})
    out.ablations.push_back({fmt::format("batch 64, {:.0f} % of single runs gain less", 100 * part),
                             {kEagle[last], one.part(part), {}, kEagle3[last], three.part(part), {}}});
  ServedSteps measured = steps;
  measured.eagle.tokens = 2.29, measured.eagle3.tokens = 2.79;
  add("batch 24, 2.29 and 2.79 tokens a round", 4, {}, measured);
  add("batch 64, 2.29 and 2.79 tokens a round", last, {}, measured);
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  Reproduction out{{}, {"EAGLE paper", "EAGLE", "kernels alone", "EAGLE-3 paper", "EAGLE-3", "its kernels alone"}, {}};
  add_trees(out);
  const double third = kThird.accuracy(), second = kSecond.accuracy();
  const ServedSteps steps{step_curve(r, {}), step_curve(r, kSecond.chain(hits({second}))),
                          step_curve(r, kThird.chain(hits({third})))};
  const HostTimes host = host_times(steps.plain, steps.eagle3);
  const StepCurve eagle = host.added_to(steps.eagle), eagle3 = host.added_to(steps.eagle3);
  double slower = 0, least = 10, sum = 0;
  for (std::size_t i = 0; i < kServedSizes; ++i) {
    const std::int64_t b = kServedBatches[i];
    const double one = served_gain(steps.plain, eagle, b), three = served_gain(steps.plain, eagle3, b);
    const bool calibrated = i == kOfRounds || i == kOfSequences;
    if (one < 1 && slower == 0) slower = double(b);
    least = std::min(least, three);
    sum += std::abs(std::log(one / kEagle[i])) + (calibrated ? 0 : std::abs(std::log(three / kEagle3[i])));
    out.ablations.push_back({fmt::format("batch {}", b),
                             {kEagle[i], one, served_gain(steps.plain, steps.eagle, b), kEagle3[i], three,
                              served_gain(steps.plain, steps.eagle3, b)}});
    if (calibrated)
      out.claims.push_back({fmt::format("EAGLE-3, chains of 3, batch {}: gain", b), kServing, kEagle3[i], three, "x",
                            0.1,
                            i == kOfRounds ? fmt::format("gives {:.2f} ms a round", 1e3 * host.round)
                                           : fmt::format("gives {:.3f} ms a sequence of it", 1e3 * host.sequence),
                            true});
  }
  add_variations(out, steps);
  out.ablations.push_back(
      {"one sequence, no speculation, tokens/s", {kPlainRate, 1 / steps.plain.seconds[0], {}, {}, {}, {}}});
  out.ablations.push_back(
      {"one sequence, trees of 64 of depth 8, tokens/s",
       {kSecond.rate, rate_of(r, kSecond, host, second), {}, kThird.rate, rate_of(r, kThird, host, third), {}}});
  out.claims.push_back({"the batch from which EAGLE is slower than none", kServing, 24, slower > 0 ? slower : 128,
                        "sequences", 0.3,
                        fmt::format("each draft right with probability {:.3f}: {:.2f} tokens in trees of 64 ({})",
                                    second, kSecond.tokens, kRuns)});
  out.claims.push_back(
      {"the least gain of EAGLE-3 up to batch 64", kServing, 1.32, least, "x", (1.32 - 1.3) / 1.32,
       fmt::format("above 1.3; {} at a time with and without speculation (the latter inferred from the table); "
                   "each draft right with probability {:.3f}: {:.2f} tokens in those trees",
                   kAtATime, third, kThird.tokens)});
  out.claims.push_back({"gains at all batches, mean factor to the table", kServing, 1,
                        std::exp(sum / double(2 * kServedSizes - 2)), "factor", 0.15,
                        "16 cells, without the calibrated ones"});
  return out;
}

}  // namespace orrery::papers::eagle
