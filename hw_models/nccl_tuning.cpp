// SPDX-License-Identifier: Apache-2.0
#include "hw_models/nccl_tuning.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace orrery {
namespace {

using PerProtocol = std::array<double, 3>;
constexpr std::array<NcclAlgorithm, 4> kAlgorithms{NcclAlgorithm::Tree, NcclAlgorithm::Ring, NcclAlgorithm::Nvls,
                                                   NcclAlgorithm::NvlsTree};
constexpr std::array<NcclProtocol, 3> kProtocols{NcclProtocol::LL, NcclProtocol::LL128, NcclProtocol::Simple};

std::size_t at(NcclAlgorithm a) { return static_cast<std::size_t>(a); }
std::size_t at(NcclProtocol p) { return static_cast<std::size_t>(p); }

/// In µs, by algorithm and protocol: baseLat and hwLat of tuning.cc.
constexpr std::array<PerProtocol, 4> kBase{{{6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}, {0, 0, 0}, {0, 0, 0}}};
constexpr std::array<PerProtocol, 4> kNvlinkHop{{{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}, {0, 0, 25}, {0, 0, 25}}};
constexpr std::array<PerProtocol, 4> kPcieHop{{{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}, {0, 0, 0}, {0, 0, 0}}};
constexpr std::array<PerProtocol, 4> kNetworkHop{{{5.0, 8.5, 14.0}, {2.7, 4.0, 14.0}, {0, 0, 18}, {0, 0, 20.9}}};

/// In GB/s, by generation and for 1, 2, and more nodes: llMaxBws and perChMax… of tuning.cc.
using PerNodes = std::array<double, 3>;
constexpr std::array<PerNodes, 4> kMaxLL{{{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
constexpr std::array<PerNodes, 4> kMaxRingLL128{{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {40, 40, 40}}};
constexpr std::array<PerNodes, 4> kMaxTreeLL128{{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr std::array<PerNodes, 4> kMaxTree{{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};

/// Share of the bandwidth that trees reach, by protocol, for messages from 64 B in powers of two.
constexpr std::array<std::array<double, 24>, 3> kTreeCorrection{
    {{1.0, 1.0, 1.0, 1.0, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1.0, 1.0, 1.0, 1.0, 1.0},
     {1.0, 1.0, 1.0, 1.0, 1.0, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1.0, 1.0, 1.0},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, 1.0}}};

constexpr double kNvlsEfficiency = 0.61;  // message bytes per link byte of an all-reduce in the switch
constexpr double kLongRing = 1.4;         // plateau of large rings over nodes
constexpr Bytes kSmallSend{16384};

/// Data in a step of a channel's buffer, by protocol: half of 8 B lines, 15/16 of 128 B lines, all of 4 MiB / 8.
constexpr PerProtocol kStepBytes{32768, 576000, 524288};

bool is_chain(CollectiveKind kind) { return kind == CollectiveKind::Broadcast || kind == CollectiveKind::Reduce; }

double log2_floor(std::int64_t n) { return double(std::bit_width(static_cast<std::uint64_t>(n)) - 1); }

struct Steps {
  double all = 0, between = 0;
};
Steps steps_of(CollectiveKind kind, const NcclSystem& s) {
  const double n = double(s.ranks), nodes = double(s.nodes);
  if (kind == CollectiveKind::AllReduce) return {2 * (n - 1), 2 * (nodes - 1)};
  if (kind == CollectiveKind::AllGather || kind == CollectiveKind::ReduceScatter) return {n - 1, nodes - 1};
  return {n, nodes};
}

bool exists(CollectiveKind kind, const NcclSystem& s, NcclAlgorithm a, NcclProtocol p) {
  if (p == NcclProtocol::LL128 && !s.has_nvlink) return false;
  switch (a) {
    case NcclAlgorithm::Ring:
      return true;
    case NcclAlgorithm::Tree:
      return kind == CollectiveKind::AllReduce;
    case NcclAlgorithm::Nvls:
      return s.has_nvls && s.nodes == 1 && s.ranks > 2 && p == NcclProtocol::Simple &&
             kind == CollectiveKind::AllReduce;
    case NcclAlgorithm::NvlsTree:
      return s.has_nvls && s.nodes > 1 && s.ranks > s.nodes && p == NcclProtocol::Simple &&
             kind == CollectiveKind::AllReduce;
  }
  return false;
}

/// What of the bus the algorithm and protocol use, in GB/s.
double bus_bandwidth(const NcclSystem& s, NcclAlgorithm a, NcclProtocol p, Bytes bytes) {
  const std::size_t g = static_cast<std::size_t>(s.generation), n = s.nodes == 1 ? 0 : s.nodes == 2 ? 1 : 2;
  const double inside = s.inside.base() * 1e-9, between = s.between.base() * 1e-9, channels = double(s.channels);
  const double bus = s.nodes == 1 ? inside : std::min(inside, between);
  if (a == NcclAlgorithm::Nvls) return inside * kNvlsEfficiency * 2;
  if (a == NcclAlgorithm::NvlsTree) return std::min(inside * kNvlsEfficiency * 2, between * 2);
  if (a == NcclAlgorithm::Ring) {
    if (p == NcclProtocol::LL) return std::min(kMaxLL[g][n], bus * 0.5);
    if (p == NcclProtocol::LL128)
      return std::min(bus * (s.ranks < 2 * s.nodes ? 0.7 : 0.92), channels * kMaxRingLL128[g][n]);
    return bus;
  }
  double tree = std::min(bus * 0.92, channels * kMaxTree[g][n]);
  if (p == NcclProtocol::LL) tree = std::min(tree / 3.8, kMaxLL[g][n]);
  if (p == NcclProtocol::LL128)
    tree = std::min(tree * (s.nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0), channels * kMaxTreeLL128[g][n]);
  const double size = std::max(0.0, std::floor(std::log2(std::max(bytes.base(), 64.0) / 64)));
  return tree * kTreeCorrection[at(p)][std::min<std::size_t>(23, static_cast<std::size_t>(size))];
}

double ring_us(const Steps& steps, const NcclSystem& s, NcclProtocol p) {
  double inside = (s.has_nvlink ? kNvlinkHop : kPcieHop)[at(NcclAlgorithm::Ring)][at(p)];
  if (s.nodes > 1 && p == NcclProtocol::LL) inside *= 1.8;
  return kBase[at(NcclAlgorithm::Ring)][at(p)] + (steps.all - steps.between) * inside +
         steps.between * kNetworkHop[at(NcclAlgorithm::Ring)][at(p)];
}

/// By which NCCL chooses the protocol of a chain.
double believed_chain_us(const NcclSystem& s, NcclProtocol p) {
  const auto& hop = s.nodes > 1 ? kNetworkHop : s.has_nvlink ? kNvlinkHop : kPcieHop;
  const NcclAlgorithm a = p == NcclProtocol::Simple ? NcclAlgorithm::Tree : NcclAlgorithm::Ring;
  return kBase[at(NcclAlgorithm::Ring)][at(p)] + double(s.ranks) * hop[at(a)][at(p)];
}

double latency_us(CollectiveKind kind, const NcclSystem& s, NcclAlgorithm a, NcclProtocol p, Bytes bytes) {
  const Steps steps = steps_of(kind, s);
  double inside = (s.has_nvlink ? kNvlinkHop : kPcieHop)[at(a)][at(p)];
  const double between = kNetworkHop[at(a)][at(p)];
  if (s.nodes > 1 && p == NcclProtocol::LL) inside *= 1.8;
  const double base = kBase[at(a)][at(p)];
  switch (a) {
    case NcclAlgorithm::Ring: {
      if (is_chain(kind)) return believed_chain_us(s, p);
      const double t = ring_us(steps, s, p);
      const bool is_long = p == NcclProtocol::Simple && s.nodes > 1 && kind == CollectiveKind::AllReduce &&
                           bytes.base() / double(s.channels * s.ranks) >= 64 * 1024;
      return is_long ? kLongRing * t : t;
    }
    case NcclAlgorithm::Tree:
      return base + 2 * ((double(s.ranks) / double(s.nodes) - 1) * inside + log2_floor(s.nodes) * between);
    case NcclAlgorithm::Nvls:
      return base + inside;
    case NcclAlgorithm::NvlsTree:
      return base + inside + 2 * log2_floor(s.nodes) * between;
  }
  return base;
}

/// Sends to and from all ranks at once: what stays in the node and what leaves it go side by side.
NcclChoice of_sends(CollectiveKind kind, Bytes bytes, const NcclSystem& s) {
  const double n = double(s.ranks), nodes = double(s.nodes);
  const double parts = kind == CollectiveKind::AllToAll ? n : 1;
  NcclChoice c;
  c.protocol = bytes / parts <= kSmallSend ? NcclProtocol::LL : NcclProtocol::Simple;
  const PerProtocol& hop = s.nodes > 1 ? kNetworkHop[at(NcclAlgorithm::Ring)]
                                       : (s.has_nvlink ? kNvlinkHop : kPcieHop)[at(NcclAlgorithm::Ring)];
  c.latency = Seconds{(kBase[at(NcclAlgorithm::Ring)][at(c.protocol)] + hop[at(c.protocol)]) * 1e-6};
  const double protocol = c.protocol == NcclProtocol::LL ? 0.5 : 1.0;
  const double leaves = kind == CollectiveKind::AllToAll ? (nodes - 1) / nodes : nodes > 1 ? 1 : 0;
  const double stays = kind == CollectiveKind::AllToAll ? (n / nodes - 1) / n : nodes > 1 ? 0 : 1;
  double seconds_per_byte = stays / (s.inside.base() * protocol);
  if (s.nodes > 1) seconds_per_byte = std::max(seconds_per_byte, leaves * n / nodes / (s.between.base() * protocol));
  c.bandwidth = BytesPerSecond{1 / std::max(seconds_per_byte, 1e-300)};
  return c;
}

/// See nccl_choice.
NcclChoice of_chain(NcclChoice c, Bytes bytes, const NcclSystem& s) {
  const double n = double(s.ranks), nodes = double(s.nodes);
  c.latency = Seconds{ring_us({n - 1, nodes - 1}, s, c.protocol) * 1e-6};
  const Bytes piece{std::min(kStepBytes[at(c.protocol)] * double(s.channels), bytes.base())};
  const double slow = s.nodes > 1 ? nodes - 2 : 0, fast = s.nodes > 1 ? n - nodes : n - 2;
  if (c.protocol == NcclProtocol::Simple) c.fill = fast * (piece / s.inside);
  if (s.nodes > 1) c.fill = c.fill + slow * (piece / s.between);
  return c;
}

}  // namespace

std::span<const EnumName<NcclGeneration>> enum_names(NcclGeneration) {
  static constexpr EnumName<NcclGeneration> kNames[] = {{NcclGeneration::Volta, "volta"},
                                                        {NcclGeneration::Ampere, "ampere"},
                                                        {NcclGeneration::Hopper, "hopper"},
                                                        {NcclGeneration::Blackwell, "blackwell"}};
  return kNames;
}

std::string_view name_of(NcclAlgorithm a) {
  constexpr std::string_view names[] = {"tree", "ring", "nvls", "nvls_tree"};
  return names[at(a)];
}

std::string_view name_of(NcclProtocol p) {
  constexpr std::string_view names[] = {"ll", "ll128", "simple"};
  return names[at(p)];
}

std::optional<NcclChoice> nccl_candidate(CollectiveKind kind, Bytes bytes, const NcclSystem& s, NcclAlgorithm a,
                                         NcclProtocol p) {
  if (s.ranks <= 1 || !exists(kind, s, a, p)) return {};
  const double ratio = a == NcclAlgorithm::Ring ? double(s.ranks) / steps_of(kind, s).all : 0.5;
  return NcclChoice{a, p, Seconds{latency_us(kind, s, a, p, bytes) * 1e-6},
                    BytesPerSecond{bus_bandwidth(s, a, p, bytes) * ratio * 1e9}};
}

NcclChoice nccl_choice(CollectiveKind kind, Bytes bytes, const NcclSystem& s) {
  if (kind == CollectiveKind::AllToAll || kind == CollectiveKind::Shift) return of_sends(kind, bytes, s);
  std::optional<NcclChoice> best;
  for (const NcclAlgorithm a : kAlgorithms)
    for (const NcclProtocol p : kProtocols)
      if (const auto c = nccl_candidate(kind, bytes, s, a, p); c && (!best || c->time(bytes) < best->time(bytes)))
        best = c;
  if (best && is_chain(kind)) return of_chain(*best, bytes, s);
  return best.value_or(NcclChoice{.bandwidth = BytesPerSecond{1e300}});
}

}  // namespace orrery
