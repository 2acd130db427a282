// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "calibrate/measure.hpp"

namespace orrery {

/// One kind of op over random sizes: `draw` makes an op of sizes spread evenly on a logarithmic scale.
struct Suite {
  std::string_view name;
  std::string_view summary;
  Work (*draw)(Random&);
  int points = 20;  // of a full calibration; a quick one has a third
};

/// All suites of single ops, in the order of `orrery list benchmarks`.
std::span<const Suite> suites();

/// Draws the ops of all suites. `share` of the points of each, at least 4.
std::vector<Work> draw_works(Random& random, double share);

/// Products of few rows over more and more weights, from a part of the second-level cache to 160 MB, and on to `most`:
/// where the caches end.
std::vector<Bench> cache_sweep(Random& random, Bytes most);
/// Products of up to 128 rows, forward and, packed, of weights' gradients, over weights of a part of the second-level
/// cache to little more than it: those of a small network stay there from one use to the next, and only that tells what
/// products take from what fetching their weights does.
std::vector<Bench> near_products(Random& random);
/// Products of one row with `bytes` of weights, which they do little more than read.
Bench reading_bench(Bytes bytes, Random& random);

/// Ranks of this computer in collectives of many sizes.
std::vector<Bench> message_benches(std::int64_t ranks, Random& random);
/// Two ranks that send each other messages of many sizes.
std::vector<Bench> ring_benches(Random& random);
/// Pairs of ranks, each of which takes part in one small collective after another.
Bench pairs_bench(std::int64_t ranks);

}  // namespace orrery
