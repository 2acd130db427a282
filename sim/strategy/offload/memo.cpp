// SPDX-License-Identifier: Apache-2.0
// MEMO (Zhao et al., SIGMOD 2025, arXiv 2407.12117): what the backward pass reads of a block waits on the host.
//   two buffers   the skeletal activations of blocks lie in turns in two buffers of fixed places. Behind a block's
//                 forward pass its buffer goes down while the next block runs; the block after that waits for it. When
//                 the backward pass has read a buffer, that of the block before the last one comes up into it. The
//                 last two blocks never move.
//   gathered      what ranks gather of rows is gathered again before the backward pass of any block
//   split rows    where ranks have rows of their own between blocks, the first part α of each rank's is swapped; the
//                 others are made again on their rank, gathered, and scattered as sums, as in the forward pass
//   tokens        the input of a block and what does not come about row by row (the output of attention) is swapped
//                 whole, of all other tensors the first part α of the rows; the others are computed again, row by row,
//                 right before the block's backward pass
//   α             the largest that hides behind the forward pass of a block and that the host has room for
// Passes, copies down and copies up run on three streams.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "sim/base/option_error.hpp"
#include "sim/strategy/distribution.hpp"
#include "sim/strategy/offload/memo.hpp"
#include "sim/strategy/offload/memo_visits.hpp"
#include "sim/strategy/offload/rewriter.hpp"
#include "sim/strategy/offload/row_part.hpp"
#include "sim/strategy/offload/strategies.hpp"
#include "sim/strategy/offload/tier_strategy.hpp"

namespace orrery {
namespace {

struct MemoOptions {
  ParallelOptions parallel;
  HostMemory memory = HostMemory::Pinned;
  std::optional<double> alpha = std::nullopt;
  std::optional<FlopsPerSecond> rate = std::nullopt;
  std::optional<BytesPerSecond> link = std::nullopt;
  std::optional<Bytes> host_memory = std::nullopt;

  template <class V>
  void visit(V& v) {
    v.field("parallel", parallel, kParallelHelp);
    v.field("memory", memory, "host memory that copies go to and come from");
    v.field("alpha", alpha,
            "part of the tokens that is swapped of what can be computed again row by row; left out: as much as `rate`, "
            "`link` and `host_memory` allow",
            between(0, 1));
    v.field("rate", rate, "arithmetic that a rank's forward passes reach, for alpha", more_than(FlopsPerSecond{0}));
    v.field("link", link, "copies to the host of a rank while all ranks copy, for alpha", more_than(BytesPerSecond{0}));
    v.field("host_memory", host_memory, "host memory of a rank for activations, for alpha; left out: no limit",
            more_than(Bytes{0}));
  }
};

class Memo {
 public:
  Memo(const Plan& plan, const MemoOptions& options) : plan_{plan}, o_{options}, r_{plan} {}

  Plan run(const WorkspaceModel* workspaces) {
    for (std::size_t c = 0; c < plan_.classes.size(); ++c) {
      visits_ = block_visits(plan_, ClassId{c});
      if (!visits_.empty()) part_ = std::min(part_, alpha());
    }
    for (std::size_t c = 0; c < plan_.classes.size(); ++c) run_class(ClassId{c});
    return r_.take(workspaces);
  }

 private:
  struct Swapped {
    std::int64_t first = 0;                      // rows from here on are computed again; all of them: none is
    std::vector<TensorId> whole;                 // owners that were made again in new places
    std::vector<std::vector<TensorId>> on_host;  // of the new plan, per tensor and block
    std::unordered_map<std::uint32_t, TensorId>
        parts;  // last rows of what lies in no buffer, while they are made again
  };

  double alpha() const;
  void make_buffers();
  std::size_t last_of(std::size_t visit) const;
  bool moves(std::size_t visit) const { return visit + 2 < last_of(visit); }
  std::string name(std::string_view what, TensorId old) const {
    return std::string{what} + std::string{plan_.name_of(old)};
  }
  std::vector<TensorId> first_rows(std::size_t visit, const SkeletalTensor& t);
  void leave(std::size_t visit);
  void come(std::size_t visit);
  TensorId part_made(std::size_t visit, TensorId owner);
  TensorId last_part(std::size_t visit, TensorId old, std::int64_t rows, std::int64_t block, std::int64_t blocks);
  bool has_place(std::size_t visit, TensorId owner) const;
  void run_whole(std::size_t visit, OpId op);
  void run_last_rows(std::size_t visit, const AgainOp& a);
  void exchange_last_rows(std::size_t visit, const AgainOp& a);
  void run_again(std::size_t visit);
  void run_class(ClassId c);

  const Plan& plan_;
  const MemoOptions& o_;
  PlanRewriter r_;
  std::vector<BlockVisit> visits_;
  std::vector<Swapped> swapped_;  // per visit
  double part_ = 1;               // of the tokens, for all classes: they gather the rest together
};

/// Behind the last visit of the same microbatch.
std::size_t Memo::last_of(std::size_t visit) const {
  std::size_t end = visit;
  while (end < visits_.size() && visits_[end].microbatch == visits_[visit].microbatch) ++end;
  return end;
}

/// The least of what any block of a class allows.
double Memo::alpha() const {
  if (o_.alpha) return *o_.alpha;
  double alpha = 1;
  const auto blocks = static_cast<std::int64_t>(last_of(0));
  for (const BlockVisit& v : visits_) {
    const SwappedLayer layer{v.bytes(plan_, false), v.bytes(plan_, true)};
    const SwapBounds bounds =
        swap_bounds(layer, blocks, v.forward / *o_.rate, *o_.link, o_.host_memory.value_or(Bytes{1e300}));
    alpha = std::min(alpha, bounds.alpha());
  }
  return alpha;
}

/// Tensors of a visit stand one behind another in the buffer of its turn, those of one type in one.
void Memo::make_buffers() {
  std::map<std::pair<std::size_t, DType>, std::int64_t> sizes;  // elements, by turn
  std::vector<std::vector<std::int64_t>> offsets(visits_.size());
  std::size_t first = 0;
  for (std::size_t v = 0; v < visits_.size(); ++v) {
    if (v > 0 && visits_[v].microbatch != visits_[v - 1].microbatch) first = v;
    std::map<DType, std::int64_t> used;
    for (const SkeletalTensor& t : visits_[v].tensors) {
      const DType dtype = plan_.tensors[t.owner.index()].dtype;
      const auto grain = static_cast<std::int64_t>(kAllocationUnit / size_of(dtype, 1));
      offsets[v].push_back(used[dtype]);
      used[dtype] += (plan_.shape(t.owner).elements() + grain - 1) / grain * grain;
    }
    for (const auto& [dtype, elements] : used) {
      std::int64_t& size = sizes[{(v - first) % 2, dtype}];
      size = std::max(size, elements);
    }
  }
  std::map<std::pair<std::size_t, DType>, TensorId> buffers;
  for (const auto& [key, elements] : sizes)
    buffers[key] = r_.builder().tensor(fmt::format("rounding_buffer.{}.{}", key.first, name_of(key.second)),
                                       Shape{elements}, {.dtype = key.second, .persistent = true});
  first = 0;
  for (std::size_t v = 0; v < visits_.size(); ++v) {
    if (v > 0 && visits_[v].microbatch != visits_[v - 1].microbatch) first = v;
    for (std::size_t i = 0; i < visits_[v].tensors.size(); ++i) {
      const TensorId owner = visits_[v].tensors[i].owner;
      r_.put(owner, buffers.at({(v - first) % 2, plan_.tensors[owner.index()].dtype}), offsets[v][i]);
    }
  }
}

/// What of a tensor of a visit is swapped, as views into the buffer, one for each block of rows.
std::vector<TensorId> Memo::first_rows(std::size_t v, const SkeletalTensor& t) {
  const std::int64_t rows = visits_[v].rows, first = swapped_[v].first;
  const TensorId whole = r_[t.owner];
  if (!t.by_rows || first == rows) return {whole};
  if (first == 0) return {};
  const Layout all = r_.builder().plan().layouts[r_.builder().plan().tensors[whole.index()].layout.index()];
  const std::int64_t of_block = all.shape.sizes[0] / t.blocks;
  std::vector<TensorId> out;
  for (std::int64_t block = 0; block < t.blocks; ++block) {
    Layout l = all;
    l.offset += block * of_block * l.strides[0];
    l.shape.sizes[0] = of_block / rows * first;
    out.push_back(r_.builder().view(whole, plan_.name_of(t.owner), l));
  }
  return out;
}

void Memo::leave(std::size_t v) {
  for (const SkeletalTensor& t : visits_[v].tensors) {
    const Tensor& old = plan_.tensors[t.owner.index()];
    std::vector<TensorId> there;
    for (const TensorId here : first_rows(v, t)) {
      there.push_back(r_.builder().tensor(plan_.names[old.name], r_.builder().plan().shape(here),
                                          {.dtype = old.dtype, .role = old.role, .tier = tier_of(o_.memory)}));
      r_.copy(name("down.", t.owner), here, there.back(), Stream::CopyOut);
    }
    swapped_[v].on_host.push_back(std::move(there));
  }
}

void Memo::come(std::size_t v) {
  for (std::size_t i = 0; i < visits_[v].tensors.size(); ++i) {
    const SkeletalTensor& t = visits_[v].tensors[i];
    const std::vector<TensorId>& there = swapped_[v].on_host[i];
    const std::vector<TensorId> here = there.empty() ? there : first_rows(v, t);
    for (std::size_t k = 0; k < there.size(); ++k) r_.copy(name("up.", t.owner), there[k], here[k], Stream::CopyIn);
  }
}

/// Whether an owner stands where its rows are, as far as they are there.
bool Memo::has_place(std::size_t v, TensorId owner) const {
  const auto& held = visits_[v].tensors;
  const auto& whole = swapped_[v].whole;
  return plan_.tensors[owner.index()].persistent || std::find(whole.begin(), whole.end(), owner) != whole.end() ||
         std::any_of(held.begin(), held.end(), [&](const auto& h) { return h.owner == owner; });
}

/// Where the last rows of an owner that has no place are made, block behind block.
TensorId Memo::part_made(std::size_t v, TensorId owner) {
  const auto [it, is_new] = swapped_[v].parts.try_emplace(owner.value);
  if (is_new) {
    Shape shape = plan_.shape(owner);
    shape.sizes[0] -= shape.sizes[0] / visits_[v].rows * swapped_[v].first;
    it->second = r_.builder().tensor(name("", owner) + ".again", shape, {.dtype = plan_.tensors[owner.index()].dtype});
  }
  return it->second;
}

/// The last rows in a block of an operand with so many of them in each.
TensorId Memo::last_part(std::size_t v, TensorId old, std::int64_t rows, std::int64_t block, std::int64_t blocks) {
  const TensorId owner = plan_.owner(old);
  const std::int64_t skipped = swapped_[v].first * (rows / visits_[v].rows);
  const Tensor& t = plan_.tensors[old.index()];
  TensorId base;
  Layout l = plan_.layouts[t.layout.index()];
  if (has_place(v, owner)) {
    base = r_[old];
    l = r_.builder().plan().layouts[r_.builder().plan().tensors[base.index()].layout.index()];
  } else {
    base = part_made(v, owner);
    l.offset -= (block + 1) * (plan_.shape(owner).elements() / blocks / visits_[v].rows * swapped_[v].first);
  }
  l.offset += (block * rows + skipped) * l.strides[0];
  l.shape.sizes[0] = rows - skipped;
  return r_.builder().view(base, plan_.names[t.name], l);
}

/// With all that it makes in new places, unless these are in a buffer.
void Memo::run_whole(std::size_t v, OpId id) {
  for (const Operand& o : plan_.operands_of(plan_[id])) {
    const TensorId owner = plan_.owner(o.tensor());
    if (!o.writes() || has_place(v, owner)) continue;
    swapped_[v].whole.push_back(owner);
    r_.put(owner, r_.builder().tensor(name("", owner) + ".again", plan_.shape(owner),
                                      {.dtype = plan_.tensors[owner.index()].dtype}));
  }
  r_.emit(id, {.phase = Phase::Recompute, .suffix = ".again"});
}

/// Block by block.
void Memo::run_last_rows(std::size_t v, const AgainOp& a) {
  const auto operands = plan_.operands_of(plan_[a.op]);
  const RowWise split = row_wise(plan_.work(a.op), operands.size()).value();
  const std::int64_t rows = split.rows / a.blocks, skipped = swapped_[v].first * (rows / visits_[v].rows);
  for (std::int64_t block = 0; block < a.blocks; ++block) {
    OpChange change{.phase = Phase::Recompute, .suffix = ".again"};
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (split.split[i])
        change.instead.emplace_back(operands[i].tensor(), last_part(v, operands[i].tensor(), rows, block, a.blocks));
    change.work = rows_of(plan_.work(a.op), block * rows + skipped, rows - skipped);
    r_.emit(a.op, change);
  }
}

/// Gathers the last rows of each rank, or sums and scatters them.
void Memo::exchange_last_rows(std::size_t v, const AgainOp& a) {
  const auto operands = plan_.operands_of(plan_[a.op]);
  OpChange change{.phase = Phase::Recompute, .suffix = ".again"};
  Collective c = std::get<Collective>(plan_.work(a.op));
  const bool gathers = c.kind == CollectiveKind::AllGather;
  for (std::size_t i = 0; i < 2; ++i) {
    const TensorId old = operands[i].tensor();
    const bool has_all = (i == 1) == gathers;
    change.instead.emplace_back(
        old, has_all ? part_made(v, plan_.owner(old)) : last_part(v, old, plan_.shape(old)[0], 0, 1));
  }
  c.bytes = c.bytes * (double(visits_[v].rows - swapped_[v].first) / double(visits_[v].rows));
  change.work = c;
  r_.emit(a.op, change);
}

void Memo::run_again(std::size_t v) {
  for (const AgainOp& a : visits_[v].again) {
    if (a.whole)
      run_whole(v, a.op);
    else if (swapped_[v].first == visits_[v].rows)
      continue;
    else if (std::holds_alternative<Collective>(plan_.work(a.op)))
      exchange_last_rows(v, a);
    else
      run_last_rows(v, a);
  }
}

void Memo::run_class(ClassId c) {
  r_.begin_class(c);
  visits_ = block_visits(plan_, c);
  swapped_.assign(visits_.size(), {});
  std::unordered_map<std::uint32_t, std::size_t> leaving, coming, again;  // by place of the op
  for (std::size_t v = 0; v < visits_.size(); ++v) {
    const BlockVisit& b = visits_[v];
    swapped_[v].first = moves(v) ? std::int64_t(part_ * double(b.rows)) / b.unit * b.unit : b.rows;
    if (b.tensors.empty()) continue;
    again[b.first_needed] = v;
    if (!moves(v)) continue;
    leaving[b.left] = v;
    coming[visits_[v + 2].last_needed] = v;
  }
  make_buffers();
  const RankClass& rank_class = plan_.classes[c.index()];
  for (std::uint32_t i = 0; i < rank_class.num_ops; ++i) {
    if (const auto it = again.find(i); it != again.end()) run_again(it->second);
    r_.emit(OpId{std::size_t{rank_class.first_op + i}});
    if (const auto it = leaving.find(i); it != leaving.end()) leave(it->second);
    if (const auto it = coming.find(i); it != coming.end()) come(it->second);
  }
  r_.end_class();
}

class MemoStrategy final : public TierStrategy {
 public:
  explicit MemoStrategy(MemoOptions o) : TierStrategy{"memo", o.parallel}, options_{std::move(o)} {}

 protected:
  void check(const TrainOptions& o) const override {
    if (roles_of(mesh()).pp)
      throw OptionError{
          {"mesh"}, "activations of passes that overlap cannot share two buffers", "leave out the axis pp"};
    if (options_.parallel.tp_comm_overlap)
      throw OptionError{{"tp_comm_overlap"},
                        "products in pieces write rows where the rank says, which rounding buffers do not",
                        "leave out `tp_comm_overlap`"};
    if (o.recompute != Recompute::None)
      throw OptionError{{"train.recompute"}, "memo says itself what is computed again", "leave out `recompute`"};
    if (!options_.alpha && !(options_.rate && options_.link))
      throw OptionError{{"memo"},
                        "memo does not know what part of the tokens to swap",
                        "set `alpha`, such as 0.5, or `rate` and `link`, such as 180 TFLOP/s and 12 GB/s"};
  }
  Plan move_tensors(const Plan& plan, const TrainOptions&, const WorkspaceModel* workspaces) const override {
    return Memo{plan, options_}.run(workspaces);
  }

 private:
  MemoOptions options_;
};

}  // namespace

std::unique_ptr<Strategy> make_memo(const Node& node) {
  MemoOptions o;
  read_options(node, o);
  return std::make_unique<MemoStrategy>(std::move(o));
}

std::vector<OptionInfo> memo_options() { return describe_options<MemoOptions>(); }

}  // namespace orrery
