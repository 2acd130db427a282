// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "runtime/device.hpp"
#include "runtime/op_call.hpp"

namespace orrery {

/// The ops of a rank class, compiled: per thread a list of records whose spans lie in the tables of the program. A lane
/// holds one stream; host work that waits, beside one other stream, never runs at the same time as its ops and shares
/// their lane.
struct ClassProgram {
  std::vector<std::vector<OpRecord>> lanes;
  std::vector<OperandRecord> operands;
  std::vector<StorageMark> takes, gives_back;
  std::vector<std::uint32_t> waits;
  std::vector<std::uint32_t> counters;  // per owner that several streams give back: how many ops do
  std::vector<TensorId> persistent;     // owners, ascending
  std::vector<std::uint32_t> meetings;  // ops that meet others, in plan order
  std::uint32_t num_signals = 0;

  std::size_t marks() const { return takes.size() + gives_back.size(); }
};

ClassProgram compile(const Plan& plan, ClassId id, const Device& device);

}  // namespace orrery
