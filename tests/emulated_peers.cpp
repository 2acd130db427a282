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

/// All processes must speak of the same groups, in the same order.
void EmulatedGpu::connect(std::span<const GpuGroup> groups, const std::shared_ptr<Peers>& peers) {
  maybe_fail("connect");
  if (!options_.mailbox) throw MissingError{"no library of collectives"};
  peers_ = peers;
  std::string text;
  for (const GpuGroup& g : groups) {
    crossings_.try_emplace(g.ranks, 0);
    text += name_of(g) + ";";
  }
  for (const std::string& theirs : peers->gather(text))
    if (theirs != text) throw std::logic_error{"processes connect other groups: " + text + " and " + theirs};
}

std::string EmulatedGpu::name_of(const GpuGroup& group) {
  std::string name;
  for (const std::uint32_t r : group.ranks) name += "," + std::to_string(r);
  return name;
}

void EmulatedGpu::enqueue_give(const GpuGroup& group, std::int32_t member, GpuStream stream, std::int64_t call,
                               std::function<std::string()> give) {
  const std::string key = std::to_string(call) + name_of(group) + "/" + std::to_string(member) + "/";
  enqueue(stream, "give", [this, key, give, run = std::make_shared<std::int64_t>(0)] {
    options_.mailbox->leave(key + std::to_string((*run)++), give());
  });
}

void EmulatedGpu::enqueue_take(const GpuGroup& group, GpuStream stream, std::int64_t call,
                               std::function<void(const std::vector<std::string>&)> take) {
  const std::string key = std::to_string(call) + name_of(group) + "/";
  const auto run = std::make_shared<std::int64_t>(0);
  const auto key_of = [=](std::size_t m) { return key + std::to_string(m) + "/" + std::to_string(*run); };
  const std::size_t n = group.ranks.size();
  Task task{nullptr, nullptr, nullptr, 0, mark_, "take"};
  task.ready = [this, n, key_of] {
    for (std::size_t i = 0; i < n; ++i)
      if (!options_.mailbox->find(key_of(i))) return false;
    return true;
  };
  task.work = [this, n, key_of, run, take] {
    std::vector<std::string> in;
    for (std::size_t i = 0; i < n; ++i) in.push_back(*options_.mailbox->find(key_of(i)));
    ++*run;
    take(in);
  };
  push(stream, std::move(task));
}

void EmulatedGpu::collective(const GpuGroup& group, std::span<const GpuCollective> members) {
  maybe_fail("collective");
  const GpuCollective& any = members.front();
  const Exchange what{any.kind, any.reduce,   any.dtype,
                      any.root, any.elements, static_cast<std::int64_t>(group.ranks.size())};
  const std::int64_t call = crossings_.at(group.ranks)++;
  for (const GpuCollective& m : members)
    enqueue_give(group, m.member, m.stream, call, [m, what] {
      const bool gives = what.kind != CollectiveKind::Broadcast || m.member == what.root;
      const auto bytes = static_cast<std::size_t>(what.given() * what.size());
      return std::string{reinterpret_cast<const char*>(m.in), gives ? bytes : 0};
    });
  for (const GpuCollective& m : members)
    enqueue_take(group, m.stream, call, [m, what](const std::vector<std::string>& in) {
      const std::string out = what.result(in, m.member);
      std::memcpy(reinterpret_cast<void*>(m.out), out.data(), out.size());
    });
}

/// A member gives all of its messages, each behind its receiver and its size.
void EmulatedGpu::exchange(const GpuGroup& group, std::span<const GpuExchange> members) {
  maybe_fail("exchange");
  if (capture_) throw std::logic_error{"messages whose sizes the host has read are captured"};
  const std::int64_t call = crossings_.at(group.ranks)++;
  struct Head {
    std::int64_t to, bytes;
  };
  for (const GpuExchange& m : members)
    enqueue_give(group, m.member, m.stream, call, [sends = m.sends] {
      std::string text;
      for (const GpuExchange::Message& s : sends) {
        const Head head{s.peer, s.bytes};
        text.append(reinterpret_cast<const char*>(&head), sizeof head);
        text.append(reinterpret_cast<const char*>(s.place), static_cast<std::size_t>(s.bytes));
      }
      return text;
    });
  for (const GpuExchange& m : members)
    enqueue_take(group, m.stream, call, [m](const std::vector<std::string>& in) {
      for (std::size_t from = 0; from < in.size(); ++from) {
        auto awaited = m.receives.begin();
        const auto next = [&] {
          while (awaited != m.receives.end() && static_cast<std::size_t>(awaited->peer) != from) ++awaited;
          return awaited != m.receives.end();
        };
        Head head{};
        for (std::size_t at = 0; at < in[from].size(); at += static_cast<std::size_t>(head.bytes)) {
          std::memcpy(&head, in[from].data() + at, sizeof head);
          at += sizeof head;
          if (head.to != m.member) continue;
          if (!next() || awaited->bytes != head.bytes) throw std::logic_error{"another message comes than is awaited"};
          std::memcpy(reinterpret_cast<void*>(awaited->place), in[from].data() + at,
                      static_cast<std::size_t>(head.bytes));
          ++awaited;
        }
        if (next()) throw std::logic_error{"a message that is awaited does not come"};
      }
    });
}

bool EmulatedGpu::wait_for_others() {
  const auto waits = [](const Stream& s) { return !s.tasks.empty() && s.tasks.front().ready; };
  if (std::none_of(streams_.begin(), streams_.end(), [&](const auto& s) { return waits(*s.second); }) &&
      std::none_of(graph_streams_.begin(), graph_streams_.end(), [&](const auto& s) { return waits(*s); }))
    return false;
  peers_->check();
  std::this_thread::sleep_for(std::chrono::microseconds{200});
  return true;
}

}  // namespace orrery::testing
