// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/op_table.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/plan/stretches.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMaxRecords = std::size_t{1} << 28;

OpKind kind_of(const Work& work) {
  if (std::holds_alternative<Collective>(work)) return OpKind::Collective;
  if (std::holds_alternative<Send>(work)) return OpKind::Send;
  if (std::holds_alternative<Recv>(work)) return OpKind::Recv;
  if (const auto* host = std::get_if<HostWork>(&work); host && host->waits) return OpKind::Wait;
  return OpKind::Single;
}

std::uint8_t storage_of(std::span<const Operand> operands) {
  bool takes = false, gives = false;
  for (const Operand& o : operands) {
    takes |= o.allocates();
    gives |= o.frees();
  }
  return static_cast<std::uint8_t>((takes ? kTakes : 0) | (gives ? kGives : 0));
}

/// Calls with equal keys of one class pair up in order. Only the partner and the tag matter, and whether one sends or
/// receives.
std::array<std::int64_t, 3> key_of(const Work& work, const Mesh& mesh) {
  if (const auto* c = std::get_if<Collective>(&work)) return {0, static_cast<std::int64_t>(c->group.index()), 0};
  const auto key = [&](std::int64_t direction, Peer peer, std::int64_t tag) -> std::array<std::int64_t, 3> {
    const std::int64_t size = mesh.axes[peer.axis].size, offset = (peer.offset % size + size) % size;
    return {direction, offset == 0 ? 0 : offset << 8 | peer.axis, tag};
  };
  if (const auto* s = std::get_if<Send>(&work)) return key(1, s->peer, s->tag);
  const auto& r = std::get<Recv>(work);
  return key(2, r.peer, r.tag);
}

}  // namespace

/// The works of the ops of a class, each once.
std::vector<WorkId> OpTable::works_of(const Plan& plan, std::size_t c) {
  std::vector<WorkId> works;
  for (const MovedStretches::Part& s : classes_[c].stretches.parts())  // what repeats another block has its works
    for (std::size_t i = s.first; s.like.is_none() && i < s.first + s.num_ops; ++i)
      if (const WorkId w = plan.ops[i].work; std::exchange(last_user_[w.index()], c) != c) works.push_back(w);
  return works;
}

OpTable::OpTable(const Plan& plan, const Fleet& fleet, CostTable& costs) : num_kinds_{fleet.num_kinds()} {
  if (plan.ops.size() >= kMaxRecords) bug("a plan of more than 2^28 ops per class");
  std::vector<bool> wanted(plan.classes.size() * num_kinds_, false);
  for (std::uint32_t s = 0; s < fleet.size(); ++s) wanted[fleet.class_of(s) * num_kinds_ + fleet.kind(s)] = true;
  classes_.resize(plan.classes.size());
  schedules_.resize(wanted.size());
  records_.reserve(plan.ops.size());
  last_user_.resize(plan.works.size(), plan.classes.size());
  find_partners(plan);
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    add_class(plan, c);
    const std::vector<WorkId> works = works_of(plan, c);
    for (std::uint32_t kind = 0; kind < num_kinds_; ++kind) {
      if (!wanted[c * num_kinds_ + kind]) continue;
      for (const WorkId w : works) costs.prepare(w, kind);
      const auto is_free = [&](WorkId w) {
        const LaunchTime& l = costs.launch(w, kind);
        return l.enqueue_ps == 0 && l.latency_ps == 0;
      };
      if (!std::all_of(works.begin(), works.end(), is_free)) add_schedule(plan, c, kind, costs);
    }
  }
  place_ = {};
  last_user_ = {};
  partners_ = {};
  kinds_ = {};
  counts_ = {};
  likes_ = {};
}

void OpTable::find_partners(const Plan& plan) {
  std::map<std::array<std::int64_t, 3>, std::uint32_t> numbers;
  for (const Work& work : plan.works) {
    const OpKind kind = kinds_.emplace_back(kind_of(work));
    const bool calls = kind != OpKind::Single && kind != OpKind::Wait;
    partners_.push_back(
        calls ? numbers.try_emplace(key_of(work, plan.mesh), static_cast<std::uint32_t>(numbers.size())).first->second
              : 0);
  }
  counts_.resize(numbers.size());
}

/// Streams one behind the other.
void OpTable::make_room(const Plan& plan, ClassOps& out) {
  next_ = {};
  using Counts = std::array<std::uint32_t, kNumStreams>;
  const auto count = [&](const MovedStretches::Part& s, Counts& counts) {
    for (std::size_t i = s.first; i < s.first + s.num_ops; ++i) ++counts[static_cast<std::size_t>(plan.ops[i].stream)];
  };
  std::map<OpId, Counts> blocks;  // of what others repeat
  for (const MovedStretches::Part& s : out.stretches.parts()) {
    if (s.like.is_none()) {
      count(s, next_);
      continue;
    }
    const auto [block, is_new] = blocks.try_emplace(s.like);
    if (is_new) count(s, block->second);
    for (std::size_t k = 0; k < kNumStreams; ++k) next_[k] += block->second[k];
  }
  out.first_record[0] = out.first_op;
  for (std::size_t s = 0; s < kNumStreams; ++s) {
    out.first_record[s + 1] = out.first_record[s] + next_[s];
    next_[s] = out.first_record[s];
  }
  place_.resize(out.num_ops);
  if (const std::size_t end = std::size_t{out.first_op} + out.num_ops; end > records_.size()) {
    ahead_.grow(records_, end - records_.size());
    records_.resize(end);
  }
  std::fill(counts_.begin(), counts_.end(), 0u);
}

void OpTable::add_class(const Plan& plan, std::size_t c) {
  ClassOps& out = classes_[c];
  out.stretches = {plan, plan.classes[c]};
  out.first_op = plan.classes[c].first_op;
  out.num_ops = plan.classes[c].num_ops;
  make_room(plan, out);
  std::map<OpId, std::uint32_t> patterns;  // by the first op of what they are like
  for (const MovedStretches::Part& s : out.stretches.parts()) {
    const auto first = static_cast<std::uint32_t>(s.first - out.first_op);
    if (s.like.is_none()) {
      for (std::uint32_t i = first; i < first + s.num_ops; ++i) add_op(plan, out, i);
      continue;
    }
    const auto [pattern, is_new] = patterns.try_emplace(s.like, static_cast<std::uint32_t>(patterns.size()));
    if (is_new) out.blocks.patterns.emplace_back();
    OpBlocks::Pattern& known = out.blocks.patterns[pattern->second];
    OpBlocks::Instance& block = out.blocks.instances.emplace_back(
        OpBlocks::Instance{first, static_cast<std::uint32_t>(s.num_ops), pattern->second, known.instances++, next_});
    add_block(plan, out, block, s);
    for (std::size_t k = 0; k < kNumStreams; ++k) known.count[k] = next_[k] - block.first_record[k];
  }
}

void OpTable::add_op(const Plan& plan, ClassOps& out, std::uint32_t i) {
  const Op& op = plan.ops[std::size_t{out.first_op} + i];
  place_[i] = next_[static_cast<std::size_t>(op.stream)]++;
  EngineOp& record = records_[place_[i]];
  record = {.op = i, .kind = kinds_[op.work.index()], .storage = storage_of(plan.operands_of(op))};
  complete(plan, out, op, record, named_owner(plan, op, record));
}

/// Ops that do what those from `like` on do: mostly all that is known of them holds.
void OpTable::add_block(const Plan& plan, ClassOps& out, OpBlocks::Instance& block, const MovedStretches::Part& part) {
  const std::uint32_t like = part.like.value - out.first_op;
  const auto owner_of = [&](const EngineOp& known, const Op& op) {  // what a block has of its own moves with it
    const MessageOwner there = is_point_to_point(known.kind) ? calls_[known.work].storage : MessageOwner{};
    const bool is_moved = !there.owner.is_none() && part.block != nullptr && part.block->owns(there.owner);
    return is_moved ? MessageOwner{TensorId{std::size_t{there.owner.value + part.moved}}, there.like}
                    : named_owner(plan, op, known);
  };
  block.first_wait = static_cast<std::uint32_t>(out.blocks.waits.size());
  const Op* const ops = plan.ops.data() + out.first_op + block.first_op;
  for (std::uint32_t k = 0; k < block.num_ops; ++k) {
    const EngineOp& known = records_[place_[like + k]];
    const std::uint32_t place = next_[static_cast<std::size_t>(ops[k].stream)]++;
    place_[block.first_op + k] = place;
    EngineOp& record = records_[place];
    record = known;
    record.op = block.first_op + k;
    if (known.num_deps > 0 || ops[k].num_deps > 0 || is_wait(known.kind))
      complete(plan, out, ops[k], record, owner_of(known, ops[k]));
    else if (known.kind != OpKind::Single)
      add_call(record, ops[k].work, owner_of(known, ops[k]));
    for (std::uint32_t d = 0; d < record.num_deps; ++d)
      if (const Dependency on = dep(record, d);
          on.record() < block.first_record[on.stream()] || is_point_to_point(records_[on.record()].kind))
        out.blocks.waits.push_back({on, ops[k].stream});
  }
  block.num_waits = static_cast<std::uint32_t>(out.blocks.waits.size()) - block.first_wait;
}

MessageOwner OpTable::named_owner(const Plan& plan, const Op& op, const EngineOp& record) {
  if (record.storage == 0 || !is_point_to_point(record.kind) || op.num_operands != 1) return {};
  const TensorId owner = plan.owner(plan.operands_of(op).front().tensor());
  const Tensor& t = plan.tensors[owner.index()];
  return {owner, likes_.try_emplace({t.layout, t.dtype, t.tier}, owner).first->second};
}

/// What an op does, and what it comes after.
void OpTable::complete(const Plan& plan, ClassOps& out, const Op& op, EngineOp& record, MessageOwner storage) {
  record.work = op.work.value;
  if (record.kind == OpKind::Wait && op.num_operands > 0) record.kind = OpKind::WaitToRead;
  record.first_dep = static_cast<std::uint32_t>(deps_.size());
  for (const OpId d : plan.deps_of(op)) {
    if (d.index() < out.first_op || d.index() >= std::size_t{out.first_op} + record.op)
      bug("an op comes after one that is not an earlier op of its class");
    const Stream stream = plan[d].stream;
    if (stream != op.stream) deps_.emplace_back(place_[d.index() - out.first_op], stream);
  }
  record.num_deps = static_cast<std::uint16_t>(deps_.size() - record.first_dep);
  if (record.num_deps == 1) {
    record.first_dep = deps_.back().bits();
    deps_.pop_back();
  }
  if (is_wait(record.kind))
    out.waits.push_back(record.op);
  else if (record.kind != OpKind::Single)
    add_call(record, op.work, storage);
}

void OpTable::add_call(EngineOp& record, WorkId work, MessageOwner storage) {
  record.work = static_cast<std::uint32_t>(calls_.size());
  calls_.push_back({work.value, counts_[partners_[work.index()]]++, storage});
}

/// The host enqueues the ops of a class one after another, beginning anew after each wait: a wait itself launches
/// nothing. A block that another one of its pattern has come before is enqueued in the same steps.
void OpTable::add_schedule(const Plan& plan, std::size_t c, std::uint32_t kind, const CostTable& costs) {
  struct Known {
    const OpBlocks::Instance* block = nullptr;       // the first that came
    std::int64_t start = 0, steps = 0, latest = -1;  // of the clock; when its last op is ready
    bool waits = false;
  };
  const ClassOps& all = classes_[c];
  const std::span<const Op> ops = plan.ops_of(plan.classes[c]);
  HostSchedule& out = schedules_[c * num_kinds_ + kind];
  std::int64_t clock = 0, latest = -1;
  bool waits = false;
  const auto schedule = [&](std::uint32_t first, std::uint32_t end) {
    for (std::uint32_t i = first; i < end; ++i) {
      const LaunchTime& l = costs.launch(ops[i].work, kind);
      const bool is_to_wait = is_wait(records_[place_[i]].kind);
      const std::int64_t at = !l.runs_ahead ? -l.enqueue_ps - 1
                              : is_to_wait  ? clock
                                            : (clock += l.host_ps(ops[i])) + l.latency_ps;
      out.add(i, at);
      latest = std::max(latest, at);
      if (!is_to_wait) continue;
      clock = 0;
      waits = true;
    }
  };
  std::vector<Known> patterns(all.blocks.patterns.size());
  std::uint32_t next = 0;
  for (const OpBlocks::Instance& block : all.blocks.instances) {
    schedule(next, block.first_op);
    next = block.first_op + block.num_ops;
    Known& known = patterns[block.pattern];
    if (known.block == nullptr || known.waits) {
      known = {&block, clock};
      waits = false;
      latest = -1;
      schedule(block.first_op, next);
      known.steps = clock - known.start;
      known.latest = latest;
      known.waits = waits;
      continue;
    }
    out.add_like(block.first_op, known.block->first_op, clock - known.start, known.latest);
    clock += known.steps;
  }
  schedule(next, all.num_ops);
}

void HostSchedule::add(std::uint32_t op, std::int64_t ready_ps) {
  if (runs_.empty() || runs_.back().is_like) runs_.push_back({op, static_cast<std::uint32_t>(ready_ps_.size())});
  ready_ps_.push_back(ready_ps);
  all_ready_ps_ = std::max(all_ready_ps_, ready_ps < 0 ? kNever : ready_ps);
}

void HostSchedule::add_like(std::uint32_t op, std::uint32_t like, std::int64_t later_ps, std::int64_t latest_ps) {
  const Run& known = run_of(like);
  runs_.push_back({op, known.place + (like - known.first_op), later_ps, true});
  all_ready_ps_ = std::max(all_ready_ps_, latest_ps + later_ps);
}

const HostSchedule::Run& HostSchedule::run_of(std::uint32_t op) const {
  return *std::prev(std::upper_bound(runs_.begin(), runs_.end(), op,
                                     [](std::uint32_t wanted, const Run& r) { return wanted < r.first_op; }));
}

std::int64_t HostSchedule::ready_ps(std::uint32_t op) const {
  const Run& run = run_of(op);
  const std::int64_t ready = ready_ps_[run.place + (op - run.first_op)];
  return ready < 0 ? ready : ready + run.later_ps;
}

std::size_t OpTable::bytes() const {
  std::size_t n =
      records_.capacity() * sizeof(EngineOp) + deps_.capacity() * sizeof(Dependency) + calls_.capacity() * sizeof(Call);
  for (const HostSchedule& s : schedules_) n += s.bytes();
  return n + classes_.capacity() * sizeof(ClassOps);
}

}  // namespace orrery
