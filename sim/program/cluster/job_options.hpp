// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/options.hpp"
#include "sim/base/units.hpp"
#include "sim/program/serving/request_options.hpp"

namespace orrery {

/// How fast jobs of a template train: measured.
struct RatePoint {
  std::int64_t gpus = 1, batch = 1;
  double samples_per_second = 1;

  template <class V>
  void visit(V& v) {
    v.required("gpus", gpus, "GPUs that work together", at_least(1));
    v.required("batch", batch, "samples of a step, of all of them together", at_least(1));
    v.required("samples_per_second", samples_per_second, "of all of them together", more_than(0));
  }
};

/// What jobs have in common.
struct JobTemplate {
  std::string name;  // its key
  double share = 1;
  std::vector<std::int64_t> samples;
  std::int64_t batch = 32, gpus = 1;
  double learning_rate = 1, most_learning_rate = 1;
  LengthOptions epochs{.mean = 30};
  std::optional<double> noise_scale;
  double parameters = 0;
  std::vector<RatePoint> rates;
  std::optional<Seconds> exchange;
  std::string model, dtype = "f32";
  std::int64_t sequence = 128;
  double loss = 7, accuracy = 0.5;

  template <class V>
  void visit(V& v) {
    v.field("share", share, "how often it is drawn, beside those of the others", at_least(0));
    v.required("samples", samples, "samples of an epoch; of several, each job has one by chance", at_least(1));
    v.required("batch", batch, "samples of a step on one GPU", at_least(1));
    v.field("gpus", gpus, "GPUs that are asked for: schedulers that do not choose give these", at_least(1));
    v.field("learning_rate", learning_rate, "for the batch of one GPU", more_than(0));
    v.field("most_learning_rate", most_learning_rate,
            "the batch of n GPUs is n times that of one as far as n times the learning rate is no more than this",
            more_than(0));
    v.field("epochs", epochs, "until the target is met, at the batch of one GPU");
    v.field("noise_scale", noise_scale,
            "samples s for which a batch B takes (s + B)/(s + b) times the epochs of the batch b of one GPU; left out: "
            "no batch takes more",
            at_least(0));
    v.field("parameters", parameters, "numbers that workers exchange and checkpoints hold; left out: the model's",
            at_least(0));
    v.field("rates", rates, "measured: a step takes a·B/n + s·2(n − 1)/n seconds, which is fitted to them");
    v.field("exchange", exchange, "that s of `rates`, where it is known; left out: fitted, 0 of one point",
            at_least(Seconds{0}));
    v.field("model", model, "in place of `rates`: steps of this model are predicted, `orrery list models`");
    v.field("sequence", sequence, "model: tokens of a sample", at_least(1));
    v.field("dtype", dtype, "model: type of weights and activations");
    v.field("loss", loss, "before the first step, which ONES' predictor sees", more_than(0));
    v.field("accuracy", accuracy, "that is the target, likewise", between(0, 1));
  }
};

/// One job of a list.
struct ListedJob {
  std::string of;
  Seconds arrival{0};
  std::optional<std::int64_t> gpus, samples, epochs;

  template <class V>
  void visit(V& v) {
    v.required("template", of, "the template");
    v.required("arrival", arrival, "when it is submitted", at_least(Seconds{0}));
    v.field("gpus", gpus, "in place of the template's", at_least(1));
    v.field("samples", samples, "in place of the template's", at_least(1));
    v.field("epochs", epochs, "in place of drawn ones", at_least(1));
  }
};

/// Jobs that are drawn.
struct DrawnJobs {
  std::int64_t jobs = 50;
  Arrival arrival = Arrival::Poisson;
  Seconds gap{30.0};
  double cv = 1;

  template <class V>
  void visit(V& v) {
    v.field("jobs", jobs, "how many", between(1, 1e6));
    v.field("arrival", arrival, "how they arrive; bursts are 4 times as dense for an eighth of an hour");
    v.field("gap", gap, "from one to the next in the mean", more_than(Seconds{0}));
    v.field("cv", cv, "gamma: standard deviation of the gaps over their mean", more_than(0));
  }
};

/// What it takes to start, stop and rescale a job, in seconds and bytes; defaults are assumed.
struct OverheadOptions {
  Seconds process{8.0}, communicator{0.4}, rebuild{0.2};
  BytesPerSecond broadcast{3e9}, checkpoint{0.5e9};
  double sent = 4, kept = 12;

  template <class V>
  void visit(V& v) {
    v.field("process", process, "to start processes, with model and data", at_least(Seconds{0}));
    v.field("communicator", communicator, "to make one communicator", at_least(Seconds{0}));
    v.field("rebuild", rebuild, "to wrap model and data anew behind a change of GPUs", at_least(Seconds{0}));
    v.field("broadcast", broadcast, "at which parameters go to new workers", more_than(BytesPerSecond{0}));
    v.field("checkpoint", checkpoint, "at which checkpoints are written and read", more_than(BytesPerSecond{0}));
    v.field("sent", sent, "bytes per parameter that are broadcast", at_least(0));
    v.field("kept", kept, "bytes per parameter of a checkpoint", at_least(0));
  }
};

/// Where ONES has the progress of jobs from: its predictor, or what it really is.
enum class ProgressSource : std::uint8_t { Predictor, Oracle };
inline std::span<const EnumName<ProgressSource>> enum_names(ProgressSource) {
  static constexpr EnumName<ProgressSource> names[] = {{ProgressSource::Predictor, "predictor"},
                                                       {ProgressSource::Oracle, "oracle"}};
  return names;
}

/// ONES; defaults as its artifact has them.
struct OnesOptions {
  std::int64_t population = 16, epochs = 2, most_requests = 4, history = 20, passes = 60, records = 2000;
  double mutation = 0.3, crossover = 0.5;
  Seconds interval{1.0};
  ProgressSource progress = ProgressSource::Predictor;

  template <class V>
  void visit(V& v) {
    v.field("population", population, "schedules that are kept", between(2, 1000));
    v.field("mutation", mutation, "chance of a job to be taken out of a schedule", between(0, 1));
    v.field("crossover", crossover, "chance of a GPU to change between two schedules", between(0, 1));
    v.field("epochs", epochs, "of a job before it is stopped or rescaled", at_least(1));
    v.field("most_requests", most_requests, "GPUs of a job at most, times what it asks for", at_least(1));
    v.field("interval", interval, "from one search step to the next", more_than(Seconds{0}));
    v.field("progress", progress, "where it has the progress of jobs from");
    v.field("history", history, "predictor: jobs of another seed that it learns from first", between(1, 10000));
    v.field("passes", passes, "predictor: over its records whenever it learns", at_least(0));
    v.field("records", records, "predictor: most records of a pass", at_least(1));
  }
};

struct TiresiasOptions {
  Seconds threshold{3600.0};

  template <class V>
  void visit(V& v) {
    v.field("threshold", threshold, "GPUs times seconds that a job gets in the first queue", more_than(Seconds{0}));
  }
};

struct OptimusOptions {
  Seconds interval{60.0};

  template <class V>
  void visit(V& v) {
    v.field("interval", interval, "from one distribution of the GPUs to the next", more_than(Seconds{0}));
  }
};

/// The keys of a file of jobs.
struct JobFileOptions {
  std::string summary, trace;
  Node cluster;
  std::map<std::string, JobTemplate> templates;
  std::vector<ListedJob> jobs;
  std::optional<DrawnJobs> drawn;
  std::int64_t seed = 1;
  OverheadOptions overheads;
  OnesOptions ones;
  TiresiasOptions tiresias;
  OptimusOptions optimus;

  template <class V>
  void visit(V& v) {
    v.field("summary", summary, "one line");
    v.field("cluster", cluster, "a cluster file, or the name of one; --cluster wins");
    v.required("templates", templates, "what jobs have in common, by name");
    v.field("jobs", jobs, "the jobs, in order of arrival");
    v.field("trace", trace, "or a CSV file of them: template, arrival_s, and gpus, samples or epochs where known");
    v.field("drawn", drawn, "or jobs that are drawn");
    v.field("seed", seed, "of all that is drawn");
    v.field("overheads", overheads, "what starting, stopping and rescaling take");
    v.field("ones", ones, "how ONES searches");
    v.field("tiresias", tiresias, "Tiresias with two queues");
    v.field("optimus", optimus, "Optimus");
  }
};

}  // namespace orrery
