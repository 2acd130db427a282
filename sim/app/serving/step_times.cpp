// SPDX-License-Identifier: Apache-2.0
#include "sim/app/serving/step_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "hw_models/graph_launch.hpp"
#include "sim/app/serving/plan_room.hpp"
#include "sim/app/serving/served_types.hpp"
#include "sim/base/error.hpp"
#include "sim/strategy/kernel_fusion.hpp"
#include "sim/strategy/model_parts.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kRowBuckets = 8;
constexpr std::size_t kMostRoom = 32 << 20;  // bytes of plans
constexpr double kBucketDoubt = 0.25;        // of half a bucket over the mean context: how far attention may be off

const Transformer& transformer_of(const Model& model) {
  const auto* t = std::get_if<Transformer>(&model.network);
  if (!t || t->decoder.empty() || !t->encoder.empty())
    throw UserError{fmt::format("{} is no decoder: only those are served", model.name), "use `infer` for it"};
  return *t;
}

std::int64_t execute(const Plan& plan, const Bindings& bindings, const Machine& machine) {
  Engine engine{*machine.cost, *machine.resources, {.record = Record::Totals, .track_memory = false}};
  return engine.execute(plan, bindings).end_ps;
}

/// Bytes of the parameters that ops of the first class read; matrices of blocks in the types of their weights.
Bytes parameter_bytes(const Plan& plan, const WeightTypes& weights, DType as_is) {
  std::vector<double> share(plan.tensors.size());  // of their bytes; 0: not read
  for (const Op& op : plan.ops_of(plan.classes.front())) {
    const Work& work = plan.work(op);
    const DType type = op.layer < 0                                ? as_is
                       : std::holds_alternative<Gemm>(work)        ? weights.dense
                       : std::holds_alternative<GroupedGemm>(work) ? weights.experts
                                                                   : as_is;
    for (const Operand& o : plan.operands_of(op))
      share[plan.owner(o.tensor()).index()] = double(bits(type)) / double(bits(as_is));
  }
  Bytes all;
  for (std::size_t t = 0; t < share.size(); ++t)
    if (plan.tensors[t].role == TensorRole::Parameter) all += share[t] * plan.size(TensorId{t});
  return all;
}

std::int64_t picoseconds(double seconds) { return (SimTime{} + Seconds{seconds}).picoseconds(); }

/// One sequence that sees one token.
BatchShape least_shape() {
  BatchShape least;
  least.add(0, 1, true);
  return least;
}

Machine machine_of(const Deployment& d) {
  Machine m = d.wiring.machine(d.cluster);
  d.profile.apply(*m.cost);
  return m;
}

}  // namespace

std::int64_t context_of(const Model& model, const ServeOptions& o) {
  const std::int64_t positions = transformer_of(model).max_positions;
  if (o.context == 0) return positions;
  if (positions > 0 && o.context > positions)
    throw UserError{fmt::format("a context of {} tokens, but {} knows {} positions", o.context, model.name, positions),
                    fmt::format("set `context` to at most {}", positions)};
  return o.context;
}

/// Plans of one and of two periods, and the time of both under bindings that ask for least.
struct PlanTimes::Template {
  std::int64_t rows = 0, sequences = 0;
  Plan once, twice;
  bool is_tested = false, additive = false;
  std::int64_t body = 0;   // picoseconds without attention
  std::int64_t least = 0;  // of the plan of one period
  std::unordered_map<std::size_t, std::int64_t> executed;
};

PlanTimes::PlanTimes(Deployment deployment)
    : d_{std::move(deployment)}, eager_{machine_of(d_)}, graphs_{machine_of(d_)} {
  layers_ = period_of(transformer_of(d_.model).decoder);
  for (const auto& layer : transformer_of(d_.model).decoder) expert_layers_ += std::holds_alternative<MoE>(layer.ffn);
  once_ = first_layers(d_.model, layers_.lead + layers_.period);
  twice_ = first_layers(d_.model, layers_.lead + std::min<std::int64_t>(layers_.times, 2) * layers_.period);
  launch_by_graph(*graphs_.cost);
  const Plan plan = lower(once_, 1, 1);
  KnownReuse reuse;
  around_ = Surroundings{plan, {}, *eager_.cost, reuse}.bindings();
  for (const Op& op : plan.ops) {
    const Work& work = plan.work(op);
    if (!std::holds_alternative<PagedAttention>(work) ||
        plan.class_of(OpId{static_cast<std::size_t>(&op - plan.ops.data())}).index() != 0)
      continue;
    const auto known = std::find(attentions_.begin(), attentions_.end(), work);
    const auto at = static_cast<std::size_t>(known - attentions_.begin());
    if (known == attentions_.end()) {
      attentions_.push_back(work);
      counts_.push_back(0);
    }
    counts_[at] += op.layer < layers_.lead ? 1 : layers_.times;
  }
  memos_.resize(attentions_.size());
}

PlanTimes::~PlanTimes() = default;

std::int64_t PlanTimes::context() const { return std::max<std::int64_t>(1, context_of(d_.model, d_.options)); }

Plan PlanTimes::lower(const Model& model, std::int64_t rows, std::int64_t sequences) const {
  const ServingStepOptions o{.rows = rows,
                             .sequences = sequences,
                             .page = d_.options.replica.block,
                             .pages = 1,
                             .max_pages = 1,
                             .dtype = d_.options.dtype,
                             .placed = false};
  Plan plan = d_.strategy.serving_step(model, o, nullptr);
  const DType pool = kv_dtype(d_.options);
  const WeightTypes types = weight_types(d_.options, eager_.cost->device());
  if (d_.options.weights != "model" || pool != dtype_of(o.dtype)) narrow(plan, types, pool);
  return plan;
}

/// The plan with the kernels that the profile's program launches.
Plan PlanTimes::kernels(const Model& model, std::int64_t rows, std::int64_t sequences) const {
  Plan plan = lower(model, rows, sequences);
  return d_.profile.fused ? fuse_kernels(plan) : plan;
}

PlanTimes::Regime PlanTimes::regime_of(const BatchShape& shape) const {
  return shape.rows <= d_.profile.graph_rows ? Regime::Graph : Regime::Eager;
}

/// Sizes that servers capture: 1, 2, 4, then multiples of 8, from 256 on of 16.
std::int64_t PlanTimes::padded(std::int64_t rows, Regime regime) const {
  if (regime == Regime::Eager || rows <= 2) return rows;
  if (rows <= 4) return 4;
  const std::int64_t step = rows <= 256 ? 8 : 16;
  return std::min((rows + step - 1) / step * step, std::max(rows, d_.profile.graph_rows));
}

/// t(lead + n·p) = t(lead + p) + (n − 1)·(t(lead + 2p) − t(lead + p)).
std::int64_t PlanTimes::extrapolated(const Template& t, const Bindings& bindings, Regime regime) const {
  return continued(t, execute(t.once, bindings, machine(regime)), bindings, regime);
}

std::int64_t PlanTimes::continued(const Template& t, std::int64_t one, const Bindings& bindings, Regime regime) const {
  if (layers_.times == 1) return one;
  return one + (layers_.times - 1) * (execute(t.twice, bindings, machine(regime)) - one);
}

double PlanTimes::attention(std::size_t w, const BatchShape& shape) {
  const auto ask = [&](const BatchShape& part) {
    Bindings b = part.bindings();
    b.working_set = around_.working_set, b.ranks_of_node = around_.ranks_of_node;
    return eager_.cost->cost(attentions_[w], b, RankId{0}).duration.base();
  };
  double seconds = 0;
  if (shape.decodes > 0) {
    const std::int64_t mean = (shape.decode_keys + shape.decodes - 1) / shape.decodes;
    const auto key = static_cast<std::uint64_t>(shape.decodes) << 40 | static_cast<std::uint64_t>(mean);
    const auto [at, is_new] = memos_[w].decodes.try_emplace(key, 0.0);
    if (is_new) at->second = ask({.decodes = shape.decodes, .decode_keys = shape.decode_keys});
    seconds += at->second;
  }
  if (shape.prompts == 0) return seconds;
  const std::array key{shape.prompts, shape.prompt_rows, shape.prompt_keys, shape.prompt_pairs};
  const auto [at, is_new] = memos_[w].prompts.try_emplace(key, 0.0);
  if (is_new)
    at->second = ask({.prompts = shape.prompts,
                      .prompt_rows = shape.prompt_rows,
                      .prompt_keys = shape.prompt_keys,
                      .prompt_pairs = shape.prompt_pairs});
  return seconds + at->second;
}

PlanTimes::Template& PlanTimes::find(std::int64_t rows, std::int64_t sequences, Regime regime) {
  auto& slot = templates_[{rows, sequences, regime}];
  if (!slot) {
    slot = std::make_unique<Template>();
    slot->rows = rows, slot->sequences = sequences;
  }
  return *slot;
}

/// A template of one sequence, with a test of whether attention adds up: the time is convex in that of any op and grows
/// by at most as much, so if it grows by all of it where there is least of it, it does so everywhere.
const PlanTimes::Template& PlanTimes::tested(std::int64_t rows, Regime regime) {
  Template& t = find(rows, 1, regime);
  if (t.is_tested) return t;
  lower_into(t);
  t.is_tested = true;
  const BatchShape least = least_shape();
  BatchShape more;
  more.add(context() - 1, 1, true);
  const auto attend = [&](const BatchShape& shape) {
    std::int64_t all = 0;
    for (std::size_t w = 0; w < attentions_.size(); ++w) all += counts_[w] * picoseconds(attention(w, shape));
    return all;
  };
  t.least = execute(t.once, least.bindings(), machine(regime));
  const std::int64_t first = continued(t, t.least, least.bindings(), regime),
                     second = extrapolated(t, more.bindings(), regime);
  t.body = first - attend(least);
  t.additive = second - first == attend(more) - attend(least) && t.body >= 0;
  if (t.additive) forget_plans(t);  // not asked again
  return t;
}

/// Plans that were lowered longest ago give their room back: they are lowered again when they are asked.
void PlanTimes::lower_into(Template& t) {
  t.once = kernels(once_, t.rows, t.sequences);
  if (layers_.times > 1) t.twice = kernels(twice_, t.rows, t.sequences);
  with_plans_.push_back(&t);
  room_ += room_of(t.once) + room_of(t.twice);
  while (room_ > kMostRoom && with_plans_.size() > 1) forget_plans(*with_plans_.front());
}

/// Moved, since a copy would keep the room.
void PlanTimes::forget_plans(Template& t) {
  room_ -= room_of(t.once) + room_of(t.twice);
  std::erase(with_plans_, &t);
  t.once = Plan{}, t.twice = Plan{};
}

/// Nothing where attention does not add up. With buckets the line between the rows that are lowered: eight numbers of
/// them in a doubling.
std::optional<std::int64_t> PlanTimes::body(std::int64_t rows, Regime regime) {
  const auto exact = [&](std::int64_t n) -> std::optional<std::int64_t> {
    const Template& t = tested(n, regime);
    return t.additive ? std::optional{t.body} : std::nullopt;
  };
  const auto step = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(rows))) / kRowBuckets;
  if (d_.options.bucket <= 1 || regime == Regime::Graph || step <= 1 || rows % step == 0) return exact(rows);
  const std::int64_t below = rows / step * step;
  const auto low = exact(below), high = exact(below + step);
  if (!low || !high) return {};
  return *low + (*high - *low) * (rows - below) / step;
}

/// One period of layers under the least shape.
std::int64_t PlanTimes::least(std::int64_t rows, Regime regime) {
  const auto known = templates_.find({rows, 1, regime});
  if (known != templates_.end() && known->second->is_tested) return known->second->least;
  return execute(kernels(once_, rows, 1), least_shape().bindings(), machine(regime));
}

/// What more sequences add behind the last layer: the same for any number of layers, so one period of them will do.
std::int64_t PlanTimes::head(std::int64_t sequences, Regime regime) {
  const auto [at, is_new] = heads_.try_emplace({sequences, regime}, 0);
  if (is_new && sequences > 1)
    at->second = execute(kernels(once_, sequences, sequences), least_shape().bindings(), machine(regime)) -
                 least(sequences, regime);
  return at->second;
}

std::int64_t PlanTimes::device_time(const BatchShape& shape, Regime regime) {
  const std::int64_t rows = padded(shape.rows, regime);
  const std::int64_t emitting = std::max<std::int64_t>(1, shape.emitting);
  const Regime steps = d_.options.bucket > 1 ? Regime::Graph : regime;
  const std::int64_t sequences = std::min(rows, padded(emitting, steps));
  const std::optional<std::int64_t> known = body(rows, regime);
  if (!known) {
    Template& whole = find(rows, sequences, regime);
    const auto [at, is_new] = whole.executed.try_emplace(
        chain_hash(
            chain_hash(
                chain_hash(static_cast<std::uint64_t>(shape.decodes), static_cast<std::uint64_t>(shape.decode_keys)),
                static_cast<std::uint64_t>(shape.prompt_pairs)),
            chain_hash(static_cast<std::uint64_t>(shape.prompts), static_cast<std::uint64_t>(shape.prompt_keys))),
        0);
    if (is_new) {
      if (whole.once.ops.empty()) lower_into(whole);
      at->second = extrapolated(whole, shape.bindings(), regime);
    }
    return at->second;
  }
  std::int64_t all = *known + head(sequences, regime);
  for (std::size_t w = 0; w < attentions_.size(); ++w) all += counts_[w] * picoseconds(attention(w, shape));
  return all;
}

BatchShape PlanTimes::bucketed(BatchShape s) const {
  const std::int64_t bucket = d_.options.bucket;
  if (bucket <= 1 || s.decodes == 0) return s;
  const std::int64_t mean = (s.decode_keys + s.decodes - 1) / s.decodes;
  s.decode_keys = s.decodes * ((mean + bucket - 1) / bucket * bucket);
  return s;
}

double PlanTimes::step(const BatchShape& shape) {
  const SoftwareProfile& p = d_.profile;
  const Regime regime = regime_of(shape);
  const double host = p.host_step.base() + double(shape.decodes + shape.prompts) * p.host_sequence.base();
  const double started = regime == Regime::Eager ? double(expert_layers_) * p.host_experts.base() : 0;
  return host + std::max(started, double(device_time(bucketed(shape), regime)) * 1e-12);
}

std::int64_t PlanTimes::executed(const BatchShape& shape) const {
  const Regime regime = regime_of(shape);
  const std::int64_t rows = padded(shape.rows, regime);
  const std::int64_t sequences = std::min(rows, padded(std::max<std::int64_t>(1, shape.emitting), regime));
  return execute(kernels(d_.model, rows, sequences), shape.bindings(), machine(regime));
}

double PlanTimes::front(std::int64_t prompt) {
  return d_.profile.host_request.base() + double(prompt) * d_.profile.host_token.base();
}

double PlanTimes::swap(std::int64_t blocks) {
  const std::int64_t ranks = std::max<std::int64_t>(1, d_.strategy.mesh().size());
  const Bytes bytes =
      double(blocks * d_.options.replica.block) * kv_bytes_per_token(d_.model, kv_dtype(d_.options), ranks);
  const Work copy{Copy{.bytes = bytes, .from = Tier::Device, .to = Tier::Host}};
  return eager_.cost->cost(copy, around_, RankId{0}).duration.base();
}

/// From the first rank of a replica to a rank of the next one; ranks of both send side by side.
double PlanTimes::hand_over(std::int64_t tokens) {
  const std::int64_t ranks = std::max<std::int64_t>(1, d_.strategy.mesh().size());
  const Bytes bytes = size_of(kv_dtype(d_.options), kv_numbers(kv_layers(d_.model, ranks), tokens));
  const std::int64_t other = std::min(ranks, d_.cluster.num_ranks() - 1);
  if (other == 0) return 0;
  return eager_.cost->transfer(bytes, RankId{0}, RankId{static_cast<std::size_t>(other)}).duration.base();
}

void PlanTimes::set_host(const SoftwareProfile& p) {
  d_.profile.host_step = p.host_step, d_.profile.host_sequence = p.host_sequence;
  d_.profile.host_request = p.host_request, d_.profile.host_token = p.host_token;
  d_.profile.host_experts = p.host_experts, d_.profile.host_answer = p.host_answer;
}

StepDoubt PlanTimes::doubt() const {
  const double bucket = d_.options.bucket > 1 ? kBucketDoubt * double(d_.options.bucket) / double(context()) : 0;
  const Forecast token{.kind = "token", .device = d_.cluster.device, .experts = has_experts(d_.model)};
  return {.decodes = std::hypot(d_.profile.deviation_of(token), bucket),
          .prompts = d_.profile.deviation_of({.kind = "first", .device = d_.cluster.device})};
}

Bytes PlanTimes::weights() const {
  if (weights_) return *weights_;
  const WeightTypes types = weight_types(d_.options, eager_.cost->device());
  const DType as_is = dtype_of(d_.options.dtype);
  const Bytes one = parameter_bytes(lower(once_, 1, 1), types, as_is),
              two = parameter_bytes(lower(twice_, 1, 1), types, as_is);
  weights_ = one + double(layers_.times - 1) * (two - one);
  return *weights_;
}

Bytes PlanTimes::activations(std::int64_t rows, std::int64_t sequences) const {
  const auto [at, is_new] = activations_.try_emplace({rows, sequences}, Bytes{});
  if (is_new) at->second = most_live(lower(once_, rows, sequences));
  return at->second;
}

ReplicaMemory PlanTimes::memory(const ReplicaOptions& o) const {
  const std::int64_t ranks = std::max<std::int64_t>(1, d_.strategy.mesh().size());
  ReplicaMemory m;
  const Bytes all = eager_.cost->capacity(Tier::Device);
  m.weights = weights();
  m.activations = activations(std::min<std::int64_t>(o.max_tokens, 1 << 20), std::min(o.max_sequences, o.max_tokens));
  const Bytes each = double(o.block) * kv_bytes_per_token(d_.model, kv_dtype(d_.options), ranks);
  const Bytes others = o.reserved + m.activations;
  m.capacity =
      o.memory_of == MemoryOf::Free ? m.weights + others + o.memory * (all - m.weights - others) : o.memory * all;
  const Bytes aside = o.memory_of == MemoryOf::WeightsAndPool ? o.memory * o.reserved : others;
  const Bytes left = m.capacity - m.weights - aside;
  m.device = all, m.left = all - m.weights - others;
  m.host = eager_.cost->capacity(Tier::Host);
  m.blocks =
      o.kv_tokens > 0 ? o.kv_tokens / o.block : std::max<std::int64_t>(0, static_cast<std::int64_t>(left / each));
  m.pool = double(m.blocks) * each;
  m.host_blocks = static_cast<std::int64_t>(o.swap / each);
  m.layers = kv_layers(d_.model, ranks);
  return m;
}

double ReplicaMemory::sequences(std::int64_t tokens, std::int64_t block) const {
  const double kept = layers.empty() ? double(tokens) : double(kv_numbers(layers, tokens)) / double(layers[0].numbers);
  return double(blocks * block) / kept;
}

KvBlocks::Sizes ReplicaMemory::pool_of(const ReplicaOptions& o) const {
  return {.device = blocks, .host = host_blocks, .tokens = o.block, .sharing = o.prefix_sharing, .layers = layers};
}

}  // namespace orrery
