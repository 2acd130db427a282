// SPDX-License-Identifier: Apache-2.0
#include "sim/base/error.hpp"
#include "sim/engine/flow_network.hpp"

namespace orrery {

bool has_flow_network() { return false; }

std::unique_ptr<Network> make_flow_network(const Topology&, SolvedFlows) {
  throw MissingError{
      "network: flow needs SimGrid, which this build is without: `apt-get install libsimgrid-dev` and build again"};
}

}  // namespace orrery
