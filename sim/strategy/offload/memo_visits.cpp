// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/memo_visits.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "sim/base/option_error.hpp"
#include "sim/strategy/offload/row_part.hpp"

namespace orrery {
namespace {

constexpr std::uint32_t kNever = UINT32_MAX;

/// How an owner is used over a class.
struct VisitUses {
  std::uint32_t first_written = kNever, last_forward = 0, first_needed = kNever, last_needed = 0;
  std::uint16_t microbatch = 0;
  std::int16_t written_by = -1, read_up_to = -1, needed_by = -1;  // layers
  bool strays = false;
};

/// Of owners with the rows of several ranks, how many; all others have 1.
using Blocks = std::unordered_map<std::uint32_t, std::int64_t>;

std::int64_t of(const Blocks& blocks, std::uint32_t owner) {
  const auto it = blocks.find(owner);
  return it == blocks.end() ? 1 : it->second;
}

class Visits {
 public:
  Visits(const Plan& plan, ClassId c) : plan_{plan}, ops_{plan.ops_of(plan.classes[c.index()])} {
    for (std::uint32_t i = 0; i < ops_.size(); ++i) note(i);
  }

  std::vector<BlockVisit> run() {
    for (std::uint32_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      if (op.layer < 0 || op.phase != Phase::Forward) continue;
      const auto [it, is_new] = index_.try_emplace({op.microbatch, op.layer}, visits_.size());
      if (is_new) visits_.push_back({.layer = op.layer, .microbatch = op.microbatch});
      visits_[it->second].forward += amount(plan_.work(op)).flops;
      forward_[it->second].push_back(i);
    }
    for (const auto& [owner, u] : uses_) add(TensorId{owner}, u);
    for (std::size_t v = 0; v < visits_.size(); ++v) find_again(visits_[v], forward_[v]);
    check_order();
    return std::move(visits_);
  }

 private:
  void note(std::uint32_t i);
  void add(TensorId owner, const VisitUses& u);
  std::unordered_set<std::uint32_t> gathered(const BlockVisit& v, const std::vector<std::uint32_t>& forward,
                                             const std::unordered_set<std::uint32_t>& can) const;
  void find_again(BlockVisit& v, const std::vector<std::uint32_t>& forward) const;
  std::unordered_set<std::uint32_t> makeable(const BlockVisit& v, const std::vector<std::uint32_t>& forward,
                                             const Blocks& blocks) const;
  bool may_run_by_rows(const BlockVisit& v, const Op& op, const std::unordered_set<std::uint32_t>& rowless,
                       const Blocks& blocks) const;
  bool may_exchange_rows(const BlockVisit& v, const Op& op, const std::unordered_set<std::uint32_t>& rowless) const;
  std::int64_t ranks_of(const Op& op) const;
  Blocks blocks_of(const std::vector<std::uint32_t>& forward) const;
  void check_order() const;
  bool is_activation(TensorId owner) const {
    const Tensor& t = plan_.tensors[owner.index()];
    return !t.persistent && t.role == TensorRole::Activation && t.tier == Tier::Device;
  }
  static bool holds(const BlockVisit& v, TensorId owner) {
    return std::any_of(v.tensors.begin(), v.tensors.end(), [&](const auto& t) { return t.owner == owner; });
  }

  const Plan& plan_;
  std::span<const Op> ops_;
  std::map<std::uint32_t, VisitUses> uses_;  // of activations
  std::map<std::pair<std::uint16_t, std::int16_t>, std::size_t> index_;
  std::vector<BlockVisit> visits_;
  std::map<std::size_t, std::vector<std::uint32_t>> forward_;  // ops, by visit
};

void Visits::note(std::uint32_t i) {
  const Op& op = ops_[i];
  for (const Operand& o : plan_.operands_of(op)) {
    const TensorId owner = plan_.owner(o.tensor());
    if (!is_activation(owner)) continue;
    const auto [it, is_new] = uses_.try_emplace(owner.value);
    VisitUses& u = it->second;
    if (is_new) u.microbatch = op.microbatch;
    u.strays = u.strays || u.microbatch != op.microbatch;
    if (op.phase == Phase::Forward) {
      if (o.writes() && u.first_written == kNever) u.first_written = i, u.written_by = op.layer;
      u.last_forward = i;
      u.read_up_to = std::max(u.read_up_to, op.layer);
      u.strays = u.strays || u.first_needed != kNever;
    } else {
      if (u.first_needed == kNever) u.first_needed = i, u.needed_by = op.layer;
      u.last_needed = i;
      // What a gather of the backward pass reads again is needed too.
      u.strays = u.strays || o.writes() || op.layer != u.needed_by;
    }
  }
}

/// The input of a block is made by the one before it. What blocks further on use stays where it is.
void Visits::add(TensorId owner, const VisitUses& u) {
  if (u.strays || u.first_written == kNever || u.first_needed == kNever || u.needed_by < 0) return;
  const auto it = index_.find({u.microbatch, u.needed_by});
  if (it == index_.end()) return;
  const std::size_t at = it->second;
  const bool from_before = u.written_by < 0 || (at > 0 && visits_[at - 1].microbatch == u.microbatch &&
                                                visits_[at - 1].layer == u.written_by);
  if ((u.written_by != u.needed_by && !from_before) || u.read_up_to > u.needed_by) return;
  BlockVisit& v = visits_[at];
  const bool is_first = v.tensors.empty();
  v.tensors.push_back({owner});
  v.first_written = is_first ? u.first_written : std::min(v.first_written, u.first_written);
  v.left = std::max(v.left, u.last_forward);
  v.first_needed = is_first ? u.first_needed : std::min(v.first_needed, u.first_needed);
  v.last_needed = std::max(v.last_needed, u.last_needed);
}

/// Ranks between which a collective gathers rows, or scatters sums of them; 0: it does neither.
std::int64_t Visits::ranks_of(const Op& op) const {
  const auto* c = std::get_if<Collective>(&plan_.work(op));
  const auto operands = plan_.operands_of(op);
  if (c == nullptr || c->row != 0 || operands.size() != 2 || operands[0].writes() || operands[1].reads()) return 0;
  const bool gathers = c->kind == CollectiveKind::AllGather;
  if (!gathers && c->kind != CollectiveKind::ReduceScatter) return 0;
  const Shape &from = plan_.shape(operands[0].tensor()), &to = plan_.shape(operands[1].tensor());
  const std::int64_t few = gathers ? from[0] : to[0], all = gathers ? to[0] : from[0];
  const std::int64_t ranks = few > 0 ? all / few : 0;
  return ranks > 1 && few * ranks == all && from.elements() / from[0] == to.elements() / to[0] ? ranks : 0;
}

/// What is gathered, and sums that are scattered, have the rows of all ranks; so has all that is made of them, or that
/// they are made of, row by row.
Blocks Visits::blocks_of(const std::vector<std::uint32_t>& forward) const {
  Blocks blocks;
  for (const std::uint32_t i : forward)
    if (const std::int64_t ranks = ranks_of(ops_[i]); ranks > 0) {
      const bool gathers = std::get<Collective>(plan_.work(ops_[i])).kind == CollectiveKind::AllGather;
      blocks[plan_.owner(plan_.operands_of(ops_[i])[gathers ? 1 : 0].tensor()).value] = ranks;
    }
  for (std::size_t before = SIZE_MAX; before != blocks.size();) {
    before = blocks.size();
    for (const std::uint32_t i : forward) {
      const auto operands = plan_.operands_of(ops_[i]);
      const auto rows = row_wise(plan_.work(ops_[i]), operands.size());
      if (!rows) continue;
      std::int64_t most = 1;
      for (std::size_t k = 0; k < operands.size(); ++k)
        if (rows->split[k]) most = std::max(most, of(blocks, plan_.owner(operands[k].tensor()).value));
      for (std::size_t k = 0; k < operands.size() && most > 1; ++k)
        if (rows->split[k]) blocks.try_emplace(plan_.owner(operands[k].tensor()).value, most);
    }
  }
  return blocks;
}

/// Rows of their own that can be made, gathered to what no pass keeps; or sums that no pass keeps, scattered.
bool Visits::may_exchange_rows(const BlockVisit& v, const Op& op,
                               const std::unordered_set<std::uint32_t>& rowless) const {
  if (ranks_of(op) == 0) return false;
  const auto operands = plan_.operands_of(op);
  const TensorId from = plan_.owner(operands[0].tensor()), to = plan_.owner(operands[1].tensor());
  const bool gathers = std::get<Collective>(plan_.work(op)).kind == CollectiveKind::AllGather;
  if (!is_activation(from) || !is_activation(to) || holds(v, gathers ? to : from)) return false;
  return !rowless.contains(from.value) || holds(v, from);
}

/// Row by row, from weights, from tensors of the visit, and from what can be made so. `rowless`: owners that cannot.
bool Visits::may_run_by_rows(const BlockVisit& v, const Op& op, const std::unordered_set<std::uint32_t>& rowless,
                             const Blocks& blocks) const {
  if (may_exchange_rows(v, op, rowless)) return true;
  const auto operands = plan_.operands_of(op);
  const auto rows = row_wise(plan_.work(op), operands.size());
  if (!rows) return false;
  std::int64_t parts = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const TensorId t = operands[i].tensor(), owner = plan_.owner(t);
    if (rows->split[i] && plan_.shape(t)[0] != rows->rows) return false;
    if (rows->split[i]) {
      const std::int64_t mine = of(blocks, owner.value);
      if (parts != 0 && parts != mine) return false;
      parts = mine;
    }
    if (!is_activation(owner)) {
      if (operands[i].writes() || (rows->split[i] && !plan_.tensors[owner.index()].persistent)) return false;
      continue;
    }
    if (!rows->split[i]) return false;
    if (operands[i].reads() && !operands[i].writes() && rowless.contains(owner.value) && !holds(v, owner)) return false;
  }
  return parts < 2 || (rows->rows % parts == 0 && rows->rows / parts % rows->unit == 0);
}

/// Owners that ops of the forward pass over the block make row by row.
std::unordered_set<std::uint32_t> Visits::makeable(const BlockVisit& v, const std::vector<std::uint32_t>& forward,
                                                   const Blocks& blocks) const {
  std::unordered_set<std::uint32_t> made, rowless;
  for (const std::uint32_t i : forward)
    for (const Operand& o : plan_.operands_of(ops_[i]))
      (o.writes() ? made : rowless).insert(plan_.owner(o.tensor()).value);
  std::erase_if(rowless, [&](std::uint32_t owner) { return made.contains(owner); });  // made by other blocks
  for (std::size_t before = SIZE_MAX; before != rowless.size();) {
    before = rowless.size();
    for (const std::uint32_t i : forward)
      if (!may_run_by_rows(v, ops_[i], rowless, blocks))
        for (const Operand& o : plan_.operands_of(ops_[i]))
          if (o.writes()) rowless.insert(plan_.owner(o.tensor()).value);
  }
  std::erase_if(made, [&](std::uint32_t owner) { return rowless.contains(owner) || !is_activation(TensorId{owner}); });
  return made;
}

/// Owners that a gather of the forward pass makes from rows that can be made again, and those rows.
std::unordered_set<std::uint32_t> Visits::gathered(const BlockVisit& v, const std::vector<std::uint32_t>& forward,
                                                   const std::unordered_set<std::uint32_t>& can) const {
  std::unordered_set<std::uint32_t> out;
  for (const std::uint32_t i : forward) {
    const auto* c = std::get_if<Collective>(&plan_.work(ops_[i]));
    const auto operands = plan_.operands_of(ops_[i]);
    if (c == nullptr || c->kind != CollectiveKind::AllGather || operands.size() != 2) continue;
    const TensorId from = plan_.owner(operands[0].tensor()), to = plan_.owner(operands[1].tensor());
    if (!can.contains(from.value) || !holds(v, to) || operands[1].reads()) continue;
    out.insert(to.value);
    if (!holds(v, from)) out.insert(from.value);
  }
  return out;
}

void Visits::find_again(BlockVisit& v, const std::vector<std::uint32_t>& forward) const {
  const Blocks blocks = blocks_of(forward);
  std::unordered_set<std::uint32_t> can = makeable(v, forward, blocks);
  const std::unordered_set<std::uint32_t> whole = gathered(v, forward, can);
  std::unordered_set<std::uint32_t> needed;
  for (const std::uint32_t owner : whole)
    if (holds(v, TensorId{owner})) needed.insert(owner);
  std::erase_if(v.tensors, [&](const SkeletalTensor& t) { return whole.contains(t.owner.value); });
  can.insert(whole.begin(), whole.end());
  for (SkeletalTensor& t : v.tensors) {
    t.by_rows = can.contains(t.owner.value), t.blocks = of(blocks, t.owner.value);
    if (t.by_rows) needed.insert(t.owner.value);
  }
  for (std::size_t k = forward.size(); k-- > 0;) {
    const Op& op = ops_[forward[k]];
    const auto operands = plan_.operands_of(op);
    const bool wanted = std::any_of(operands.begin(), operands.end(), [&](const Operand& o) {
      return o.writes() && needed.contains(plan_.owner(o.tensor()).value);
    });
    if (!wanted) continue;
    const bool is_whole = std::any_of(operands.begin(), operands.end(), [&](const Operand& o) {
      return o.writes() && whole.contains(plan_.owner(o.tensor()).value);
    });
    std::int64_t parts = is_whole ? 1 : ranks_of(op);
    if (!is_whole && parts == 0) {
      const RowWise rows = row_wise(plan_.work(op), operands.size()).value();
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (rows.split[i]) parts = of(blocks, plan_.owner(operands[i].tensor()).value);
      v.rows = v.rows == 0 ? rows.rows / parts : std::min(v.rows, rows.rows / parts);
      v.unit = std::max(v.unit, rows.unit);
    }
    v.again.push_back({OpId{static_cast<std::size_t>(&op - plan_.ops.data())}, is_whole, parts});
    for (const Operand& o : operands)
      if (o.reads() && can.contains(plan_.owner(o.tensor()).value)) needed.insert(plan_.owner(o.tensor()).value);
  }
  std::reverse(v.again.begin(), v.again.end());
  const bool fits = v.rows > 0 && std::all_of(v.again.begin(), v.again.end(), [&](const AgainOp& a) {
                      if (a.whole) return true;
                      if (std::holds_alternative<Collective>(plan_.work(a.op)))
                        return plan_.shape(plan_.operands_of(plan_[a.op])[0].tensor())[0] % v.rows == 0;
                      return row_wise(plan_.work(a.op), plan_[a.op].num_operands)->rows / a.blocks % v.rows == 0;
                    });
  if (fits || v.again.empty()) return;
  std::erase_if(v.again, [](const AgainOp& a) { return !a.whole; });
  for (SkeletalTensor& t : v.tensors) t.by_rows = false;
  v.rows = 0;
}

/// A buffer is used again by the block after the next, forward when it has drained and backward when it has been read.
void Visits::check_order() const {
  for (std::size_t i = 0; i + 2 < visits_.size(); ++i) {
    const BlockVisit &a = visits_[i], &b = visits_[i + 2];
    if (a.tensors.empty() || b.tensors.empty() || a.microbatch != b.microbatch) continue;
    if (a.left >= b.first_written || b.last_needed >= a.first_needed)
      throw OptionError{
          {"mesh"}, "activations of passes that overlap cannot share two buffers", "leave out the axis pp"};
  }
}

}  // namespace

Bytes BlockVisit::bytes(const Plan& plan, bool by_rows) const {
  Bytes sum;
  for (const SkeletalTensor& t : tensors)
    if (t.by_rows == by_rows) sum += plan.size(t.owner);
  return sum;
}

std::vector<BlockVisit> block_visits(const Plan& plan, ClassId c) { return Visits{plan, c}.run(); }

}  // namespace orrery
