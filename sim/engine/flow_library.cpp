// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/flow_library.hpp"

#include <xbt/log.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <deque>
#include <exception>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace orrery {
namespace {

namespace s4u = simgrid::s4u;
using simgrid::kernel::timer::Timer;

constexpr double kTick = 1e-12;     // s: a picosecond
constexpr double kLinkRate = 1e12;  // of the fastest link: a flow is as large as the picoseconds that it takes there

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

/// One host per rank, and the ways of a platform between them: found when a pair first talks, and kept.
class PlatformZone final : public simgrid::kernel::routing::NetZoneImpl {
 public:
  explicit PlatformZone(const FlowPlatform& platform) : NetZoneImpl{"cluster"}, platform_{platform} {}

  void add_links(double unit) {
    for (const TopologyLink& l : platform_.links) {
      s4u::Link* link = get_iface()->create_link(l.name, std::max(l.bandwidth.base() * unit, 1e-3));
      links_.push_back(link->set_latency(0)->seal()->get_impl());
    }
  }

  void get_local_route(const simgrid::kernel::routing::NetPoint* from, const simgrid::kernel::routing::NetPoint* to,
                       simgrid::kernel::routing::Route* into, double*) override {
    if (from->id() == to->id()) return;
    scratch_.clear();
    platform_.route(RankId{from->id() - first_}, RankId{to->id() - first_}, scratch_);
    for (const std::uint32_t link : scratch_) into->link_list_.push_back(links_[link]);
  }

  void get_graph(const s_xbt_graph_t*, std::map<std::string, xbt_node_t, std::less<>>*,
                 std::map<std::string, xbt_edge_t, std::less<>>*) override {}

  s4u::Host* add_rank(std::int64_t rank) {
    s4u::Host* host = get_iface()->create_host("rank " + std::to_string(rank), 1.0);
    if (rank == 0) first_ = host->get_netpoint()->id();
    return host;
  }

 private:
  FlowPlatform platform_;
  std::vector<simgrid::kernel::resource::StandardLinkImpl*> links_;
  std::vector<std::uint32_t> scratch_;
  std::size_t first_ = 0;
};

class FlowNetwork final : public Network {
 public:
  explicit FlowNetwork(const FlowPlatform& platform) {
    configure();
    BytesPerSecond fastest;
    for (const TopologyLink& l : platform.links) fastest = std::max(fastest, l.bandwidth);
    if (fastest > BytesPerSecond{0}) unit_ = kLinkRate / fastest.base();
    auto* zone = new PlatformZone{platform};  // SimGrid's engine owns its zones
    zone->add_links(unit_);
    for (std::int64_t rank = 0; rank < platform.ranks; ++rank) hosts_.push_back(zone->add_rank(rank));
    zone->get_iface()->seal();
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
  void flow_ended(Flow& flow);
  void advance(std::int64_t now_ps);
  void set_alarm(std::int64_t at_ps);
  double date(std::int64_t at_ps) const { return start_ + static_cast<double>(at_ps - start_ps_) * kTick; }
  std::int64_t clock_ps() const {
    return std::max<std::int64_t>(now_ps_, start_ps_ + std::llround((s4u::Engine::get_clock() - start_) / kTick));
  }

  std::unique_ptr<s4u::Engine> engine_ = std::move(Start{}.engine);
  std::vector<s4u::Host*> hosts_;  // one per rank
  double unit_ = 1;                // SimGrid's bytes per byte
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

void FlowNetwork::send(std::uint32_t message, RankId from, RankId to, const Way&, Bytes bytes) {
  if (free_.empty()) free_.push_back(&flows_.emplace_back());
  Flow& flow = *free_.back();
  free_.pop_back();
  flow.network = this;
  flow.message = message;
  flow.comm = s4u::Comm::sendto_init(hosts_[from.index()], hosts_[to.index()]);
  flow.comm->set_payload_size(static_cast<std::uint64_t>(std::max(1.0, std::round(bytes.base() * unit_))));
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
}  // namespace orrery

orrery::Network* orrery_flow_network(const orrery::FlowPlatform& platform) { return new orrery::FlowNetwork{platform}; }
