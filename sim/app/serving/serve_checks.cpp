// SPDX-License-Identifier: Apache-2.0
#include "sim/app/serving/serve_checks.hpp"

#include <fmt/format.h>

#include "sim/base/error.hpp"
#include "sim/base/options.hpp"

namespace orrery {
namespace {

/// "replica.swap" in the scenario's `workload.serve`; null where it is not given.
const Node* given(const Scenario& s, std::string_view path) {
  const Node* node = s.document.find("workload")->find("serve");
  while (node && !path.empty()) {
    const std::size_t dot = path.find('.');
    node = node->find(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view{} : path.substr(dot + 1);
  }
  return node;
}

UserError error_at(const Scenario& s, std::string_view path, std::string message, std::string hint) {
  const Node* node = given(s, path);
  if (!node) return UserError{std::move(message), std::move(hint)};
  return UserError{at(*node, std::move(message), std::move(hint))};
}

/// Keys that are read under a condition.
class Unread {
 public:
  Unread(const Scenario& s, std::vector<std::string>& out) : s_{s}, out_{out} {}
  void unless(bool is_read, std::initializer_list<std::string_view> paths, const std::string& why) {
    if (is_read) return;
    for (const std::string_view path : paths)
      if (given(s_, path)) out_.push_back(fmt::format("{}: {}", path, why));
  }

 private:
  const Scenario& s_;
  std::vector<std::string>& out_;
};

void check_lengths(Unread& unread, std::string_view name, const LengthOptions& o) {
  const std::string why = fmt::format("lengths are {}", enum_name(o.kind));
  const auto key = [&](std::string_view of) { return fmt::format("traffic.{}.{}", name, of); };
  unread.unless(o.kind == LengthKind::Fixed || o.kind == LengthKind::Lognormal, {key("mean")}, why);
  unread.unless(o.kind == LengthKind::Lognormal, {key("deviation")}, why);
  unread.unless(o.kind == LengthKind::Empirical, {key("file")}, why);
}

}  // namespace

void check_pool(const Scenario& s, const ReplicaOptions& o, const ReplicaMemory& m) {
  if (o.swap > m.host && m.host.base() > 0)
    throw error_at(
        s, "replica.swap",
        fmt::format("{} of the host to swap, but a device's share of it is {}", to_text(o.swap), to_text(m.host)),
        "set `swap` to at most that, or give the cluster's host more `memory`");
  if (o.kv_tokens == 0) return;
  if (m.blocks == 0)
    throw error_at(s, "replica.kv_tokens",
                   fmt::format("a pool of {} tokens is not one block of {}", o.kv_tokens, o.block),
                   "set `kv_tokens` to at least `block`; 0: what the device's memory leaves");
  if (m.pool <= m.left) return;
  const auto room = static_cast<std::int64_t>(double(m.blocks) * std::max(0.0, m.left / m.pool)) * o.block;
  throw error_at(
      s, "replica.kv_tokens",
      fmt::format("keys and values of {} tokens are {} on a rank, but {} have room for {}: {} are weights, {} "
                  "activations, {} `reserved`",
                  o.kv_tokens, to_text(m.pool), to_text(m.device), to_text(std::max(m.left, Bytes{})),
                  to_text(m.weights), to_text(m.activations), to_text(o.reserved)),
      room > 0 ? fmt::format("set `kv_tokens` to at most {}; 0: what the device's memory leaves", room)
               : "spread the model over more devices, or set `weights` to a narrower type");
}

std::vector<std::string> unread_keys(const Scenario& s, const ServeOptions& o) {
  std::vector<std::string> out;
  Unread unread{s, out};
  const TrafficOptions& t = o.traffic;
  const bool drawn = t.trace.empty();
  unread.unless(drawn,
                {"traffic.arrival", "traffic.rate", "traffic.cv", "traffic.burst", "traffic.period", "traffic.prompt",
                 "traffic.output", "traffic.groups", "traffic.shared"},
                "requests come from the trace");
  unread.unless(!drawn, {"traffic.run", "traffic.overlong"}, "there is no trace");
  if (drawn) {
    const std::string arrivals = fmt::format("arrivals are {}", enum_name(t.arrival));
    unread.unless(t.arrival != Arrival::AllAtOnce, {"traffic.rate"}, arrivals);
    unread.unless(t.arrival == Arrival::Gamma, {"traffic.cv"}, arrivals);
    unread.unless(t.arrival == Arrival::Bursty, {"traffic.burst", "traffic.period"}, arrivals);
    unread.unless(t.groups > 0, {"traffic.shared"}, "there are no groups");
    check_lengths(unread, "prompt", t.prompt);
    check_lengths(unread, "output", t.output);
  }
  const ReplicaOptions& r = o.replica;
  unread.unless(r.preemption == Preemption::Swap, {"replica.swap"}, "preemption is recompute");
  unread.unless(r.kv_tokens == 0, {"replica.memory", "replica.memory_of"}, "`kv_tokens` says what the pool holds");
  const std::string scheduler = fmt::format("the scheduler is {}", r.scheduler);
  const bool expects = find_scheduler(r.scheduler).expects;
  unread.unless(expects, {"replica.conservativeness", "replica.known_lengths"}, scheduler);
  unread.unless(!expects || !r.prefix_sharing, {"replica.known_lengths"}, "prompts share blocks");
  unread.unless(o.replicas + o.prefill_replicas > 1, {"routing"}, "there is one replica");
  return out;
}

}  // namespace orrery
