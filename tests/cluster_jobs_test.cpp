// SPDX-License-Identifier: Apache-2.0
// Jobs of a cluster: how they are read and drawn, how fast they train, and what ONES predicts of them.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "sim/program/arrivals.hpp"
#include "sim/program/cluster/ones.hpp"
#include "tests/cluster_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr const char* kTemplates =
    "templates: {a: {samples: [100], batch: 10, gpus: 2, rates: [{gpus: 1, batch: 10, "
    "samples_per_second: 50}]}}\n";

JobSet jobs_of(const std::string& text, const std::string& trace = {}, std::int64_t gpus = 4) {
  const Node document = parse_yaml(text, "jobs.yaml");
  JobFileOptions o;
  read_options(document, o);
  if (!trace.empty()) o.trace = trace;
  return make_jobs(o, document, gpus, 1);
}

std::string problem(const std::string& text) {
  return user_error([&] { jobs_of(text); });
}

/// What is wrong with a trace, without the name of its file.
std::string trace_problem(const std::string& text) {
  const std::string path = std::filesystem::temp_directory_path() / "orrery_cluster_jobs_test.csv";
  std::ofstream{path} << text;
  std::string error = user_error([&] { jobs_of(kTemplates, path); });
  std::filesystem::remove(path);
  if (error.starts_with(path)) error.erase(0, path.size());
  return error;
}

}  // namespace

TEST_CASE("listed jobs come from the first one on, with what the template says and what they say") {
  const JobSet set = jobs_of(std::string{kTemplates} +
                             "jobs: [{template: a, arrival: 5 s}, {template: a, arrival: 9 s, gpus: 4, epochs: 3, "
                             "samples: 7}]\n");
  REQUIRE(set.jobs.size() == 2);
  CHECK((set.jobs[0].arrival == 0 && set.jobs[0].gpus == 2 && set.jobs[0].samples == 100 && set.jobs[0].epochs == 30));
  CHECK((set.jobs[1].arrival == 4 && set.jobs[1].gpus == 4 && set.jobs[1].samples == 7 && set.jobs[1].epochs == 3));
}

TEST_CASE("jobs that make no sense are told with their place") {
  const std::string t = kTemplates;
  CHECK_THAT(problem(t), Catch::StartsWith("jobs.yaml:1:1: jobs come from one source"));
  CHECK_THAT(problem(t + "drawn: {}\njobs: [{template: a, arrival: 0 s}]\n"),
             Catch::Contains("jobs come from one source"));
  CHECK_THAT(problem(t + "jobs:\n  - {template: b, arrival: 0 s}\n"),
             Catch::StartsWith("jobs.yaml:3:5: unknown template 'b'"));
  CHECK_THAT(problem(t + "jobs:\n  - {template: a, arrival: 3 s}\n  - {template: a, arrival: 2 s}\n"),
             Catch::StartsWith("jobs.yaml:4:5: arrives at 2 s, the job before it at 3 s"));
  CHECK_THAT(problem(t + "jobs:\n  - {template: a, arrival: 0 s, gpus: 5}\n"),
             Catch::StartsWith("jobs.yaml:3:5: a job asks for 5 GPUs of 4"));
  CHECK_THAT(problem(t + "jobs: [{template: a, arrival: -1 s}]\n"), Catch::Contains("at least 0 s"));
  CHECK_THAT(problem("templates: {a: {samples: [1], batch: 1, gpus: 9, model: x}}\ndrawn: {}\n"),
             Catch::Contains("a asks for 9 GPUs of 4"));
  CHECK_THAT(problem("templates: {a: {samples: [1], batch: 1}}\ndrawn: {}\n"),
             Catch::Contains("a needs either `rates` or a `model`"));
  CHECK_THAT(problem("templates: {a: {samples: [], batch: 1, model: x}}\ndrawn: {}\n"),
             Catch::Contains("a has no samples"));
  CHECK_THAT(problem("templates: {a: {samples: [1], batch: 1, model: x, share: 0}}\ndrawn: {}\n"),
             Catch::StartsWith("no template is ever drawn"));
}

TEST_CASE("a trace of jobs that makes no sense is told with its line") {
  CHECK(trace_problem("template,arrival_s\na,0\na,1.5\n") == "no error");
  CHECK_THAT(trace_problem("template\na\n"), Catch::Contains("no column arrival_s"));
  CHECK_THAT(trace_problem("template,arrival_s\na,2\na,1\n"), Catch::StartsWith(":3:1: arrives at 1 s"));
  CHECK_THAT(trace_problem("template,arrival_s\na,-2\n"), Catch::StartsWith(":2:1: arrival_s '-2' is no number"));
  CHECK_THAT(trace_problem("template,arrival_s,gpus\na,0,0\n"),
             Catch::StartsWith(":2:1: gpus '0' is no whole number from 1 on"));
  CHECK_THAT(trace_problem("template,arrival_s,gpus\na,0,8\n"), Catch::StartsWith(":2:1: a job asks for 8 GPUs of 4"));
  CHECK_THAT(trace_problem("template,arrival_s\n"), Catch::Contains("has no jobs"));
}

TEST_CASE("drawn jobs come as often as asked, of templates by their shares") {
  JobTemplate rare = linear_template("rare"), usual = linear_template("usual");
  rare.share = 1, usual.share = 3;
  const std::vector<Job> jobs =
      drawn_jobs({rare, usual}, {.jobs = 20000, .arrival = Arrival::Gamma, .gap = Seconds{2}, .cv = 0.5}, 3);
  double squares = 0, usuals = 0;
  for (std::size_t i = 1; i < jobs.size(); ++i) {
    const double gap = jobs[i].arrival - jobs[i - 1].arrival;
    squares += gap * gap;
  }
  for (const Job& j : jobs) usuals += double(j.type);
  const double mean = jobs.back().arrival / double(jobs.size() - 1);
  CHECK(mean == Approx(2).epsilon(0.02));
  CHECK(std::sqrt(squares / double(jobs.size() - 1) - mean * mean) == Approx(1).epsilon(0.03));
  CHECK(usuals / double(jobs.size()) == Approx(0.75).epsilon(0.02));
}

TEST_CASE("a batch grows with the GPUs as far as the learning rate may") {
  JobTemplate t = linear_template("t", 4);
  t.batch = 32;
  CHECK(elastic_batch(t, 1) == 32);
  CHECK(elastic_batch(t, 3) == 96);
  CHECK(elastic_batch(t, 16) == 128);
  CHECK(epochs_factor(t, 128) == 1);
  t.noise_scale = 64;  // (64 + 128)/(64 + 32)
  CHECK(epochs_factor(t, 128) == Approx(2));
}

TEST_CASE("the law of a step goes through two points, and by a known exchange through one") {
  JobTemplate t = linear_template();
  // 32 samples on one GPU in 0.32 s: a = 0.01. 256 on 8 in 0.6 s: 0.32 + s·1.75, s = 0.16.
  t.rates = {{1, 32, 100}, {8, 256, 256 / 0.6}};
  CHECK(fit_step_law(t).sample == Approx(0.01));
  CHECK(fit_step_law(t).exchange == Approx(0.16));
  t.rates = {{8, 256, 256 / 0.6}}, t.exchange = Seconds{0.16};
  CHECK(fit_step_law(t).sample == Approx(0.01));
  CHECK(fit_step_law(t).seconds(4, 64) == Approx(0.16 + 0.16 * 1.5));
  t.exchange = Seconds{1};
  CHECK_THAT(user_error([&] { fit_step_law(t); }), Catch::StartsWith("rates of linear leave no time for samples"));
}

TEST_CASE("predicted steps are asked for at whole nodes and batches, once, and interpolated") {
  JobTemplate t = linear_template("t", 8);
  t.rates.clear(), t.model = "some", t.batch = 8;
  int asked = 0;
  JobRates rates{{t}, 12, 4, [&](const JobTemplate&, std::int64_t n, std::int64_t b) {
                   ++asked;
                   CHECK((n == 1 || n == 2 || n == 4 || n == 8 || n == 12));
                   return 0.1 * double(b) + double(n);
                 }};
  CHECK(rates.samples_per_second(0, 4, 32) == Approx(32 / 4.8));
  CHECK(rates.samples_per_second(0, 4, 32) == Approx(32 / 4.8));
  CHECK(asked == 1);
  CHECK(rates.samples_per_second(0, 6, 48) == Approx(48 / 6.8));     // between 4 and 8 GPUs, 8 samples each
  CHECK(rates.samples_per_second(0, 12, 54) == Approx(54 / 12.45));  // 4.5 samples each
  // 20 samples each, of which a GPU computes at most 8 at once: three rounds of 20/3, the last one with the exchange.
  CHECK(rates.samples_per_second(0, 2, 40) == Approx(40 / (2 * (1 + 2.0 / 3) + (2 + 2.0 / 3))));
}

TEST_CASE("speeds are estimated on lines through what was measured") {
  const JobTemplate t = linear_template();
  const Job job = plain_job(0, 0, 1);
  JobState s{.job = &job, .type = &t};
  CHECK(estimated_rate(s, 3) == 0);
  s.measured = {{2, 100.0}};
  CHECK(estimated_rate(s, 1) == Approx(50));
  CHECK(estimated_rate(s, 6) == Approx(300));
  s.measured = {{2, 100.0}, {4, 160.0}};
  CHECK(estimated_rate(s, 1) == Approx(50));
  CHECK(estimated_rate(s, 3) == Approx(130));
  CHECK(estimated_rate(s, 8) == Approx(280));
}

TEST_CASE("the digamma function is the slope of the logarithm of gamma") {
  for (const double x : {0.05, 0.7, 1.0, 3.3, 12.0, 400.0})
    CHECK(digamma(x) == Approx((std::lgamma(x + 1e-5 * x) - std::lgamma(x - 1e-5 * x)) / (2e-5 * x)).epsilon(1e-6));
}

TEST_CASE("Beta variables have the moments of their formula") {
  Random random{8};
  const double a = 3, b = 5;
  double sum = 0, squares = 0;
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = draw_beta(a, b, random);
    sum += x, squares += x * x;
  }
  const double mean = sum / kDraws;
  CHECK(mean == Approx(a / (a + b)).epsilon(0.01));
  CHECK(squares / kDraws - mean * mean == Approx(a * b / ((a + b) * (a + b) * (a + b + 1))).epsilon(0.03));
}

TEST_CASE("the predictor learns how far jobs are from what they show") {
  // Jobs of 20 epochs whose loss tells how far they are: β should become the epochs that are to come.
  const auto records = [] {
    std::vector<ProgressRecord> all;
    for (int job = 0; job < 20; ++job)
      for (double e = 1; e < 20; e += 1) all.push_back({1e4, 2, e, 2 - e / 20, e / 20, e / 20});
    return all;
  };
  OnesOptions o;
  ProgressPredictor untaught{o, 1}, taught{o, 1};
  taught.add(records());
  taught.learn();
  CHECK(taught.loss(records()) < untaught.loss(records()) - 0.3);
  const double early = taught.beta({1e4, 2, 3, 1.85, 0.15, 0}), late = taught.beta({1e4, 2, 17, 1.15, 0.85, 0});
  CHECK(early > late);
  CHECK(3 / (3 + early) == Approx(3.0 / 20).margin(0.08));
  CHECK(17 / (17 + late) == Approx(17.0 / 20).margin(0.1));
}
