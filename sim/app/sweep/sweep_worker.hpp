// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/sockets.hpp"
#include "sim/app/interrupt.hpp"
#include "sim/base/error.hpp"
#include "sim/base/units.hpp"

namespace orrery {

// Sweeps and their workers tell each other JSON in messages of sockets.hpp. A sweep greets with {challenge}; a worker
// answers with {version, proof, jobs, host}, all of it before anybody is trusted in at most kLongestGreeting bytes.
// Then
//   sweep  → worker  {type: welcome, plan, timeout}   {type: work, points}   {type: stop}   {type: over}
//   worker → sweep   {type: get, idle}   {type: done, index, outcome}   {type: failed, index, error}
//                    {type: unsuited, error}   {type: beat}
// and Failed with a text where a worker is refused.
constexpr std::uint64_t kLongestGreeting = 4096, kLongestSweepMessage = 256u << 20;

/// What a worker proves by: that it knows the token, without telling it.
std::string greeting_proof(std::string_view token, std::string_view challenge);

/// This computer cannot compute what it was asked for as the sweep means it: files or parameters are other ones.
class UnsuitedError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// Computes points of one plan in a process of its own.
class PointComputer {
 public:
  virtual ~PointComputer() = default;
  /// The result of a point. Throws UserError for one that makes no sense, UnsuitedError, or what else goes wrong.
  virtual nlohmann::json compute(const nlohmann::json& point) = 0;
};
/// Called in the process that computes, with the plan of the welcome.
using PointComputerOf = std::function<std::unique_ptr<PointComputer>(const nlohmann::json& plan)>;

struct SweepWorkerOptions {
  std::size_t jobs = 1;  // points at once, each in a process
  std::string token, version;
  const Interrupt* interrupt = nullptr;  // null: nobody but the sweep stops it
};

/// Why a worker has nothing more to do.
struct WorkerEnd {
  enum class Why { Over, Stopped, Refused, Unsuited, Lost } why = Why::Over;
  std::string text;
  std::size_t done = 0;  // points
};

/// Computes points for the sweep at the other end until it is over. A process that crashes, or is at a point for longer
/// than the sweep allows, is replaced, and the sweep told with the end of what it wrote to stderr.
WorkerEnd work_for_sweep(Socket sweep, const SweepWorkerOptions& options, const PointComputerOf& make);

}  // namespace orrery
