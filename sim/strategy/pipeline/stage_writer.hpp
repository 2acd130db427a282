// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "sim/strategy/pipeline/schedule.hpp"

namespace orrery {

/// Writes the list of a stage with two chunks: each pass takes the next microbatch of its chunk, weight gradients
/// follow in the order of their input gradients.
class StageWriter {
 public:
  /// Microbatches of chunk c are c·offset, c·offset + step, …
  StageWriter(std::int32_t step, std::int32_t offset) : step_{step}, offset_{offset} {}

  void forward(std::int32_t chunk) { add(Pass::Forward, chunk, forwards_); }
  void backward(std::int32_t chunk) { add(Pass::Backward, chunk, backwards_); }
  void input_gradient(std::int32_t chunk) {
    add(Pass::InputGradient, chunk, backwards_);
    waiting_.push_back(actions_.back());
  }
  void weight_gradient() {
    Action action = waiting_.front();
    waiting_.pop_front();
    action.pass = Pass::WeightGradient;
    actions_.push_back(action);
  }
  void all_weight_gradients() {
    while (!waiting_.empty()) weight_gradient();
  }

  std::int32_t num_forwards(std::int32_t chunk) const { return forwards_[static_cast<std::size_t>(chunk)]; }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  using PerChunk = std::array<std::int32_t, 2>;

  void add(Pass pass, std::int32_t chunk, PerChunk& done) {
    const std::int32_t i = done[static_cast<std::size_t>(chunk)]++;
    actions_.push_back({pass, chunk, i * step_ + chunk * offset_});
  }

  std::int32_t step_, offset_;
  PerChunk forwards_{}, backwards_{};
  std::deque<Action> waiting_;
  std::vector<Action> actions_;
};

}  // namespace orrery
