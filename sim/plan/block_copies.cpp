// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/block_copies.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "sim/plan/latest_ops.hpp"
#include "sim/plan/operand_bits.hpp"

namespace orrery {

TensorId replace(TensorId t, std::span<const Replacement> replaced) {
  for (const Replacement& r : replaced)
    if (t.value - r.from.value < r.count) return TensorId{std::size_t{t.value - r.from.value + r.to.value}};
  return t;
}

namespace {

bool is_replaced(TensorId t, std::span<const Replacement> replaced) {
  return std::any_of(replaced.begin(), replaced.end(),
                     [&](const Replacement& r) { return t.value - r.from.value < r.count; });
}

bool is_in(TensorId t, const OpBlock& block) { return t.value - block.first_tensor.value < block.num_tensors; }

}  // namespace

/// Whether the same tensors are replaced, by whatever others.
bool BlockCopies::Recipe::Split::holds(std::span<const Replacement> r) const {
  return is_valid &&
         std::equal(r.begin(), r.end(), replaced.begin(), replaced.end(),
                    [](const Replacement& x, const Replacement& y) { return x.from == y.from && x.count == y.count; });
}

OpBlock BlockCopies::repeat(const OpBlock& block, std::span<const Replacement> replaced, std::uint16_t microbatch,
                            OpId after) {
  OpBlock out{OpId{plan_.ops.size()}, TensorId{plan_.tensors.size()}, block.num_ops, block.num_tensors};
  if (block.num_ops == 0) return {out.first_op, out.first_tensor};
  const auto [known, is_new] = recipes_.try_emplace({block.first_op, block.num_ops});
  Recipe& recipe = known->second;
  if (is_new) recipe = recipe_of(block);
  if (!recipe.split.holds(replaced)) split(recipe, replaced);
  copy_tensors(recipe, out.first_tensor, replaced);
  const bool may_write = copy_operands(recipe, out.first_tensor, replaced);
  copy_ops(recipe, out.first_op, microbatch, after, may_write);
  if (block.num_ops > 1)
    plan_.repetitions.push_back({out.first_op, block.first_op, block.num_ops,
                                 out.first_tensor.value - block.first_tensor.value,
                                 static_cast<std::uint32_t>(plan_.operands.size()) - recipe.num_operands});
  recipe.latest = out.first_op;
  copies_.push_back({out, &recipe});
  for (const std::uint32_t tensor : recipe.lent) note_copied(copies_.back(), tensor);
  return out;
}

BlockCopies::Recipe BlockCopies::recipe_of(const OpBlock& block) const {
  Recipe out{.block = block};
  LastUses own;
  own.resize(block.num_tensors);
  out.first_operand = plan_[block.first_op].first_operand;
  std::set<TensorId> written;
  for (std::uint32_t i = 0; i < block.num_ops; ++i) {
    const Op& op = plan_.ops[block.first_op.index() + i];
    for (const Operand& o : plan_.operands_of(op)) {
      const TensorId owner = plan_.owner(o.tensor());
      if (is_in(owner, block)) {
        note_use(own, TensorId{owner.index() - block.first_tensor.index()}, o.writes(), OpId{std::size_t{i}},
                 op.stream);
      } else {
        if (o.writes()) written.insert(owner);
        out.others.push_back({out.num_operands, i, owner});
      }
      ++out.num_operands;
    }
    if (op.num_deps > 0) out.waiting.push_back(i);
  }
  for (Recipe::Other& o : out.others) o.is_read = !written.contains(o.owner);
  for (std::uint32_t t = 0; t < block.num_tensors; ++t)
    if (!plan_.tensors[block.first_tensor.index() + t].base.is_none()) out.views.push_back(t);
  note_own_uses(out, own);
  return out;
}

void BlockCopies::note_own_uses(Recipe& recipe, const LastUses& own) const {
  const auto add = [&](OpId op, bool writes) {
    recipe.last_uses.push_back({op.value, plan_.ops[recipe.block.first_op.index() + op.index()].stream, writes});
  };
  for (std::uint32_t t = 0; t < recipe.block.num_tensors; ++t) {
    const TensorId local{std::size_t{t}};
    recipe.first_use.push_back(static_cast<std::uint32_t>(recipe.last_uses.size()));
    if (const OpId writer = own.writer(local); !writer.is_none()) add(writer, true);
    own.for_each_reader(local, [&](OpId op) { add(op, false); });
  }
  recipe.first_use.push_back(static_cast<std::uint32_t>(recipe.last_uses.size()));
}

BlockCopies::SharedOwners BlockCopies::shared_owners(Recipe& recipe, std::span<const Replacement> replaced) const {
  SharedOwners owners;
  recipe.split = {.replaced = {replaced.begin(), replaced.end()}};
  const Operand* const operands = plan_.operands.data() + recipe.first_operand;
  for (const Recipe::Other& other : recipe.others) {
    const Operand o = operands[other.operand];
    const bool is_fixed = !is_in(o.tensor(), recipe.block) && !is_replaced(o.tensor(), replaced);
    if (is_fixed)
      recipe.split.fixed.push_back(other.operand);
    else
      recipe.split.free.push_back(other);
    const Stream stream = plan_.ops[recipe.block.first_op.index() + other.op].stream;
    const auto [known, is_new] = owners.try_emplace(other.owner, Shared{.use = {.recipe = &recipe}, .stream = stream});
    Shared& shared = known->second;
    shared.is_fixed = shared.is_fixed && is_fixed;
    shared.has_one_stream = shared.has_one_stream && shared.stream == stream;
    (o.writes() ? shared.use.writer : shared.use.reader) = other.op;
    if (o.writes()) shared.use.reader = kNone;
  }
  return owners;
}

/// What is not noted yet of a calm owner are uses on its stream alone.
bool BlockCopies::may_be_calm(TensorId owner, const Shared& shared) const {
  if (!shared.is_fixed || !shared.has_one_stream) return false;
  if (const auto calm = calm_.find(owner); calm != calm_.end() && calm->second.stream != shared.stream) return false;
  const OpId writer = uses_.writer(owner);
  bool is_alone = writer.is_none() || plan_[writer].stream == shared.stream;
  if (shared.use.writer != kNone)
    uses_.for_each_reader(owner, [&](OpId op) { is_alone = is_alone && plan_[op].stream == shared.stream; });
  return is_alone;
}

/// Leaves the owners that are calm.
void BlockCopies::find_calm(Recipe& recipe, SharedOwners& owners) {
  for (auto it = owners.begin(); it != owners.end();) {
    const auto& [owner, shared] = *it;
    if (!may_be_calm(owner, shared)) {
      disturb(owner);
      it = owners.erase(it);
      continue;
    }
    Calm& calm = calm_.try_emplace(owner, Calm{.stream = shared.stream}).first->second;
    if (std::none_of(calm.uses.begin(), calm.uses.end(), [&](const CalmUse& u) { return u.recipe == &recipe; }))
      calm.uses.push_back(shared.use);
    ++it;
  }
}

void BlockCopies::split(Recipe& recipe, std::span<const Replacement> replaced) {
  SharedOwners owners = shared_owners(recipe, replaced);
  find_calm(recipe, owners);
  Recipe::Split& split = recipe.split;
  split.is_valid = true;  // what else it shares has been noted
  auto other = recipe.others.begin();
  auto waits = recipe.waiting.begin();
  for (std::uint32_t i = 0; i < recipe.block.num_ops; ++i) {
    Recipe::Boundary b{i, static_cast<std::uint32_t>(split.others.size())};
    for (; other != recipe.others.end() && other->op == i; ++other)
      if (!owners.contains(other->owner)) split.others.push_back(*other);
    b.num_others = static_cast<std::uint32_t>(split.others.size()) - b.first_other;
    const bool has_deps = waits != recipe.waiting.end() && *waits == i;
    if (has_deps) {
      ++waits;
      const auto deps = plan_.deps_of(plan_.ops[recipe.block.first_op.index() + i]);
      b.is_after = std::any_of(deps.begin(), deps.end(), [&](OpId d) { return d < recipe.block.first_op; });
    }
    if (i == 0 || b.num_others > 0 || has_deps) split.boundary.push_back(b);
  }
}

void BlockCopies::disturb(TensorId owner) {
  const auto it = calm_.find(owner);
  if (it == calm_.end()) return;
  note_calm(owner, it->second);
  for (const CalmUse& u : it->second.uses) u.recipe->split.is_valid = false;
  calm_.erase(it);
}

/// Who has used an owner last, as if it had been noted all the while.
void BlockCopies::note_calm(TensorId owner, const Calm& calm) {
  OpId writer, reader;
  for (const CalmUse& u : calm.uses) {
    if (u.recipe->latest.is_none()) continue;
    if (u.writer != kNone) writer = later(writer, OpId{u.recipe->latest.index() + u.writer});
    if (u.reader != kNone) reader = later(reader, OpId{u.recipe->latest.index() + u.reader});
  }
  note_latest(plan_, uses_, owner, calm.stream, writer, reader);
}

void BlockCopies::end_class() {
  for (const auto& [owner, calm] : calm_) {
    note_calm(owner, calm);
    for (const CalmUse& u : calm.uses) u.recipe->split.is_valid = false;
  }
  calm_.clear();
}

/// Whoever uses a tensor of a copy later comes after the ops of the copy.
void BlockCopies::note_copied(const Copy& copy, std::uint32_t tensor) {
  const Recipe& recipe = *copy.recipe;
  const TensorId mine{copy.block.first_tensor.index() + tensor};
  for (std::uint32_t u = recipe.first_use[tensor]; u < recipe.first_use[tensor + 1]; ++u) {
    const Recipe::Use& use = recipe.last_uses[u];
    note_use(uses_, mine, use.writes, OpId{copy.block.first_op.index() + use.op}, use.stream);
  }
}

/// If it is the storage of a tensor of a copy, its uses there are noted, and from here on for all copies.
void BlockCopies::recall_own(TensorId owner) {
  const auto behind = std::upper_bound(copies_.begin(), copies_.end(), owner,
                                       [](TensorId t, const Copy& c) { return t < c.block.first_tensor; });
  if (behind == copies_.begin()) return;
  const Copy& copy = *std::prev(behind);
  const std::uint32_t tensor = owner.value - copy.block.first_tensor.value;
  if (tensor >= copy.block.num_tensors || copy.recipe->first_use[tensor] == copy.recipe->first_use[tensor + 1]) return;
  note_copied(copy, tensor);
  std::vector<std::uint32_t>& lent = copy.recipe->lent;
  if (std::find(lent.begin(), lent.end(), tensor) == lent.end()) lent.push_back(tensor);
}

/// Tensors of its own for those of the block.
void BlockCopies::copy_tensors(const Recipe& recipe, TensorId first, std::span<const Replacement> replaced) {
  const OpBlock& block = recipe.block;
  tensor_pages_.grow(plan_.tensors, block.num_tensors);
  plan_.tensors.resize(first.index() + block.num_tensors);
  Tensor* const mine = plan_.tensors.data() + first.index();
  std::copy_n(plan_.tensors.data() + block.first_tensor.index(), block.num_tensors, mine);
  for (const std::uint32_t v : recipe.views) {
    TensorId& base = mine[v].base;
    base = is_in(base, block) ? TensorId{base.index() + first.index() - block.first_tensor.index()}
                              : replace(base, replaced);
  }
  uses_.resize(plan_.tensors.size());
}

/// Tensors of the block's own are moved, others may be replaced. Whether what is replaced is written.
bool BlockCopies::copy_operands(const Recipe& recipe, TensorId first, std::span<const Replacement> replaced) {
  const std::size_t begin = plan_.operands.size();
  operand_pages_.grow(plan_.operands, recipe.num_operands);
  plan_.operands.resize(begin + recipe.num_operands);
  const Operand* const like = plan_.operands.data() + recipe.first_operand;
  Operand* const mine = plan_.operands.data() + begin;
  copy_moved(mine, like, recipe.num_operands, difference_when_moved(first.value - recipe.block.first_tensor.value));
  for (const std::uint32_t k : recipe.split.fixed) mine[k] = like[k];
  bool may_write = false;
  for (const Recipe::Other& other : recipe.split.free) {
    const Operand o = like[other.operand];
    if (is_in(o.tensor(), recipe.block)) continue;  // a view of what is replaced
    const TensorId instead = replace(o.tensor(), replaced);
    mine[other.operand] = {instead, o.access()};
    may_write = may_write || (o.writes() && instead != o.tensor());
  }
  return may_write;
}

void BlockCopies::copy_ops(const Recipe& recipe, OpId first, std::uint16_t microbatch, OpId after, bool may_write) {
  const std::uint32_t moved =
      static_cast<std::uint32_t>(plan_.operands.size()) - recipe.num_operands - recipe.first_operand;
  op_pages_.grow(plan_.ops, recipe.block.num_ops);
  plan_.ops.resize(first.index() + recipe.block.num_ops);
  const Op* const like = plan_.ops.data() + recipe.block.first_op.index();
  Op* const mine = plan_.ops.data() + first.index();
  std::uint32_t next = 0;
  const auto copy_until = [&](std::uint32_t end) {
    for (const auto first_dep = static_cast<std::uint32_t>(plan_.deps.size()); next < end; ++next) {
      mine[next] = like[next];
      mine[next].microbatch = microbatch;
      mine[next].first_operand += moved;
      mine[next].first_dep = first_dep;
    }
  };
  for (const Recipe::Boundary& b : recipe.split.boundary) {
    copy_until(b.op + 1);
    order_op(recipe, b, first, b.op == 0 ? after : OpId{}, may_write);
  }
  copy_until(recipe.block.num_ops);
}

/// What an op comes after inside of the block it comes after again; only operands of others can add to that. Where all
/// of the block read the same storage as the block that it is like, and nothing has ever written it, they add nothing.
void BlockCopies::order_op(const Recipe& recipe, const Recipe::Boundary& b, OpId first, OpId after, bool may_write) {
  const OpId first_like = recipe.block.first_op, id{first.index() + b.op};
  const std::uint32_t later_by = first.value - first_like.value;
  const Op& op_like = plan_.ops[first_like.index() + b.op];
  Op& op = plan_.ops[id.index()];
  const Operand* const like = plan_.operands.data() + recipe.first_operand;
  const Operand* const mine = plan_.operands.data() + plan_.ops[first.index()].first_operand;
  const std::span others{recipe.split.others.data() + b.first_other, b.num_others};
  touched_.clear();
  const bool is_behind = !after.is_none() && plan_[after].stream != op.stream;
  bool is_alike = !b.is_after && !is_behind;  // what it comes after
  for (const Recipe::Other& other : others) {
    const TensorId t = mine[other.operand].tensor();
    const bool is_same = t == like[other.operand].tensor();
    const TensorId owner = touched_.emplace_back(is_same ? other.owner : plan_.owner(t));
    recall(owner);
    is_alike = is_alike && other.is_read && !may_write && is_same && uses_.writer(owner).is_none();
  }
  if (is_alike) {
    for (std::uint32_t k = 0; k < op.num_deps; ++k)
      plan_.deps.push_back(OpId{std::size_t{plan_.deps[op_like.first_dep + k].value + later_by}});
  } else {
    LatestOps before;
    if (is_behind) before.add(after, plan_[after].stream);
    for (const OpId d : plan_.deps_of(op_like))
      if (d >= first_like) before.add(OpId{std::size_t{d.value + later_by}}, plan_[d].stream);
    for (std::size_t k = 0; k < others.size(); ++k)
      add_order(plan_, uses_, mine[others[k].operand], touched_[k], op.stream, before);
    before.write(plan_, op);
  }
  for (std::size_t k = 0; k < others.size(); ++k)
    note_use(uses_, touched_[k], mine[others[k].operand].writes(), id, op.stream);
}

}  // namespace orrery
