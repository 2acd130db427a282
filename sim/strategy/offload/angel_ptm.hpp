// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/offload/chunk_layout.hpp"
#include "sim/strategy/offload/tier_strategy.hpp"

namespace orrery {

struct AngelOptions {
  ParallelOptions parallel;
  Bytes page{4.0 * 1024 * 1024}, device_memory{0};
  double usable = 0.9;
  Store states = Store::Host;
  HostMemory memory = HostMemory::Pinned;
  bool cache_states = true, own_gradients = true, lock_free = false;
  std::int64_t buffers = 4;

  template <class V>
  void visit(V& v) {
    v.field("parallel", parallel, kParallelHelp);
    v.field("page", page, "memory is given in pieces of so many bytes of weights", at_least(Bytes{64}));
    v.required("device_memory", device_memory, "memory of a device that the step may count on", more_than(Bytes{0}));
    v.field("usable", usable, "part of it that is used", between(0, 1));
    v.field("states", states, "where optimizer states are that do not stay on the device");
    v.field("memory", memory, "host memory that copies go to and come from");
    v.field("cache_states", cache_states,
            "keep on the device, and update there, the states that fit beside the passes (lock_free: none)");
    v.field("own_gradients", own_gradients,
            "gradients on the host lie beside their weights; else in their place (lock_free: always beside)");
    v.field("lock_free", lock_free,
            "update beside the passes, a part of the weights per microbatch, with the gradients that came since");
    v.field("buffers", buffers, "runs of pages whose states come from a disk and go back to it at once", at_least(1));
  }

  Tier tier_of_states() const { return tier_of(states, memory); }
};

/// Pages of a class.
ChunkLayout angel_pages(const Plan& plan, const Updates& updates, const AngelOptions& options);

/// The step with an updater that the passes do not wait for. There are as many groups of weights as microbatches;
/// behind microbatch j the updater takes the gradients of group j, all since it was there last, updates it beside the
/// next microbatch, and publishes the weights behind that one: they are used from microbatch j + 2 on. So gradients are
/// computed with weights that lack the last `microbatches` + 1 gradients at most.
Plan update_lock_free(const Plan& plan, const AngelOptions& options, const WorkspaceModel* workspaces);

}  // namespace orrery
