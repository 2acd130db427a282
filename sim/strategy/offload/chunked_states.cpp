// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/chunked_states.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "sim/base/option_error.hpp"
#include "sim/base/units.hpp"

namespace orrery {
namespace {

/// Where all weights stay on the device, what is left beside them holds the states of some chunks (0.8 of it, as the
/// reference does), which are updated there.
std::int64_t device_updates(const ChunkTrace& trace, std::int64_t left) {
  std::int64_t room = static_cast<std::int64_t>(0.8 * double(left)), count = 0;
  for (const std::int64_t bytes : trace.state_bytes) {
    if (bytes > room) break;
    room -= bytes;
    ++count;
  }
  return count;
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

/// Chunks that lie on the device for good because the host has no room for them: their weights while others come and
/// go, or, where all weights are there, their states. `left`: bytes of the device for them.
std::int64_t relieve_host(const ChunkTrace& trace, const ChunkOptions& o, bool cached, std::int64_t left) {
  if (!o.host_memory) return 0;
  const double most = o.usable * o.host_memory->base();
  const auto& each = cached ? trace.weight_bytes : trace.state_bytes;
  const double on_host = double((cached ? sum(trace.weight_bytes) : 0) + sum(trace.state_bytes));
  double above = on_host - most, room = double(left);
  std::size_t kept = 0;
  for (; above > 0 && kept < each.size() && double(each[kept]) <= room; ++kept) {
    above -= double(each[kept]);
    room -= double(each[kept]);
  }
  if (above > 0)
    throw OptionError{
        {"host_memory", "device_memory"},
        fmt::format("chunks take {} of the host, which has room for {}, and the device has {} for the rest",
                    to_text(Bytes{on_host}), to_text(Bytes{most}),
                    to_text(Bytes{double(std::max<std::int64_t>(left, 0))})),
        "allow more memory, use more ranks, or recompute activations"};
  return static_cast<std::int64_t>(kept);
}

/// Updates touch all chunks, moments among them, which there are none of before the first one.
void check_updates(const ChunkTrace& trace, const ChunkOptions& o) {
  if (!o.host_memory) return;
  const double all = double(sum(trace.weight_bytes) + sum(trace.state_bytes));
  const double most = o.usable * (o.host_memory->base() + o.device_memory.base()) - o.update_reserve.base();
  if (all > most)
    throw OptionError{{"host_memory", "device_memory"},
                      fmt::format("chunks take {}, and host and device have room for {} during updates",
                                  to_text(Bytes{all}), to_text(Bytes{std::max(most, 0.0)})),
                      "allow more memory, use more ranks, or keep less of the device free"};
}

/// Per step: room that master copies take, beside what is kept free, where a chunk is needed for the first time, and
/// before the first step.
std::vector<std::int64_t> rounding_room(const ChunkTrace& trace, std::int64_t reserve) {
  std::vector<std::int64_t> out(trace.steps.size(), 0);
  for (std::uint32_t k = 0; k < trace.layout.size(); ++k) out[0] = std::max(out[0], trace.master_bytes(k) - reserve);
  std::vector<bool> needed(trace.layout.size());
  for (std::size_t s = 0; s < out.size(); ++s)
    for (const std::uint32_t k : trace.steps[s].needed) {
      if (!needed[k]) out[s] = std::max(out[s], trace.master_bytes(k) - reserve);
      needed[k] = true;
    }
  return out;
}

/// Bytes of the largest chunk's master copy; 0: there are none.
std::int64_t buffer_bytes(const ChunkTrace& trace) {
  const auto has_master = [&](const Update& u) {
    return lacks_master(trace.plan, u) || can_have_master(trace.plan, u);
  };
  Bytes most;
  for (std::size_t k = 0; k < trace.layout.size(); ++k)
    if (const Update& u = trace.updates.all[trace.layout.members[k].front()]; has_master(u))
      most = std::max(most, ceil_to(size_of(state_type(trace.plan, u), trace.layout.sizes[k]), kAllocationUnit));
  return static_cast<std::int64_t>(most.base());
}

/// Per op: the most that a tracer sees which looks when weights are asked for, the last time and the next.
std::vector<std::int64_t> seen_at_moments(const ChunkTrace& trace, const std::vector<std::int64_t>& behind) {
  const Plan& plan = trace.plan;
  const std::uint32_t first = plan.classes[trace.rank_class.index()].first_op;
  const auto asks = [&](std::size_t i) {
    const Op& op = plan.ops[first + i];
    const auto operands = plan.operands_of(op);
    return op.stream == Stream::Compute && !trace.updates.belongs[i] &&
           std::any_of(operands.begin(), operands.end(), [&](Operand o) {
             return o.reads() && plan.tensors[plan.owner(o.tensor()).index()].role == TensorRole::Parameter;
           });
  };
  std::vector<std::int64_t> out(behind.size(), 0);
  std::int64_t next = 0;
  for (std::size_t i = out.size(); i-- > 0;) {
    out[i] = next;
    if (i > 0 && asks(i)) next = behind[i - 1];
  }
  std::int64_t last = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i > 0 && asks(i)) last = behind[i - 1];
    out[i] = std::max(out[i], last);
  }
  return out;
}

/// Per step: what is kept free beside chunks. Moments: as `available_chunk_mem` of patrickstar/manager/manager.py has
/// it before release 0.4, whose memory beside chunks is no model data; what is gathered here counts once.
std::vector<std::int64_t> told_beside(const ChunkTrace& trace, const ChunkOptions& o,
                                      const WorkspaceModel* workspaces) {
  if (o.tracer == MemoryTracer::Exact) return trace.beside;
  constexpr double kForward = 1.5, kBackward = 2;
  const auto others = [&](Beside b) { return other_bytes(trace.plan, trace.rank_class, trace.updates, workspaces, b); };
  const OtherBytes all = others(Beside::All), seen = others(Beside::NoModelData);
  const std::vector<std::int64_t> moments = seen_at_moments(trace, seen.behind);
  const std::uint32_t first = trace.plan.classes[trace.rank_class.index()].first_op;
  std::vector<std::int64_t> out;
  for (const std::uint32_t i : trace.ops) {
    const bool forward = trace.plan.ops[first + i].phase == Phase::Forward;
    const std::size_t next = std::min<std::size_t>(i + 1, moments.size() - 1);
    const std::int64_t model = std::max(all.during[i] - seen.during[i], all.during[next] - seen.during[next]);
    out.push_back(model + static_cast<std::int64_t>((forward ? kForward : kBackward) * double(moments[i])));
  }
  return out;
}

/// Room for chunks at a step of the passes: what is usable, without what lies beside chunks and the reserve.
ChunkDecision decide(const ChunkTrace& trace, const ChunkOptions& o, const WorkspaceModel* workspaces) {
  ChunkDecision out;
  out.places.resize(trace.layout.size());
  if (out.places.empty()) return out;
  const std::int64_t largest = *std::max_element(trace.weight_bytes.begin(), trace.weight_bytes.end());
  const std::int64_t reserve = (o.reserve + (o.asynchronous ? 1 : 0)) * largest;
  const std::int64_t kept = o.write_buffer == WriteBuffer::Within ? buffer_bytes(trace) : 0;
  const auto usable = static_cast<std::int64_t>(o.usable * o.device_memory.base()) - reserve - kept;
  const std::vector<std::int64_t> beside = told_beside(trace, o, workspaces);
  const std::int64_t room = usable - *std::max_element(beside.begin(), beside.end());
  const std::int64_t left = room - sum(trace.weight_bytes);
  const bool cached = left < 0;
  const std::int64_t forced = relieve_host(trace, o, cached, cached ? room : left);
  check_updates(trace, o);
  const std::int64_t there = cached ? 0 : std::max(o.hybrid ? device_updates(trace, left) : 0, forced);
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(out.places.size()); ++k)
    out.places[static_cast<std::size_t>(k)] = {.weights_stay = !cached || k < forced, .states_stay = k < there};
  if (!cached) return out;
  std::int64_t resident = 0;
  for (std::int64_t k = 0; k < forced; ++k) resident += trace.weight_bytes[static_cast<std::size_t>(k)];
  const std::vector<std::int64_t> rounding = o.write_buffer == WriteBuffer::None
                                                 ? rounding_room(trace, reserve)
                                                 : std::vector<std::int64_t>(trace.steps.size(), 0);
  out.steps = trace.moving(out.places, [&](std::size_t s) { return usable - resident - beside[s] - rounding[s]; });
  out.cache = plan_cache(trace.weight_bytes, out.steps, o.eviction);
  if (o.asynchronous) come_ahead(out.cache, trace.weight_bytes, out.steps, 1);
  return out;
}

}  // namespace

Plan chunk_states(const Plan& plan, const ChunkOptions& options, const WorkspaceModel* workspaces,
                  std::vector<ChunkCounts>* counts) {
  const ChunkRules rules{
      .travel = {.memory = options.memory,
                 .in = options.asynchronous ? Stream::CopyIn : Stream::Compute,
                 .out = options.asynchronous ? Stream::CopyOut : Stream::Compute,
                 .first = FirstArrival::MasterOfUpdated,
                 .keeps_buffer = options.write_buffer != WriteBuffer::None,
                 .states = tier_of(options.memory)},
      .lay_out = [&](const Plan& p, ClassId, const Updates& u) { return lay_out_chunks(p, u, options.chunk); },
      .decide = [&](const ChunkTrace& trace) { return decide(trace, options, workspaces); }};
  return move_chunks(plan, rules, workspaces, counts);
}

}  // namespace orrery
