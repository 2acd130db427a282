// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "sim/strategy/offload/chunk_moves.hpp"

namespace orrery {

/// Room on the device that master copies come back through. The first releases of PatrickStar keep it from the first
/// update on, beside what chunks may have: their warm-up step had not seen it. Later ones take it out of a cache of
/// chunks, which counts as such.
enum class WriteBuffer : std::uint8_t { None, Beside, Within };
inline std::span<const EnumName<WriteBuffer>> enum_names(WriteBuffer) {
  static constexpr EnumName<WriteBuffer> names[] = {
      {WriteBuffer::None, "none"}, {WriteBuffer::Beside, "beside"}, {WriteBuffer::Within, "within"}};
  return names;
}

/// What tells how much lies beside chunks: all of it, or as PatrickStar's releases before 0.4 had it, what lies there
/// when weights are asked for, 1.5 times in the forward pass and twice in the backward pass.
enum class MemoryTracer : std::uint8_t { Exact, Moments };
inline std::span<const EnumName<MemoryTracer>> enum_names(MemoryTracer) {
  static constexpr EnumName<MemoryTracer> names[] = {{MemoryTracer::Exact, "exact"},
                                                     {MemoryTracer::Moments, "moments"}};
  return names;
}

/// How model data lies in chunks, and how much of the device they may take.
struct ChunkOptions {
  std::int64_t chunk = 64 << 20;
  Bytes device_memory{0};
  std::optional<Bytes> host_memory = std::nullopt;
  double usable = 0.8;
  std::int64_t reserve = 1;
  Bytes update_reserve{0};
  WriteBuffer write_buffer = WriteBuffer::None;
  MemoryTracer tracer = MemoryTracer::Exact;
  Eviction eviction = Eviction::Belady;
  HostMemory memory = HostMemory::Pinned;
  bool hybrid = true, asynchronous = false;

  template <class V>
  void visit(V& v) {
    v.field("chunk", chunk, "elements of a chunk; no fewer than the largest tensor has", at_least(1));
    v.required("device_memory", device_memory, "memory of a device that the step may count on", more_than(Bytes{0}));
    v.field("host_memory", host_memory,
            "host memory that a rank may count on: where chunks need more, as many of them as it takes lie on the "
            "device for good; left out: no limit",
            more_than(Bytes{0}));
    v.field("usable", usable, "part of either memory that is used", between(0, 1));
    v.field("reserve", reserve, "chunks of room that are kept free during the passes", at_least(0));
    v.field("update_reserve", update_reserve,
            "memory of the device that is kept free while the host updates: with `host_memory`, both memories have to "
            "hold all chunks beside it",
            at_least(Bytes{0}));
    v.field(
        "write_buffer", write_buffer,
        "room of a chunk's master copy that stays on the device for those that come back: none while they do not, or "
        "beside the room that chunks may have, or within it");
    v.field("tracer", tracer,
            "what tells how much lies beside chunks: exact, or moments, when weights are asked for, of which more is "
            "kept free than is seen");
    v.field("eviction", eviction, "which chunk leaves the device when another one needs its room");
    v.field("memory", memory, "host memory that copies go to and come from");
    v.field("hybrid", hybrid, "update on the device as many chunks as fit beside the passes");
    v.field(
        "asynchronous", asynchronous,
        "copies have streams of their own: a chunk leaves beside the passes, and the next one comes ahead; one more "
        "chunk of room is kept for what is on its way");
  }
};

/// Chunks of equal size as PatrickStar moves them (see patrickstar.cpp). `counts`, if not null, gets one entry per
/// class.
Plan chunk_states(const Plan& plan, const ChunkOptions& options, const WorkspaceModel* workspaces,
                  std::vector<ChunkCounts>* counts = nullptr);

}  // namespace orrery
