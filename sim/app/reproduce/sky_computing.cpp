// SPDX-License-Identifier: Apache-2.0
// Sky Computing, Zhu and others, arXiv 2202.11836: 160 layers of BERT-large in three pieces each, on 63 workers of
// which each is slowed by a factor. Pieces are dealt out evenly, or so that the slowest worker is as fast as can be.
// Its workers take turns with one batch, so that a step takes the sum of what all of them need; in a pipeline it would
// go by the slowest. Its tables are not to be had; the factors that its code draws are, and give its headline by
// arithmetic. Here they come from our own generator, and means of many draws are compared, without what moving
// activations takes. Beside it 16 workers with real devices of six kinds, simulated: sequences of 128 tokens, 32 of
// them, single precision and plain SGD as there, a vocabulary of 1,024 in place of its classes. Assumed: 10 Gb/s
// between workers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/app/reproduce/reproduction.hpp"
#include "sim/base/random.hpp"
#include "sim/search/stage_partition.hpp"

namespace orrery::papers::sky_computing {
namespace {

constexpr const char* kAbstract = "arXiv 2202.11836, abstract";
constexpr const char* kFactors = "arXiv 2202.11836, by the factors of its code";
constexpr std::size_t kPieces = 480, kDraws = 200;

double one_to_six(Random& r) { return 1 + double(r.below(6)); }
double two_to_seven(Random& r) { return 2 + double(r.below(6)); }
double below_two(Random& r) { return r.uniform(1, 2); }
double below_four(Random& r) { return r.uniform(1, 4); }

std::vector<std::int64_t> even_sizes(std::size_t layers, std::size_t devices) {
  std::vector<std::int64_t> out(devices, static_cast<std::int64_t>(layers / devices));
  for (std::size_t i = 0; i < layers % devices; ++i) ++out[i];
  return out;
}

/// How much longer an even partition takes than the balanced one: all workers in turn, and the slowest of them.
struct SpeedUp {
  double in_turn = 0, slowest = 0;
};
SpeedUp speed_up(const std::vector<StageDevice>& devices, const std::vector<std::int64_t>& even,
                 const std::vector<std::int64_t>& balanced) {
  const auto of = [&](const std::vector<std::int64_t>& sizes) {
    SpeedUp s;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const double seconds = devices[i].slowness * double(sizes[i]);
      s.in_turn += seconds, s.slowest = std::max(s.slowest, seconds);
    }
    return s;
  };
  const SpeedUp a = of(even), b = of(balanced);
  return {a.in_turn / b.in_turn, a.slowest / b.slowest};
}

/// Of many draws.
struct Moments {
  double mean = 0, deviation = 0;
};
Moments moments(const std::vector<SpeedUp>& all, double SpeedUp::*value) {
  Moments m;
  for (const SpeedUp& s : all) m.mean += s.*value / double(all.size());
  for (const SpeedUp& s : all) m.deviation += (s.*value - m.mean) * (s.*value - m.mean) / double(all.size());
  m.deviation = std::sqrt(m.deviation);
  return m;
}

std::vector<SpeedUp> draws(std::size_t workers, double (*factor)(Random&)) {
  const std::vector<LayerCost> pieces(kPieces, {1.0, 0});
  std::vector<SpeedUp> all;
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    Random random{seed};
    std::vector<StageDevice> devices(workers);
    for (StageDevice& d : devices) d.slowness = factor(random);
    all.push_back(speed_up(devices, even_sizes(kPieces, workers), partition_stages(pieces, devices).value().sizes));
  }
  return all;
}

/// What one draw of its generator gives, of workers slowed by such factors.
struct OneDraw {
  const char* name;
  std::size_t workers;
  double (*factor)(Random&);
  double in_turn;
  std::optional<double> slowest;
};
constexpr OneDraw kOneDraw[] = {{"63 workers, factors 1 to 6", 63, one_to_six, 1.564, 2.67},
                                {"31 workers, factors 1 to 6", 31, one_to_six, 1.61, {}},
                                {"15 workers, factors 1 to 6", 15, one_to_six, 1.5, {}},
                                {"63 workers, factors 2 to 7", 63, two_to_seven, 1.31, 1.87},
                                {"63 workers, factors below 4", 63, below_four, 1.14, 1.67},
                                {"63 workers, factors below 2", 63, below_two, 1.035, 1.32}};

/// Means of ours, and one draw of its own, which has to lie within twice what ours deviate by.
void add_draws(std::vector<Claim>& claims) {
  std::vector<std::vector<SpeedUp>> ours;
  for (const OneDraw& o : kOneDraw) ours.push_back(draws(o.workers, o.factor));
  const Moments m = moments(ours.front(), &SpeedUp::in_turn);
  const std::string note = fmt::format("{} draws", kDraws);
  claims.push_back({"headline: workers in turn", kAbstract, 1.55, m.mean, "", 0.05, note});
  claims.push_back({"its draws, mean", kFactors, 1.54, m.mean, "", 0.02, note});
  claims.push_back({"its draws, deviation", kFactors, 0.1, m.deviation, "", 0.15, note});
  for (std::size_t i = 0; i < std::size(kOneDraw); ++i) {
    const OneDraw& o = kOneDraw[i];
    const auto claim = [&](const char* what, double paper, double SpeedUp::*value) {
      const Moments of = moments(ours[i], value);
      claims.push_back({fmt::format("{}: {}", o.name, what), kFactors, paper, of.mean, "", 2 * of.deviation / paper,
                        fmt::format("deviation {:.3f}", of.deviation)});
    };
    claim("in turn", o.in_turn, &SpeedUp::in_turn);
    if (o.slowest) claim("slowest", *o.slowest, &SpeedUp::slowest);
  }
}

// Devices of workers, and the steps that they do.
constexpr const char* kKinds[] = {"h100_pcie", "a100_pcie_40g", "v100_pcie", "t4", "p100", "p4"};
constexpr std::size_t kWorkers = 16, kBlocks = 160;

/// One device a node, a node for each of these.
std::string cluster_of(const std::vector<const char*>& devices) {
  std::string more;
  const auto node = [](const char* device) {
    return fmt::format(
        "nodes: 1, devices_per_node: 1, device: {}, host: {{cores: 12, memory: 64 GB, memory_bandwidth: 60 GB/s}}, "
        "host_link: {{name: PCIe 3.0 x16, bandwidth: 12 GB/s, latency: 2 us}}, "
        "nic: {{name: Ethernet, per: node, bandwidth: 10 Gb/s, latency: 30 us}}",
        device);
  };
  for (std::size_t i = 1; i < devices.size(); ++i) more += fmt::format("{}{{{}}}", i > 1 ? ", " : "", node(devices[i]));
  return fmt::format("{{{}{}}}", node(devices[0]), more.empty() ? more : fmt::format(", more_nodes: [{}]", more));
}

std::string bert_on(const std::vector<const char*>& devices, std::size_t blocks, const std::string& strategy,
                    int microbatches) {
  return fmt::format(
      "model: {{model_type: bert, architectures: [BertForMaskedLM], hidden_size: 1024, num_hidden_layers: {}, "
      "num_attention_heads: 16, intermediate_size: 4096, max_position_embeddings: 512, vocab_size: 1024, "
      "type_vocab_size: 2, hidden_act: gelu, layer_norm_eps: 1e-12}}\n"
      "cluster: {}\nstrategy: [{}]\nworkload: {{train: {{batch: 32, sequence: 128, dtype: f32, microbatches: {}, "
      "optimizer: {{kind: sgd, momentum: 0, clip: 0}}}}}}\n",
      blocks, cluster_of(devices), strategy, microbatches);
}

/// How slow blocks are on each kind of device, and what there is room for, from steps of few and of more of them, as
/// Sky Computing measures both.
struct Kind {
  double seconds_per_block = 0, bytes_per_block = 0, room = 0;
};
Kind measured(const Reproducer& r, const char* device) {
  constexpr std::size_t kFew = 2, kMore = 6;
  const Report few = r.predict(bert_on({device}, kFew, "single: {}", 1)).report;
  const Report more = r.predict(bert_on({device}, kMore, "single: {}", 1)).report;
  const double bytes = double(more.memory.bytes - few.memory.bytes) / (kMore - kFew);
  return {(more.step - few.step) / (kMore - kFew), bytes,
          few.memory.capacity.value() - (double(few.memory.bytes) - kFew * bytes)};
}

/// Workers with devices drawn at random: a step in turn, and of a pipeline, of even stages and of balanced ones.
void add_workers(const Reproducer& r, std::uint64_t seed, const std::vector<Kind>& kinds, Reproduction& out) {
  Random random{seed};
  std::vector<const char*> names;
  std::vector<StageDevice> devices;
  double bytes = 0;
  for (std::size_t i = 0; i < kWorkers; ++i) {
    const std::size_t kind = random.below(std::size(kKinds));
    names.push_back(kKinds[kind]);
    devices.push_back({kinds[kind].seconds_per_block, static_cast<std::int64_t>(kinds[kind].room)});
    bytes = std::max(bytes, kinds[kind].bytes_per_block);
  }
  const std::vector<LayerCost> blocks(kBlocks, {1.0, static_cast<std::int64_t>(bytes)});
  const std::vector<std::int64_t> even = even_sizes(kBlocks, kWorkers);
  const std::vector<std::int64_t> balanced = partition_stages(blocks, devices).value().sizes;
  const SpeedUp formula = speed_up(devices, even, balanced);
  for (const int microbatches : {1, 32}) {
    const auto step = [&](const std::vector<std::int64_t>& sizes) {
      return r
          .predict(bert_on(names, kBlocks,
                           fmt::format("parallel: {{mesh: pp{}, schedule: gpipe, stage_layers: [{}]}}", kWorkers,
                                       fmt::join(sizes, ", ")),
                           microbatches))
          .report.step;
    };
    const double a = step(even), b = step(balanced);
    out.ablations.push_back({fmt::format("16 workers, draw {}: {}", seed, microbatches == 1 ? "in turn" : "pipelined"),
                             {a, b, a / b, microbatches == 1 ? formula.in_turn : formula.slowest}});
  }
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  Reproduction out{{}, {"even, s", "balanced, s", "speed-up", "by formula"}, {}};
  add_draws(out.claims);
  std::vector<Kind> kinds;
  for (const char* device : kKinds) kinds.push_back(measured(r, device));
  for (std::uint64_t seed = 0; seed < 3; ++seed) add_workers(r, seed, kinds, out);
  return out;
}

}  // namespace orrery::papers::sky_computing
