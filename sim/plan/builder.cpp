// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/builder.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/plan/block_copies.hpp"
#include "sim/plan/latest_ops.hpp"
#include "sim/plan/stretches.hpp"

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

}  // namespace

PlanBuilder::PlanBuilder(std::string name, Mesh mesh) : copies_{std::make_unique<BlockCopies>(plan_, uses_)} {
  plan_.name = std::move(name);
  plan_.mesh = std::move(mesh);
}

PlanBuilder::~PlanBuilder() = default;

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
  copies_->end_class();
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
  return tensor(intern(name), intern(Layout::contiguous(shape)), spec);
}

TensorId PlanBuilder::tensor(NameId name, LayoutId contiguous, const TensorSpec& spec) {
  Tensor t;
  t.name = name;
  t.layout = contiguous;
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
  return view(base, intern(name), intern(layout));
}

TensorId PlanBuilder::view(TensorId base, NameId name, LayoutId layout) {
  Tensor t = plan_.tensors[base.index()];
  t.base = plan_.owner(base);
  t.name = name;
  t.layout = layout;
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
  for (const Operand& o : operands) {
    const TensorId owner = plan_.owner(o.tensor());
    copies_->recall(owner);
    add_order(plan_, uses_, o, owner, op.stream, before);
  }
  before.write(plan_, op);
  plan_.ops.push_back(op);
  for (const Operand& o : operands) note_use(uses_, plan_.owner(o.tensor()), o.writes(), id, op.stream);
  return id;
}

OpId PlanBuilder::add(std::string_view name, const Work& work, std::span<const Operand> operands, Stream stream) {
  return add(intern(name), intern(work), operands, stream);
}

OpId PlanBuilder::add(NameId name, WorkId work, std::span<const Operand> operands, Stream stream) {
  rank_class();
  Op op;
  op.name = name;
  op.work = work;
  op.stream = stream;
  op.phase = phase_;
  op.layer = layer_;
  op.microbatch = microbatch_;
  op.joins = joins_;
  return place(op, operands);
}

OpBlock PlanBuilder::end_block(OpBlock block) const {
  block.num_ops = static_cast<std::uint32_t>(plan_.ops.size() - block.first_op.index());
  block.num_tensors = static_cast<std::uint32_t>(plan_.tensors.size() - block.first_tensor.index());
  return block;
}

OpBlock PlanBuilder::repeat(const OpBlock& block, std::span<const Replacement> replaced, OpId after) {
  const OpBlock copy = copies_->repeat(block, replaced, microbatch_, after);
  if (copy.num_ops > 0) copy_rank_views(block, copy, replaced);
  return copy;
}

/// Views are made one after another, so those of the block stand side by side.
void PlanBuilder::copy_rank_views(const OpBlock& block, const OpBlock& copy, std::span<const Replacement> replaced) {
  const auto from = [&](TensorId t) {
    return std::lower_bound(plan_.rank_views.begin(), plan_.rank_views.end(), t,
                            [](const RankView& v, TensorId other) { return v.view < other; }) -
           plan_.rank_views.begin();
  };
  const Replacement moved{block.first_tensor, copy.first_tensor, block.num_tensors};
  const auto last = from(TensorId{block.first_tensor.index() + block.num_tensors});
  for (auto i = from(block.first_tensor); i < last; ++i) {
    RankView v = plan_.rank_views[static_cast<std::size_t>(i)];
    v.view = replace(v.view, {&moved, 1});
    for (RankView::Place& p : v.places) {
      const TensorId own = replace(p.tensor, {&moved, 1});
      p.tensor = own == p.tensor ? replace(p.tensor, replaced) : own;
    }
    plan_.rank_views.push_back(std::move(v));
  }
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

void PlanBuilder::reserve(std::size_t times) {
  plan_.ops.reserve(plan_.ops.size() * times);
  plan_.operands.reserve(plan_.operands.size() * times);
  plan_.deps.reserve(plan_.deps.size() * times);
  plan_.tensors.reserve(plan_.tensors.size() * times);
  uses_.reserve(uses_.size() * times);
}

void PlanBuilder::add_workspaces(const WorkspaceModel& model) {
  plan_.scratch.reserve(plan_.works.size());
  for (const Work& w : plan_.works) plan_.scratch.push_back(model.workspace(w));
  for (std::size_t c = 0; c < plan_.classes.size(); ++c) {
    std::array<Bytes, kNumStreams> most{};
    for (const Stretch& s : stretches_of(plan_, plan_.classes[c]))  // what repeats another block has its works
      for (std::size_t i = s.first; s.like.is_none() && i < s.first + s.num_ops; ++i) {
        Bytes& of_stream = most[static_cast<std::size_t>(plan_.ops[i].stream)];
        of_stream = std::max(of_stream, plan_.scratch_of(plan_.ops[i]));
      }
    for (std::size_t s = 0; s < most.size(); ++s) {
      if (most[s].base() <= 0) continue;
      const auto bytes = static_cast<std::int64_t>(ceil_to(most[s], kAllocationUnit).base());
      plan_.workspaces[c][s] =
          tensor("workspace." + std::string{name_of(static_cast<Stream>(s))} + "." + std::to_string(bytes),
                 Shape{bytes}, {.dtype = DType::U8, .role = TensorRole::Workspace, .persistent = true});
    }
  }
}

Plan PlanBuilder::take(const WorkspaceModel* workspaces) {
  close_class();
  uses_ = {};
  mark_storage();
  copies_.reset();
  if (workspaces) add_workspaces(*workspaces);
  verify(plan_);
  return std::move(plan_);
}

}  // namespace orrery
