// SPDX-License-Identifier: Apache-2.0
// Work of the host between ops of a device.
#include <algorithm>

#include "runtime/cuda/families.hpp"
#include "runtime/cuda/host_side.hpp"
#include "runtime/cuda/op_context.hpp"
#include "runtime/host/host_work.hpp"

namespace orrery {

/// What the op reads is brought to the host first, in the order of the stream; more than a buffer of it is read again
/// and again from what was brought.
static void run(const HostWork& w, const GpuContext<void>& c) {
  GpuQueue& queue = c.queue();
  const std::uintptr_t buffer = queue.host.buffer(queue.stream);
  std::int64_t bytes = 4096;
  for (int i = 0; i < c.size(); ++i) {
    if (c.operand(i).tier == Tier::Disk || !c.operand(i).contiguous) continue;
    bytes = std::min(static_cast<std::int64_t>(size_of(c.operand(i).dtype, c.elements(i)).base()), HostSide::kBuffer);
    queue.driver.copy(buffer, c.call().place(c.operand(i)), bytes, queue.stream);
    break;
  }
  const auto work = [w, buffer, bytes] { do_host_work(w, reinterpret_cast<const std::byte*>(buffer), bytes); };
  if (!w.waits || queue.captures) return queue.host.call(queue.stream, work);
  queue.driver.synchronize(queue.stream);
  work();
}

Kernel find_gpu_host_work(const Work& work) { return find_gpu_untyped<HostWork>(work); }

}  // namespace orrery
