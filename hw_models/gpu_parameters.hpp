// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hw_models/device_model.hpp"
#include "hw_models/gpu_laws.hpp"
#include "hw_models/gpu_runtime.hpp"

namespace orrery {

/// How far predictions by laws of another device may be off, in addition to what the law says itself: relative standard
/// deviations.
struct GpuUncertainty {
  double deviation = 0.05;
  double gemm = 0.2, attention = 0.3, memory = 0.2;

  template <class V>
  void visit(V& v) {
    v.field("deviation", deviation, "of one op, independent of all others", at_least(0));
    v.field("gemm", gemm, "shared by all matrix products", at_least(0));
    v.field("attention", attention, "shared by all attention", at_least(0));
    v.field("memory", memory, "shared by all that memory limits", at_least(0));
  }
};

/// Parameters of a GPU, as its file has them.
struct GpuParameters {
  Provenance provenance;
  Bytes memory;
  BytesPerSecond memory_bandwidth;
  std::int64_t sm_count = 1;
  std::map<std::string, FlopsPerSecond> peak;
  FlopsPerSecond vector_rate;
  double sustained_clock = 0.9;
  double attention_backward = 0.8, portable_attention = 1;
  double misaligned = 0.1;
  Seconds enqueue, start_latency;
  FlopsPerSecond host_rate;
  BytesPerSecond host_memory_bandwidth;
  CommunicationParameters communication;
  GpuUncertainty uncertainty;
  std::vector<std::string> like;
  std::map<std::string, GpuLaw> laws;
  std::optional<GpuRuntime> runtime;

  template <class V>
  void visit(V& v) {
    v.required("provenance", provenance, "where the numbers come from");
    v.required("memory", memory, "capacity", more_than(Bytes{0}));
    v.required("memory_bandwidth", memory_bandwidth, "peak rate of the memory", more_than(BytesPerSecond{0}));
    v.required("sm_count", sm_count, "streaming multiprocessors", at_least(1));
    v.required("peak", peak, "dense matrix arithmetic by data type", more_than(FlopsPerSecond{0}));
    v.required("vector_rate", vector_rate, "arithmetic outside of matrix units", more_than(FlopsPerSecond{0}));
    v.field("sustained_clock", sustained_clock, "clock of long work over that of single kernels", Range{0, 1, true});
    v.field("attention_backward", attention_backward, "rate of the backward pass of attention over the forward one's",
            more_than(0));
    v.field("portable_attention", portable_attention,
            "rate of attention by kernels written for older devices, over that of the law's kernels", more_than(0));
    v.field("misaligned", misaligned,
            "part of the rate left to products in 16 or 8 bits whose rows are no multiple of 16 B", Range{0, 1, true});
    v.required("enqueue", enqueue, "time of the host thread per kernel", at_least(Seconds{0}));
    v.required("start_latency", start_latency, "from the end of the enqueue to the start on an idle stream",
               at_least(Seconds{0}));
    v.required("host_rate", host_rate, "arithmetic of one host thread", more_than(FlopsPerSecond{0}));
    v.required("host_memory_bandwidth", host_memory_bandwidth, "memory rate of one host thread",
               more_than(BytesPerSecond{0}));
    v.field("communication", communication, "collectives and messages");
    v.field("uncertainty", uncertainty, "how far predictions by laws of other devices may be off");
    v.field("like", like, "devices whose laws stand in for those that are missing here, nearest first");
    v.field("laws", laws, "laws fitted to measurements of this device");
    v.field("runtime", runtime, "Orrery's own runtime on this device: laws of its kernels, and its host thread");
  }
};

/// Throws UserError with all problems: unknown keys, units, names that are no data type or law, coefficients that are
/// missing.
GpuParameters read_gpu_parameters(const Node& document);

}  // namespace orrery
