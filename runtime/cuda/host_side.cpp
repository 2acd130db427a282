// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/host_side.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kSlot = 16, kPage = 4096;

using kernels::cuda::FaultKind;

std::string text_of(FaultKind kind, std::int32_t value, std::int32_t limit) {
  switch (kind) {
    case FaultKind::NoRoomForRows:
      return fmt::format(
          "{} rows come to the experts of this rank, there is room for {}; a larger `expert_buffer` has "
          "room for more, 0 for all",
          value, limit);
    case FaultKind::RowsDiffer:
      return fmt::format("a member sends {} rows, {} are awaited", value, limit);
    case FaultKind::NotPositive:
      return fmt::format("a matrix of {} rows is not positive definite at row {}", limit, value);
    case FaultKind::Stalled:
      return "threads of a block waited for one another for seconds, and went on: the result is wrong";
    default:
      return fmt::format("an index of {} where {} is the end", value, limit);
  }
}

}  // namespace

HostSide::HostSide(GpuDriver& driver) : driver_{driver}, pinned_{driver.pinned_memory()} {
  take(kSlot, kSlot);  // of faults
  std::memset(reinterpret_cast<void*>(pinned_->base()), 0, kSlot);
}

std::uintptr_t HostSide::take(std::int64_t bytes, std::int64_t alignment) {
  const std::int64_t first = (used_ + alignment - 1) / alignment * alignment;
  if (!pinned_->grow(first + bytes))
    throw DeviceError{fmt::format("no pinned memory on the host for {} B that a plan exchanges with its GPUs", bytes)};
  used_ = first + bytes;
  return pinned_->base() + static_cast<std::uintptr_t>(first);
}

std::uintptr_t HostSide::slot() {
  if (next_slot_ == slots_.size()) slots_.push_back(take(kSlot, kSlot));
  return slots_[next_slot_++];
}

std::uintptr_t HostSide::buffer(GpuStream stream) {
  std::uintptr_t& place = buffers_[stream];
  if (place == 0) place = take(kBuffer, kPage);
  return place;
}

kernels::cuda::Fault HostSide::fault(OpId op) const {
  return {reinterpret_cast<std::int32_t*>(pinned_->base()), static_cast<std::int32_t>(op.index())};
}

void HostSide::call(GpuStream stream, std::function<void()> work) {
  Errand& errand = errands_.emplace_back(Errand{this, std::move(work)});
  driver_.call(&HostSide::run, &errand, stream);
}

void HostSide::run(void* argument) noexcept {
  const auto& errand = *static_cast<const Errand*>(argument);
  HostSide& side = *errand.side;
  {
    const std::lock_guard lock{side.mutex_};
    if (side.error_) return;
  }
  try {
    errand.work();
  } catch (...) {
    const std::lock_guard lock{side.mutex_};
    if (!side.error_) side.error_ = std::current_exception();
  }
}

void HostSide::check(const Plan& plan) {
  {
    const std::lock_guard lock{mutex_};
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  auto* word = reinterpret_cast<std::int32_t*>(pinned_->base());
  if (word[0] == 0) return;
  const std::array<std::int32_t, 4> left{word[0], word[1], word[2], word[3]};
  std::memset(word, 0, kSlot);
  const OpId op{static_cast<std::size_t>(left[0] - 1)};
  throw DeviceError{fmt::format("op {} '{}': {}", op.index(), plan.name_of(plan[op]),
                                text_of(static_cast<FaultKind>(left[1]), left[2], left[3]))};
}

void HostSide::reset() {
  errands_.clear();
  next_slot_ = 0;
  std::memset(reinterpret_cast<void*>(pinned_->base()), 0, kSlot);
  error_ = nullptr;
}

}  // namespace orrery
