// SPDX-License-Identifier: Apache-2.0
#include "sim/app/schedule/schedule_case.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "sim/app/training_request.hpp"
#include "sim/app/wiring.hpp"
#include "sim/model/load.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

std::string find_jobs(const std::string& name, const Locations& locations) {
  for (const fs::path& path : {fs::path{name}, fs::path{locations.scenarios()} / name}) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) return path.string();
    if (fs::is_regular_file(path / "jobs.yaml", error)) return (path / "jobs.yaml").string();
  }
  throw UserError{fmt::format("cannot find the jobs {}", in_quotes(name)),
                  "give a file, or a folder that holds a jobs.yaml; one that comes with the program is ones_64"};
}

/// Numbers of the model where a template has none of its own.
void count_parameters(JobTemplate& t, const Node& node, const Locations& locations) {
  if (t.model.empty() || t.parameters > 0) return;
  try {
    t.parameters = double(load_model(locations.find_model(t.model)).parameter_count());
  } catch (const UserError& e) {
    const Diagnostic& d = e.diagnostics().front();
    throw UserError{at(node, d.message, d.hint)};
  }
}

void read_the_cluster(ScheduleCase& c, const ScheduleChoice& choice, const Locations& locations) {
  const Node named = choice.cluster.empty() ? c.options.cluster : Node::of(choice.cluster, {"--cluster", 0, 0, {}});
  if (named.kind == Node::Kind::Null)
    throw UserError{at(c.document, "the jobs have no cluster", "give `cluster`, or the option --cluster")};
  if (named.kind == Node::Kind::Map) {
    c.cluster_document = named, c.cluster_name = "the cluster of the file";
  } else {
    c.cluster_document = read_yaml(locations.find_cluster(named));
    c.cluster_name = named.scalar;
  }
  c.cluster = read_cluster(c.cluster_document, c.cluster_name);
  if (c.cluster.is_heterogeneous())
    throw UserError{fmt::format("{} has several kinds of nodes", c.cluster_name),
                    "jobs are scheduled on clusters of one kind"};
}

}  // namespace

ScheduleCase make_schedule(Node document, std::string name, const ScheduleChoice& choice, const Locations& locations) {
  ScheduleCase c;
  c.name = std::move(name), c.document = std::move(document);
  read_options(c.document, c.options);
  read_the_cluster(c, choice, locations);
  c.seed = static_cast<std::uint64_t>(choice.seed.value_or(c.options.seed));
  if (!c.options.trace.empty()) {
    const std::string path = file_named_by(*c.document.find("trace"));
    if (path.empty())
      throw UserError{
          at(*c.document.find("trace"), fmt::format("cannot find the file {}", in_quotes(c.options.trace)))};
    c.options.trace = path;
  }
  for (auto& [key, t] : c.options.templates) count_parameters(t, *c.document.find("templates")->find(key), locations);
  c.jobs = make_jobs(c.options, c.document, c.cluster.num_ranks(), std::int64_t(c.seed));
  return c;
}

ScheduleCase load_schedule(const std::string& name, const ScheduleChoice& choice, const Locations& locations) {
  const std::string path = find_jobs(name, locations);
  return make_schedule(read_yaml(path), name, choice, locations);
}

JobRates rates_of(const ScheduleCase& c, const Reproducer& reproducer) {
  const auto step = [&c, &reproducer](const JobTemplate& t, std::int64_t gpus, std::int64_t batch) {
    TrainingRequest q;
    q.model = Node::of(t.model), q.cluster = c.cluster_document;
    use_devices(q.cluster, c.cluster, gpus);
    q.ranks = gpus, q.batch = gpus * batch, q.sequence = t.sequence, q.dtype = t.dtype;
    const std::string strategy = gpus > 1 ? fmt::format("ddp: {{mesh: dp{}}}", gpus) : "single: {}";
    return reproducer.predict(training_scenario(q, strategy, "none")).report.step;
  };
  return {c.jobs.templates, c.cluster.num_ranks(), c.cluster.devices_per_node, step};
}

}  // namespace orrery
