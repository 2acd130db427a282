// SPDX-License-Identifier: Apache-2.0
#include "sim/app/schedule/schedule_trace.hpp"

#include <fmt/format.h>

namespace orrery {

ScheduleTrace::ScheduleTrace(const std::string& path, const ScheduleCase& c) : case_{c}, file_{path} {
  const auto per_node = std::size_t(c.cluster.devices_per_node), all = std::size_t(c.cluster.num_ranks());
  for (std::size_t g = 0; g < all; ++g) {
    if (g % per_node == 0) file_.name_process(g / per_node, fmt::format("node {}", g / per_node));
    file_.name_thread(g / per_node, g % per_node, fmt::format("GPU {}", g));
  }
}

void ScheduleTrace::add(const JobStay& s) {
  const Job& job = case_.jobs.jobs[std::size_t(s.job)];
  const std::string name = fmt::format("{} {}", s.job, case_.jobs.templates[job.type].name);
  const std::string arguments = fmt::format(R"("job":{},"gpus":{})", s.job, s.gpus.size());
  for (const std::int64_t gpu : s.gpus) {
    const auto node = std::size_t(gpu / case_.cluster.devices_per_node);
    const auto thread = std::size_t(gpu % case_.cluster.devices_per_node);
    if (s.ready > s.from) file_.span(node, thread, s.from, s.ready, "starting " + name, arguments);
    if (s.to > s.ready) file_.span(node, thread, s.ready, s.to, name, arguments);
  }
}

}  // namespace orrery
