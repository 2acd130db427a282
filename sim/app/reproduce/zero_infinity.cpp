// SPDX-License-Identifier: Apache-2.0
// ZeRO-Infinity, Rajbhandari and others, SC 2021, arXiv 2104.07857, on DGX-2: 16 V100 of 32 GB on NVSwitch, two Xeon
// 8168 with 1.5 TB, 28 TB of disks that read 25 GB/s, 8 cards of 100 Gb/s, and 3 GB/s over PCIe for each GPU when all
// copy. Speeds count 8 FLOP per parameter and token, of all GPUs together. Its model of efficiency is
//   efficiency = ait·bw / (ait·bw + peak),   ait = seq·bsz of weights and gradients, 24·hd·ci of checkpoints
// with a peak of 70 TFLOPS and copies that nothing hides. Ours are blocks of a simulated step, one for lack of a link
// and one behind a link that is to 70 TFLOPS as theirs is to what our blocks reach. Taken: 128 layers of 25,600 for a
// trillion parameters, and other sizes as wide as 100 billion would be at 10,240; matrices in 4 parts from a trillion
// on, 2 samples per GPU there and 8 below.
#include <fmt/format.h>

#include <array>

#include "sim/app/reproduce/training.hpp"

namespace orrery::papers::zero_infinity {
namespace {

constexpr const char* kAbstract = "arXiv 2104.07857, abstract";
constexpr const char* kModel = "arXiv 2104.07857, section 4";
constexpr const char* kUser = "a user on one DGX-2, DeepSpeed issue 1776";
constexpr std::int64_t kTokens = 1024;

struct Size {
  double billions;
  std::int64_t layers, hidden, split;  // parts of a matrix

  double parameters() const { return 12 * double(layers) * double(hidden * hidden); }
};
constexpr std::array kSizes{Size{10, 50, 4096, 1}, Size{100, 80, 10240, 1}, Size{500, 124, 18432, 4},
                            Size{1000, 128, 25600, 4}, Size{2000, 128, 36864, 4}};

struct Inputs {
  std::string name;
  std::string stores = "gradients: disk";  // and weights and states
  std::int64_t batch = 1, nodes = 1;
  std::vector<std::pair<std::string, double>> scales = {};
};

std::string scenario(const Inputs& in, const Size& size) {
  const std::int64_t ranks = 16 * in.nodes;
  const std::string mesh =
      size.split == 1 ? fmt::format("mesh: dp{}", ranks)
                      : fmt::format("mesh: dp{} tp{}, sequence_parallel: true", ranks / size.split, size.split);
  return fmt::format(
      "model: {{model_type: gpt2, n_embd: {}, n_layer: {}, n_head: {}, n_positions: 1024, vocab_size: 51200}}\n"
      "cluster: {{nodes: {}, devices_per_node: 16, device: v100, host: {{cores: 48, memory: 1500 GB, memory_bandwidth: "
      "256 GB/s}}, device_link: {{bandwidth: 150 GB/s, latency: 1.8 us}}, host_link: {{bandwidth: 3 GB/s, latency: 1.5 "
      "us, to_device: 1, to_host: 1}}, nic: {{per: node, bandwidth: 800 Gb/s, latency: 5 us}}, disk: {{size: 28 TB, "
      "bandwidth: 25 GB/s, latency: 100 us, queue_depth: 256}}}}\n"
      "strategy: [{{zero-infinity: {{{}, parallel: {{{}, data: {{kind: zero3}}}}}}}}]\n"
      "workload: {{train: {{batch: {}, sequence: {}, dtype: f16, recompute: full, stored_scores: true, dropout: "
      "0.1}}}}\n",
      size.hidden, size.layers, size.hidden / 128, in.nodes, in.stores, mesh, in.batch * ranks, kTokens);
}

double largest(const Reproducer& r, const Inputs& in) {
  double most = 1;
  for (const Size& s : kSizes)
    if (all_fits(r.predict(scenario(in, s)).report)) most = s.billions;
  return most;
}

/// TFLOPS of all GPUs.
double speed(const Reproducer& r, const Inputs& in, const Size& size) {
  const double step = r.predict(scenario(in, size), in.scales).report.step;
  return teraflops_of(size.parameters(), double(in.batch * 16 * in.nodes * kTokens), step);
}

/// A block behind a link of its own, and what the published model says of it.
struct Block {
  const char* strategy;
  std::int64_t hidden, batch;
  double link, intensity;  // bytes per second at 70 TFLOPS; FLOP per byte
};

/// Seconds of one more block.
double block_seconds(const Reproducer& r, const Block& b, double link) {
  const auto step = [&](std::int64_t layers) {
    return r
        .predict(fmt::format(
            "model: {{model_type: gpt2, n_embd: {}, n_layer: {}, n_head: {}, n_positions: 1024, vocab_size: 1024}}\n"
            "cluster: {{device: v100, device_memory: 1 TB, host: {{cores: 1000, memory: 8 TB, memory_bandwidth: 100 "
            "TB/s}}, host_link: {{bandwidth: {:.0f} B/s, latency: 1 us, to_device: 1, to_host: 1}}}}\n"
            "strategy: [{{{}}}]\n"
            "workload: {{train: {{batch: {}, sequence: {}, dtype: f16, recompute: full, optimizer: {{clip: 0}}}}}}\n",
            b.hidden, layers, b.hidden / 128, link, b.strategy, b.batch, kTokens))
        .report.step;
  };
  return step(6) - step(4);
}

double efficiency(const Reproducer& r, const Block& b) {
  constexpr double kPeak = 70e12, kNoLink = 1e15;
  const double alone = block_seconds(r, b, kNoLink);
  const double reached = 2 * 8 * 12 * double(b.hidden * b.hidden) * double(b.batch * kTokens) / alone;
  return 100 * alone / block_seconds(r, b, b.link * reached / kPeak);
}

Claim efficiency_claim(const Reproducer& r, const Block& b, std::string name, std::string note) {
  constexpr double kPeak = 70e12;
  const double paper = 100 * b.intensity * b.link / (b.intensity * b.link + kPeak);
  return {std::move(name), kModel, paper, efficiency(r, b), "%", 0.2, std::move(note)};
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  const Inputs one{.name = "as stated"}, all{.name = "as stated", .batch = 1, .nodes = 32};
  const Inputs ten{.name = "10", .stores = "weights: host, states: host", .batch = 8};
  const Inputs hundred{.name = "100", .stores = "weights: host", .batch = 8};
  const double speed_of_512 = speed(r, all, kSizes[3]) * 1e-3;
  Reproduction out;
  out.claims = {
      {"largest model on one DGX-2", kAbstract, 1000, largest(r, one), "billion parameters", 0.01,
       "weights, gradients and states on disks"},
      {"a trillion parameters on 512 V100", kAbstract, 25, speed_of_512, "PFLOPS", 0.2, "more than 25 is claimed"},
      {"10 billion on one DGX-2", kUser, 16 * 63, speed(r, ten, kSizes[0]), "TFLOPS", 0.2, "8 samples per GPU"},
      {"100 billion on one DGX-2", kUser, 16 * 35, speed(r, hundred, kSizes[1]), "TFLOPS", 0.2,
       "states on disks, 8 samples per GPU"},
      efficiency_claim(
          r, {"zero-infinity: {weights: host, states: host, prefetch: 0, overlap: none}", 8192, 1, 70e9, 1024},
          "weights and gradients at 70 GB/s, one sample",
          "no copy is hidden; the formula moves weights in three passes"),
      efficiency_claim(r, {"activation-offload: {}", 8192, 4, 3e9, 24 * 8192}, "checkpoints at 3 GB/s, 8,192 wide",
                       "the formula hides no copy")};
  out.quantities = {"PFLOPS on 512"};
  out.ablations = {{"paper", {25}}, {"as stated", {speed_of_512}}};
  const Inputs others[] = {{.name = "2 samples per GPU", .batch = 2, .nodes = 32},
                           {.name = "weights on the host", .stores = "weights: host", .nodes = 32},
                           {.name = "products at 60 % of their rate", .nodes = 32, .scales = {{"gemm.rate", 0.6}}}};
  for (const Inputs& in : others) out.ablations.push_back({in.name, {speed(r, in, kSizes[3]) * 1e-3}});
  return out;
}

}  // namespace orrery::papers::zero_infinity
