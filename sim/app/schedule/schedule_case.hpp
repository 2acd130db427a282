// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "sim/app/reproduce/reproduction.hpp"
#include "sim/program/cluster/cluster_run.hpp"

namespace orrery {

/// Jobs and the cluster that they share.
struct ScheduleCase {
  std::string name, cluster_name;
  Node document, cluster_document;
  JobFileOptions options;
  Cluster cluster;
  JobSet jobs;
  std::uint64_t seed = 1;
};

struct ScheduleChoice {
  std::string cluster;               // in place of the file's; empty: as that says
  std::optional<std::int64_t> seed;  // likewise
};

/// `name`: a file, a folder with a jobs.yaml, or such a folder of those that come with the program. Throws UserError
/// for what cannot be read, clusters of several kinds of nodes, and jobs that make no sense.
ScheduleCase load_schedule(const std::string& name, const ScheduleChoice& choice, const Locations& locations);
/// The same of a document.
ScheduleCase make_schedule(Node document, std::string name, const ScheduleChoice& choice, const Locations& locations);

/// How fast the jobs train: data-parallel steps of templates that name a model are predicted on the cluster. Arguments
/// outlive it.
JobRates rates_of(const ScheduleCase& c, const Reproducer& reproducer);

}  // namespace orrery
