// SPDX-License-Identifier: Apache-2.0
// ZeRO-Infinity (Rajbhandari et al., SC 2021, arXiv 2104.07857): model data lives where there is room for it.
//   weights    on the host or on a disk; a block's weights come to the device `prefetch` blocks ahead of their use,
//   from
//              a disk to the host one block before that (the paper's i + 2 and i + 3; gathering, i + 1, is zero3's)
//   gradients  go down behind the op that completes them, and on to a disk where they are kept there
//   states     on the host or on a disk; the host updates tensor by tensor, with `buffers` of them on their way at once
//   tiles      matrices above `tile` come to the device in tiles of whole rows, two at a time, each for its part of the
//              product; so do their gradients (memory-centric tiling)
// Per step and parameter in bf16: weights up 2 B in each pass and down never, gradients down 2 B, states 12 B read and
// written; a matrix in tiles comes for each product that reads it.
#include <algorithm>
#include <optional>

#include "sim/base/error.hpp"
#include "sim/strategy/offload/strategies.hpp"
#include "sim/strategy/offload/throttle.hpp"
#include "sim/strategy/offload/tier_strategy.hpp"
#include "sim/strategy/offload/tiles.hpp"
#include "sim/strategy/offload/updates.hpp"

namespace orrery {
namespace {

/// Which copies between host and device run beside the passes; the device waits for each of the others.
enum class Beside : std::uint8_t { All, Weights, None };
std::span<const EnumName<Beside>> enum_names(Beside) {
  static constexpr EnumName<Beside> names[] = {
      {Beside::All, "all"}, {Beside::Weights, "weights"}, {Beside::None, "none"}};
  return names;
}

struct ZeroInfinityOptions {
  ParallelOptions parallel;
  Store weights = Store::Disk, gradients = Store::Host, states = Store::Disk;
  HostMemory memory = HostMemory::Pinned;
  std::int64_t prefetch = 1, buffers = 4;
  Beside overlap = Beside::All;
  Bytes tile{0};

  Stream up() const { return overlap == Beside::None ? Stream::Compute : Stream::CopyIn; }
  Stream down() const { return overlap == Beside::All ? Stream::CopyOut : Stream::Compute; }

  template <class V>
  void visit(V& v) {
    v.field("parallel", parallel, kParallelHelp);
    v.field("weights", weights, "where weights are kept");
    v.field("gradients", gradients, "where gradients wait for the update");
    v.field("states", states, "where optimizer states are kept");
    v.field("memory", memory, "host memory that copies go to and come from");
    v.field("prefetch", prefetch, "blocks ahead of which weights come to the device", at_least(0));
    v.field("buffers", buffers,
            "tensors that are read, updated and written at once, and blocks whose gradients go down", at_least(1));
    v.field("overlap", overlap,
            "copies between host and device that run beside the passes: all, those of weights, or none");
    v.field("tile", tile, "matrices of more bytes come to the device in tiles of so many; 0: whole",
            at_least(Bytes{0}));
  }
};

class Infinity {
 public:
  Infinity(const Plan& plan, const ZeroInfinityOptions& options) : plan_{plan}, o_{options}, r_{plan} {}

  Plan run(const WorkspaceModel* workspaces) {
    for (std::size_t c = 0; c < plan_.classes.size(); ++c) run_class(ClassId{c});
    return r_.take(workspaces);
  }

 private:
  struct Home {
    TensorId weight, gradient;
    std::vector<TensorId> states;
  };
  struct Visit {  // of a weight to the device, over consecutive blocks
    std::uint32_t update = 0, first = 0, last = 0;
    TensorId staged;  // on the host
  };

  struct TiledProduct {
    TiledMatrix side;
    std::uint32_t update;
    TensorId matrix;
  };

  TensorId like(TensorId old, Tier tier, bool persistent);
  std::string name(std::string_view what, TensorId old) const {
    return std::string{what} + std::string{plan_.name_of(old)};
  }
  void make_homes();
  void find_blocks(ClassId c);
  void find_visits(ClassId c);
  void begin_block(std::uint32_t block, OpId behind);
  TensorId bring(TensorId home, TensorId old, OpId behind);
  void update(std::uint32_t index);
  void sum_squares(OpId id);
  OpId so_many_before(const std::vector<OpId>& done) const;
  void emit_pass(OpId id, Throttle& throttle);
  std::optional<TiledProduct> tiled_product(OpId id) const;
  OpId emit_tile(OpId id, const TiledProduct& p, std::int64_t first, TensorId here);
  void emit_tiles(OpId id, const TiledProduct& p, Throttle& throttle);
  TensorId gradient_below(std::uint32_t index);
  void run_class(ClassId c);

  const Plan& plan_;
  const ZeroInfinityOptions& o_;
  PlanRewriter r_;
  Updates updates_;
  std::vector<Home> homes_;
  std::vector<Tiling> tiling_;           // per update
  std::vector<TensorId> tiled_;          // per update in tiles: where they come from now
  std::vector<std::uint32_t> block_of_;  // per op of the class
  std::uint32_t num_blocks_ = 0;
  OpId computed_;  // the last op of the passes, with its copies
  std::vector<Visit> visits_;
  std::vector<OpId> written_;  // per update done: the last op of its way back
  std::vector<OpId> summed_;   // per gradient whose squares are summed
  std::unordered_map<std::uint32_t, std::uint32_t> by_op_, by_weight_, by_gradient_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> complete_;
};

TensorId Infinity::like(TensorId old, Tier tier, bool persistent) {
  const Tensor& t = plan_.tensors[old.index()];
  return r_.builder().tensor(plan_.names[t.name], plan_.shape(old),
                             {.dtype = t.dtype, .role = t.role, .tier = tier, .persistent = persistent});
}

void Infinity::make_homes() {
  homes_.clear(), by_op_.clear(), by_weight_.clear(), by_gradient_.clear(), complete_.clear(), written_.clear();
  summed_.clear();
  tiled_.assign(updates_.all.size(), TensorId{});
  for (std::uint32_t i = 0; i < updates_.all.size(); ++i) {
    const Update& u = updates_.all[i];
    Home home{like(u.weight, tier_of(o_.weights, o_.memory), true),
              like(u.gradient, tier_of(o_.gradients, o_.memory), true),
              {}};
    for (const TensorId s : u.states) home.states.push_back(like(s, tier_of(o_.states, o_.memory), true));
    homes_.push_back(std::move(home));
    if (u.starts_fresh && !tiling_[i].gradient) r_.put(u.gradient, like(u.gradient, Tier::Device, false));
    by_op_[u.op.value] = by_weight_[u.weight.value] = by_gradient_[u.gradient.value] = i;
    complete_[u.complete.value].push_back(i);
  }
}

/// Blocks of the model in the order in which the passes come to them.
void Infinity::find_blocks(ClassId c) {
  const std::span<const Op> ops = plan_.ops_of(plan_.classes[c.index()]);
  block_of_.assign(ops.size(), 0);
  for (std::size_t i = 1; i < ops.size(); ++i) {
    const bool same = ops[i].layer == ops[i - 1].layer && ops[i].microbatch == ops[i - 1].microbatch &&
                      (ops[i].phase == Phase::Forward) == (ops[i - 1].phase == Phase::Forward);
    block_of_[i] = block_of_[i - 1] + (same ? 0 : 1);
  }
  num_blocks_ = ops.empty() ? 0 : block_of_.back() + 1;
}

/// A weight stays while the next block that uses it is among those that are prefetched.
void Infinity::find_visits(ClassId c) {
  visits_.clear();
  std::unordered_map<std::uint32_t, std::size_t> open;  // per update
  const RankClass& rank_class = plan_.classes[c.index()];
  for (std::uint32_t i = 0; i < rank_class.num_ops; ++i) {
    if (updates_.belongs[i]) continue;
    for (const Operand& o : plan_.operands_of(plan_.ops[rank_class.first_op + i])) {
      const auto it = by_weight_.find(plan_.owner(o.tensor()).value);
      if (it == by_weight_.end()) continue;
      const auto known = open.find(it->second);
      if (known != open.end() && visits_[known->second].last + o_.prefetch >= block_of_[i]) {
        visits_[known->second].last = block_of_[i];
        continue;
      }
      open[it->second] = visits_.size();
      visits_.push_back({it->second, block_of_[i], block_of_[i], {}});
    }
  }
}

/// A copy of what lies on a disk on the host; what lies there already as it is.
TensorId Infinity::bring(TensorId home, TensorId old, OpId behind) {
  if (r_.builder().plan().tensors[home.index()].tier != Tier::Disk) return home;
  const TensorId staged = like(old, tier_of(o_.memory), false);
  r_.copy(name("read.", old), home, staged, Stream::Disk);
  r_.order(behind);
  return staged;
}

void Infinity::begin_block(std::uint32_t block, OpId behind) {
  const auto starts = [&](const Visit& v, std::int64_t ahead) {
    return std::max<std::int64_t>(std::int64_t{v.first} - ahead, 0) == block;
  };
  for (Visit& v : visits_)
    if (starts(v, o_.prefetch + 1)) v.staged = bring(homes_[v.update].weight, updates_.all[v.update].weight, behind);
  for (Visit& v : visits_)
    if (starts(v, o_.prefetch) && tiling_[v.update].rows > 0) {
      tiled_[v.update] = v.staged;
    } else if (starts(v, o_.prefetch)) {
      const TensorId weight = updates_.all[v.update].weight;
      const TensorId here = like(weight, Tier::Device, false);
      r_.copy(name("up.", weight), v.staged, here, o_.up());
      r_.order(behind);
      r_.put(weight, here);
    }
}

/// What has to end before another tensor is read, so that no more than `buffers` are on their way at once.
OpId Infinity::so_many_before(const std::vector<OpId>& done) const {
  const auto limit = static_cast<std::size_t>(o_.buffers);
  return done.size() >= limit ? done[done.size() - limit] : OpId{};
}

/// Of a gradient, on the host.
void Infinity::sum_squares(OpId id) {
  const TensorId g = plan_.operands_of(plan_[id])[0].tensor();
  const TensorId here = bring(homes_[by_gradient_.at(g.value)].gradient, g, so_many_before(summed_));
  summed_.push_back(r_.emit(id, {.work = on_host(plan_.work(id)), .stream = Stream::Host, .instead = {{g, here}}}));
}

/// Reads what an update needs, updates it on the host, writes it back.
void Infinity::update(std::uint32_t i) {
  const Update& u = updates_.all[i];
  const OpId behind = so_many_before(written_);
  OpChange change{.work = on_host(plan_.work(u.op)), .stream = Stream::Host, .instead = {}};
  std::vector<std::pair<TensorId, TensorId>> back;  // staged, home
  const auto stage = [&](TensorId home, TensorId old) {
    const TensorId staged = bring(home, old, behind);
    change.instead.emplace_back(old, staged);
    if (staged != home) back.emplace_back(staged, home);
  };
  stage(homes_[i].weight, u.weight);
  change.instead.emplace_back(u.gradient, bring(homes_[i].gradient, u.gradient, behind));
  for (std::size_t s = 0; s < u.states.size(); ++s) stage(homes_[i].states[s], u.states[s]);
  OpId last = r_.emit(u.op, change);
  for (const auto& [staged, home] : back) last = r_.copy(name("write.", u.weight), staged, home, Stream::Disk);
  written_.push_back(last);
}

/// Where on the host a gradient goes down to.
TensorId Infinity::gradient_below(std::uint32_t i) {
  const bool goes_on = o_.gradients == Store::Disk;
  return goes_on ? like(updates_.all[i].gradient, tier_of(o_.memory), false) : homes_[i].gradient;
}

std::optional<Infinity::TiledProduct> Infinity::tiled_product(OpId id) const {
  if (!std::holds_alternative<Gemm>(plan_.work(plan_[id]))) return {};
  const auto operands = plan_.operands_of(plan_[id]);
  const TensorId b = operands[1].tensor(), c = operands.back().tensor();
  if (const auto it = by_weight_.find(b.value); it != by_weight_.end() && tiling_[it->second].rows > 0)
    return TiledProduct{TiledMatrix::Weights, it->second, b};
  if (const auto it = by_gradient_.find(c.value); it != by_gradient_.end() && tiling_[it->second].gradient)
    return TiledProduct{TiledMatrix::Gradient, it->second, c};
  return {};
}

/// The part of a product that has to do with a tile, which lies in `here`.
OpId Infinity::emit_tile(OpId id, const TiledProduct& p, std::int64_t first, TensorId here) {
  const std::int64_t count = r_.builder().plan().shape(here)[0];
  const Gemm& g = std::get<Gemm>(plan_.work(plan_[id]));
  const ProductTile part = product_tile(g, p.side, first, count);
  const auto operands = plan_.operands_of(plan_[id]);
  std::vector<Operand> with;
  const auto take = [&](std::size_t k, int cut) {
    if (cut == ProductTile::kNone) return;
    const TensorId old = operands[k].tensor();
    const bool adds = k + 1 == operands.size() && part.work.accumulate;
    const TensorId now = old == p.matrix ? here : cut >= 0 ? slice(r_.builder(), r_[old], cut, first, count) : r_[old];
    with.emplace_back(now, adds ? Access::ReadWrite : operands[k].access());
  };
  take(0, part.a);
  take(1, part.b);
  if (g.bias) take(2, part.bias);
  take(operands.size() - 1, part.c);
  return r_.emit_with(id, with, {.work = part.work});
}

/// Tile by tile, two of which are on the device at a time.
void Infinity::emit_tiles(OpId id, const TiledProduct& p, Throttle& throttle) {
  const bool reads = p.side == TiledMatrix::Weights;
  const TensorId below = reads ? tiled_[p.update] : gradient_below(p.update);
  const Shape whole = plan_.shape(p.matrix);
  const Tensor& matrix = plan_.tensors[p.matrix.index()];
  const OpId behind = computed_;
  std::vector<OpId> done;  // that free a tile
  for (std::int64_t first = 0; first < whole[0]; first += tiling_[p.update].rows) {
    const std::int64_t count = std::min(tiling_[p.update].rows, whole[0] - first);
    const TensorId here = r_.builder().tensor(name("tile.", p.matrix), Shape{count, whole[1]},
                                              {.dtype = matrix.dtype, .role = matrix.role});
    const TensorId there = slice(r_.builder(), below, 0, first, count);
    const OpId free = done.size() >= 2 ? done[done.size() - 2] : behind;
    if (reads) {
      r_.copy(name("up.", p.matrix), there, here, o_.up());
      r_.order(free);
    }
    computed_ = emit_tile(id, p, first, here);
    if (first == 0) throttle.begin(r_, plan_[id]);
    if (!reads) {
      r_.order(free);
      throttle.moved(r_.copy(name("down.", p.matrix), here, there, o_.down()));
    }
    done.push_back(r_.last());
  }
  if (!reads && o_.gradients == Store::Disk)
    throttle.moved(r_.copy(name("write.", p.matrix), below, homes_[p.update].gradient, Stream::Disk));
}

void Infinity::emit_pass(OpId id, Throttle& throttle) {
  if (const auto tiled = tiled_product(id)) {
    emit_tiles(id, *tiled, throttle);
  } else {
    r_.emit(id);
    throttle.begin(r_, plan_[id]);
  }
  const auto it = complete_.find(id.value);
  if (it == complete_.end()) return;
  for (const std::uint32_t i : it->second) {
    if (tiling_[i].gradient) continue;
    const TensorId gradient = updates_.all[i].gradient, below = gradient_below(i), home = homes_[i].gradient;
    throttle.moved(r_.copy(name("down.", gradient), r_[gradient], below, o_.down()));
    if (below != home) throttle.moved(r_.copy(name("write.", gradient), below, home, Stream::Disk));
  }
}

void Infinity::run_class(ClassId c) {
  r_.begin_class(c);
  updates_ = updates_of(plan_, c);
  require_owned(plan_, updates_);
  tiling_ = tile_weights(plan_, c, updates_, o_.tile);
  make_homes();
  find_blocks(c);
  find_visits(c);
  Throttle throttle{o_.buffers};
  computed_ = {};
  const RankClass& rank_class = plan_.classes[c.index()];
  for (std::uint32_t i = 0; i < rank_class.num_ops; ++i) {
    const OpId id{std::size_t{rank_class.first_op + i}};
    if (i == 0 || block_of_[i] != block_of_[i - 1]) begin_block(block_of_[i], computed_);
    if (!updates_.belongs[i]) {
      emit_pass(id, throttle);
    } else if (const auto it = by_op_.find(id.value); it != by_op_.end()) {
      update(it->second);
    } else if (std::holds_alternative<SumSquares>(plan_.work(id))) {
      sum_squares(id);
    } else {
      r_.emit(id);
    }
    if (plan_[id].stream == Stream::Compute && !by_op_.contains(id.value) &&
        !std::holds_alternative<SumSquares>(plan_.work(id)))
      computed_ = r_.last();
  }
  for (std::size_t i = 0; i < homes_.size(); ++i) {
    r_.put(updates_.all[i].weight, homes_[i].weight);
    r_.put(updates_.all[i].gradient, homes_[i].gradient);
  }
  r_.end_class();
}

class ZeroInfinity final : public TierStrategy {
 public:
  explicit ZeroInfinity(ZeroInfinityOptions o) : TierStrategy{"zero-infinity", o.parallel}, options_{std::move(o)} {}

 protected:
  Plan move_tensors(const Plan& plan, const TrainOptions&, const WorkspaceModel* workspaces) const override {
    return Infinity{plan, options_}.run(workspaces);
  }

 private:
  ZeroInfinityOptions options_;
};

}  // namespace

std::unique_ptr<Strategy> make_zero_infinity(const Node& node) {
  ZeroInfinityOptions o;
  read_options(node, o);
  return std::make_unique<ZeroInfinity>(std::move(o));
}

std::vector<OptionInfo> zero_infinity_options() { return describe_options<ZeroInfinityOptions>(); }

}  // namespace orrery
