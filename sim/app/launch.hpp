// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/peers.hpp"
#include "sim/app/command.hpp"

namespace orrery {

/// The place that a process has among those that execute a plan together. `peers` is "I/N", or "auto": what Slurm
/// (srun), Open MPI or another launcher with PMI's variables (mpirun) has left in the environment. `meet` is as of
/// MeetingPlace; empty: a port of the first node of a Slurm step, or a file in the working folder that is named after
/// the job of Open MPI. Throws UserError when that is not enough.
MeetingPlace meeting_place(std::string_view peers, const std::string& meet, const Environment& environment);

/// The options of a command whose ranks several processes may share.
class PeerFlags {
 public:
  /// `reports`: what process 0 does for all, such as "reports".
  std::vector<Flag> flags(std::string_view reports);
  bool given() const { return !peers_.empty(); }
  /// Meets the other processes; null when there are none. Throws UserError, DeviceError as Peers does.
  std::shared_ptr<Peers> meet(const Environment& environment) const;
  /// Throws UserError for a place to meet at without anybody to meet.
  void check() const;

 private:
  std::string peers_, meet_;
};

/// The first of a list of hosts as Slurm writes it: "gpu[007-010,12],login" is gpu007.
std::string first_host(std::string_view list);

}  // namespace orrery
