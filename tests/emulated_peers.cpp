// SPDX-License-Identifier: Apache-2.0
// Collectives of emulated GPUs of several processes.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "runtime/peers.hpp"
#include "sim/base/error.hpp"
#include "tests/emulated_gpu.hpp"
#include "tests/emulated_numbers.hpp"
#include "tests/shared_mailbox.hpp"

namespace orrery::testing {
namespace {

/// What a member gives, and what all get from it, as bytes.
struct Exchange {
  CollectiveKind kind;
  ReduceOp reduce;
  DType dtype;
  std::int64_t root, elements, members;

  std::int64_t size() const { return bits(dtype) / 8; }
  std::int64_t each() const { return elements / members; }
  std::int64_t given() const { return kind == CollectiveKind::AllGather ? each() : elements; }

  std::string reduced(const std::vector<std::string>& in, std::int64_t first, std::int64_t n) const {
    std::string out(static_cast<std::size_t>(n * size()), '\0');
    const GpuProduct::Matrix to{reinterpret_cast<std::uintptr_t>(out.data()), dtype};
    for (std::int64_t i = 0; i < n; ++i) {
      const auto value = [&](const std::string& x) {
        return number({reinterpret_cast<std::uintptr_t>(x.data()), dtype}, first + i);
      };
      double result = value(in.front());
      for (std::size_t m = 1; m < in.size(); ++m)
        result = reduce == ReduceOp::Max ? std::max(result, value(in[m])) : result + value(in[m]);
      set_number(to, i, result);
    }
    return out;
  }
  std::string part(const std::string& whole, std::int64_t index) const {
    return whole.substr(static_cast<std::size_t>(index * each() * size()), static_cast<std::size_t>(each() * size()));
  }
  /// What a member ends with; empty where it gets nothing.
  std::string result(const std::vector<std::string>& in, std::int64_t me) const {
    std::string out;
    switch (kind) {
      case CollectiveKind::AllReduce:
        return reduced(in, 0, elements);
      case CollectiveKind::Reduce:
        return me == root ? reduced(in, 0, elements) : out;
      case CollectiveKind::ReduceScatter:
        return reduced(in, me * each(), each());
      case CollectiveKind::Broadcast:
        return in[static_cast<std::size_t>(root)];
      case CollectiveKind::Shift:
        return in[static_cast<std::size_t>(((me - root) % members + members) % members)];
      case CollectiveKind::AllGather:
        for (const std::string& x : in) out += x;
        return out;
      default:
        for (const std::string& x : in) out += part(x, me);
        return out;
    }
  }
};

}  // namespace

void EmulatedGpu::connect(std::span<const GpuGroup> groups, const std::shared_ptr<Peers>& peers) {
  maybe_fail("connect");
  if (!options_.mailbox) throw MissingError{"no library of collectives"};
  peers_ = peers;
  for (const GpuGroup& g : groups) crossings_.try_emplace(g.ranks, 0);
}

void EmulatedGpu::collective(const GpuGroup& group, std::span<const GpuCollective> members) {
  maybe_fail("collective");
  const auto n = group.ranks.size();
  std::string key = std::to_string(crossings_.at(group.ranks)++);
  for (const std::uint32_t r : group.ranks) key += "," + std::to_string(r);
  const GpuCollective& any = members.front();
  const Exchange what{any.kind, any.reduce, any.dtype, any.root, any.elements, static_cast<std::int64_t>(n)};
  const auto key_of = [key](std::size_t m) { return key + "/" + std::to_string(m); };
  for (const GpuCollective& m : members)
    enqueue(m.stream, "give", [this, m, what, key_of] {
      const auto bytes = static_cast<std::size_t>(what.given() * what.size());
      const bool gives = what.kind != CollectiveKind::Broadcast || m.member == what.root;
      options_.mailbox->leave(key_of(static_cast<std::size_t>(m.member)),
                              {reinterpret_cast<const char*>(m.in), gives ? bytes : 0});
    });
  for (const GpuCollective& m : members) {
    Task take{nullptr, nullptr, nullptr, 0, mark_, "take"};
    take.ready = [this, n, key_of] {
      for (std::size_t i = 0; i < n; ++i)
        if (!options_.mailbox->find(key_of(i))) return false;
      return true;
    };
    take.work = [this, m, n, what, key_of] {
      std::vector<std::string> in;
      for (std::size_t i = 0; i < n; ++i) in.push_back(*options_.mailbox->find(key_of(i)));
      const std::string out = what.result(in, m.member);
      std::memcpy(reinterpret_cast<void*>(m.out), out.data(), out.size());
    };
    streams_.at(m.stream)->tasks.push_back(std::move(take));
  }
}

bool EmulatedGpu::wait_for_others() {
  const auto waits = [](const Stream& s) { return !s.tasks.empty() && s.tasks.front().ready; };
  if (!std::any_of(streams_.begin(), streams_.end(), [&](const auto& s) { return waits(*s.second); })) return false;
  peers_->check();
  std::this_thread::sleep_for(std::chrono::microseconds{200});
  return true;
}

}  // namespace orrery::testing
