// SPDX-License-Identifier: Apache-2.0
// What a node has around its devices: links to its memory, disks, cores.
#pragma once

#include <vector>

#include "sim/machine/cluster.hpp"
#include "sim/machine/cost.hpp"

namespace orrery {

/// What a copy goes through, and the rate of the slowest of it.
struct CopyPath {
  Seconds latency;
  BytesPerSecond bandwidth{1e300};

  /// Another stretch behind this one: latencies add up, the slower rate counts.
  void through(const CopyPath& next);
  /// What the copy takes of each of its resources at its own rate.
  std::vector<Demand> demands() const;

  struct Use {
    Resource resource;
    BytesPerSecond capacity;
  };
  std::vector<Use> uses;
};

/// A copy between a device and the memory of its node:
///
///   pinned     link · part that copies reach, by direction
///   pageable   min(that, rate of the thread that copies into a pinned buffer); that thread keeps a core busy
///
/// Links behind one PCIe switch are shared by the engine. Parameters: `host_link` of the cluster. The default parts are
/// those that bandwidth tests show on PCIe 3.0 to 5.0 (12.9 of 15.75, 26 of 31.5, 53 of 63 GB/s); NVLink-C2C reaches
/// 375 GB/s to the device and 297 GB/s to the host of 450 GB/s (Schieffer et al., Grace Hopper, ICPP 2024).
///
/// Where the device is this computer itself, `host_link` is a link that stands for another one: the runtime holds
/// copies back to it, and a core is busy only while the bytes are copied.
CopyPath host_copy(const HostLink& link, Tier from, Tier to, double scale);

/// Reading or writing disks with q requests of b bytes under way:
///
///   rate = min(B, q·b / (latency + b / B)),  B of the direction
///
/// Reads and writes at once share the disks by time in the engine: r and w bytes take r/B_r + w/B_w. Leaves out wear,
/// caches of the drive, and interference beyond that. Parameters: `disk` of the cluster.
CopyPath disk_path(const DiskSpec& disk, Tier from, double scale);

/// Work of the host that t threads share, t₁ what one takes:
///
///   t = max(t₁ / threads, bytes / (memory bandwidth · reached))
///
/// `reached` is 0.46 unless a cluster says otherwise: the CPU Adam of ZeRO-Offload takes 2.57 s for 10 billion
/// parameters of 30 B each on two Xeon 8168 with 256 GB/s (Ren et al., USENIX ATC 2021, table 4). Not fitted here. No
/// more threads than the rank's share of cores.
OpCost threads_of_host(const HostWork& work, OpCost one_thread, const NodeGroup& node);

/// What work of the host takes of its memory and cores while it lasts.
OpCost with_host_demands(OpCost cost, Bytes bytes, const NodeGroup& node);

}  // namespace orrery
