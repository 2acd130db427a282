// SPDX-License-Identifier: Apache-2.0
// Processes, on one computer or many, that execute one plan together.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/plan/mesh.hpp"

namespace orrery {

/// Where processes find one another.
struct MeetingPlace {
  int process = 0, processes = 1;
  /// "HOST:PORT", where process 0 listens; or a file that all of them see, in which process 0 says where it does.
  std::string at;
  std::chrono::milliseconds patience{60'000};  // how long they wait for one another at the start
};

/// All processes are connected with process 0 by TCP, which passes on what they have to tell one another: identifiers
/// of communicators, results that one of them holds. Tensors go another way. What is asked of all (`gather`, `from`) is
/// asked in the same order by each. Every call throws DeviceError when a process is gone, and says which.
class Peers {
 public:
  /// Waits until all have come. Throws DeviceError that names those who have not.
  explicit Peers(const MeetingPlace& place);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int process() const;
  int processes() const;

  /// What each of them gives, in the order of processes.
  std::vector<std::string> gather(std::string_view mine);
  /// What one of them gives.
  std::string from(int process, std::string_view mine);
  /// While something else is waited for: throws DeviceError when one of them is gone. Does not wait.
  void check();

  /// Which process executes a rank of a plan: each an equal share of them, in order. Throws UserError when the number
  /// of ranks is no multiple of that of processes.
  int process_of(RankId rank, std::size_t ranks) const;
  bool holds(RankId rank, std::size_t ranks) const { return process_of(rank, ranks) == process(); }

 private:
  class Connections;
  std::unique_ptr<Connections> connections_;
};

}  // namespace orrery
