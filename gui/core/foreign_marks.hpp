// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/timeline/foreign_trace.hpp"

namespace orrery::gui {

/// Where an event stands in the training that a trace of another program recorded.
struct ForeignPlace {
  std::optional<std::uint64_t> step, layer, microbatch;
  bool is_backward = false;  // found through the gradient of an op that was marked
};

/// What the ranges that a person marked ("ProfilerStep#3", "layer 12",
/// "microbatch 2") say of the events of a trace of another program.
/// A kernel runs later than the code that launched it: the marks around its launch count, found through its arrow. A
/// launch of the backward pass lies in no mark; the op whose gradient it is does, found through the arrow from it.
class ForeignMarks {
 public:
  explicit ForeignMarks(const ForeignTrace& trace);

  ForeignPlace place(std::uint32_t event) const;
  /// Numbers of the steps, in order.
  const std::vector<std::uint64_t>& steps() const { return steps_; }

 private:
  struct Range {
    std::int64_t begin = 0, end = 0;
    std::uint64_t value = 0;  // a number of a step or layer, or an event
  };
  using Ranges = std::map<std::uint32_t, std::vector<Range>>;  // by thread or process, by begin

  void find_step_before();
  std::optional<std::uint64_t> step_at(std::uint32_t process, std::int64_t time) const;
  static std::optional<std::uint64_t> at(const Ranges& ranges, std::uint32_t key, std::int64_t time);
  std::uint32_t process_of(std::uint32_t event) const { return trace_.threads[trace_.events[event].thread].process; }
  std::optional<std::uint64_t> around(std::uint32_t event, const Ranges& ranges) const;

  const ForeignTrace& trace_;
  std::vector<std::uint32_t> source_;         // per event: where its arrow comes from; UINT32_MAX: it has none
  Ranges layers_, microbatches_, gradients_;  // by thread
  Ranges step_ranges_;                        // by process
  std::vector<std::uint64_t> steps_;
  std::optional<std::uint64_t> step_before_;  // of which the mark is missing: the recording began within it
};

/// The number behind a word in a text: 12 in "layers.12.mlp" for "layer"; nothing where the word is not there.
std::optional<std::uint64_t> number_behind(std::string_view text, std::string_view word);

}  // namespace orrery::gui
