// SPDX-License-Identifier: Apache-2.0
// Jobs from a list, from a trace and from distributions.
#include "sim/program/cluster/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "sim/base/csv.hpp"
#include "sim/base/error.hpp"
#include "sim/program/arrivals.hpp"
#include "sim/program/serving/request.hpp"

namespace orrery {
namespace {

constexpr std::uint64_t kJobArrivals = 1, kJobTypes = 2, kJobEpochs = 3;

/// What a template leaves to each job.
class JobDrawer {
 public:
  JobDrawer(const std::vector<JobTemplate>& templates, std::uint64_t seed)
      : templates_{templates}, random_{seed, kJobEpochs} {
    for (const JobTemplate& t : templates) epochs_.emplace_back(t.epochs);
  }
  Job draw(std::size_t type) {
    const JobTemplate& t = templates_[type];
    Job job{.type = type, .gpus = t.gpus};
    job.samples = t.samples[random_.below(t.samples.size())];
    job.epochs = double(epochs_[type].draw(random_));
    job.pace = random_.uniform(2, 5);
    return job;
  }

 private:
  const std::vector<JobTemplate>& templates_;
  std::vector<LengthSampler> epochs_;
  Random random_;
};

std::vector<std::string> names_of(const std::vector<JobTemplate>& templates) {
  std::vector<std::string> names;
  for (const JobTemplate& t : templates) names.push_back(t.name);
  return names;
}

/// Where a job stands in its file, for messages.
using JobPlace = std::function<Diagnostic(std::string message, std::string hint)>;

/// What a list or a trace says of one job.
struct JobLine {
  std::string of;
  double arrival = 0;
  std::optional<std::int64_t> gpus, samples, epochs;
};

class JobList {
 public:
  JobList(const std::vector<JobTemplate>& templates, std::int64_t cluster_gpus, std::uint64_t seed)
      : names_{names_of(templates)}, drawer_{templates, seed}, cluster_gpus_{cluster_gpus} {}

  void add(const JobLine& line, const JobPlace& place) {
    const auto found = std::find(names_.begin(), names_.end(), line.of);
    if (found == names_.end())
      return refuse(place, fmt::format("unknown template {}", in_quotes(line.of)),
                    name_hint("template", line.of, names_));
    if (!jobs_.empty() && line.arrival < last_)
      return refuse(place, fmt::format("arrives at {} s, the job before it at {} s", line.arrival, last_),
                    "sort the jobs by arrival");
    Job job = drawer_.draw(static_cast<std::size_t>(found - names_.begin()));
    job.id = std::ssize(jobs_);
    last_ = job.arrival = line.arrival;
    job.gpus = line.gpus.value_or(job.gpus), job.samples = line.samples.value_or(job.samples);
    if (line.epochs) job.epochs = double(*line.epochs);
    if (job.gpus > cluster_gpus_)
      return refuse(place, fmt::format("a job asks for {} GPUs of {}", job.gpus, cluster_gpus_),
                    "ask for fewer, or give a larger cluster");
    jobs_.push_back(job);
  }

  std::vector<Job> take() {
    if (!problems_.empty()) throw UserError{problems_};
    const double first = jobs_.empty() ? 0 : jobs_.front().arrival;
    for (Job& job : jobs_) job.arrival -= first;
    return std::move(jobs_);
  }

 private:
  void refuse(const JobPlace& place, std::string message, std::string hint) {
    problems_.push_back(place(std::move(message), std::move(hint)));
  }

  std::vector<std::string> names_;
  JobDrawer drawer_;
  std::int64_t cluster_gpus_;
  std::vector<Job> jobs_;
  std::vector<Diagnostic> problems_;
  double last_ = 0;
};

std::vector<Job> listed_jobs(const JobFileOptions& o, const Node& document, JobList list) {
  const Node* nodes = document.find("jobs");
  for (std::size_t i = 0; i < o.jobs.size(); ++i) {
    const ListedJob& j = o.jobs[i];
    list.add({j.of, j.arrival.base(), j.gpus, j.samples, j.epochs}, [&](std::string message, std::string hint) {
      return nodes != nullptr ? at(nodes->items[i], std::move(message), std::move(hint))
                              : Diagnostic{std::move(message), std::move(hint), {}, 0, 0, {}};
    });
  }
  return list.take();
}

/// A whole number from `least` on that stands in a cell; nothing for an empty one.
std::optional<std::int64_t> whole_number(const CsvRow& row, std::string_view column, std::int64_t least) {
  if (!row.has(column)) return {};
  const std::optional<std::int64_t> value = row.integer(column);
  if (!value || *value < least)
    throw UserError{
        Diagnostic{fmt::format("{} {} is no whole number from {} on", column, in_quotes(row[column]), least),
                   {},
                   row.table().file(),
                   row.line(),
                   1,
                   {}}};
  return value;
}

std::vector<Job> traced_jobs(const std::string& path, JobList list) {
  const CsvTable table = read_csv(path);
  for (const char* column : {"template", "arrival_s"})
    if (!table.column(column))
      throw UserError{Diagnostic{fmt::format("no column {}", column),
                                 "columns are template, arrival_s, gpus, samples "
                                 "and epochs; the last three may be left out",
                                 path,
                                 1,
                                 1,
                                 {}}};
  for (std::size_t i = 0; i < table.num_rows(); ++i) {
    const CsvRow row = table.row(i);
    const JobPlace place = [&](std::string message, std::string hint) {
      return Diagnostic{std::move(message), std::move(hint), path, row.line(), 1, {}};
    };
    const std::optional<double> arrival = row.number("arrival_s");
    if (!arrival || *arrival < 0)
      throw UserError{place(fmt::format("arrival_s {} is no number from 0 on", in_quotes(row["arrival_s"])), {})};
    list.add({std::string{row["template"]}, *arrival, whole_number(row, "gpus", 1), whole_number(row, "samples", 1),
              whole_number(row, "epochs", 1)},
             place);
  }
  return list.take();
}

void check_template(const JobTemplate& t, const Node& node, std::int64_t cluster_gpus,
                    std::vector<Diagnostic>& problems) {
  if (t.samples.empty()) problems.push_back(at(node, fmt::format("{} has no samples", t.name), "give at least one"));
  if (t.rates.empty() == t.model.empty())
    problems.push_back(at(node, fmt::format("{} needs either `rates` or a `model`", t.name),
                          "give measured rates, or the name of a model whose steps are predicted"));
  if (t.gpus > cluster_gpus)
    problems.push_back(at(node, fmt::format("{} asks for {} GPUs of {}", t.name, t.gpus, cluster_gpus),
                          "ask for fewer, or give a larger cluster"));
  if (t.most_learning_rate < t.learning_rate)
    problems.push_back(at(node, fmt::format("{}: `most_learning_rate` is less than `learning_rate`", t.name), {}));
}

std::vector<JobTemplate> templates_of(const JobFileOptions& o, const Node& document, std::int64_t cluster_gpus) {
  std::vector<JobTemplate> templates;
  std::vector<Diagnostic> problems;
  const Node* nodes = document.find("templates");
  for (const auto& [name, t] : o.templates) {
    templates.push_back(t);
    templates.back().name = name;
    const Node* node = nodes != nullptr ? nodes->find(name) : nullptr;
    check_template(templates.back(), node != nullptr ? *node : document, cluster_gpus, problems);
  }
  if (!problems.empty()) throw UserError{in_file_order(problems)};
  return templates;
}

}  // namespace

std::int64_t elastic_batch(const JobTemplate& t, std::int64_t gpus) {
  const double most = t.most_learning_rate / t.learning_rate;
  return std::llround(double(t.batch) * std::clamp(most, 1.0, double(gpus)));
}

double epochs_factor(const JobTemplate& t, std::int64_t batch) {
  return t.noise_scale ? (*t.noise_scale + double(batch)) / (*t.noise_scale + double(t.batch)) : 1;
}

std::vector<Job> drawn_jobs(const std::vector<JobTemplate>& templates, const DrawnJobs& o, std::uint64_t seed) {
  double shares = 0;
  for (const JobTemplate& t : templates) shares += t.share;
  if (!(shares > 0)) throw UserError{"no template is ever drawn", "give at least one a `share` of more than 0"};
  ArrivalTimes arrivals{{.kind = o.arrival, .rate = 1 / o.gap.base(), .cv = o.cv, .period = 3600},
                        Random{seed, kJobArrivals}};
  Random types{seed, kJobTypes};
  JobDrawer drawer{templates, seed};
  std::vector<Job> jobs;
  for (std::int64_t i = 0; i < o.jobs; ++i) {
    double left = types.uniform() * shares;
    std::size_t type = 0;
    while (type + 1 < templates.size() && (left -= templates[type].share) >= 0) ++type;
    Job job = drawer.draw(type);
    job.id = i, job.arrival = arrivals.next();
    jobs.push_back(job);
  }
  const double first = jobs.front().arrival;
  for (Job& job : jobs) job.arrival -= first;
  return jobs;
}

JobSet make_jobs(const JobFileOptions& o, const Node& document, std::int64_t cluster_gpus, std::int64_t seed) {
  if (int(!o.jobs.empty()) + int(!o.trace.empty()) + int(o.drawn.has_value()) != 1)
    throw UserError{at(document, "jobs come from one source", "give one of `jobs`, `trace` and `drawn`")};
  JobSet set{templates_of(o, document, cluster_gpus), {}};
  const auto s = static_cast<std::uint64_t>(seed);
  if (o.drawn)
    set.jobs = drawn_jobs(set.templates, *o.drawn, s);
  else if (!o.trace.empty())
    set.jobs = traced_jobs(o.trace, {set.templates, cluster_gpus, s});
  else
    set.jobs = listed_jobs(o, document, {set.templates, cluster_gpus, s});
  if (set.jobs.empty()) throw UserError{fmt::format("the trace {} has no jobs", in_quotes(o.trace))};
  return set;
}

}  // namespace orrery
