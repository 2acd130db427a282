// SPDX-License-Identifier: Apache-2.0
// Curves of collectives from published measurements.
#pragma once

#include <string>
#include <vector>

#include "hw_models/fabric_parameters.hpp"

namespace orrery {

/// One measured collective.
struct ExchangeSample {
  Exchange op = Exchange::AllReduce;
  std::string software = "nccl";
  std::int64_t ranks = 2, nodes = 1;
  Bytes bytes;
  Seconds measured;
};

/// A curve for each op, software and placement that has at least four sizes: the segments that make the sum of
/// |ln(fitted / measured)| smallest, found by dynamic programming, where each further segment must bring 4 % of one
/// size. A segment's line minimises relative errors, of which large ones count linearly; repeats of a size are averaged
/// first. The numbers of its `spread` come from sizes left out one by one, and beyond the last one from the largest
/// fifth left out at once, each over the doubt that it is multiplied by; at measured sizes from times of one size
/// against each other, or where there was one of each, from what the curve leaves of them. All from those of the curve,
/// and from those of the fabric as if they were four more, scaled to cover 88 % of the fabric's.
///
/// Where a curve's sizes end below 100 MB it goes on as between its last ones, but in a node no further than 15 % from
/// `bus`, what large rings reach; one without sizes below 16 KiB falls to half of its smallest time.
std::vector<CollectiveCurve> fit_exchanges(const std::vector<ExchangeSample>& samples, BytesPerSecond bus);

/// Bytes that pass a link of a rank per byte of the message, as nccl-tests has it: 2(n − 1)/n for an all-reduce, 1 for
/// a send, (n − 1)/n for the others.
double bus_factor(Exchange op, std::int64_t ranks);

}  // namespace orrery
