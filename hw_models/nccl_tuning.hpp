// SPDX-License-Identifier: Apache-2.0
// NCCL's own model of its algorithms and protocols, by which it chooses one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "sim/base/options.hpp"
#include "sim/plan/kinds/collective.hpp"

namespace orrery {

enum class NcclAlgorithm : std::uint8_t { Tree, Ring, Nvls, NvlsTree };
/// LL sends a flag with every 4 B, LL128 one with every 120 B, Simple waits once for a whole chunk.
enum class NcclProtocol : std::uint8_t { LL, LL128, Simple };
/// Of the GPU: NCCL has other limits for each.
enum class NcclGeneration : std::uint8_t { Volta, Ampere, Hopper, Blackwell };
std::span<const EnumName<NcclGeneration>> enum_names(NcclGeneration);
std::string_view name_of(NcclAlgorithm a);
std::string_view name_of(NcclProtocol p);

/// What NCCL has found of the machine. Bandwidths are those that a ring gets: of a device into its node, and of all
/// cards of a node together out of it.
struct NcclSystem {
  std::int64_t ranks = 1, nodes = 1;
  NcclGeneration generation = NcclGeneration::Hopper;
  bool has_nvlink = true;
  bool has_nvls = false;
  std::int64_t channels = 16;
  BytesPerSecond inside, between;
};

struct NcclChoice {
  NcclAlgorithm algorithm = NcclAlgorithm::Ring;
  NcclProtocol protocol = NcclProtocol::Simple;
  Seconds latency;           // that no byte costs
  BytesPerSecond bandwidth;  // bytes of the message per second
  Seconds fill;              // until the first piece of a chain has come to its last rank
  Seconds time(Bytes bytes) const { return latency + fill + bytes / bandwidth; }
};

/// Time of one algorithm and protocol by NCCL's model, t = latency + bytes / bandwidth, where
///
///   latency   = base + steps inside · hop inside + steps between · hop between      (trees: 2·(depths · hops))
///   bandwidth = bus bandwidth · what the protocol leaves of it · ranks / steps, at most the channels' limit
///
/// Nothing when NCCL does not have the combination. Leaves out tuner plug-ins and CollNet, which needs a switch that
/// reduces. Constants: NVIDIA/nccl, src/graph/tuning.cc (2.2x).
std::optional<NcclChoice> nccl_candidate(CollectiveKind kind, Bytes bytes, const NcclSystem& system,
                                         NcclAlgorithm algorithm, NcclProtocol protocol);

/// The candidate that NCCL takes: the one with the least time. For all-to-all, shift and barrier, which NCCL composes
/// of sends: LL up to 16 KiB per message, then Simple.
///
/// Broadcast and reduce run down a ring as a chain. For the choice NCCL counts latencies only ("waiting for proper
/// chunk modeling"); their time has the latencies of the ring's hops and
///
///   fill = (ranks − nodes) · piece / inside [Simple alone]  +  (nodes − 2) · piece / between
///
/// the time of one piece of each channel on every hop but the slowest, which is in bytes / bandwidth: a rank passes on
/// a Simple piece when all of it is there, and lines of LL and LL128 one by one, but over the network. The root of the
/// next one may be the last that hears of this one (rings go from higher to lower ranks in a node), so that successive
/// chains do not overlap. Piece: channels · what a step of the protocol's buffer holds, 512 KiB, 576,000 B and 32 KiB
/// of data (NCCL 2.18, src/include/device.h and src/init.cc).
NcclChoice nccl_choice(CollectiveKind kind, Bytes bytes, const NcclSystem& system);

}  // namespace orrery
