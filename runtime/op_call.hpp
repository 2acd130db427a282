// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sim/plan/plan.hpp"

namespace orrery {

struct OpCall;
struct GpuQueue;
struct Meeting;
class DiskFile;
class TierLinks;
class TransferCounters;

/// What runs one op: a function that is chosen when the plan is prepared.
using Kernel = void (*)(const OpCall&);

/// One operand, resolved as far as possible before the plan runs.
struct OperandRecord {
  const Layout* layout = nullptr;
  std::int64_t byte_offset = 0;  // of the first element, from the start of the owner's storage
  TensorId tensor, owner;
  Tier tier = Tier::Device;
  DType dtype = DType::F32;
  Access access = Access::Read;
  bool contiguous = true;
  bool moves = false;  // lies elsewhere in storage that is taken on each rank: places has by how much
};

/// `places`: per tensor, of a rank.
inline std::uintptr_t address(const OperandRecord& o, const std::uintptr_t* places) {
  const std::uintptr_t at = places[o.owner.index()] + static_cast<std::uintptr_t>(o.byte_offset);
  return o.moves ? at + places[o.tensor.index()] : at;
}

/// Storage that is taken before an op starts or given back when it has ended.
struct StorageMark {
  TensorId owner;
  Tier tier = Tier::Device;
  std::int64_t bytes = 0;     // a multiple of kAllocationUnit
  std::int32_t counter = -1;  // given back when as many ops as the counter says have ended; −1: one op
};

/// Who an op has to meet: nobody, all ranks of its communicator, or its partner.
enum class Encounter : std::uint8_t { None, Collective, Send, Recv };

/// One op of a class, compiled. Spans point into the ClassProgram.
struct OpRecord {
  Kernel kernel = nullptr;
  const void* work = nullptr;  // the alternative that the Work holds
  std::span<const OperandRecord> operands;
  std::span<const StorageMark> takes, gives_back;
  std::span<const std::uint32_t> waits;  // signals of other lanes
  OpId id;
  std::int32_t signal = -1;   // raised when the op has ended; −1: nobody waits for it
  std::int32_t meeting = -1;  // ordinal among the ops of the class that meet others
  Encounter encounter = Encounter::None;
  Stream stream = Stream::Compute;
};

/// What a kernel gets.
struct OpCall {
  const OpRecord* op = nullptr;
  const Plan* plan = nullptr;
  const Bindings* bindings = nullptr;
  const std::uintptr_t* places =
      nullptr;  // per tensor: address of an owner's storage; offset in the file on Tier::Disk
  std::byte* workspace = nullptr;
  const Meeting* meeting = nullptr;
  std::uint32_t member = 0;   // of the meeting
  DiskFile* disk = nullptr;   // of the rank
  GpuQueue* queue = nullptr;  // of devices that run ops later than they are told to
  TierLinks* links = nullptr;
  TransferCounters* transfers = nullptr;  // of the rank
  RankId rank;

  std::uintptr_t place(const OperandRecord& o) const { return address(o, places); }
};

}  // namespace orrery
