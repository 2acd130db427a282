// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/layers.hpp"

namespace orrery {

/// Rows in order of the experts that they have chosen, where the experts are.
struct ExpertRows {
  TensorId x, offsets;       // offsets[e]: the first row of an expert
  std::int64_t experts = 0;  // that are here
  std::int64_t rows = 0;     // as expected, from how often each expert is chosen
  double skew = 1;           // rows of the fullest expert over their mean
  std::int64_t buffer = 0;   // rows that x has
  bool counted = false;      // how many rows there are is known at run time, from the offsets
  TensorId weights;          // of each row, where rows are weighted at the experts
};

/// The rows of a layer: the at most `top_k` of a token go to different experts.
struct ExpertTraffic {
  std::int64_t tokens = 0, top_k = 1, experts = 0, cols = 0;
  std::int64_t capacity = 0;             // rows that each rank sends to each expert; 0: as many as have chosen it
  std::int64_t rows = 0, room = 0;       // of a rank's tokens: as expected, and that there is room for
  const ExpertLayout* layout = nullptr;  // that of the layer
};

/// The way of rows to the ranks of ep that hold their experts, and back: expert parallelism as in GShard (arXiv
/// 2006.16668). Without a capacity (dropless, as in MegaBlocks, arXiv 2211.15841) the ranks first tell one another
/// which rows they send; what arrives finds room in a buffer of `expert_buffer` times the rows that are expected. An
/// exchange has the bytes of the rank that is busiest, which the others wait for. With a capacity all messages have one
/// size.
class ExpertExchange {
 public:
  ExpertExchange(Layers& layers, std::string_view name, const ExpertTraffic& traffic);

  /// From the rows of this rank's tokens, sorted by all experts, to the rows for the experts of this rank.
  ExpertRows dispatch(const ExpertRows& home);
  /// The same way, for one number per row.
  TensorId dispatch_weights(TensorId weights);
  /// What the experts have made of the rows, where the rows came from.
  TensorId combine(TensorId y);

 private:
  std::string part(std::string_view suffix) const;
  /// Of the rank that has most experts, and of this one.
  std::int64_t held() const { return traffic_.layout->most_held(); }
  std::int64_t here() const { return std::ssize(traffic_.layout->held(place_)); }
  /// Rows of a rank; with even experts as many come to a rank.
  std::int64_t sent() const { return traffic_.rows; }
  std::int64_t expected() const;
  Stream stream() const { return l_.sizes().expert_overlap ? Stream::Ring : Stream::Compute; }
  Collective all_to_all(std::int64_t cols) const;
  TensorId arrange(std::string_view suffix, TensorId arrived, std::int64_t cols);
  void agree(TensorId offsets);
  TensorId parts();
  TensorId exchange_rows(std::string_view suffix, TensorId x, const Shape& out, TensorId from, TensorId to);
  TensorId exchange_equal(std::string_view suffix, TensorId x, std::int64_t cols);

  Layers& l_;
  std::string name_;
  ExpertTraffic traffic_;
  Split ep_;
  std::int64_t place_ = 0;  // of this class
  std::int64_t buffer_ = 0;
  TensorId home_, away_, offsets_;  // spans of the rows where their tokens and where their experts are
};

}  // namespace orrery
