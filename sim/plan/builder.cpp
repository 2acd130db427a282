// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/builder.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

std::size_t hash_of_layout(const Layout& l) {
  std::uint64_t h =
      static_cast<std::uint64_t>(l.offset) * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(l.shape.rank);
  for (int i = 0; i < l.shape.rank; ++i) {
    h = (h ^ static_cast<std::uint64_t>(l.shape[i])) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ static_cast<std::uint64_t>(l.strides[static_cast<std::size_t>(i)])) * 0x94d049bb133111ebull;
  }
  return h;
}

/// Per stream the latest of some ops: as streams are in order, to come after it is enough.
class LatestOps {
 public:
  void add(OpId op, Stream stream) {
    const auto s = static_cast<std::size_t>(stream);
    if (!(streams_ >> s & 1u) || ops_[s] < op) ops_[s] = op;
    streams_ |= 1u << s;
  }
  /// Makes them what `op`, the next one of the plan, comes after.
  void write(Plan& plan, Op& op) const {
    op.first_dep = static_cast<std::uint32_t>(plan.deps.size());
    for (unsigned left = streams_; left != 0; left &= left - 1)
      plan.deps.push_back(ops_[static_cast<std::size_t>(std::countr_zero(left))]);
    op.num_deps = static_cast<std::uint16_t>(plan.deps.size() - op.first_dep);
  }

 private:
  std::array<OpId, kNumStreams> ops_;
  unsigned streams_ = 0;
};

/// What an operand of the next op, on some stream, says that it must come after.
void add_order(const Plan& plan, const LastUses& uses, Operand o, Stream stream, LatestOps& before) {
  const TensorId owner = plan.owner(o.tensor());
  const auto add = [&](OpId on) {
    if (!on.is_none() && plan[on].stream != stream) before.add(on, plan[on].stream);
  };
  add(uses.writer(owner));
  if (o.writes()) uses.for_each_reader(owner, add);
}

void note_use(const Plan& plan, LastUses& uses, Operand o, OpId op, Stream stream) {
  if (o.writes())
    uses.write(plan.owner(o.tensor()), op);
  else
    uses.read(plan.owner(o.tensor()), op, stream);
}

}  // namespace

PlanBuilder::PlanBuilder(std::string name, Mesh mesh) {
  plan_.name = std::move(name);
  plan_.mesh = std::move(mesh);
}

ClassId PlanBuilder::begin_class(std::string name, std::vector<CoordRange> ranges) {
  close_class();
  RankClass c;
  c.name = std::move(name);
  c.ranges = std::move(ranges);
  c.first_op = static_cast<std::uint32_t>(plan_.ops.size());
  plan_.classes.push_back(std::move(c));
  plan_.workspaces.emplace_back();
  return ClassId{plan_.classes.size() - 1};
}

void PlanBuilder::close_class() {
  if (plan_.classes.empty()) return;
  RankClass& c = plan_.classes.back();
  c.num_ops = static_cast<std::uint32_t>(plan_.ops.size()) - c.first_op;
}

GroupId PlanBuilder::group(Group group) {
  for (std::size_t i = 0; i < plan_.groups.size(); ++i)
    if (plan_.groups[i].axes == group.axes && plan_.groups[i].only == group.only) return GroupId{i};
  plan_.groups.push_back(std::move(group));
  return GroupId{plan_.groups.size() - 1};
}

GroupId PlanBuilder::group_over(std::span<const std::int8_t> axes) {
  Group g;
  for (const std::int8_t a : axes) {
    g.axes.push_back(static_cast<std::uint8_t>(a));
    g.name += (g.name.empty() ? "" : "+") + plan_.mesh.axes[static_cast<std::size_t>(a)].name;
  }
  return group(std::move(g));
}

TensorId PlanBuilder::tensor(std::string_view name, const Shape& shape, const TensorSpec& spec) {
  Tensor t;
  t.name = plan_.names.intern(name);
  t.layout = intern(Layout::contiguous(shape));
  t.dtype = spec.dtype;
  t.role = spec.role;
  t.tier = spec.tier;
  t.persistent = spec.persistent;
  plan_.tensors.push_back(t);
  uses_.resize(plan_.tensors.size());
  if (plan_.tensors.size() >= (1u << 28)) bug("more than 2^28 tensors");
  return TensorId{plan_.tensors.size() - 1};
}

TensorId PlanBuilder::view(TensorId base, std::string_view name, const Layout& layout) {
  Tensor t = plan_.tensors[base.index()];
  t.base = plan_.owner(base);
  t.name = plan_.names.intern(name);
  t.layout = intern(layout);
  plan_.tensors.push_back(t);
  uses_.resize(plan_.tensors.size());
  return TensorId{plan_.tensors.size() - 1};
}

TensorId PlanBuilder::rank_view(TensorId base, std::string_view name, const Shape& shape, const RankView& where) {
  RankView v = where;
  v.view = view(base, name, Layout::contiguous(shape));
  plan_.rank_views.push_back(v);
  return v.view;
}

void PlanBuilder::port(std::string name, TensorId tensor,
                       std::function<std::vector<std::int64_t>(std::span<const std::int64_t>)> rows) {
  plan_.ports.push_back({std::move(name), tensor, rank_class(), std::move(rows)});
}

ClassId PlanBuilder::rank_class() {
  if (plan_.classes.empty()) begin_class("all", all_of(plan_.mesh));
  return ClassId{plan_.classes.size() - 1};
}

WorkId PlanBuilder::intern(const Work& work) {
  const auto [it, fresh] = work_ids_.try_emplace(work, WorkId{plan_.works.size()});
  if (fresh) plan_.works.push_back(work);
  return it->second;
}

LayoutId PlanBuilder::intern(const Layout& layout) {
  auto& bucket = layout_ids_[hash_of_layout(layout)];
  for (LayoutId id : bucket)
    if (plan_.layouts[id.index()] == layout) return id;
  plan_.layouts.push_back(layout);
  bucket.push_back(LayoutId{plan_.layouts.size() - 1});
  return bucket.back();
}

/// Appends an op behind those that it must come after.
OpId PlanBuilder::place(Op op, std::span<const Operand> operands) {
  const OpId id{plan_.ops.size()};
  op.first_operand = static_cast<std::uint32_t>(plan_.operands.size());
  op.num_operands = static_cast<std::uint16_t>(operands.size());
  plan_.operands.insert(plan_.operands.end(), operands.begin(), operands.end());
  LatestOps before;
  for (const Operand& o : operands) add_order(plan_, uses_, o, op.stream, before);
  before.write(plan_, op);
  plan_.ops.push_back(op);
  for (const Operand& o : operands) note_use(plan_, uses_, o, id, op.stream);
  return id;
}

OpId PlanBuilder::add(std::string_view name, const Work& work, std::span<const Operand> operands, Stream stream) {
  rank_class();
  Op op;
  op.name = plan_.names.intern(name);
  op.work = intern(work);
  op.stream = stream;
  op.phase = phase_;
  op.layer = layer_;
  op.microbatch = microbatch_;
  return place(op, operands);
}

void PlanBuilder::order(OpId before) {
  Op& op = plan_.ops.back();
  if (before.is_none() || before.index() + 1 >= plan_.ops.size()) bug("an op can only come after an earlier op");
  const Stream stream = plan_[before].stream;
  if (stream == op.stream) return;
  const auto deps = std::span{plan_.deps}.subspan(op.first_dep, op.num_deps);
  const auto same = std::find_if(deps.begin(), deps.end(), [&](OpId d) { return plan_[d].stream == stream; });
  if (same != deps.end()) {  // the later one of a stream comes after the other
    *same = std::max(*same, before);
    return;
  }
  plan_.deps.push_back(before);
  ++op.num_deps;
}

TensorId replace(TensorId t, std::span<const Replacement> replaced) {
  for (const Replacement& r : replaced)
    if (t.value - r.from.value < r.count) return TensorId{std::size_t{t.value - r.from.value + r.to.value}};
  return t;
}

OpBlock PlanBuilder::end_block(OpBlock block) const {
  block.num_ops = static_cast<std::uint32_t>(plan_.ops.size() - block.first_op.index());
  block.num_tensors = static_cast<std::uint32_t>(plan_.tensors.size() - block.first_tensor.index());
  return block;
}

PlanBuilder::Recipe PlanBuilder::recipe_of(const OpBlock& block) const {
  Recipe out;
  const std::uint32_t first = block.first_op.value, own = block.first_tensor.value;
  out.own.resize(block.num_tensors);
  std::uint32_t operand = 0;
  for (std::uint32_t i = 0; i < block.num_ops; ++i) {
    const Op& op = plan_.ops[first + i];
    Recipe::Boundary here{i, static_cast<std::uint32_t>(out.others.size())};
    for (const Operand& o : plan_.operands_of(op)) {
      const std::uint32_t local = plan_.owner(o.tensor()).value - own;
      if (local >= block.num_tensors)
        out.others.push_back(operand);
      else if (o.writes())
        out.own.write(TensorId{std::size_t{local}}, OpId{std::size_t{i}});
      else
        out.own.read(TensorId{std::size_t{local}}, OpId{std::size_t{i}}, op.stream);
      ++operand;
    }
    here.num_others = static_cast<std::uint32_t>(out.others.size()) - here.first_other;
    const auto deps = plan_.deps_of(op);
    if (here.num_others > 0 || std::any_of(deps.begin(), deps.end(), [&](OpId d) { return d.value < first; }))
      out.boundary.push_back(here);
  }
  return out;
}

/// Tensors of its own for those of the block.
void PlanBuilder::repeat_tensors(const OpBlock& block, const OpBlock& out, std::span<const Replacement> replaced) {
  const std::uint32_t own = block.first_tensor.value, moved = out.first_tensor.value - own;
  plan_.tensors.resize(plan_.tensors.size() + block.num_tensors);
  for (std::uint32_t i = 0; i < block.num_tensors; ++i) {
    Tensor t = plan_.tensors[own + i];
    if (!t.base.is_none())
      t.base = t.base.value - own < block.num_tensors ? TensorId{std::size_t{t.base.value + moved}}
                                                      : replace(t.base, replaced);
    plan_.tensors[out.first_tensor.index() + i] = t;
  }
  uses_.resize(plan_.tensors.size());
}

OpBlock PlanBuilder::repeat(const OpBlock& block, std::span<const Replacement> replaced) {
  const OpBlock out = begin_block();
  if (block.num_ops == 0) return end_block(out);
  const auto [known, is_new] = recipes_.try_emplace({block.first_op, block.num_ops});
  if (is_new) known->second = recipe_of(block);
  const Recipe& recipe = known->second;
  repeat_tensors(block, out, replaced);
  const std::uint32_t own = block.first_tensor.value, moved = out.first_tensor.value - own;
  const std::size_t first_operand = plan_.operands.size();
  const Op* const ops = plan_.ops.data() + block.first_op.index();
  const Op& last = ops[block.num_ops - 1];
  const std::uint32_t operands_like = ops[0].first_operand,
                      num_operands = last.first_operand + last.num_operands - operands_like;
  plan_.operands.resize(first_operand + num_operands);
  for (std::uint32_t k = 0; k < num_operands; ++k) {
    const Operand o = plan_.operands[operands_like + k];
    plan_.operands[first_operand + k] = {TensorId{std::size_t{o.tensor().value + moved}}, o.access()};
  }
  for (const std::uint32_t k : recipe.others) {
    const Operand o = plan_.operands[operands_like + k];
    if (o.tensor().value - own >= block.num_tensors)
      plan_.operands[first_operand + k] = {replace(o.tensor(), replaced), o.access()};
  }
  repeat_ops(block, out, recipe, first_operand);
  // Whoever uses its tensors later comes after the ops of this block.
  for (std::uint32_t i = 0; i < block.num_tensors; ++i) {
    const TensorId local{std::size_t{i}}, mine{out.first_tensor.index() + i};
    const auto here = [&](OpId op) { return OpId{out.first_op.index() + op.index()}; };
    if (const OpId writer = recipe.own.writer(local); !writer.is_none()) uses_.write(mine, here(writer));
    recipe.own.for_each_reader(local, [&](OpId op) { uses_.read(mine, here(op), plan_[here(op)].stream); });
  }
  if (block.num_ops > 1) plan_.repetitions.push_back({out.first_op, block.first_op, block.num_ops});
  return end_block(out);
}

/// What an op comes after inside of the block it comes after again; only operands of others can add to that.
void PlanBuilder::repeat_ops(const OpBlock& block, const OpBlock& out, const Recipe& recipe,
                             std::size_t first_operand) {
  const std::uint32_t first = block.first_op.value, later = out.first_op.value - first;
  const std::uint32_t operands_like = plan_.ops[first].first_operand;
  plan_.ops.resize(out.first_op.index() + block.num_ops);
  auto boundary = recipe.boundary.begin();
  for (std::uint32_t i = 0; i < block.num_ops; ++i) {
    const Op& like = plan_.ops[first + i];
    Op& op = plan_.ops[out.first_op.index() + i];
    op = like;
    op.microbatch = microbatch_;
    op.first_operand = static_cast<std::uint32_t>(first_operand + (like.first_operand - operands_like));
    if (boundary == recipe.boundary.end() || boundary->op != i) {
      op.first_dep = static_cast<std::uint32_t>(plan_.deps.size());
      for (std::uint32_t k = 0; k < like.num_deps; ++k)
        plan_.deps.push_back(OpId{std::size_t{plan_.deps[like.first_dep + k].value + later}});
      continue;
    }
    LatestOps before;
    for (const OpId d : plan_.deps_of(like))
      if (d.value >= first) before.add(OpId{std::size_t{d.value + later}}, plan_[d].stream);
    const auto others = std::span{recipe.others}.subspan(boundary->first_other, boundary->num_others);
    for (const std::uint32_t k : others) add_order(plan_, uses_, plan_.operands[first_operand + k], op.stream, before);
    before.write(plan_, op);
    for (const std::uint32_t k : others)
      note_use(plan_, uses_, plan_.operands[first_operand + k], OpId{out.first_op.index() + i}, op.stream);
    ++boundary;
  }
}

void PlanBuilder::reserve(std::size_t times) {
  plan_.ops.reserve(plan_.ops.size() * times);
  plan_.operands.reserve(plan_.operands.size() * times);
  plan_.deps.reserve(plan_.deps.size() * times);
  plan_.tensors.reserve(plan_.tensors.size() * times);
  uses_.reserve(uses_.size() * times);
}

/// Storage is taken by the first op that uses an owner and given back by the last one of each stream.
void PlanBuilder::mark_storage() {
  constexpr std::uint32_t kNone = UINT32_MAX;
  std::vector<std::uint16_t> later(plan_.tensors.size(), 0);      // streams on which a later op uses it
  std::vector<std::uint32_t> first(plan_.tensors.size(), kNone);  // operand
  for (std::size_t op = plan_.ops.size(); op-- > 0;) {
    const auto stream = static_cast<std::uint16_t>(1u << static_cast<unsigned>(plan_.ops[op].stream));
    const std::uint32_t begin = plan_.ops[op].first_operand;
    for (std::uint32_t i = begin + plan_.ops[op].num_operands; i-- > begin;) {
      Operand& o = plan_.operands[i];
      const std::size_t owner = plan_.owner(o.tensor()).index();
      o.set_allocates(false);
      o.set_frees(false);
      if (plan_.tensors[owner].persistent) continue;
      o.set_frees(!(later[owner] & stream));
      later[owner] |= stream;
      first[owner] = i;
    }
  }
  for (const std::uint32_t i : first)
    if (i != kNone) plan_.operands[i].set_allocates(true);
}

void PlanBuilder::add_workspaces(const WorkspaceModel& model) {
  std::vector<Bytes> per_work;
  per_work.reserve(plan_.works.size());
  for (const Work& w : plan_.works) per_work.push_back(model.workspace(w));
  for (std::size_t c = 0; c < plan_.classes.size(); ++c) {
    std::array<Bytes, kNumStreams> most{};
    for (const Op& op : plan_.ops_of(plan_.classes[c]))
      most[static_cast<std::size_t>(op.stream)] =
          std::max(most[static_cast<std::size_t>(op.stream)], per_work[op.work.index()]);
    for (std::size_t s = 0; s < most.size(); ++s) {
      if (most[s].base() <= 0) continue;
      const auto bytes = static_cast<std::int64_t>(ceil_to(most[s], kAllocationUnit).base());
      plan_.workspaces[c][s] =
          tensor("workspace." + std::string{name_of(static_cast<Stream>(s))} + "." + std::to_string(bytes),
                 Shape{bytes}, {.dtype = DType::U8, .role = TensorRole::Workspace, .persistent = true});
    }
  }
}

/// A decoder's plan has no encoder: parameters that no op touches are not of this plan.
void PlanBuilder::drop_unused_placements() {
  std::vector<bool> used(plan_.tensors.size(), false);
  for (const Operand& o : plan_.operands) used[plan_.owner(o.tensor()).index()] = true;
  std::erase_if(plan_.placements,
                [&](const ParameterPlacement& p) { return !used[plan_.owner(p.weight.tensor).index()]; });
}

Plan PlanBuilder::take(const WorkspaceModel* workspaces) {
  close_class();
  mark_storage();
  if (workspaces) add_workspaces(*workspaces);
  drop_unused_placements();
  verify(plan_);
  return std::move(plan_);
}

}  // namespace orrery
