// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/native/collective_library.hpp"

#if __has_include(<nccl.h>)
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/cuda/native/check.hpp"
#include "runtime/cuda/native/library.hpp"

namespace orrery {
namespace {

std::optional<ncclDataType_t> type_of(DType t) {
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
    default:
      return std::nullopt;
  }
}

class Nccl final : public CollectiveLibrary {
 public:
  Nccl() : library_{"NCCL", {"libnccl.so.2", "libnccl.so"}} {
    library_.find("ncclCommInitAll", init_all_);
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
    for (auto& [devices, comms] : comms_)
      for (ncclComm_t c : comms) destroy_(c);
  }

  bool run(std::span<const GpuCollective> members) override {
    const auto type = type_of(members.front().dtype);
    if (!type || members.front().kind == CollectiveKind::Barrier || lies_in_place(members)) return false;
    std::vector<ncclComm_t>& comms = communicator(members);
    check(group_start_(), "ncclGroupStart");
    for (std::size_t i = 0; i < members.size(); ++i) enqueue(members, i, comms[i], *type);
    check(group_end_(), "ncclGroupEnd");
    check();
    return true;
  }

  void check() override {
    for (const auto& [devices, comms] : comms_)
      for (ncclComm_t c : comms) {
        ncclResult_t state = ncclSuccess;
        check(async_error_(c, &state), "ncclCommGetAsyncError");
        check(state, "a collective of NCCL");
      }
  }

 private:
  /// Exchanges whose result would overwrite what others still read.
  static bool lies_in_place(std::span<const GpuCollective> members) {
    const CollectiveKind kind = members.front().kind;
    return (kind == CollectiveKind::AllToAll || kind == CollectiveKind::Shift) &&
           std::any_of(members.begin(), members.end(), [](const GpuCollective& m) { return m.in == m.out; });
  }
  void check(ncclResult_t result, const char* call) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    for (auto& [devices, comms] : std::exchange(comms_, {}))
      for (ncclComm_t c : comms)
        if (c) abort_(c);
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
  void enqueue(std::span<const GpuCollective> all, std::size_t me, ncclComm_t comm, ncclDataType_t type) {
    const GpuCollective& m = all[me];
    const auto n = all.size(), count = static_cast<std::size_t>(m.elements), each = count / n;
    const auto* in = reinterpret_cast<const std::byte*>(m.in);
    auto* out = reinterpret_cast<std::byte*>(m.out);
    const auto stream = reinterpret_cast<cudaStream_t>(m.stream);
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
  std::map<std::vector<int>, std::vector<ncclComm_t>> comms_;
  decltype(ncclCommInitAll)* init_all_ = nullptr;
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

std::unique_ptr<CollectiveLibrary> open_collective_library() {
  try {
    return std::make_unique<Nccl>();
  } catch (const MissingError&) {
    return nullptr;
  }
}

}  // namespace orrery

#else

namespace orrery {

std::unique_ptr<CollectiveLibrary> open_collective_library() { return nullptr; }

}  // namespace orrery

#endif
