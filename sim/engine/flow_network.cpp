// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/flow_network.hpp"

#include <atomic>

#include "sim/base/error.hpp"
#include "sim/base/library.hpp"
#include "sim/engine/flow_library.hpp"
#include "sim/engine/uncontended_flows.hpp"

namespace orrery {
namespace {

std::atomic<bool> is_taken = false;  // SimGrid's only engine

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

std::unique_ptr<SharedLinks> open_links(std::span<const TopologyLink> links) {
  static const Library library{"network: flow needs a library that is built with this program and",
                               {beside_program(ORRERY_FLOW_LIBRARY)}};
  decltype(orrery_shared_links)* make = nullptr;
  library.find("orrery_shared_links", make);
  return std::unique_ptr<SharedLinks>{make(links)};
}

class FlowNetwork final : public Network {
 public:
  FlowNetwork(const Topology& topology, SolvedFlows solved)
      : topology_{topology}, shared_{open_links(topology_.links())}, flows_{topology_, *shared_, solved} {}

  void run(std::int64_t start_ps, Client& client) override { flows_.run(start_ps, client); }
  void send(std::uint32_t message, RankId from, RankId to, const Way& way, Bytes bytes) override {
    flows_.send(message, from, to, way, bytes);
  }

 private:
  Claim claim_;
  Topology topology_;
  std::unique_ptr<SharedLinks> shared_;
  UncontendedFlows flows_;
};

}  // namespace

bool has_flow_network() { return true; }

std::unique_ptr<Network> make_flow_network(const Topology& topology, SolvedFlows solved) {
  return std::make_unique<FlowNetwork>(topology, solved);
}

}  // namespace orrery
