// SPDX-License-Identifier: Apache-2.0
// The strategy cached-embedding: its cache against arrays that are looked through from end to end, what it trains
// against tables on the device, what moves in the simulator against what moves in the runtime.
#include <catch2/catch.hpp>
#include <set>

#include "sim/program/data.hpp"
#include "sim/program/embedding/cached_rows.hpp"
#include "sim/strategy/offload/cached_embedding.hpp"
#include "tests/offload_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// Tables of 70, 9 and 40 rows.
Model tables() {
  return model_of_config(R"({"model_type": "dlrm", "dense_features": 3, "embedding_dim": 4, "bottom_mlp": [5, 4],
                              "top_mlp": [6, 1], "table_sizes": [70, 9, 40]})",
                         "tables");
}

TrainOptions sgd_steps(std::vector<double> skew) {
  TrainOptions o;
  o.batch = 6;
  o.steps = 9;
  o.dtype = Precision::F64;
  o.id_skew = std::move(skew);
  o.optimizer = {.kind = OptimizerKind::Sgd, .rate = 0.3, .momentum = 0, .decay = 0, .clip = 0};
  return o;
}

/// A row for each slot, −1: none. Everything is found by looking at all of it.
struct PlainCache {
  std::vector<std::int32_t> rows;
  std::vector<std::int64_t> uses;
  const IdStream& frequencies;
  EvictionPolicy policy;

  bool is_rarer(std::int32_t a, std::int32_t b) const {
    const double pa = frequencies.probability(a), pb = frequencies.probability(b);
    return pa != pb ? pa < pb : a > b;
  }
  bool leaves_before(std::size_t a, std::size_t b) const {
    if (policy == EvictionPolicy::Lfu && uses[a] != uses[b]) return uses[a] < uses[b];
    return is_rarer(rows[a], rows[b]);
  }
  bool has(std::int32_t row) const { return std::count(rows.begin(), rows.end(), row) > 0; }

  PlainCache(const IdStream& f, const FrequencyCache::Options& o)
      : rows(std::size_t(o.slots), -1), uses(std::size_t(o.slots), 0), frequencies{f}, policy{o.policy} {
    std::vector<std::int32_t> all(std::size_t(f.rows()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::int32_t(i);
    std::sort(all.begin(), all.end(), [&](std::int32_t a, std::int32_t b) { return is_rarer(b, a); });
    for (std::size_t i = 0; i < std::size_t(o.warm); ++i) rows[i] = all[i];
  }

  void prepare(const std::vector<std::int32_t>& ids) {
    const std::set<std::int32_t> batch{ids.begin(), ids.end()};
    std::vector<std::int32_t> missed;
    for (const std::int32_t row : batch)
      if (!has(row)) missed.push_back(row);
    std::sort(missed.begin(), missed.end(), [&](std::int32_t a, std::int32_t b) { return is_rarer(b, a); });
    while (std::count(rows.begin(), rows.end(), -1) < std::ssize(missed)) {
      std::size_t first = SIZE_MAX;
      for (std::size_t s = 0; s < rows.size(); ++s)
        if (rows[s] >= 0 && !batch.contains(rows[s]) && (first == SIZE_MAX || leaves_before(s, first))) first = s;
      rows[first] = -1;
    }
    for (const std::int32_t row : missed) {
      const auto free = std::find(rows.begin(), rows.end(), -1);
      *free = row;
      uses[std::size_t(free - rows.begin())] = 0;
    }
    for (const std::int32_t id : ids) ++uses[std::size_t(std::find(rows.begin(), rows.end(), id) - rows.begin())];
  }
};

/// What rows are in which slots when a change has been made.
void apply_change(const FrequencyCache::Change& change, std::vector<std::int32_t>& rows) {
  for (std::size_t i = 0; i < change.victims.size(); ++i) {
    std::int32_t& row = rows[std::size_t(change.victim_slots[i])];
    CHECK(row == change.victims[i]);
    row = -1;
  }
  for (std::size_t i = 0; i < change.missed.size(); ++i) {
    std::int32_t& row = rows[std::size_t(change.missed_slots[i])];
    CHECK(row == -1);
    row = change.missed[i];
  }
}

struct CachedRun {
  Trained trained;
  Timeline timeline;
  std::vector<double> rank_of_slot;  // as the device has it, counted from 1
  std::vector<Step> home;            // what brought the rows home
  std::vector<Step> steps;
  FrequencyCache::Counts counts;
};

TensorId tensor_named(const Plan& plan, std::string_view name) {
  for (std::size_t i = 0; i < plan.tensors.size(); ++i)
    if (plan.names[plan.tensors[i].name] == name) return TensorId{i};
  throw std::out_of_range{std::string{name}};
}

/// Trains, then brings the rows that are on the device home.
CachedRun train_cached(const Model& model, const TrainOptions& o, const std::string& options) {
  auto program = training_program(
      model, o, strategy_of("cached-embedding", options)->train_step(model, o, &host_workspaces()), {});
  const Plan& plan = program->plans().front();
  const auto executor = make_host_executor();
  executor->prepare(plan);
  fill(*executor, plan, model, 3, 0.02);
  CachedRun run;
  while (auto step = program->next()) {
    put(*executor, plan, step->inputs);
    executor->execute(plan, step->bindings);
    run.trained.losses.push_back(read_port(*executor, plan, "loss")[0]);
    run.steps.push_back(std::move(*step));
  }
  run.timeline = executor->take();
  run.rank_of_slot = executor->read(plan, tensor_named(plan, "cache.rank_of_slot"), RankId{0});
  run.counts = dynamic_cast<const CachedRows&>(*program).counts();
  const std::optional<WriteBack> last = program->write_back();
  executor->prepare(last->plan);
  put(*executor, last->plan, last->step.inputs);
  executor->execute(last->plan, last->step.bindings);
  run.home.push_back(last->step);
  for (std::size_t i = 0; i < model.parameters.size(); ++i)
    run.trained.weights.push_back(read_parameter(*executor, plan, ParameterId{i}, model.parameters[i].elements()));
  return run;
}

/// The same steps in the engine, by a program that leaves samples out.
Timeline simulate_cached(const Model& model, const TrainOptions& o, const std::string& options) {
  auto program = training_program(
      model, o, strategy_of("cached-embedding", options)->train_step(model, o, &host_workspaces()), {});
  program->leave_out_samples();
  const UnitCost cost;
  const NoSharing sharing;
  Engine engine{cost, sharing};
  while (auto step = program->next()) {
    CHECK(step->inputs.empty());
    engine.execute(program->plans().front(), step->bindings);
  }
  return engine.take();
}

}  // namespace

TEST_CASE("the cache has in each slot what one has that looks at all of it", "[offload]") {
  const auto policy = GENERATE(EvictionPolicy::Dataset, EvictionPolicy::Lfu);
  const int slots = GENERATE(24, 40, 119);
  const double warm = GENERATE(0.0, 0.7, 1.0);
  const double skew = GENERATE(0.0, 0.8, 1.5);
  CAPTURE(static_cast<int>(policy), slots, warm, skew);
  const Model model = tables();
  const IdStream ids = id_stream(std::get<Dlrm>(model.network), {skew}, 5);
  const FrequencyCache::Options options{slots, policy, static_cast<std::int64_t>(warm * slots)};
  FrequencyCache cache{ids, options};
  PlainCache plain{ids, options};
  std::vector<std::int32_t> rows(std::size_t(slots), -1);
  FrequencyCache::Counts counted;
  for (int step = 0; step < 40; ++step) {
    const std::vector<std::int64_t> batch = ids.batch(8 * step, 8);
    const std::vector<std::int32_t> asked{batch.begin(), batch.end()};
    counted.lookups += std::ssize(asked);
    for (const std::int32_t id : asked) counted.hits += plain.has(id);
    const std::set<std::int32_t> unique{asked.begin(), asked.end()};
    counted.unique += std::ssize(unique);
    for (const std::int32_t id : unique) counted.missed += !plain.has(id);
    apply_change(cache.prepare(asked), rows);
    plain.prepare(asked);
    REQUIRE(rows == plain.rows);
  }
  CHECK(cache.counts().lookups == counted.lookups);
  CHECK(cache.counts().hits == counted.hits);
  CHECK(cache.counts().unique == counted.unique);
  CHECK(cache.counts().missed == counted.missed);
}

TEST_CASE("rows that a batch asks for never leave, and more of them than slots are refused", "[offload]") {
  const Model model = tables();
  const IdStream ids = id_stream(std::get<Dlrm>(model.network), {}, 5);
  FrequencyCache cache{ids, {.slots = 3, .warm = 3}};
  const std::vector<std::int32_t> three{7, 8, 9, 9}, four{7, 8, 9, 10};
  CHECK(cache.prepare(three).victims.empty());
  CHECK(cache.prepare(three).missed.empty());
  CHECK_THAT(user_error([&] { cache.prepare(four); }),
             Catch::Contains("4 look-ups ask for 4 different rows at once, the cache has room for 3"));
}

TEST_CASE("cached tables are trained as tables on the device are", "[offload]") {
  const char* options =
      GENERATE("{rows: 18}", "{rows: 30, policy: lfu, buffer: 7}", "{rows: 40, prefetch: 2, overlap: true}",
               "{rows: 45, warm_up: 0, buffer: 16, policy: lfu, prefetch: 2, memory: pageable}", "{ratio: 1}");
  const std::vector<double> skew =
      GENERATE(std::vector<double>{}, std::vector<double>{1.2}, std::vector<double>{0.5, 2, 1});
  CAPTURE(options, skew);
  const Model model = tables();
  const TrainOptions o = sgd_steps(skew);
  const CachedRun run = train_cached(model, o, options);
  CHECK(difference(run.trained, train(model, o, *single())) < 1e-12);
}

TEST_CASE("the engine counts what the runtime moves", "[offload]") {
  const std::string policy = GENERATE("dataset", "lfu");
  const int rows = GENERATE(18, 30, 60, 119);
  const double skew = GENERATE(0.0, 0.6, 1.0, 1.6);
  const std::string more = GENERATE("", ", buffer: 8", ", prefetch: 3, overlap: true");
  if (rows < 60 && more.size() > 12) return;  // three batches do not fit
  CAPTURE(policy, rows, skew, more);
  const Model model = tables();
  const TrainOptions o = sgd_steps({skew});
  const std::string options = "{rows: " + std::to_string(rows) + ", policy: " + policy + more + "}";
  const CachedRun run = train_cached(model, o, options);
  CHECK(simulate_cached(model, o, options).transfers == run.timeline.transfers);
  // Rows of four numbers of eight bytes, and their numbers, of four, which the device tells the host.
  std::int64_t missed = 0, victims = 0;
  for (const Step& s : run.steps)
    missed += s.bindings[Symbol::CacheMisses], victims += s.bindings[Symbol::CacheVictims];
  CHECK(bytes_between(run.timeline, Tier::Pinned, Tier::Device) == 32 * missed);
  CHECK(bytes_between(run.timeline, Tier::Device, Tier::Pinned) == 36 * victims + 4 * missed);
  // The maps of the device are those of the program.
  const std::vector<std::int32_t> ranks = frequency_ranks(id_stream(std::get<Dlrm>(model.network), o.id_skew, 1));
  const std::int64_t held = run.home.front().bindings[Symbol::CacheVictims];
  std::vector<double> expected(std::size_t(rows), 0);
  for (std::size_t i = 0; i < std::size_t(held); ++i)
    expected[std::size_t(run.home.front().inputs[1].indices[i])] =
        1 + ranks[std::size_t(run.home.front().inputs[0].indices[i])];
  CHECK(run.rank_of_slot == expected);
  CHECK(held == missed - victims);
  CHECK(run.counts.lookups == 3 * o.batch * o.steps);
  CHECK(run.counts.missed <= missed);
}

TEST_CASE("the device holds the cache, its maps and what is no table", "[offload]") {
  const std::string policy = GENERATE("dataset", "lfu");
  const Model model = tables();
  const TrainOptions o = sgd_steps({1});
  const Plan plan =
      strategy_of("cached-embedding", "{rows: 30, policy: " + policy + "}")->train_step(model, o, nullptr);
  std::int64_t kept = 0;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const Tensor& t = plan.tensors[i];
    if (!t.persistent || t.tier != Tier::Device || plan.owner(TensorId{i}) != TensorId{i}) continue;
    if (t.role == TensorRole::Parameter || t.role == TensorRole::Constant)
      kept += std::int64_t(plan.size(TensorId{i}).base());
  }
  // 119 rows of four numbers in three tables; other weights: 3·5 + 5 + 5·4 + 4 below, 10·6 + 6 + 6·1 + 1 on top, whose
  // input is four numbers and the dots of four vectors. Offsets of the bags: 7 numbers of 4 bytes.
  const std::int64_t rows = 119, slots = 30, dense = 44 + 73;
  CHECK(kept == 8 * (4 * slots + dense) + 16 * rows + 8 * slots * (policy == "lfu" ? 2 : 1) + 4 * 7);
}

TEST_CASE("what a cache of rows cannot do is refused with what it can", "[offload]") {
  const Model model = tables();
  const auto refusal = [&](const std::string& options, const TrainOptions& o, const Model& m) {
    return user_error([&] { strategy_of("cached-embedding", options)->train_step(m, o, nullptr); });
  };
  TrainOptions o = sgd_steps({});
  o.sequence = 8;
  CHECK_THAT(refusal("{rows: 120}", o, model), Catch::Contains("a cache of 120 rows for tables of 119 rows"));
  CHECK_THAT(refusal("{policy: lru}", o, model), Catch::Contains("dataset"));
  CHECK_THAT(refusal("{}", o, small_model("gpt2")), Catch::Contains("use a model with `model_type: dlrm`"));
  o.microbatches = 2;
  CHECK_THAT(refusal("{}", o, model), Catch::Contains("use one microbatch"));
  o.microbatches = 1, o.optimizer.momentum = 0.9;
  CHECK_THAT(refusal("{}", o, model), Catch::Contains("momentum: 0, decay: 0, clip: 0"));
  CHECK_THAT(user_error([&] {
               DataSource(model, {}, 1, {1.0, 2.0});
             }),
             Catch::Contains("2 exponents for 3 embedding tables"));
  const Model text = small_model("gpt2");
  CHECK_THAT(user_error([&] { DataSource(text, {}, 1, {1.0}); }), Catch::Contains("no embedding tables"));
}
