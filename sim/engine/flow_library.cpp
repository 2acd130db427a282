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
constexpr double kLinkRate = 1e15;  // of the fastest link: a flow is as large as the femtoseconds that it takes there

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

/// Links, and two hosts between which every flow runs: over what it says itself.
class LinksZone final : public simgrid::kernel::routing::NetZoneImpl {
 public:
  LinksZone(std::span<const TopologyLink> links, double unit) : NetZoneImpl{"cluster"} {
    for (const TopologyLink& l : links) {
      s4u::Link* link = get_iface()->create_link(l.name, std::max(l.bandwidth.base() * unit, 1e-3));
      links_.push_back(link->set_latency(0)->seal()->get_impl());
    }
  }

  s4u::Host* add_host(const std::string& name) { return get_iface()->create_host(name, 1.0); }

  /// Of the next flow. One that stands for several takes as much of each link as all of them.
  void set_route(std::span<const std::uint32_t> links, std::uint32_t count) { next_ = links, count_ = count; }

  void get_local_route(const simgrid::kernel::routing::NetPoint*, const simgrid::kernel::routing::NetPoint*,
                       simgrid::kernel::routing::Route* into, double*) override {
    for (const std::uint32_t link : next_)
      for (std::uint32_t i = 0; i < count_; ++i) into->link_list_.push_back(links_[link]);
  }

  void get_graph(const s_xbt_graph_t*, std::map<std::string, xbt_node_t, std::less<>>*,
                 std::map<std::string, xbt_edge_t, std::less<>>*) override {}

 private:
  std::vector<simgrid::kernel::resource::StandardLinkImpl*> links_;
  std::span<const std::uint32_t> next_;
  std::uint32_t count_ = 1;
};

class SimgridLinks final : public SharedLinks {
 public:
  explicit SimgridLinks(std::span<const TopologyLink> links) {
    configure();
    BytesPerSecond fastest;
    for (const TopologyLink& l : links) fastest = std::max(fastest, l.bandwidth);
    if (fastest > BytesPerSecond{0}) unit_ = kLinkRate / fastest.base();
    zone_ = new LinksZone{links, unit_};  // SimGrid's engine owns its zones
    from_ = zone_->add_host("from"), to_ = zone_->add_host("to");
    zone_->get_iface()->seal();
    engine_->seal_platform();
  }

  void run(std::int64_t start_ps, Network::Client& client) override;
  void start(std::uint32_t number, std::span<const std::uint32_t> links, std::uint32_t count, Bytes bytes) override;

 private:
  struct Flow {
    SimgridLinks* owner = nullptr;
    std::uint32_t number = 0;
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
  LinksZone* zone_ = nullptr;
  s4u::Host *from_ = nullptr, *to_ = nullptr;
  double unit_ = 1;  // SimGrid's bytes per byte
  std::deque<Flow> flows_;
  std::vector<Flow*> free_;
  Network::Client* client_ = nullptr;
  std::exception_ptr thrown_;
  std::vector<std::uint32_t> through_, handed_;
  Timer* alarm_ = nullptr;
  std::int64_t alarm_ps_ = Network::kNever;
  std::int64_t start_ps_ = 0, now_ps_ = 0;
  double start_ = 0;  // SimGrid's clock, which no engine sets back
};

/// Once per process: SimGrid keeps its options.
void SimgridLinks::configure() {
  static const bool once = [] {
    xbt_log_control_set("xbt_cfg.thresh:warning");
    for (const char* option : {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0",
                               "surf/precision:1e-12", "maxmin/precision:1e-9"})  // the latter of a link's rate
      s4u::Engine::set_config(option);
    s4u::Activity::on_completion_cb([](const s4u::Activity& activity) {
      auto* flow = static_cast<const s4u::Comm&>(activity).get_data<Flow>();
      flow->owner->flow_ended(*flow);
    });
    return true;
  }();
  static_cast<void>(once);
}

/// SimGrid's loop is the outer one: it wakes us by timers and by the ends of flows.
void SimgridLinks::run(std::int64_t start_ps, Network::Client& client) {
  client_ = &client;
  thrown_ = nullptr;
  start_ps_ = now_ps_ = start_ps;
  start_ = s4u::Engine::get_clock();
  set_alarm(start_ps);
  engine_->run();
  client_ = nullptr;
  if (thrown_) std::rethrow_exception(thrown_);
}

void SimgridLinks::start(std::uint32_t number, std::span<const std::uint32_t> links, std::uint32_t count, Bytes bytes) {
  if (free_.empty()) free_.push_back(&flows_.emplace_back());
  Flow& flow = *free_.back();
  free_.pop_back();
  flow.owner = this;
  flow.number = number;
  flow.comm.reset();  // its memory serves the next one
  flow.comm = s4u::Comm::sendto_init(from_, to_);
  flow.comm->set_payload_size(static_cast<std::uint64_t>(std::max(1.0, std::round(bytes.base() * unit_))));
  flow.comm->set_data(&flow);
  zone_->set_route(links, count);
  flow.comm->start();
}

/// What ends at one instant is told together.
void SimgridLinks::flow_ended(Flow& flow) {
  free_.push_back(&flow);
  if (through_.empty()) Timer::set(s4u::Engine::get_clock(), [this] { advance(clock_ps()); });
  through_.push_back(flow.number);
}

void SimgridLinks::advance(std::int64_t now_ps) {
  now_ps_ = now_ps;
  handed_.clear();
  std::swap(handed_, through_);
  if (thrown_) return;
  std::int64_t next_ps = Network::kNever;
  try {
    next_ps = client_->advance(now_ps, handed_);
  } catch (...) {
    thrown_ = std::current_exception();
  }
  if (next_ps != alarm_ps_) set_alarm(next_ps);
}

void SimgridLinks::set_alarm(std::int64_t at_ps) {
  if (alarm_ != nullptr) alarm_->remove();  // and deletes it
  alarm_ = nullptr;
  alarm_ps_ = at_ps;
  if (at_ps == Network::kNever) return;
  alarm_ = Timer::set(date(at_ps), [this] {
    const std::int64_t due_ps = alarm_ps_;
    alarm_ = nullptr;  // deleted by its caller
    alarm_ps_ = Network::kNever;
    advance(std::max(now_ps_, due_ps));
  });
}

}  // namespace
}  // namespace orrery

orrery::SharedLinks* orrery_shared_links(std::span<const orrery::TopologyLink> links) {
  return new orrery::SimgridLinks{links};
}
