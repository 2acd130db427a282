// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/timeline/digest.hpp"

namespace orrery {

// What the formats of other viewers have in common. They keep what a viewer shows: spans, op names and works,
// dependencies, memory samples, metadata. Groups, peers, tensors and peaks are lost, and times are rounded down to
// nanoseconds.

/// What such a file says of the run as a whole, as texts: source, machine, plans, instances and the notes of the trace.
std::vector<std::pair<std::string, std::string>> header_of(const Trace& trace);

/// One slice, as read.
struct Slice {
  Span span;
  std::uint32_t plan = 0;
  std::string_view name, kind, op_class, work, phase;
  Stream stream = Stream::Compute;
  std::int64_t layer = -1, microbatch = 0;
};

/// Puts a trace together from slices. Errors are UserError with the name of the file.
class TraceBuilder {
 public:
  explicit TraceBuilder(std::string file) : file_{std::move(file)} {}

  /// An entry of `header_of`; others become metadata.
  void add_header(std::string_view key, std::string_view value);
  void add(const Slice& slice);
  void add_dependency(std::uint32_t plan, OpId op, OpId on);
  void add(const MemorySample& sample) { trace_.timeline.memory.push_back(sample); }
  Trace take();

  [[noreturn]] void fail(std::string_view what) const;
  /// The number, or fail().
  std::int64_t number(std::string_view text) const;

 private:
  struct Building {
    std::unordered_map<std::uint32_t, Op> ops;
    std::unordered_map<NameId, std::uint32_t> works;  // by text
    std::vector<std::pair<OpId, OpId>> deps;          // op, on what
  };
  void add_plan(std::uint32_t index);
  Op make_op(const Slice& slice, PlanDigest& plan, Building& building) const;
  void finish(PlanDigest& plan, Building& building, std::int64_t ranks) const;

  std::string file_;
  Trace trace_;
  std::vector<Building> building_;
  std::int64_t ranks_ = 1;
  std::uint32_t named_plans_ = 0;  // a header may come before or after the slices
};

}  // namespace orrery
