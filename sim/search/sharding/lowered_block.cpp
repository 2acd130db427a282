// SPDX-License-Identifier: Apache-2.0
#include "sim/search/sharding/lowered_block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "sim/base/yaml.hpp"
#include "sim/plan/placement.hpp"
#include "sim/search/sharding/op_strategies.hpp"
#include "sim/strategy/block_profile.hpp"
#include "sim/strategy/model_parts.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery {
namespace {

constexpr double kNotLowered = std::numeric_limits<double>::infinity();
constexpr std::int64_t kProfiledBlocks = 3;  // of which the second tells; of one block that one
constexpr std::size_t kOutsideNode = 10;

/// The ops of a block as nodes, and the beginnings of names that tell which op of a plan belongs to which; the first
/// that fits counts.
struct NodeNames {
  std::string_view begin;
  std::size_t node;
};
constexpr NodeNames kNodeNames[] = {
    {"attention_norm", 0}, {"attention.core", 2}, {"attention.out", 3}, {"attention.", 1}, {"attention_", 4},
    {"ffn_norm", 5},       {"mlp.act", 7},        {"mlp.down", 8},      {"mlp.", 6},       {"ffn_", 9}};
constexpr std::string_view kBlockOps[] = {"norm", "qkv", "attention",  "out",  "residual",
                                          "norm", "up",  "activation", "down", "residual"};
constexpr std::size_t kNodes = std::size(kBlockOps), kConversionIn = kNodes, kConversionInside = kNodes + 1,
                      kElsewhere = kNodes + 2;

/// The node of an op of a block; conversions in front of it and between its halves count as two more.
std::size_t node_of_name(std::string_view name, int block) {
  const std::string prefix = fmt::format("layers.{}.", block);
  if (!name.starts_with(prefix)) return kElsewhere;
  name.remove_prefix(prefix.size());
  if (name.starts_with("relayout")) return kConversionIn;
  if (name.starts_with("ffn.relayout")) return kConversionInside;
  for (const NodeNames& n : kNodeNames)
    if (name.starts_with(n.begin)) return n.node;
  return kElsewhere;
}

std::string mesh_text(const LoweredWay& w, const MeshSizes& mesh) {
  std::string out;
  const auto add = [&](MeshAxes axes) {
    const std::int64_t n = mesh.ranks(axes);
    if (n > 1) out += fmt::format("{}{}{}", out.empty() ? "" : " ", w.rows & axes ? "dp" : "tp", n);
  };
  if (w.rows == kWhole || w.matrices == kWhole) {
    add(kS01);
    return out;
  }
  add(kS0);
  add(kS1);
  return out;
}

std::string_view truth(bool b) { return b ? "true" : "false"; }

/// One node in one way, for people: the product with its sums, or where rows and columns lie.
std::string way_text(std::size_t node, const LoweredWay& w) {
  const MeshAxes between = w.rows_between();
  switch (node % 5) {
    case 1:
      return ProductAxes{.m = w.rows, .n = w.matrices}.text() + (w.scatters ? ", rows gathered before" : "");
    case 2:
      return ShardingSpec{{w.rows, w.matrices}}.text();
    case 3:
      return ProductAxes{.m = w.rows, .k = w.matrices}.text() +
             (w.scatters ? fmt::format(", scattered to {}R", text_of(between)) : "");
    default:
      return ShardingSpec{{between, kWhole}}.text();
  }
}

/// What a plan of three blocks says of ways: seconds by node and phase, bytes by node.
struct WayProfile {
  std::array<double, kNodes + 3> forward{}, backward{};
  std::array<double, 3> sums{}, updates{};        // of attention, of the feed-forward layer, outside
  std::array<std::int64_t, 3> parameter_bytes{};  // with gradients and states
  std::vector<std::int64_t> saved;                // by node
  double outside_forward = 0, outside_backward = 0;
  std::int64_t outside_saved = 0, boundary = 0;
};

class PlanProfile {
 public:
  PlanProfile(const BlockQuestion& q, const Plan& plan, const Model& model)
      : q_{q},
        plan_{plan},
        model_{model},
        blocks_{static_cast<int>(block_count(model))},
        middle_{blocks_ > 1 ? 1 : 0},
        around_{plan, {}, q.cost, reuse_} {
    find_owners();
    for (const Op& op : plan.ops_of(plan.classes.front())) add(op);
    add_bytes();
  }
  const WayProfile& result() const { return out_; }

 private:
  /// 0 and 1: halves of the middle block; 2: outside of blocks; none: other blocks.
  std::optional<std::size_t> half_of(ParameterId id) const {
    const Parameter& p = model_[id];
    if (p.layer < 0) return 2;
    if (p.layer != middle_) return std::nullopt;
    return feed_forward_.contains(id.value) ? 1 : 0;
  }

  void find_owners() {
    const Block& b = block_of(std::get<Transformer>(model_.network), middle_);
    for (const ParameterId id : feed_forward_parameters(b)) feed_forward_.insert(id.value);
    for (const ParameterPlacement& p : plan_.placements)
      if (const auto half = half_of(p.parameter))
        for (const TensorId t : {p.weight.tensor, p.gradient.tensor})
          if (!t.is_none()) owners_[plan_.owner(t).value] = *half;
  }

  std::optional<std::size_t> half_of(const Op& op) const {
    for (const Operand& o : plan_.operands_of(op))
      if (const auto it = owners_.find(plan_.owner(o.tensor()).value); it != owners_.end()) return it->second;
    return std::nullopt;
  }

  void add(const Op& op) {
    const double seconds = op_seconds(q_.cost, plan_, op, around_.of(op.work));
    const bool is_sum = op.stream == Stream::Comm;
    if (op.phase == Phase::Optimizer || is_sum) {
      if (const auto half = half_of(op)) (is_sum ? out_.sums : out_.updates)[*half] += seconds;
      return;
    }
    const bool is_forward = op.phase == Phase::Forward;
    if (op.layer < 0) (is_forward ? out_.outside_forward : out_.outside_backward) += seconds;
    if (op.layer == middle_)
      (is_forward ? out_.forward : out_.backward)[node_of_name(plan_.name_of(op), middle_)] += seconds;
  }

  void add_bytes() {
    std::array<std::int64_t, 3> elements{};
    std::int64_t all = 0;
    for (const ParameterPlacement& p : plan_.placements) {
      const std::int64_t n = local_shape(plan_.mesh, p.weight.shard).elements();
      all += n;
      if (const auto half = half_of(p.parameter)) elements[*half] += n;
    }
    double held = 0;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const Tensor& t = plan_.tensors[i];
      if (t.persistent && t.base.is_none() &&
          (t.role == TensorRole::Parameter || t.role == TensorRole::Gradient || t.role == TensorRole::OptimizerState))
        held += plan_.size(TensorId{i}).base();
    }
    for (std::size_t h = 0; h < elements.size(); ++h)
      out_.parameter_bytes[h] = static_cast<std::int64_t>(held * double(elements[h]) / double(all));
    out_.saved =
        saved_by_part(plan_, middle_, kNodes + 3, [&](std::string_view name) { return node_of_name(name, middle_); });
    out_.outside_saved = saved_by_part(plan_, -1, 1, [](std::string_view) { return std::size_t{0}; }).front();
    out_.boundary = profile_chain(plan_, 0, blocks_).boundary(static_cast<std::size_t>(middle_));
  }

  const BlockQuestion& q_;
  const Plan& plan_;
  const Model& model_;
  int blocks_, middle_;
  KnownReuse reuse_;
  Surroundings around_;
  std::set<std::uint32_t> feed_forward_;
  std::map<std::uint32_t, std::size_t> owners_;  // tensor → half
  WayProfile out_;
};

/// Profiles of pairs of ways, and what follows from them.
class BlockLowering {
 public:
  explicit BlockLowering(const BlockQuestion& q) : q_{q}, model_{q.model} {
    auto& t = std::get<Transformer>(model_.network);
    blocks_ = static_cast<std::int64_t>(t.encoder.size() + t.decoder.size());
    for (auto* stack : {&t.encoder, &t.decoder})
      if (std::ssize(*stack) > kProfiledBlocks) stack->resize(kProfiledBlocks);
  }

  LoweredBlock run() {
    find_open_ways();
    const std::size_t n = out_.ways.size();
    pairs_.resize(n);
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t f = 0; f < n; ++f)
        pairs_[a].push_back(a == f && profiles_[a].is_uniform ? profiles_[a].attention
                                                              : profile({base_, out_.ways[a], out_.ways[f]}));
    add_nodes();
    add_edges();
    out_.stack.blocks = blocks_;
    out_.leaders = {0, 0, 0, 0, 0, 5, 5, 5, 5, 5, kOutsideNode};
    return std::move(out_);
  }

 private:
  using Profile = std::optional<WayProfile>;
  /// One way, where it is open: heads may not divide where feed-forward layers do.
  struct Profiles {
    Profile outside, attention, feed_forward;
    bool is_uniform = false;  // all three in one plan
  };

  Profile profile(const ShardedWays& w) {
    try {
      const std::string text = sharded_options(w, q_.mesh, std::min(blocks_, kProfiledBlocks), HalfBlocks::Apart);
      const Node options = parse_yaml("{" + text + ", data: {bucket: 0}}", "a way of a block");
      const Plan plan = find_strategy("parallel").make(options)->train_step(model_, q_.train, nullptr);
      return PlanProfile{q_, plan, model_}.result();
    } catch (const UserError& e) {
      if (refusal_.empty()) refusal_ = e.diagnostics().front().message;
      return std::nullopt;
    }
  }

  void find_open_ways() {
    const std::vector<LoweredWay> all = lowered_ways(q_.mesh);
    std::vector<Profile> uniform;
    for (const LoweredWay& w : all) uniform.push_back(profile({w, w, w}));
    const auto first = std::find_if(uniform.begin(), uniform.end(), [](const Profile& p) { return p.has_value(); });
    if (first == uniform.end()) throw UserError{refusal_};
    base_ = all[static_cast<std::size_t>(first - uniform.begin())];
    for (std::size_t k = 0; k < all.size(); ++k) {
      const LoweredWay& w = all[k];
      Profiles p{uniform[k], uniform[k], uniform[k], uniform[k].has_value()};
      if (!p.is_uniform)
        p = {profile({w, base_, base_}), profile({base_, w, base_}), profile({base_, base_, w}), false};
      if (!p.outside && !p.attention && !p.feed_forward) continue;
      out_.ways.push_back(w);
      profiles_.push_back(std::move(p));
    }
  }

  void add_nodes() {
    for (std::size_t v = 0; v <= kOutsideNode; ++v) {
      ShardingNode n{v == kOutsideNode ? "outside of blocks" : std::string{kBlockOps[v]}, {}, blocks_};
      if (v == kOutsideNode) n.count = 1;
      for (std::size_t k = 0; k < profiles_.size(); ++k)
        n.choices.push_back(v == kOutsideNode ? outside_choice(k) : block_choice(v, k));
      out_.stack.graph.nodes.push_back(std::move(n));
      out_.stack.is_in_block.push_back(v != kOutsideNode);
    }
  }

  /// What the sums of gradients of a half take beyond its backward pass, beside which they run.
  static double exposed(double sums, double backward) { return std::max(0.0, sums - backward); }

  NodeChoice block_choice(std::size_t v, std::size_t k) const {
    const Profile& of_half = v < 5 ? profiles_[k].attention : profiles_[k].feed_forward;
    if (!of_half) return {way_text(v, out_.ways[k]), kNotLowered};
    const WayProfile& p = *of_half;
    NodeChoice c{way_text(v, out_.ways[k]), p.forward[v], p.backward[v]};
    c.saved_bytes = p.saved[v];
    c.output_bytes = p.boundary;
    const std::size_t half = v / 5, first = half * 5;
    if (v != first + 1) return c;  // the product that leads
    double backward = 0;
    for (std::size_t i = first; i < first + 5; ++i) backward += p.backward[i];
    c.once = p.updates[half] + exposed(p.sums[half], backward);
    c.model_bytes = p.parameter_bytes[half];
    return c;
  }

  NodeChoice outside_choice(std::size_t k) const {
    if (!profiles_[k].outside) return {mesh_text(out_.ways[k], q_.mesh), kNotLowered};
    const WayProfile& p = *profiles_[k].outside;
    NodeChoice c{mesh_text(out_.ways[k], q_.mesh), p.outside_forward, p.outside_backward};
    c.once = p.updates[2] + exposed(p.sums[2], p.outside_backward);
    c.model_bytes = p.parameter_bytes[2];
    c.saved_bytes = p.outside_saved;
    return c;
  }

  using Costs = std::vector<std::vector<ShardingEdge::Cost>>;
  Costs costs(const std::function<ShardingEdge::Cost(std::size_t, std::size_t)>& cost) const {
    Costs out(profiles_.size());
    for (std::size_t k = 0; k < out.size(); ++k)
      for (std::size_t l = 0; l < out.size(); ++l) out[k].push_back(cost(k, l));
    return out;
  }

  /// From one half to the next of a plan in which attention lies as `a` and the feed-forward layer as `f`.
  ShardingEdge::Cost inside(std::size_t a, std::size_t f) const { return conversion(pairs_[a][f], kConversionInside); }
  ShardingEdge::Cost between(std::size_t f, std::size_t a) const { return conversion(pairs_[a][f], kConversionIn); }
  static ShardingEdge::Cost conversion(const Profile& p, std::size_t which) {
    return p ? ShardingEdge::Cost{p->forward[which], p->backward[which]} : ShardingEdge::Cost{kNotLowered, 0};
  }
  /// The same with what lies outside, by whichever plan goes this way.
  ShardingEdge::Cost outside(std::size_t from, std::size_t to) const {
    if (from == to) return {};
    return pairs_[from][to] ? inside(from, to) : between(from, to);
  }

  void add_edges() {
    auto& edges = out_.stack.graph.edges;
    const Costs same = costs([](std::size_t k, std::size_t l) {
      return ShardingEdge::Cost{k == l ? 0 : kNotLowered, 0};
    });
    const Costs halves = costs([&](std::size_t k, std::size_t l) { return inside(k, l); });
    const Costs ends = costs([&](std::size_t k, std::size_t l) { return outside(k, l); });
    for (std::size_t v = 1; v < kOutsideNode; ++v) {
      edges.push_back({v - 1, v, v == 5 ? halves : same, blocks_});
      if (v % 5 == 4) edges.push_back({v - 4, v, same, blocks_});  // what is added to
    }
    if (blocks_ > 1)
      edges.push_back(
          {kOutsideNode - 1, 0, costs([&](std::size_t k, std::size_t l) { return between(k, l); }), blocks_ - 1});
    edges.push_back({kOutsideNode, 0, ends, 1});
    edges.push_back({kOutsideNode - 1, kOutsideNode, ends, 1});
  }

  const BlockQuestion& q_;
  Model model_;
  std::int64_t blocks_ = 0;
  std::string refusal_;
  LoweredWay base_;
  std::vector<Profiles> profiles_;           // per way
  std::vector<std::vector<Profile>> pairs_;  // [attention][feed-forward layer]
  LoweredBlock out_;
};

}  // namespace

std::vector<LoweredWay> lowered_ways(const MeshSizes& mesh) {
  std::vector<LoweredWay> out;
  if (mesh.size() == 1) return {{}};
  const bool is_line = mesh.first == 1 || mesh.second == 1;
  for (const MeshAxes rows : {kS01, kS0, kS1, kWhole}) {
    const LoweredWay w{rows, static_cast<MeshAxes>(kS01 & ~rows), false};
    if (is_line && (rows == kS0 || rows == kS1)) continue;
    out.push_back(w);
    if (rows == kWhole || rows == kS0) out.push_back({w.rows, w.matrices, true});
  }
  return out;
}

std::string sharded_options(const ShardedWays& ways, const MeshSizes& mesh, std::int64_t blocks, HalfBlocks halves) {
  const auto [outside, attention, ffn] = ways;
  std::string out = fmt::format("mesh: {}", mesh_text(outside, mesh));
  if (outside.scatters) out += ", sequence_parallel: true";
  const bool apart = halves == HalfBlocks::Apart || !(ffn == attention);
  if (attention == outside && !apart) return out;
  out += fmt::format(", layers: [{{blocks: {}, mesh: {}, sequence_parallel: {}",
                     blocks > 1 ? fmt::format("0-{}", blocks - 1) : "0", mesh_text(attention, mesh),
                     truth(attention.scatters));
  if (apart) out += fmt::format(", ffn_mesh: {}, ffn_sequence_parallel: {}", mesh_text(ffn, mesh), truth(ffn.scatters));
  return out + "}]";
}

ShardedWays LoweredBlock::ways_of(const std::vector<std::size_t>& of_node) const {
  return {ways[of_node[kOutsideNode]], ways[of_node[1]], ways[of_node[6]]};
}

std::vector<std::size_t> LoweredBlock::nodes_of(const ShardedWays& of) const {
  const auto at = [&](const LoweredWay& w) {
    return static_cast<std::size_t>(std::find(ways.begin(), ways.end(), w) - ways.begin());
  };
  std::vector<std::size_t> out(kOutsideNode + 1, at(of.attention));
  std::fill(out.begin() + kNodes / 2, out.end(), at(of.feed_forward));
  out[kOutsideNode] = at(of.outside);
  return out;
}

bool LoweredBlock::is_open(std::size_t way) const {
  return sum_of(stack.graph, std::vector<std::size_t>(stack.graph.nodes.size(), way)).seconds < kNotLowered;
}

LoweredBlock lowered_block(const BlockQuestion& question) { return BlockLowering{question}.run(); }

double op_seconds(const CostModel& cost, const Plan& plan, const Op& op, const Bindings& bindings) {
  const RankId rank{std::size_t{0}};
  const Work& work = plan.work(op);
  if (const auto* c = std::get_if<Collective>(&work))
    return cost.collective(*c, members(plan.mesh, plan.groups[c->group.index()], rank)).duration.base();
  return cost.cost(work, bindings, rank).duration.base();
}

}  // namespace orrery
