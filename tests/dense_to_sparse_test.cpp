// SPDX-License-Identifier: Apache-2.0
// The dense-to-sparse gate: what it chooses, that any mesh trains with it as one device does and as a straight-line
// implementation does, and what a step is expected to cost as the temperature falls.
#include <catch2/catch.hpp>

#include "kernels/philox.hpp"
#include "tests/parallel_testing.hpp"
#include "tests/reference_adamw.hpp"
#include "tests/reference_networks.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr double kTolerance = 1e-9;

/// Layers of experts as Switch's: the weight of the one expert of a token is its softmax.
Model switch_model(const SmallSizes& sizes) {
  Model model = mixtral_of(sizes);
  for (Block& b : std::get<Transformer>(model.network).decoder) std::get<MoE>(b.ffn).normalise = false;
  return model;
}
Model small_mixture() { return switch_model({.inner = 24, .heads = 4, .kv_heads = 4, .chosen = 1}); }

/// τ falls in four updates; with a threshold at which four experts of logits near zero are not all active.
DenseToSparseOptions falling() {
  return {.tau_max = 1, .tau_min = 0.2, .updates = 4, .hard_from = 2, .threshold = 0.15};
}

/// Updates 0 and 1 are sparse, 2 is top-1.
TrainOptions steps_with(const DenseToSparseOptions& gate) {
  TrainOptions o = double_steps(16, 4, 12, 3);
  o.dense_to_sparse = gate;
  return o;
}

double difference(const std::string& strategy, const TrainOptions& o) {
  const Model model = small_mixture();
  return worst_difference(train(model, o, *parallel(strategy)), train(model, o, *single()));
}

/// Layers of Mixtral's names whose tokens visit all experts above the threshold, token by token.
class SparseMixtureReference final : public LlamaReference {
 public:
  SparseMixtureReference(const ReferenceSizes& sizes, int experts, const DenseToSparseOptions& gate,
                         std::int64_t update, std::uint64_t seed, const Values& weights, Values& gradients)
      : LlamaReference{sizes, weights, gradients}, e{experts}, gate_{gate}, update_{update}, seed_{seed} {
    const double part = double(update) / double(gate.updates);
    tau_ = std::max(gate.tau_min, gate.decay == TemperatureDecay::Linear
                                      ? gate.tau_max - (gate.tau_max - gate.tau_min) * part
                                      : gate.tau_max * std::exp(part * std::log(gate.tau_min / gate.tau_max)));
  }
  int visits() const { return visits_; }

 private:
  struct Visit {
    int expert;
    Inner inner;
    Vec y;
  };
  struct Token {
    Vec x, weighs;  // by which experts are weighted, of all of them
    std::vector<Visit> visits;
  };

  std::array<std::string, 3> names(int l, int expert) const {
    const std::string p = prefix(l) + "experts." + std::to_string(expert);
    return {p + ".w1.weight", p + ".w3.weight", p + ".w2.weight"};
  }
  static std::string prefix(int l) { return "model.layers." + std::to_string(l) + ".block_sparse_moe."; }
  static Vec softmax(Vec x) {
    double sum = 0;
    for (double& v : x) sum += v = std::exp(v);
    for (double& v : x) v /= sum;
    return x;
  }

  Vec feed_forward(int l, const Vec& b) override {
    tokens_.resize(static_cast<std::size_t>(s.layers));
    Vec out(b.size(), 0.0);
    for (int r = 0; r < n; ++r) {
      Token t{columns(b, 1, h, r * h, h), {}, {}};
      const Vec z = affine(t.x, w.at(prefix(l) + "gate.weight"), nullptr, 1, h, e, true);
      Vec noisy = z;
      for (int k = 0; k < e; ++k) {
        const kernels::PhiloxKey key{seed_, std::uint64_t(4 * (l + 1) + 1) << 32 | std::uint64_t(update_)};
        const double u = kernels::philox_uniform(kernels::philox_word(key, std::uint64_t(r * e + k)));
        noisy[k] = (z[k] - std::log(-std::log(u))) / tau_;
      }
      const Vec chosen = softmax(noisy);
      t.weighs = gate_.weights == GateWeights::Gumbel ? chosen : softmax(z);
      const bool hard = gate_.hard_from && update_ >= *gate_.hard_from;
      for (int k = 0; k < e; ++k) {
        if (hard ? chosen[k] < *std::max_element(chosen.begin(), chosen.end()) : chosen[k] <= gate_.threshold) continue;
        Visit v{k, {}, {}};
        v.y = swiglu(names(l, k), t.x, 1, v.inner);
        for (int c = 0; c < h; ++c) out[r * h + c] += t.weighs[k] * v.y[c];
        t.visits.push_back(std::move(v));
        ++visits_;
      }
      tokens_[l].push_back(std::move(t));
    }
    return out;
  }

  Vec feed_forward_back(int l, const Vec& dy) override {
    Vec db(dy.size(), 0.0);
    for (int r = 0; r < n; ++r) {
      const Token& t = tokens_[l][r];
      const Vec d_out = columns(dy, 1, h, r * h, h);
      Vec dw(e, 0.0), dx(h, 0.0), dz(e);
      for (const Visit& v : t.visits) {
        Vec d_expert = d_out;
        for (int c = 0; c < h; ++c) dw[v.expert] += d_out[c] * v.y[c], d_expert[c] *= t.weighs[v.expert];
        add_to(dx, swiglu_back(names(l, v.expert), d_expert, 1, v.inner));
      }
      double mean = 0;
      for (int k = 0; k < e; ++k) mean += dw[k] * t.weighs[k];
      for (int k = 0; k < e; ++k)
        dz[k] = t.weighs[k] * (dw[k] - mean) / (gate_.weights == GateWeights::Gumbel ? tau_ : 1);
      const std::string router = prefix(l) + "gate.weight";
      add_to(dx, affine_back(t.x, w.at(router), dz, g[router], nullptr, 1, h, e, true));
      std::copy(dx.begin(), dx.end(), db.begin() + r * h);
    }
    return db;
  }

  const int e;
  const DenseToSparseOptions gate_;
  const std::int64_t update_;
  const std::uint64_t seed_;
  double tau_;
  int visits_ = 0;
  std::vector<std::vector<Token>> tokens_;
};

}  // namespace

TEST_CASE("training through the switch to top-1 follows a straight-line implementation", "[dense_to_sparse]") {
  const ReferenceSizes s{
      .batch = 3, .sequence = 7, .hidden = 12, .heads = 2, .kv_heads = 2, .layers = 2, .inner = 10, .vocab = 29};
  const int experts = 4, steps = 8;
  const Model model = switch_model({.hidden = s.hidden,
                                    .inner = s.inner,
                                    .layers = s.layers,
                                    .heads = s.heads,
                                    .kv_heads = s.kv_heads,
                                    .vocab = s.vocab,
                                    .experts = experts,
                                    .chosen = 1});
  TrainOptions o;
  o.batch = s.batch, o.sequence = s.sequence, o.dtype = Precision::F64, o.steps = steps;
  o.optimizer.epsilon = 1e-3, o.optimizer.rate = 0.01;
  o.dense_to_sparse = {.decay = GENERATE(TemperatureDecay::Exponential, TemperatureDecay::Linear),
                       .tau_max = 2,
                       .tau_min = 0.3,
                       .updates = 6,
                       .hard_from = 13,
                       .threshold = 0.1,
                       .weights = GENERATE(GateWeights::Gumbel, GateWeights::Softmax),
                       .update = 9};
  if (GENERATE(false, true)) o.dense_to_sparse->updates = 12;
  const auto program = training_program(model, o, single()->train_step(model, o, &host_workspaces()), {});
  const Plan& plan = program->plans().front();
  const auto executor = make_host_executor();
  executor->prepare(plan);
  fill(*executor, plan, model, 11, 0);
  orrery::testing::Values w, g;
  for (std::size_t i = 0; i < model.parameters.size(); ++i)
    w[model.parameters[i].name] = initial_values(model, ParameterId{i}, 11);
  ReferenceAdamW adam = reference_adamw(o.optimizer);
  const int rows = s.batch * s.sequence * s.layers;
  for (std::int64_t update = o.dense_to_sparse->update; auto step = program->next(); ++update) {
    put(*executor, plan, step->inputs);
    executor->execute(plan, step->bindings);
    SparseMixtureReference reference{s, experts, *o.dense_to_sparse, update, std::uint64_t(o.seed), w, g};
    const double expected = reference.run(step->inputs[0].indices, step->inputs[1].indices);
    adam.update(w, g);
    CHECK(read_port(*executor, plan, "loss")[0] == Approx(expected).epsilon(1e-10));
    CHECK(
        (update < 13 ? reference.visits() > rows && reference.visits() < rows * experts : reference.visits() == rows));
  }
  for (std::size_t i = 0; i < model.parameters.size(); ++i)
    CHECK(largest_difference(read_parameter(*executor, plan, ParameterId{i}, model.parameters[i].elements()),
                             w.at(model.parameters[i].name)) < 1e-8);
}

TEST_CASE("a gate that gets sparse trains on any mesh as on one device", "[dense_to_sparse]") {
  const auto* s = GENERATE("{mesh: dp2}", "{mesh: ep2}", "{mesh: ep4}", "{mesh: dp2 ep2, data: {kind: zero1}}",
                           "{mesh: ep2 tp2}", "{mesh: ep2 tp2, sequence_parallel: true}",
                           "{mesh: ep2 tp2, sequence_parallel: true, whole_experts: true}", "{mesh: pp2 ep2}",
                           "{mesh: cp2}", "{mesh: ep2, expert_buffer: 3}", "{mesh: ep2, expert_overlap: true}",
                           "{mesh: ep2 fsdp2, data: {kind: zero3}}");
  INFO(s);
  CHECK(difference(s, steps_with(falling())) < kTolerance);
}

TEST_CASE("rows of a gate that gets sparse are weighted inside, or made again", "[dense_to_sparse]") {
  TrainOptions o = steps_with(falling());
  const Trained one = train(small_mixture(), o, *single());
  const auto* s = GENERATE("{mesh: ep1}", "{mesh: ep2}");
  const int way = GENERATE(0, 1, 2);
  o.weigh_inside = way == 0, o.waits_for_experts = way == 1;
  if (way == 2) o.recompute = Recompute::Full;
  INFO(s << " " << way);
  CHECK(worst_difference(train(small_mixture(), o, *parallel(s)), one) < kTolerance);
}

TEST_CASE("masks that are multiplied compute what moved rows do", "[dense_to_sparse]") {
  DenseToSparseOptions gate = falling();
  gate.weights = GENERATE(GateWeights::Gumbel, GateWeights::Softmax);
  const Trained moved = train(small_mixture(), steps_with(gate), *single());
  gate.dispatch = GateDispatch::Dense;
  const auto* s = GENERATE("{mesh: ep1}", "{mesh: ep2}", "{mesh: dp2 ep2}", "{mesh: ep2 tp2}");
  INFO(s);
  CHECK(worst_difference(train(small_mixture(), steps_with(gate), *parallel(s)), moved) < kTolerance);
}

TEST_CASE("what a gate does shows in what is trained", "[dense_to_sparse]") {
  const auto trained = [](const DenseToSparseOptions& gate) {
    return train(small_mixture(), steps_with(gate), *single());
  };
  const Trained base = trained(falling());
  DenseToSparseOptions other = falling();
  switch (GENERATE(0, 1, 2, 3, 4, 5)) {
    case 0:
      other.hard_from.reset();
      break;
    case 1:
      other.threshold = 0.3;
      break;
    case 2:
      other.weights = GateWeights::Softmax;
      break;
    case 3:
      other.decay = TemperatureDecay::Linear;
      break;
    case 4:
      other.tau_min = 0.1;
      break;
    default:
      other.update = 1;
  }
  CHECK(worst_difference(trained(other), base) > 1e-3);
}

TEST_CASE("more choices than there is room for are an error", "[dense_to_sparse]") {
  DenseToSparseOptions gate = falling();
  gate.threshold = 0.001, gate.spread = 8, gate.buffer = 1;
  std::string message = "no error";
  try {
    train(small_mixture(), steps_with(gate), *single());
  } catch (const DeviceError& e) {
    message = e.what();
  }
  CHECK_THAT(message, Catch::Contains("'layers.0.moe.route' on rank 0: tokens visit ") &&
                          Catch::Contains("; a larger `buffer` of dense_to_sparse has room for more, 0 for all"));
}

// Of two experts with equal logits g is above t where the difference of two Gumbel numbers, which is logistic, is above
// tau · ln(t / (1 - t)). What is drawn spreads by at most one expert over 2^14 tokens.
TEST_CASE("of two equal experts as many are active as the logistic distribution says", "[dense_to_sparse]") {
  const double tau = GENERATE(0.1, 0.3, 0.7, 1.0, 2.0), threshold = GENERATE(0.001, 0.1, 0.4);
  CHECK(expected_active(2, tau, 0, threshold) ==
        Approx(2 / (1 + std::pow(threshold / (1 - threshold), tau))).margin(4.0 / 128));
}

// Mean active experts of independent normal logits by another Monte-Carlo, to one digit and with an error of its own:
// what is drawn of a token spreads by half of what is active, over some 2000 tokens 1 %.
TEST_CASE("fewer experts are expected to be active as the temperature falls", "[dense_to_sparse]") {
  struct Row {
    std::int64_t experts;
    double spread;
    std::array<double, 7> active;
  };
  const std::array<double, 7> tau{2, 1.5, 1, 0.7, 0.5, 0.3, 0.1};
  const Row row =
      GENERATE(Row{8, 1, {8.0, 8.0, 7.8, 7.0, 5.5, 3.4, 1.6}}, Row{16, 0, {16.0, 16.0, 15.7, 13.9, 10.1, 5.1, 1.9}},
               Row{16, 1, {16.0, 16.0, 15.1, 12.0, 8.3, 4.4, 1.7}}, Row{16, 2, {16.0, 15.4, 12.3, 8.6, 5.7, 3.3, 1.6}},
               Row{16, 4, {13.7, 10.9, 7.0, 4.6, 3.3, 2.2, 1.3}}, Row{32, 2, {31.7, 29.2, 20.5, 12.6, 7.7, 3.9, 1.7}});
  for (std::size_t i = 0; i < tau.size(); ++i) {
    INFO(row.experts << " experts, spread " << row.spread << ", temperature " << tau[i]);
    CHECK(expected_active(row.experts, tau[i], row.spread, 0.001) ==
          Approx(row.active[i]).margin(0.05 + 0.02 * row.active[i]));
  }
}

TEST_CASE("gates that get sparse are refused where nobody ends at one expert", "[dense_to_sparse]") {
  const auto error = [](const Model& model, const TrainOptions& o, const char* strategy = "{mesh: ep2}") {
    return user_error([&] { parallel(strategy)->train_step(model, o, nullptr); });
  };
  TrainOptions o = steps_with(falling());
  CHECK(error(small_model("gpt2"), o, "{mesh: dp2}") ==
        "dense_to_sparse is for models of experts, and gpt2 has none\n  hint: leave it out");
  CHECK(error(small_model("mixtral"), o) ==
        "dense_to_sparse ends at the expert of the largest softmax, by which its rows are weighted; mixtral chooses in "
        "another way\n  hint: a model of qwen2_moe with num_experts_per_tok 1 and norm_topk_prob false");
  o.capacity_factor = 1;
  CHECK(error(small_mixture(), o) == "dense_to_sparse drops no tokens\n  hint: leave out capacity_factor");
  o = steps_with(falling());
  o.dense_to_sparse->tau_min = 2;
  CHECK(error(small_mixture(), o) == "tau_min 2 is above tau_max 1\n  hint: temperatures fall");
  o = steps_with(falling());
  o.dense_to_sparse->dispatch = GateDispatch::Dense, o.dense_to_sparse->buffer = 1;
  CHECK(error(small_mixture(), o) ==
        "dispatch: dense computes all tokens at all experts, weighted behind them\n  hint: leave out buffer and "
        "weigh_inside");
  o.dense_to_sparse->buffer = 0;
  CHECK(error(small_mixture(), o, "{mesh: ep2, expert_buffer: 1}") ==
        "dispatch: dense gives each expert room for all tokens of a rank\n  hint: leave out whole_experts and "
        "expert_buffer");
}

namespace {

/// Arithmetic of grouped products, and bytes of the messages of rows, of a step.
std::pair<double, double> experts_of(const Plan& plan) {
  double flops = 0, bytes = 0;
  for (const Op& op : plan.ops) {
    const Work& work = plan.work(op);
    const auto* c = std::get_if<Collective>(&work);
    if (c && c->kind == CollectiveKind::AllToAll && c->dtype == DType::F64) bytes += c->bytes.base();
    if (std::holds_alternative<GroupedGemm>(work)) flops += amount(work).flops.base();
  }
  return {flops, bytes};
}

}  // namespace

// One expert costs what the top-1 of the same model costs; k active ones k times as much, rounded to rows.
TEST_CASE("products, messages and memory of experts follow the active ones", "[dense_to_sparse]") {
  TrainOptions o = steps_with({.tau_max = 2, .tau_min = 0.3, .updates = 8, .hard_from = 9, .spread = 1, .buffer = 1});
  const Model model = small_mixture();
  TrainOptions top1 = o;
  top1.dense_to_sparse.reset();
  const auto strategy = parallel("{mesh: ep2, expert_buffer: 1}");
  const auto [flops, bytes] = experts_of(strategy->train_step(model, top1, nullptr));
  const double rows = 2 * 12;  // of a rank in a microbatch
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t update : {0, 4, 8, 9}) {
    o.dense_to_sparse->update = update;
    const double tau = o.dense_to_sparse->gate().temperature(update);
    const double active = update == 9 ? 1 : std::round(rows * expected_active(4, tau, 1, 0.001)) / rows;
    const Plan plan = strategy->train_step(model, o, &host_workspaces());
    const auto [f, b] = experts_of(plan);
    INFO("update " << update << ", " << active << " active");
    CHECK(f == Approx(active * flops));
    CHECK(b == Approx(active * bytes));
    const std::int64_t peak = activation_peak(plan);
    CHECK(peak < before);
    before = peak;
  }
  // All tokens at all experts, from each rank as many rows; and two products with masks there and back.
  o.dense_to_sparse->buffer = 0, o.dense_to_sparse->dispatch = GateDispatch::Dense;
  const auto [f, b] = experts_of(parallel("{mesh: ep2}")->train_step(model, o, nullptr));
  CHECK(f == Approx(4 * flops));
  CHECK(b == Approx(4 * bytes));
}
