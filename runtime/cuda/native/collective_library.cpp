// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/native/collective_library.hpp"

#if __has_include(<nccl.h>)
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/cuda/native/check.hpp"
#include "runtime/peers.hpp"
#include "sim/base/library.hpp"

namespace orrery {
namespace {

std::optional<ncclDataType_t> nccl_type_of(DType t) {
  switch (t) {
    case DType::F32:
      return ncclFloat32;
    case DType::F64:
      return ncclFloat64;
    case DType::BF16:
      return ncclBfloat16;
    case DType::F16:
      return ncclFloat16;
    case DType::I32:
      return ncclInt32;
    case DType::U8:
    case DType::F8E4M3:  // never added up
      return ncclUint8;
    default:
      return std::nullopt;
  }
}

class Nccl final : public CollectiveLibrary {
 public:
  explicit Nccl(std::function<void()> before_abort)
      : library_{"NCCL", {"libnccl.so.2", "libnccl.so"}}, before_abort_{std::move(before_abort)} {
    library_.find("ncclCommInitAll", init_all_);
    library_.find("ncclGetUniqueId", unique_id_);
    library_.find("ncclCommInitRankConfig", init_rank_);
    library_.find("ncclCommDestroy", destroy_);
    library_.find("ncclCommAbort", abort_);
    library_.find("ncclCommGetAsyncError", async_error_);
    library_.find("ncclGetErrorString", text_);
    library_.find("ncclGroupStart", group_start_);
    library_.find("ncclGroupEnd", group_end_);
    library_.find("ncclAllReduce", all_reduce_);
    library_.find("ncclAllGather", all_gather_);
    library_.find("ncclReduceScatter", reduce_scatter_);
    library_.find("ncclBroadcast", broadcast_);
    library_.find("ncclReduce", reduce_);
    library_.find("ncclSend", send_);
    library_.find("ncclRecv", receive_);
  }
  ~Nccl() override {
    for_each_communicator([&](ncclComm_t c) { destroy_(c); });
  }

  bool run(std::span<const GpuCollective> members) override {
    const auto type = nccl_type_of(members.front().dtype);
    if (!type || members.front().kind == CollectiveKind::Barrier || lies_in_place(members)) return false;
    std::vector<ncclComm_t>& comms = communicator(members);
    check(group_start_(), "ncclGroupStart");
    for (std::size_t i = 0; i < members.size(); ++i) enqueue(members[i], i, members.size(), comms[i], *type);
    check(group_end_(), "ncclGroupEnd");
    check();
    return true;
  }

  /// Communicators are made without blocking: a process that is lost meanwhile would block the others for ever.
  void connect(std::span<const GpuGroup> groups, const std::shared_ptr<Peers>& peers) override {
    peers_ = peers;
    refuse_shared_devices(groups);
    for (const GpuGroup& g : groups) {
      if (const auto [it, fresh] = known_.insert(g.ranks); !fresh) continue;
      const bool first = std::any_of(g.here.begin(), g.here.end(), [](const auto& s) { return s.member == 0; });
      ncclUniqueId id{};
      if (first) check(unique_id_(&id), "ncclGetUniqueId");
      const std::vector<std::string> ids =
          peers->gather(first ? std::string_view{id.internal, sizeof id.internal} : std::string_view{});
      for (const std::string& text : ids)
        if (text.size() == sizeof id.internal) std::copy(text.begin(), text.end(), id.internal);
      if (!g.here.empty()) join(g, id);
    }
  }

  void run(const GpuGroup& group, std::span<const GpuCollective> members) override {
    const std::vector<ncclComm_t>& comms = crossing_.at(group.ranks);
    std::vector<GpuCollective> parts{members.begin(), members.end()};
    copy_apart(parts);
    check(group_start_(), "ncclGroupStart");
    for (std::size_t i = 0; i < parts.size(); ++i)
      enqueue(parts[i], static_cast<std::size_t>(parts[i].member), group.ranks.size(), comms[i],
              nccl_type_of(parts[i].dtype).value());
    check(group_end_(), "ncclGroupEnd");
    settle(comms);
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (parts[i].in != members[i].in)
        ORRERY_CUDA(cudaFreeAsync(reinterpret_cast<void*>(parts[i].in), stream_of(parts[i])));
  }

  void exchange(const GpuGroup& group, std::span<const GpuExchange> members) override {
    const std::vector<ncclComm_t>& comms = crossing_.at(group.ranks);
    const auto each = [&](auto call, const std::vector<GpuExchange::Message>& messages, std::size_t i,
                          const char* name) {
      for (const GpuExchange::Message& m : messages)
        check(call(reinterpret_cast<void*>(m.place), static_cast<std::size_t>(m.bytes), ncclUint8, m.peer, comms[i],
                   reinterpret_cast<cudaStream_t>(members[i].stream)),
              name);
    };
    check(group_start_(), "ncclGroupStart");
    for (std::size_t i = 0; i < members.size(); ++i) {
      each(send_, members[i].sends, i, "ncclSend");
      each(receive_, members[i].receives, i, "ncclRecv");
    }
    check(group_end_(), "ncclGroupEnd");
    settle(comms);
  }

  void check() override {
    for_each_communicator([&](ncclComm_t c) {
      ncclResult_t state = ncclSuccess;
      check(async_error_(c, &state), "ncclCommGetAsyncError");
      check(state, "a collective of NCCL");
    });
    check_peers();
  }

 private:
  static cudaStream_t stream_of(const GpuCollective& m) { return reinterpret_cast<cudaStream_t>(m.stream); }
  template <class F>
  void for_each_communicator(F f) {
    for (const auto& [devices, comms] : comms_)
      for (ncclComm_t c : comms) f(c);
    for (const auto& [ranks, comms] : crossing_)
      for (ncclComm_t c : comms) f(c);
  }
  /// NCCL cannot, and says so by waiting or by a number.
  void refuse_shared_devices(std::span<const GpuGroup> groups) {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    std::map<std::uint32_t, int> mine;
    for (const GpuGroup& g : groups)
      for (const GpuGroup::Seat& s : g.here) mine[g.ranks[static_cast<std::size_t>(s.member)]] = s.device;
    std::string text;
    for (const auto& [rank, device] : mine) {
      std::array<char, 32> place{};
      ORRERY_CUDA(cudaDeviceGetPCIBusId(place.data(), static_cast<int>(place.size()), device));
      text += fmt::format("{}/{} {}\n", host.data(), place.data(), rank);
    }
    std::map<std::string, std::string> rank_at;
    for (const std::string& part : peers_->gather(text))
      for (std::size_t at = 0; at < part.size();) {
        const std::size_t blank = part.find(' ', at), end = part.find('\n', at);
        const std::string where = part.substr(at, blank - at), rank = part.substr(blank + 1, end - blank - 1);
        if (const auto [it, fresh] = rank_at.try_emplace(where, rank); !fresh && it->second != rank)
          throw DeviceError{
              fmt::format("ranks {} and {} have the same GPU ({}), NCCL needs one for each: start one "
                          "process per GPU, in blocks",
                          it->second, rank, where)};
        at = end + 1;
      }
  }
  void join(const GpuGroup& g, const ncclUniqueId& id) {
    std::vector<ncclComm_t>& comms = crossing_[g.ranks];
    comms.assign(g.here.size(), nullptr);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(group_start_(), "ncclGroupStart");
    for (std::size_t i = 0; i < comms.size(); ++i) {
      ORRERY_CUDA(cudaSetDevice(g.here[i].device));
      check(init_rank_(&comms[i], static_cast<int>(g.ranks.size()), id, g.here[i].member, &config),
            "ncclCommInitRankConfig");
    }
    check(group_end_(), "ncclGroupEnd");
    settle(comms);
  }
  /// Until what was asked of communicators is under way, or one of the processes is gone.
  void settle(const std::vector<ncclComm_t>& comms) {
    for (ncclComm_t c : comms)
      for (ncclResult_t state = ncclInProgress; state == ncclInProgress;) {
        check(async_error_(c, &state), "ncclCommGetAsyncError");
        check(state, "a communicator of NCCL");
        if (state != ncclInProgress) break;
        check_peers();
        std::this_thread::yield();
      }
  }
  void check_peers() {
    if (!peers_) return;
    try {
      peers_->check();
    } catch (const DeviceError&) {
      abort();
      throw;
    }
  }
  void abort() {
    before_abort_();
    for_each_communicator([&](ncclComm_t c) {
      if (c) abort_(c);
    });
    comms_.clear();
    crossing_.clear();
  }
  /// What members send stays whole while they receive into the same place.
  static void copy_apart(std::vector<GpuCollective>& members) {
    if (!lies_in_place(members)) return;
    for (GpuCollective& m : members) {
      const auto bytes = static_cast<std::size_t>(m.elements) * static_cast<std::size_t>(bits(m.dtype) / 8);
      void* apart = nullptr;
      ORRERY_CUDA(cudaSetDevice(m.device));
      ORRERY_CUDA(cudaMallocAsync(&apart, bytes, stream_of(m)));
      ORRERY_CUDA(cudaMemcpyAsync(apart, reinterpret_cast<const void*>(m.in), bytes, cudaMemcpyDefault, stream_of(m)));
      m.in = reinterpret_cast<std::uintptr_t>(apart);
    }
  }
  /// Exchanges whose result would overwrite what others still read.
  static bool lies_in_place(std::span<const GpuCollective> members) {
    const CollectiveKind kind = members.front().kind;
    return (kind == CollectiveKind::AllToAll || kind == CollectiveKind::Shift) &&
           std::any_of(members.begin(), members.end(), [](const GpuCollective& m) { return m.in == m.out; });
  }
  void check(ncclResult_t result, const char* call) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    abort();
    throw DeviceError{fmt::format("{}: {}", call, text_(result))};
  }
  std::vector<ncclComm_t>& communicator(std::span<const GpuCollective> members) {
    std::vector<int> devices;
    for (const GpuCollective& m : members) devices.push_back(m.device);
    std::vector<ncclComm_t>& comms = comms_[devices];
    if (comms.empty()) {
      comms.resize(devices.size());
      check(init_all_(comms.data(), static_cast<int>(devices.size()), devices.data()), "ncclCommInitAll");
    }
    return comms;
  }
  /// The part of member `me` of `n`.
  void enqueue(const GpuCollective& m, std::size_t me, std::size_t n, ncclComm_t comm, ncclDataType_t type) {
    const auto count = static_cast<std::size_t>(m.elements), each = count / n;
    const auto* in = reinterpret_cast<const std::byte*>(m.in);
    auto* out = reinterpret_cast<std::byte*>(m.out);
    const cudaStream_t stream = stream_of(m);
    const ncclRedOp_t op = m.reduce == ReduceOp::Max ? ncclMax : ncclSum;
    const std::size_t size = static_cast<std::size_t>(bits(m.dtype) / 8);
    switch (m.kind) {
      case CollectiveKind::AllReduce:
        return check(all_reduce_(in, out, count, type, op, comm, stream), "ncclAllReduce");
      case CollectiveKind::AllGather:
        return check(all_gather_(in, out, each, type, comm, stream), "ncclAllGather");
      case CollectiveKind::ReduceScatter:
        return check(reduce_scatter_(in, out, each, type, op, comm, stream), "ncclReduceScatter");
      case CollectiveKind::Broadcast:
        return check(broadcast_(in, out, count, type, m.root, comm, stream), "ncclBroadcast");
      case CollectiveKind::Reduce:
        return check(reduce_(in, out, count, type, op, m.root, comm, stream), "ncclReduce");
      case CollectiveKind::Shift: {
        const auto ring = static_cast<std::int64_t>(n), at = static_cast<std::int64_t>(me);
        const auto peer = [&](std::int64_t places) { return static_cast<int>(((at + places) % ring + ring) % ring); };
        check(send_(in, count, type, peer(m.root), comm, stream), "ncclSend");
        return check(receive_(out, count, type, peer(-std::int64_t{m.root}), comm, stream), "ncclRecv");
      }
      default:
        for (std::size_t p = 0; p < n; ++p) {
          check(send_(in + p * each * size, each, type, static_cast<int>(p), comm, stream), "ncclSend");
          check(receive_(out + p * each * size, each, type, static_cast<int>(p), comm, stream), "ncclRecv");
        }
    }
  }

  Library library_;
  std::function<void()> before_abort_;
  std::map<std::vector<int>, std::vector<ncclComm_t>> comms_;               // by devices of this process
  std::map<std::vector<std::uint32_t>, std::vector<ncclComm_t>> crossing_;  // by ranks, of the members here
  std::set<std::vector<std::uint32_t>> known_;                              // ranks of groups that are connected
  std::shared_ptr<Peers> peers_;
  decltype(ncclCommInitAll)* init_all_ = nullptr;
  decltype(ncclGetUniqueId)* unique_id_ = nullptr;
  decltype(ncclCommInitRankConfig)* init_rank_ = nullptr;
  decltype(ncclCommDestroy)* destroy_ = nullptr;
  decltype(ncclCommAbort)* abort_ = nullptr;
  decltype(ncclCommGetAsyncError)* async_error_ = nullptr;
  decltype(ncclGetErrorString)* text_ = nullptr;
  decltype(ncclGroupStart)* group_start_ = nullptr;
  decltype(ncclGroupEnd)* group_end_ = nullptr;
  decltype(ncclAllReduce)* all_reduce_ = nullptr;
  decltype(ncclAllGather)* all_gather_ = nullptr;
  decltype(ncclReduceScatter)* reduce_scatter_ = nullptr;
  decltype(ncclBroadcast)* broadcast_ = nullptr;
  decltype(ncclReduce)* reduce_ = nullptr;
  decltype(ncclSend)* send_ = nullptr;
  decltype(ncclRecv)* receive_ = nullptr;
};

}  // namespace

std::unique_ptr<CollectiveLibrary> open_collective_library(std::function<void()> before_abort) {
  try {
    return std::make_unique<Nccl>(std::move(before_abort));
  } catch (const MissingError&) {
    return nullptr;
  }
}

}  // namespace orrery

#else

namespace orrery {

std::unique_ptr<CollectiveLibrary> open_collective_library(std::function<void()>) { return nullptr; }

}  // namespace orrery

#endif
