// SPDX-License-Identifier: Apache-2.0
#include "sim/app/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "sim/base/error.hpp"
#include "sim/base/whole_number.hpp"

namespace orrery {
namespace {

constexpr std::string_view kHint = "legal: auto, under srun or mpirun; or I/N, process I of N, counted from 0";

std::string variable(const Environment& e, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto it = e.find(name); it != e.end()) return it->second;
  return {};
}

/// Which process of how many.
struct Turn {
  int process = 0, processes = 1;
};
std::optional<Turn> turn_of(std::string_view process, std::string_view processes) {
  constexpr std::int64_t kMost = 1 << 20;
  const auto i = whole_number<std::int64_t>(process), n = whole_number<std::int64_t>(processes);
  if (!i || !n || *i < 0 || *i >= *n || *n > kMost) return std::nullopt;
  return Turn{static_cast<int>(*i), static_cast<int>(*n)};
}

/// Steps of one job, and jobs of one node, get ports of their own.
std::string place_of_slurm(const Environment& e) {
  constexpr std::int64_t kFirst = 20'000, kPorts = 20'000, kStride = 31;
  const std::string host = first_host(variable(e, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}));
  if (host.empty()) return {};
  const std::int64_t job = whole_number<std::int64_t>(variable(e, {"SLURM_JOB_ID", "SLURM_JOBID"})).value_or(0),
                     step = whole_number<std::int64_t>(variable(e, {"SLURM_STEP_ID", "SLURM_STEPID"})).value_or(0);
  return fmt::format("{}:{}", host,
                     kFirst + (kStride * std::max<std::int64_t>(0, job) + std::max<std::int64_t>(0, step)) % kPorts);
}

/// The working folder is the same on all nodes of a job; the file's name is of this job only.
std::string place_of_open_mpi(const Environment& e) {
  std::string job = variable(e, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  std::replace(job.begin(), job.end(), '/', '_');
  return job.empty() ? "" : ".orrery-peers-" + job;
}

struct Launcher {
  std::initializer_list<const char*> process, processes;
  std::string (*place)(const Environment&);
};
std::string nowhere(const Environment&) { return {}; }

MeetingPlace launched(const Environment& e) {
  // Open MPI first: under Slurm its own variables are those of the processes that it has started.
  const Launcher launchers[] = {
      {{"OMPI_COMM_WORLD_RANK"}, {"OMPI_COMM_WORLD_SIZE"}, &place_of_open_mpi},
      {{"SLURM_PROCID"}, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, &place_of_slurm},
      {{"PMI_RANK"}, {"PMI_SIZE"}, &nowhere},
  };
  for (const Launcher& l : launchers)
    if (const auto turn = turn_of(variable(e, l.process), variable(e, l.processes)))
      return {.process = turn->process, .processes = turn->processes, .at = l.place(e)};
  throw UserError{
      "--peers auto: no launcher has left a process number in the environment (OMPI_COMM_WORLD_RANK, "
      "SLURM_PROCID, PMI_RANK)",
      std::string{kHint}};
}

}  // namespace

std::string first_host(std::string_view list) {
  const std::size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string_view::npos || comma < bracket) return std::string{list.substr(0, comma)};
  const std::size_t close = list.find(']', bracket), end = list.find_first_of("-,]", bracket);
  if (close == std::string_view::npos) return {};
  std::string host{list.substr(0, bracket)};
  host += list.substr(bracket + 1, end - bracket - 1);
  const std::string_view rest = list.substr(close + 1);
  return host + std::string{rest.substr(0, rest.find_first_of(",["))};
}

MeetingPlace meeting_place(std::string_view peers, const std::string& meet, const Environment& environment) {
  MeetingPlace place;
  if (peers == "auto") {
    place = launched(environment);
  } else {
    const std::size_t slash = peers.find('/');
    const auto turn =
        slash == std::string_view::npos ? std::nullopt : turn_of(peers.substr(0, slash), peers.substr(slash + 1));
    if (!turn) throw UserError{fmt::format("--peers {}", in_quotes(peers)), std::string{kHint}};
    place.process = turn->process, place.processes = turn->processes;
  }
  if (!meet.empty()) place.at = meet;
  if (place.at.empty() && place.processes > 1)
    throw UserError{"nothing says where the processes meet",
                    "add --meet HOST:PORT, or --meet FILE that all of them see"};
  return place;
}

std::vector<Flag> PeerFlags::flags(std::string_view reports) {
  return {{"--peers", "HOW",
           fmt::format("of the device cuda: share the ranks with other processes; auto, under srun or mpirun, or I/N, "
                       "process I of N counted from 0; process 0 {}",
                       reports),
           [this](const std::string& v) { peers_ = v; }},
          {"--meet", "PLACE",
           "where these processes meet: HOST:PORT of process 0, or a file that all of them see; srun and Open MPI's "
           "mpirun say it themselves",
           [this](const std::string& v) { meet_ = v; }}};
}

std::shared_ptr<Peers> PeerFlags::meet(const Environment& environment) const {
  check();
  return given() ? std::make_shared<Peers>(meeting_place(peers_, meet_, environment)) : nullptr;
}

void PeerFlags::check() const {
  if (!meet_.empty() && !given())
    throw UserError{"option --meet says where processes meet that share a plan", "add --peers"};
}

}  // namespace orrery
