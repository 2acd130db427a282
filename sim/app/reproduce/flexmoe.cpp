// SPDX-License-Identifier: Apache-2.0
// FlexMoE, Nie and others, arXiv 2304.03946: replicas of hot experts. Of the paper only the abstract was read: 1.70
// times as fast as DeepSpeed in the mean and 2.10 at most. SYMI, arXiv 2504.19925, has built its policy again and says
// how uneven routing is (tokens that find room at capacities 1, 2 and 4) and what moving states costs. No trace of
// routing is published: shares drift here as DriftingShares draws them, with the spread that SYMI's capacity 1 asks
// for. Assumed: experts with three matrices that have as many parameters as two of h·4h; GPTs of 12 and 24 layers on
// DGX A100, an expert per GPU, two experts for each of 4,096 tokens per GPU; DeepSpeed's experts stay and drop nothing;
// what is moved beside training takes half of a card. Between two simulated steps times are linear in the largest load.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/app/reproduce/reproduction.hpp"
#include "sim/program/expert_balancer.hpp"

namespace orrery::papers::flexmoe {
namespace {

constexpr const char* kFlexAbstract = "arXiv 2304.03946, abstract";
constexpr const char* kSymi = "arXiv 2504.19925";
constexpr double kKept = 0.449;                                    // of the tokens, at capacity 1
constexpr double kStateBytes = 16, kMovedBytes = 2 + kStateBytes;  // per parameter: AdamW's states, and weights
constexpr double kPcie = 31.5e9;                                   // bytes per second: PCIe 4.0 x16
constexpr std::int64_t kIterations = 1500;

/// A model and what trains it.
struct Setup {
  std::int64_t layers = 12, hidden = 768, experts = 64;
  std::int64_t ranks = 64, slots = 2, top_k = 2, samples = 4, sequence = 1024;  // samples of a rank
  std::string cluster;
  double card = 0;  // bytes per second

  double expert_parameters() const { return 8 * double(hidden * hidden); }
};

/// Azure's NC24ads: one A100 behind PCIe and 100 Gb/s.
constexpr const char* kNc24 =
    "{nodes: 16, devices_per_node: 1, device: a100_80g, host: {cores: 24, memory: 220 GB, memory_bandwidth: 204.8 "
    "GB/s}, host_link: {name: PCIe 4.0 x16, bandwidth: 31.5 GB/s, latency: 1.5 us}, nic: {name: ConnectX-5, per: "
    "device, bandwidth: 100 Gb/s, latency: 4 us}}";

Setup gpt(const Reproducer& r, std::int64_t layers, std::int64_t hidden, std::int64_t experts) {
  return {.layers = layers,
          .hidden = hidden,
          .experts = experts,
          .ranks = experts,
          .cluster = r.cluster("dgx_a100", experts / 8),
          .card = 25e9};
}

/// SYMI's: 16 experts in 64 slots of 16 GPUs, 64 samples of 512 tokens, one expert for each token.
Setup symi(std::int64_t layers, std::int64_t hidden) {
  return {.layers = layers,
          .hidden = hidden,
          .experts = 16,
          .ranks = 16,
          .slots = 4,
          .top_k = 1,
          .samples = 4,
          .sequence = 512,
          .cluster = kNc24,
          .card = 12.5e9};
}

/// What is drawn, and when loads are looked at.
struct Drift {
  std::string name;
  double spread = 0, correlation = 300;
  std::int64_t period = 50;
  double threshold = 1.2;
  bool from_hosts = false;  // states lie there, and cross PCIe on both ends
};

/// Tokens that find room where each expert takes `capacity` times the even share, in the mean of many draws.
double kept_tokens(double spread, double capacity) {
  constexpr std::int64_t experts = 32, draws = 4000;
  DriftingShares drift{{.experts = experts, .spread = spread, .correlation = 1e-3}};
  double sum = 0;
  for (std::int64_t d = 0; d < draws; ++d)
    for (const double share : drift.next()) sum += std::min(share, capacity / double(experts));
  return sum / double(draws);
}

/// The spread of logits with which capacity 1 keeps what SYMI says.
double spread_of_symi() {
  double low = 0, high = 6;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (kept_tokens(middle, 1) > kKept ? low : high) = middle;
  }
  return low;
}

/// Seconds of a step by how uneven its experts are, from simulated steps with shares that all layers have.
class StepTimes {
 public:
  StepTimes(const Reproducer& r, const Setup& s) : s_{s} {
    std::vector<double> hot;
    for (std::int64_t k = 0; k < s.experts; ++k) hot.push_back(1 / double(k + 4));
    const double sum = std::accumulate(hot.begin(), hot.end(), 0.0);
    for (double& h : hot) h /= sum;
    const double stretch = whole_layout(hot, s.ranks).imbalance() - 1;
    even_ = seconds(r, "expert", {});
    slope_ = (seconds(r, "expert", hot) - even_) / stretch;
    replicas_ =
        seconds(r, "flexmoe", hot) - slope_ * (ExpertLayout{hot, place_experts(hot, s.ranks, s.slots)}.imbalance() - 1);
  }
  /// Each expert once.
  double whole(double imbalance) const { return even_ + slope_ * (imbalance - 1); }
  double balanced(double imbalance) const { return replicas_ + slope_ * (imbalance - 1); }
  /// Of one layer.
  PlacementCosts costs() const {
    return {.compute = Seconds{slope_ * double(s_.ranks) / double(s_.layers)},
            .exchange = Seconds{},
            .sum = Seconds{2 * s_.expert_parameters() / s_.card}};
  }
  /// To fetch so many experts in each layer through a card, and with `from_hosts` through PCIe before and behind it.
  double moves(double experts, bool from_hosts = false) const {
    const double parameters = experts * double(s_.layers) * s_.expert_parameters();
    return parameters * (kMovedBytes / s_.card + (from_hosts ? 2 * kStateBytes / kPcie : 0));
  }

 private:
  double seconds(const Reproducer& r, const std::string& strategy, const std::vector<double>& shares) const {
    const std::string slots = strategy == "flexmoe" ? fmt::format(", expert_slots: {}", s_.slots) : "";
    return r
        .predict(fmt::format(
            "model: {{model_type: mixtral, hidden_size: {}, intermediate_size: {}, num_hidden_layers: {}, "
            "num_attention_heads: {}, num_key_value_heads: {}, vocab_size: 50304, max_position_embeddings: {}, "
            "rms_norm_eps: 1e-5, rope_theta: 10000.0, tie_word_embeddings: true, num_local_experts: {}, "
            "num_experts_per_tok: {}}}\ncluster: {}\nstrategy: [{}: {{mesh: ep{}, expert_buffer: 1{}}}]\nworkload: "
            "{{train: {{batch: {}, sequence: {}, dtype: bf16{}}}}}\n",
            s_.hidden, s_.hidden * 8 / 3, s_.layers, s_.hidden / 64, s_.hidden / 64, s_.sequence, s_.experts, s_.top_k,
            s_.cluster, strategy, s_.ranks, slots, s_.samples * s_.ranks, s_.sequence,
            shares.empty() ? "" : fmt::format(", routing: {{shares: [{}]}}", fmt::join(shares, ", "))))
        .report.step;
  }

  const Setup& s_;
  double even_ = 0, slope_ = 0, replicas_ = 0;
};

/// What a run of iterations takes, per iteration.
struct Course {
  double whole = 0, balanced = 0;  // each expert once; with replicas that follow
  double rebalancing = 0;          // an iteration that waits for states, over one that does not
};

Course run_through(const StepTimes& times, const Setup& s, const Drift& d, bool waits) {
  DriftingShares drift{{.experts = s.experts, .top_k = s.top_k, .spread = d.spread, .correlation = d.correlation}};
  const ExpertPlaces whole =
      whole_layout(std::vector<double>(static_cast<std::size_t>(s.experts), 1), s.ranks).places();
  const double beside = 0.5 * times.balanced(1) / times.moves(1);
  ExpertBalancer balancer{whole,
                          {.slots = s.slots,
                           .threshold = d.threshold,
                           .period = d.period,
                           .beside = waits ? 0 : beside,
                           .costs = times.costs()}};
  Course sum;
  double waited = 0, usual = 0, waits_made = 0;
  for (std::int64_t t = 0; t < kIterations; ++t) {
    const std::vector<double> shares = drift.next();
    const BalancedIteration it = balancer.step(shares);
    const double step = times.balanced(it.imbalance), moves = times.moves(double(it.awaited), d.from_hosts);
    sum.whole += times.whole(ExpertLayout{shares, whole}.imbalance());
    sum.balanced += step + moves;
    usual += step;
    if (it.awaited > 0) waited += step + moves, ++waits_made;
  }
  const double n = double(kIterations);
  return {sum.whole / n, sum.balanced / n, waits_made > 0 ? waited / waits_made / (usual / n) : 1};
}

/// The paper's quantities under some inputs.
class Balanced {
 public:
  explicit Balanced(const Reproducer& r) {
    for (const Setup& s : {gpt(r, 12, 768, 32), gpt(r, 12, 768, 64), gpt(r, 24, 1024, 32), gpt(r, 24, 1024, 64)})
      gpts_.push_back(s);
    for (const Setup& s : {symi(12, 768), symi(24, 1024), symi(24, 1536)}) symis_.push_back(s);
    for (const Setup& s : gpts_) gpt_times_.emplace_back(r, s);
    for (const Setup& s : symis_) symi_times_.emplace_back(r, s);
  }

  /// Mean and largest gain over experts that stay; least and largest iteration that moves states, over a usual one.
  std::vector<std::optional<double>> values(const Drift& d) const {
    double sum = 0, most = 0, least_wait = 1e9, most_wait = 0;
    for (std::size_t i = 0; i < gpts_.size(); ++i) {
      const Course c = run_through(gpt_times_[i], gpts_[i], d, false);
      sum += c.whole / c.balanced;
      most = std::max(most, c.whole / c.balanced);
    }
    for (std::size_t i = 0; i < symis_.size(); ++i) {
      const Course c = run_through(symi_times_[i], symis_[i], d, true);
      least_wait = std::min(least_wait, c.rebalancing);
      most_wait = std::max(most_wait, c.rebalancing);
    }
    return {sum / double(gpts_.size()), most, least_wait, most_wait};
  }

 private:
  std::vector<Setup> gpts_, symis_;
  std::vector<StepTimes> gpt_times_, symi_times_;
};

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  const double spread = spread_of_symi();
  const Balanced runs{r};
  const Drift stated{.name = "as stated", .spread = spread};
  const auto v = runs.values(stated);
  const std::string drawn = fmt::format("32 experts with normal logits, spread {:.2f}", spread);
  Reproduction out{
      {{"tokens kept at capacity 1", kSymi, 44.9, 100 * kept_tokens(spread, 1), "%", 0.02, drawn, true},
       {"tokens kept at capacity 2", kSymi, 65.56, 100 * kept_tokens(spread, 2), "%", 0.1, drawn},
       {"tokens kept at capacity 4", kSymi, 74.91, 100 * kept_tokens(spread, 4), "%", 0.1, drawn},
       {"as fast as experts that stay, mean", kFlexAbstract, 1.70, *v[0], "x", 0.15,
        "four GPTs; models, cluster and skew are not known; DeepSpeed drops tokens, experts here do not"},
       {"as fast as experts that stay, most", kFlexAbstract, 2.10, *v[1], "x", 0.15, "of these four"},
       {"iteration that moves states over a usual one, least", kSymi, 2.46, *v[2], "x", 0.25,
        "three sizes of GPT; states of a rank through its card, one after another"},
       {"iteration that moves states over a usual one, most", kSymi, 4.10, *v[3], "x", 0.25, "of these three"}},
      {"gain", "most gain", "moving x", "most moving x"},
      {{"paper", {1.70, 2.10, 2.46, 4.10}}, {stated.name, v}}};
  for (const Drift& d :
       {Drift{.name = "forgotten after 10,000 iterations", .spread = spread, .correlation = 10000},
        Drift{.name = "forgotten after 50, as often as loads are looked at", .spread = spread, .correlation = 50},
        Drift{.name = "forgotten after 5", .spread = spread, .correlation = 5},
        Drift{.name = "looked at every 10 iterations", .spread = spread, .period = 10},
        Drift{.name = "states on hosts", .spread = spread, .from_hosts = true},
        Drift{.name = "placed anew beyond twice the mean load", .spread = spread, .threshold = 2},
        Drift{.name = "logits spread by 1", .spread = 1}})
    out.ablations.push_back({d.name, runs.values(d)});
  return out;
}

}  // namespace orrery::papers::flexmoe
