// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/flow_network.hpp"

#include <csignal>

#include <xbt/log.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <deque>
#include <exception>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

namespace s4u = simgrid::s4u;
using simgrid::kernel::timer::Timer;

constexpr double kTick = 1e-12;      // s: a picosecond
constexpr double kLinkRate = 1e12;   // a flow is as large as the picoseconds that it takes alone
std::atomic<bool> is_taken = false;  // SimGrid's only engine

/// SimGrid takes over signals when it starts; this gives them back.
class KeptSignals {
 public:
  KeptSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &kept_[i]);
  }
  ~KeptSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &kept_[i], nullptr);
  }

 private:
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGSEGV, SIGBUS};
  std::array<struct sigaction, kSignals.size()> kept_;
};

/// Holds SimGrid for as long as it lives.
class Claim {
 public:
  Claim() {
    if (is_taken.exchange(true))
      throw UserError{"there is one flow network per process, and it is in use",
                      "run one simulation with `network: flow` after the other, or each in a process of its own"};
  }
  Claim(const Claim&) = delete;
  ~Claim() { is_taken = false; }
};

class FlowNetwork final : public Network {
 public:
  FlowNetwork(const ResourceMap& resources, std::int64_t ranks) {
    configure();
    s4u::NetZone* zone = s4u::create_star_zone("cluster");
    for (const auto& [out, in] :
         {std::pair{Resource::Link, Resource::LinkIn}, std::pair{Resource::Nic, Resource::NicIn}})
      add_ends(*zone, resources, ranks, out, in);
    zone->seal();
    engine_->seal_platform();
  }

  void run(std::int64_t start_ps, Client& client) override;
  void send(std::uint32_t message, RankId from, RankId to, const Way& way, Bytes bytes) override;

 private:
  struct Flow {
    FlowNetwork* network = nullptr;
    std::uint32_t message = 0;
    s4u::CommPtr comm;
  };

  struct Start {  // SimGrid's engine, made while signals are kept
    KeptSignals signals;
    std::unique_ptr<s4u::Engine> engine{new s4u::Engine{"orrery"}};
  };

  static void configure();
  void add_ends(s4u::NetZone& zone, const ResourceMap& resources, std::int64_t ranks, Resource out, Resource in);
  void flow_ended(Flow& flow);
  void advance(std::int64_t now_ps);
  void set_alarm(std::int64_t at_ps);
  double date(std::int64_t at_ps) const { return start_ + static_cast<double>(at_ps - start_ps_) * kTick; }
  std::int64_t clock_ps() const {
    return std::max<std::int64_t>(now_ps_, start_ps_ + std::llround((s4u::Engine::get_clock() - start_) / kTick));
  }

  Claim claim_;
  std::unique_ptr<s4u::Engine> engine_ = std::move(Start{}.engine);
  std::array<std::vector<s4u::Host*>, 2> ends_;  // of links, of cards: one per rank
  std::deque<Flow> flows_;
  std::vector<Flow*> free_;
  Client* client_ = nullptr;
  std::exception_ptr thrown_;
  std::vector<std::uint32_t> through_, handed_;
  Timer* alarm_ = nullptr;
  std::int64_t alarm_ps_ = kNever;
  std::int64_t start_ps_ = 0, now_ps_ = 0;
  double start_ = 0;  // SimGrid's clock, which no engine sets back
};

/// Once per process: SimGrid keeps its options.
void FlowNetwork::configure() {
  static const bool once = [] {
    xbt_log_control_set("xbt_cfg.thresh:warning");
    for (const char* option : {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0",
                               "surf/precision:1e-12", "maxmin/precision:1e-9"})  // the latter of a link's rate
      s4u::Engine::set_config(option);
    s4u::Activity::on_completion_cb([](const s4u::Activity& activity) {
      auto* flow = static_cast<const s4u::Comm&>(activity).get_data<Flow>();
      flow->network->flow_ended(*flow);
    });
    return true;
  }();
  static_cast<void>(once);
}

/// One host per rank and kind of way, behind the links that its ranks share.
void FlowNetwork::add_ends(s4u::NetZone& zone, const ResourceMap& resources, std::int64_t ranks, Resource out,
                           Resource in) {
  std::array<std::vector<s4u::Link*>, 2> links;
  for (const auto& [r, made] : {std::pair{out, &links[0]}, std::pair{in, &links[1]}})
    for (std::uint32_t i = 0; i < resources.count(r); ++i) {
      s4u::Link* link = zone.create_link(std::string{name_of(r)} + " " + std::to_string(i), kLinkRate);
      made->push_back(link->set_latency(0)->seal());
    }
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const RankId id{static_cast<std::size_t>(rank)};
    s4u::Host* end = zone.create_host(std::string{name_of(out)} + " of rank " + std::to_string(rank), 1.0);
    auto* place = end->get_netpoint();
    zone.add_route(place, nullptr, nullptr, nullptr, {s4u::LinkInRoute{links[0][resources.instance(out, id)]}}, false);
    zone.add_route(nullptr, place, nullptr, nullptr, {s4u::LinkInRoute{links[1][resources.instance(in, id)]}}, false);
    ends_[out == Resource::Nic].push_back(end);
  }
}

/// SimGrid's loop is the outer one: it wakes us by timers and by the ends of flows.
void FlowNetwork::run(std::int64_t start_ps, Client& client) {
  client_ = &client;
  thrown_ = nullptr;
  start_ps_ = now_ps_ = start_ps;
  start_ = s4u::Engine::get_clock();
  set_alarm(start_ps);
  engine_->run();
  client_ = nullptr;
  if (thrown_) std::rethrow_exception(thrown_);
}

void FlowNetwork::send(std::uint32_t message, RankId from, RankId to, const Way& way, Bytes bytes) {
  if (free_.empty()) free_.push_back(&flows_.emplace_back());
  Flow& flow = *free_.back();
  free_.pop_back();
  flow.network = this;
  flow.message = message;
  const auto& ends = ends_[way.out == Resource::Nic];
  flow.comm = s4u::Comm::sendto_init(ends[from.index()], ends[to.index()]);
  const std::int64_t alone_ps = (SimTime{} + bytes / way.bandwidth).picoseconds();
  flow.comm->set_payload_size(static_cast<std::uint64_t>(std::max<std::int64_t>(alone_ps, 1)));
  flow.comm->set_data(&flow);
  flow.comm->start();
}

/// What ends at one instant is told together.
void FlowNetwork::flow_ended(Flow& flow) {
  free_.push_back(&flow);
  if (through_.empty()) Timer::set(s4u::Engine::get_clock(), [this] { advance(clock_ps()); });
  through_.push_back(flow.message);
}

void FlowNetwork::advance(std::int64_t now_ps) {
  now_ps_ = now_ps;
  handed_.clear();
  std::swap(handed_, through_);
  if (thrown_) return;
  std::int64_t next_ps = kNever;
  try {
    next_ps = client_->advance(now_ps, handed_);
  } catch (...) {
    thrown_ = std::current_exception();
  }
  if (next_ps != alarm_ps_) set_alarm(next_ps);
}

void FlowNetwork::set_alarm(std::int64_t at_ps) {
  if (alarm_ != nullptr) alarm_->remove();  // and deletes it
  alarm_ = nullptr;
  alarm_ps_ = at_ps;
  if (at_ps == kNever) return;
  alarm_ = Timer::set(date(at_ps), [this] {
    const std::int64_t due_ps = alarm_ps_;
    alarm_ = nullptr;  // deleted by its caller
    alarm_ps_ = kNever;
    advance(std::max(now_ps_, due_ps));
  });
}

}  // namespace

bool has_flow_network() { return true; }

std::unique_ptr<Network> make_flow_network(const ResourceMap& resources, std::int64_t ranks) {
  return std::make_unique<FlowNetwork>(resources, ranks);
}

}  // namespace orrery
