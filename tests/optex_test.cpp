// SPDX-License-Identifier: Apache-2.0
// Steps at several points at once (OptEx, arXiv 2402.11427) against the same iteration written out: the history in the
// order in which it came, the process solved by elimination for all weights, one gradient after another on one device.
#include <catch2/catch.hpp>
#include <deque>
#include <numeric>

#include "tests/parallel_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

using Numbers = std::vector<double>;

std::unique_ptr<Strategy> optex(const std::string& yaml) {
  return find_strategy("optex").make(parse_yaml(yaml, "strategy"));
}

/// The gradients of a step on one device at given weights.
class GradientsOf {
 public:
  GradientsOf(const Model& model, TrainOptions o) : model_{model} {
    o.optimizer = {.kind = OptimizerKind::Sgd, .rate = 0, .momentum = 0, .decay = 0, .clip = 0};
    plan_ = single()->train_step(model, o, &host_workspaces());
    executor_->prepare(plan_);
    write_constants(*executor_, plan_);
  }

  double at(const Numbers& w, const std::vector<PortValues>& inputs, Numbers& gradient) {
    auto from = w.begin();
    for (std::size_t i = 0; i < model_.parameters.size(); ++i) {
      const std::int64_t n = model_.parameters[i].elements();
      write_parameter(*executor_, plan_, ParameterId{i}, Numbers{from, from + n});
      from += n;
    }
    put(*executor_, plan_, inputs);
    Bindings bindings;
    bindings[Symbol::Step] = 1;
    executor_->execute(plan_, bindings);
    gradient.clear();
    for (std::size_t i = 0; i < model_.parameters.size(); ++i) {
      const Numbers g = read_gradient(*executor_, plan_, ParameterId{i}, model_.parameters[i].elements());
      gradient.insert(gradient.end(), g.begin(), g.end());
    }
    return read_port(*executor_, plan_, "loss")[0];
  }

 private:
  const Model& model_;
  Plan plan_;
  std::unique_ptr<Executor> executor_ = make_host_executor();
};

struct Settings {
  std::int64_t points = 1;
  std::size_t history = 6;
  double length = 1, noise = 1e-3;
  CovarianceKind kernel = CovarianceKind::Matern52;
  std::vector<double> some = {};  // of the weights, which distances are over; empty: all
};

/// What an update keeps, and the update.
struct Rule {
  OptimizerOptions o;
  Numbers first, second;
  std::vector<bool> decays;
  int count = 0;

  void operator()(Numbers& w, const Numbers& g) {
    ++count;
    first.resize(w.size()), second.resize(w.size());
    double norm2 = 0;
    for (const double x : g) norm2 += x * x;
    const double factor = o.clip > 0 ? std::min(1.0, o.clip / (std::sqrt(norm2) + 1e-6)) : 1;
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double x = factor * g[i], decay = decays[i] ? o.decay : 0;
      if (o.kind == OptimizerKind::Sgd) {
        first[i] = o.momentum * first[i] + x + decay * w[i];
        w[i] -= o.rate * first[i];
        continue;
      }
      first[i] = o.beta1 * first[i] + (1 - o.beta1) * x;
      second[i] = o.beta2 * second[i] + (1 - o.beta2) * x * x;
      const double m = first[i] / (1 - std::pow(o.beta1, count)), v = second[i] / (1 - std::pow(o.beta2, count));
      w[i] -= o.rate * (m / (std::sqrt(v) + o.epsilon) + decay * w[i]);
    }
  }
};

double alike(const Numbers& a, const Numbers& b, const Settings& s) {
  double d2 = 0;
  const auto add = [&](std::size_t i) { d2 += (a[i] - b[i]) * (a[i] - b[i]); };
  if (s.some.empty())
    for (std::size_t i = 0; i < a.size(); ++i) add(i);
  for (const double i : s.some) add(std::size_t(i));
  const double r = std::sqrt(d2) / s.length;
  if (s.kernel == CovarianceKind::SquaredExponential) return std::exp(-r * r / 2);
  if (s.kernel == CovarianceKind::Matern32) return (1 + std::sqrt(3) * r) * std::exp(-std::sqrt(3) * r);
  return (1 + std::sqrt(5) * r + 5 * r * r / 3) * std::exp(-std::sqrt(5) * r);
}

struct Known {
  Numbers at, gradient;
};

/// (K + σ²)⁻¹·G by elimination with pivots, a row per pair of the history.
std::vector<Numbers> solved(const std::deque<Known>& history, const Settings& s) {
  const std::size_t n = history.size();
  std::vector<Numbers> a(n, Numbers(n)), x;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) a[i][j] = alike(history[i].at, history[j].at, s) + (i == j ? s.noise : 0);
    x.push_back(history[i].gradient);
  }
  const auto subtract = [&](std::size_t row, std::size_t from, double times) {
    for (std::size_t j = 0; j < n; ++j) a[row][j] -= times * a[from][j];
    for (std::size_t k = 0; k < x[row].size(); ++k) x[row][k] -= times * x[from][k];
  };
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t pivot = c;
    for (std::size_t r = c; r < n; ++r)
      if (std::abs(a[r][c]) > std::abs(a[pivot][c])) pivot = r;
    std::swap(a[c], a[pivot]), std::swap(x[c], x[pivot]);
    for (std::size_t r = 0; r < n; ++r)
      if (r != c) subtract(r, c, a[r][c] / a[c][c]);
  }
  for (std::size_t r = 0; r < n; ++r)
    for (double& v : x[r]) v /= a[r][r];
  return x;
}

Numbers predicted(const std::deque<Known>& history, const std::vector<Numbers>& w, const Numbers& z,
                  const Settings& s) {
  Numbers out(z.size());
  if (history.size() < 2) return out;
  for (std::size_t j = 0; j < history.size(); ++j) {
    const double k = alike(z, history[j].at, s);
    for (std::size_t i = 0; i < z.size(); ++i) out[i] += k * w[j][i];
  }
  return out;
}

/// The samples of point s.
std::vector<PortValues> part_of(const std::vector<PortValues>& inputs, std::int64_t points, std::int64_t s) {
  std::vector<PortValues> out;
  for (const PortValues& in : inputs) {
    if (in.port == "history_slots") continue;
    const auto part = [&](const auto& all) {
      const std::int64_t n = std::ssize(all) / points;
      return std::decay_t<decltype(all)>{all.begin() + s * n, all.begin() + (s + 1) * n};
    };
    out.push_back({in.port, part(in.indices), part(in.numbers)});
  }
  return out;
}

/// Losses where iterations begin, and the weights in the end.
struct WrittenOut {
  Numbers losses, weights;
};

WrittenOut write_out(const Model& model, const TrainOptions& o, const std::vector<std::vector<PortValues>>& inputs,
                     Numbers theta, const Settings& s) {
  TrainOptions part = o;
  part.batch = o.batch / s.points;
  GradientsOf gradients{model, part};
  Rule rule{.o = o.optimizer, .first = {}, .second = {}, .decays = {}};
  for (const Parameter& p : model.parameters) rule.decays.insert(rule.decays.end(), std::size_t(p.elements()), p.decay);
  std::deque<Known> history;
  Numbers losses;
  for (const auto& all : inputs) {
    const std::vector<Numbers> w = solved(history, s);
    std::vector<Known> points{{theta, {}}};
    for (std::int64_t i = 1; i < s.points; ++i) {
      Numbers z = points.back().at;
      rule(z, predicted(history, w, z, s));
      points.push_back({z, {}});
    }
    for (std::int64_t i = 0; i < s.points; ++i) {
      Known& p = points[std::size_t(i)];
      const double loss = gradients.at(p.at, part_of(all, s.points, i), p.gradient);
      if (i == 0) losses.push_back(loss);
    }
    theta = points.back().at;
    rule(theta, points.back().gradient);
    for (Known& p : points) history.push_back(std::move(p));
    while (history.size() > s.history) history.pop_front();
  }
  return {losses, theta};
}

Numbers joined(const std::vector<Numbers>& parts) {
  Numbers out;
  for (const Numbers& p : parts) out.insert(out.end(), p.begin(), p.end());
  return out;
}

/// The weights that distances are over, by their number among all weights of a model.
Numbers kernel_coordinates(const Plan& plan, const Model& model) {
  Numbers out;
  for (const Constant& c : plan.constants) {
    if (plan.name_of(c.tensor) != "kernel.coordinates") continue;
    for (const double at : c.values({})) {  // of the storage, where matrices come first
      double before = 0;
      for (std::size_t i = 0; i < model.parameters.size(); ++i) {
        const auto p = std::find_if(plan.placements.begin(), plan.placements.end(),
                                    [&](const ParameterPlacement& x) { return x.parameter == ParameterId{i}; });
        const double first = double(plan.layouts[plan.tensors[p->weight.tensor.index()].layout.index()].offset),
                     n = double(model.parameters[i].elements());
        if (first <= at && at < first + n) out.push_back(before + at - first);
        before += n;
      }
    }
  }
  return out;
}

TrainOptions steps_of(OptimizerKind kind, std::int64_t points, double clip) {
  TrainOptions o;
  o.batch = 2 * points, o.sequence = 6, o.steps = 6, o.dtype = Precision::F64;
  o.optimizer = {.kind = kind, .rate = 0.02, .epsilon = 1e-3, .decay = 0.1, .clip = clip};
  return o;
}

/// Of one execution: what went in, came out, and the weights before.
struct Executed {
  std::vector<std::vector<PortValues>> inputs;
  Numbers start;
  Trained trained;
};

Executed execute(const Model& model, const TrainOptions& o, const Strategy& strategy) {
  Executed e;
  const auto program = training_program(model, o, strategy.train_step(model, o, &host_workspaces()), {});
  while (auto step = program->next()) e.inputs.push_back(step->inputs);
  const Plan& plan = program->plans().front();
  const auto executor = make_host_executor();
  executor->prepare(plan);
  fill(*executor, plan, model, 3, 0.02);
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Numbers w = read_parameter(*executor, plan, ParameterId{i}, model.parameters[i].elements());
    e.start.insert(e.start.end(), w.begin(), w.end());
  }
  e.trained = train_steps(model, o, strategy.train_step(model, o, &host_workspaces()), *make_host_executor(),
                          [](const Plan&, Trained&) {});
  return e;
}

}  // namespace

TEST_CASE("iterations at several points are those of the paper, written out, while the history wraps round",
          "[optex]") {
  const Model model = gpt2_of({.hidden = 8, .layers = 1, .heads = 2, .vocab = 23, .positions = 8});
  for (const OptimizerKind kind : {OptimizerKind::Sgd, OptimizerKind::AdamW})
    for (const std::int64_t points : {1, 2, 4})
      for (const double clip : {0.0, 0.3}) {
        CAPTURE(enum_name(kind), points, clip);
        const Settings s{.points = points};  // 24 points come by at most, of which 6 are known
        const TrainOptions o = steps_of(kind, points, clip);
        const Executed e = execute(model, o, *optex(fmt::format("parallel_iterations: {}\nhistory: 6", points)));
        const WrittenOut want = write_out(model, o, e.inputs, e.start, s);
        CHECK(largest_difference(e.trained.losses, want.losses) < 1e-9);
        CHECK(largest_difference(joined(e.trained.weights), want.weights) < 1e-9);
      }
}

TEST_CASE("with one point a step is the plain one, op by op", "[optex]") {
  const Model model = small_model("gpt2");
  const TrainOptions o = double_steps(4, 2, 6, 3);
  const Plan plain = single()->train_step(model, o, &host_workspaces()),
             one = optex("parallel_iterations: 1")->train_step(model, o, &host_workspaces());
  CHECK(print_text(one) == print_text(plain));
}

TEST_CASE("kernels, lengths, noise and distances over some of the weights are what the options say", "[optex]") {
  const Model model = gpt2_of({.hidden = 8, .layers = 1, .heads = 2, .vocab = 23, .positions = 8});
  const TrainOptions o = steps_of(OptimizerKind::AdamW, 2, 0);
  for (const auto kind : {CovarianceKind::Matern32, CovarianceKind::SquaredExponential}) {
    const std::string kernel = kind == CovarianceKind::Matern32 ? "matern32" : "squared_exponential";
    const auto strategy = optex(fmt::format(
        "{{parallel_iterations: 2, history: 5, kernel: {}, length_scale: 0.3, noise: 0.01, kernel_elements: 40}}",
        kernel));
    Settings s{.points = 2, .history = 5, .length = 0.3, .noise = 0.01, .kernel = kind};
    const Plan plan = strategy->train_step(model, o, &host_workspaces());
    s.some = kernel_coordinates(plan, model);
    REQUIRE(s.some.size() == 40);
    CHECK(std::set<double>{s.some.begin(), s.some.end()}.size() == 40);
    const Executed e = execute(model, o, *strategy);
    const WrittenOut want = write_out(model, o, e.inputs, e.start, s);
    CHECK(largest_difference(joined(e.trained.weights), want.weights) < 1e-9);
  }
}

TEST_CASE("microbatches of a point add up to its gradient", "[optex]") {
  const Model model = gpt2_of({.hidden = 8, .layers = 2, .heads = 2, .vocab = 23, .positions = 8});
  TrainOptions o = steps_of(OptimizerKind::AdamW, 2, 0.3);
  o.batch = 8, o.microbatches = 2;
  const Executed e = execute(model, o, *optex("{parallel_iterations: 2, history: 6}"));
  // A microbatch has two samples of each point: those of point 0 are samples 0, 1, 4 and 5 of the batch.
  auto inputs = e.inputs;
  for (auto& step : inputs)
    for (PortValues& in : step) {
      if (in.port == "history_slots") continue;
      const auto before = in.indices;
      const std::size_t n = before.size() / 8;
      const std::size_t order[] = {0, 1, 4, 5, 2, 3, 6, 7};
      for (std::size_t i = 0; i < 8; ++i)
        std::copy_n(before.begin() + std::ptrdiff_t(order[i] * n), n, in.indices.begin() + std::ptrdiff_t(i * n));
    }
  const WrittenOut want = write_out(model, o, inputs, e.start, {.points = 2});
  CHECK(largest_difference(e.trained.losses, want.losses) < 1e-9);
  CHECK(largest_difference(joined(e.trained.weights), want.weights) < 1e-9);
}

TEST_CASE("a plan keeps two histories and the points, sends each gradient to all, and predicts all but one of them",
          "[optex]") {
  const Model model = small_model("gpt2");
  TrainOptions o = steps_of(OptimizerKind::AdamW, 4, 0);
  o.dtype = Precision::F32;
  const Plan plan = optex("{parallel_iterations: 4, history: 10}")->train_step(model, o, &host_workspaces());
  std::int64_t d = 0;
  for (const Parameter& p : model.parameters) d += p.elements();
  double states = 0, sent = 0;
  for (const Tensor& t : plan.tensors)
    if (t.role == TensorRole::OptimizerState && t.base.is_none())
      states += plan.size(TensorId{std::size_t(&t - plan.tensors.data())}).base();
  CHECK(states == 4.0 * double(d) * (2 * 10 + 4 + 2));  // AdamW's two moments once
  std::map<std::string, int> ops;
  for (const Op& op : plan.ops) {
    const Work& w = plan.works[op.work.index()];
    ++ops[std::string{kind_name(w)}];
    if (std::holds_alternative<Collective>(w)) sent += amount(w).message.base();
  }
  CHECK(sent == 4.0 * double(4 * d));
  CHECK(ops["cholesky"] == 1);
  CHECK(ops["covariance"] == 4);  // of the history, and of three points with it
  CHECK(ops["cholesky_solve"] == 3);
  CHECK(ops["adamw"] == 4);
  CHECK(ops["scatter_rows"] == 2);
}

TEST_CASE("optex refuses what it cannot predict", "[optex]") {
  const Model model = small_model("gpt2");
  TrainOptions o = steps_of(OptimizerKind::AdamW, 2, 0);
  const auto refusal = [&](const TrainOptions& with, const std::string& more = "") {
    return user_error(
        [&] { optex("{parallel_iterations: 2" + more + "}")->train_step(model, with, &host_workspaces()); });
  };
  CHECK(refusal(o) == "no error");
  TrainOptions narrow = o, frozen = o, odd = o;
  narrow.dtype = Precision::BF16, frozen.frozen = true, odd.batch = 3;
  CHECK_THAT(refusal(narrow), Catch::Contains("optex predicts gradients in f32 or f64\n  hint: use `dtype: f32`"));
  CHECK_THAT(refusal(frozen), Catch::Contains("optex predicts gradients of all weights\n  hint: leave frozen out"));
  CHECK_THAT(refusal(odd), Catch::Contains("batch 3 is not a multiple of 2"));
  CHECK_THAT(refusal(o, ", kernel_elements: 1000000"), Catch::Contains("1000000 kernel_elements are more than the"));
  CHECK_THAT(user_error([&] { optex("{parallel_iterations: 2}")->inference(model, {}, nullptr); }),
             Catch::Contains("the strategy `optex` trains; it does not infer"));
  CHECK_THAT(user_error([] { optex("{history: 1}"); }), Catch::Contains("history"));
}
