// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "gui/core/companion.hpp"
#include "gui/core/insight.hpp"

namespace orrery::gui {

/// Plays a timeline again with other durations: each span begins when all it waits for has ended, plus the gap that it
/// had; a collective moves data from when its last partner has begun. What cannot be played again this way: contention
/// that other durations would cause, and other orders within a stream.
class Retimer {
 public:
  Retimer(const Timeline& timeline, const SpanGraph& graph);

  /// Picoseconds per span: how long it runs, of a meeting from when its last partner has begun; and between the end of
  /// the last thing it waited for and its start.
  std::vector<std::int64_t> durations, gaps;
  /// The end of the last span.
  std::int64_t makespan() const;

 private:
  const Timeline& timeline_;
  const SpanGraph& graph_;
  std::vector<std::uint32_t> first_after_;
  std::vector<SpanIndex> after_;
};

/// One row of an explanation of the difference in time between two runs of one plan.
struct Share {
  std::string name;                 // an op class, "collective between nodes", "launch gaps" or "structure"
  double forward = 0, reverse = 0;  // seconds, when classes are put in one after another, in both orders
  double bias = 0;                  // Σ other / Σ main of the matched durations − 1
  std::uint64_t pairs = 0;
  double mean() const { return (forward + reverse) / 2; }
};

/// Explains why `other` takes longer or shorter than `main`: plays `main` again with the durations of `other`, class
/// after class. Each order telescopes, so the rows with "structure" (order, overlap, ops without a partner) add up to
/// the difference exactly. Where the trace says how many devices a node has, collectives between nodes are a class of
/// their own.
struct Explanation {
  double main = 0, other = 0;  // seconds
  std::vector<Share> shares;   // in the order of OpClass, collectives between nodes, then gaps, then structure
};
Explanation explain(const Document& main, const Insight& main_insight, const Document& other,
                    const Insight& other_insight, const std::vector<EventIndex>& partner_of_main);

/// Matched events of the main document that are on its critical path or whose partner is longer by more than their
/// slack, by what their error adds to the run, largest first.
std::vector<EventIndex> worst_events(const Document& main, const Insight& insight, const Companion& other);

}  // namespace orrery::gui
