// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/program/serving/request_options.hpp"
#include "sim/strategy/workload.hpp"

namespace orrery {

/// What becomes of a sequence that has to make room: its keys and values are thrown away and computed again, or moved
/// to the memory of the host and back.
enum class Preemption : std::uint8_t { Recompute, Swap };
inline std::span<const EnumName<Preemption>> enum_names(Preemption) {
  static constexpr EnumName<Preemption> names[] = {{Preemption::Recompute, "recompute"}, {Preemption::Swap, "swap"}};
  return names;
}

/// Which replica a request goes to: each in turn; that with the fewest tokens to come; or that which holds most of its
/// prompt, unless it has much more to do than the others.
enum class RequestRouting : std::uint8_t { RoundRobin, LeastLoaded, PrefixAware };
inline std::span<const EnumName<RequestRouting>> enum_names(RequestRouting) {
  static constexpr EnumName<RequestRouting> names[] = {{RequestRouting::RoundRobin, "round_robin"},
                                                       {RequestRouting::LeastLoaded, "least_loaded"},
                                                       {RequestRouting::PrefixAware, "prefix_aware"}};
  return names;
}

/// Types that keys and values may have in the pool. `Model`: as the model.
enum class KvType : std::uint8_t { Model, F8, I8 };
inline std::span<const EnumName<KvType>> enum_names(KvType) {
  static constexpr EnumName<KvType> names[] = {{KvType::Model, "model"}, {KvType::F8, "fp8"}, {KvType::I8, "int8"}};
  return names;
}

/// What a replica's `memory` is a part of: of all of the device, for weights, activations and pool; of all, for weights
/// and pool, and activations take of the rest (SGLang's `mem-fraction-static`); of what weights and activations leave
/// free, for the pool (TensorRT-LLM's `kv_cache_free_gpu_mem_fraction`).
enum class MemoryOf : std::uint8_t { Device, WeightsAndPool, Free };
inline std::span<const EnumName<MemoryOf>> enum_names(MemoryOf) {
  static constexpr EnumName<MemoryOf> names[] = {
      {MemoryOf::Device, "device"}, {MemoryOf::WeightsAndPool, "weights_and_pool"}, {MemoryOf::Free, "free"}};
  return names;
}

/// What is promised to each request: the first token within `ttft`, the others each `tpot` apart in the mean.
struct SloOptions {
  Seconds ttft{1e9}, tpot{1e9};

  template <class V>
  void visit(V& v) {
    v.field("ttft", ttft, "most time to the first token", more_than(Seconds{0}));
    v.field("tpot", tpot, "most time per token behind the first, in the mean over a request", more_than(Seconds{0}));
  }
};

/// Room and limits of one replica.
struct ReplicaOptions {
  std::string scheduler = "vllm_v1";
  std::int64_t max_sequences = 256, max_tokens = 2048;
  std::int64_t block = 16;
  std::int64_t notice_every = 1;
  std::int64_t kv_tokens = 0;
  double memory = 0.9;
  MemoryOf memory_of = MemoryOf::Device;
  Bytes reserved{1.5e9};
  KvType kv_type = KvType::Model;
  Bytes swap{0};
  Preemption preemption = Preemption::Recompute;
  bool prefix_sharing = true;
  double conservativeness = 1;
  bool known_lengths = false;

  template <class V>
  void visit(V& v) {
    v.field("scheduler", scheduler, "which sequences a step takes: one of `orrery list schedulers`");
    v.field("max_sequences", max_sequences, "sequences that run together", at_least(1));
    v.field("max_tokens", max_tokens, "new tokens of one step", at_least(1));
    v.field("notice_every", notice_every,
            "steps of decoding sequences alone between two looks at which requests have come; behind other steps, and "
            "while nothing runs, they are noticed at once (SGLang's `scheduler-recv-interval`)",
            at_least(1));
    v.field("block", block, "tokens of a block of keys and values", at_least(1));
    v.field("kv_tokens", kv_tokens, "tokens that the pool has room for; 0: what the device's memory leaves",
            at_least(0));
    v.field("memory", memory, "part of the memory that `memory_of` names", between(0, 1));
    v.field("memory_of", memory_of,
            "of the device, for weights, pool and activations; the same for weights and pool, activations taking of "
            "the rest; or of what weights and activations leave free, for the pool");
    v.field("reserved", reserved, "besides: the driver's context, graphs and scratch of kernels", at_least(Bytes{0}));
    v.field("kv_type", kv_type, "type of keys and values in the pool");
    v.field("swap", swap, "memory of the host for swapped sequences, per rank", at_least(Bytes{0}));
    v.field("preemption", preemption, "what becomes of a sequence that makes room");
    v.field("prefix_sharing", prefix_sharing, "prompts that begin alike share blocks");
    v.field("conservativeness", conservativeness,
            "sglang: how much of their answers running requests are expected to generate yet, in units of its default "
            "(SGLang's `schedule-conservativeness`)",
            more_than(0));
    v.field("known_lengths", known_lengths,
            "sglang without prefix_sharing: answers are known to have their whole length (`ignore_eos` of its "
            "requests), so that those are let in that fit until the last is done");
  }
};

/// Requests answered by replicas of a model.
struct ServeOptions {
  TrafficOptions traffic;
  ReplicaOptions replica;
  std::int64_t replicas = 1, prefill_replicas = 0;
  RequestRouting routing = RequestRouting::RoundRobin;
  std::int64_t context = 0;
  std::int64_t max_waiting = 1'000'000;
  SloOptions slo;
  Precision dtype = Precision::BF16;
  std::string weights = "model";
  std::int64_t bucket = 1;

  template <class V>
  void visit(V& v) {
    v.field("traffic", traffic, "what is asked for, when");
    v.field("replica", replica, "room and limits of each replica");
    v.field("replicas", replicas, "copies of the model; with `prefill_replicas` those that decode", at_least(1));
    v.field("prefill_replicas", prefill_replicas,
            "copies that only read prompts and hand keys and values over; 0: each replica does both", at_least(0));
    v.field("routing", routing, "which replica a request goes to");
    v.field("context", context, "most tokens of a sequence; 0: positions of the model", at_least(0));
    v.field("max_waiting", max_waiting, "requests that may wait at once; further ones are refused", at_least(1));
    v.field("slo", slo, "what is promised to each request");
    v.field("dtype", dtype, "type of weights, activations and cache");
    v.field(
        "weights", weights,
        "type of the matrices of blocks: model, fp8, int8, fp4, or fp4_experts, where those of experts alone are in 4 "
        "bits (predictions only)");
    v.field("bucket", bucket,
            "predictions: mean context lengths are rounded up to multiples of this, which saves time and widens the "
            "interval; 1: exact",
            at_least(1));
  }
};

}  // namespace orrery
