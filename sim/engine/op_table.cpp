// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/op_table.hpp"

#include <algorithm>
#include <map>

#include "sim/base/error.hpp"

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

/// The works of some ops, each once.
std::vector<WorkId> works_of(const Plan& plan, std::span<const Op> ops) {
  std::vector<std::uint8_t> is_used(plan.works.size(), 0);
  for (const Op& op : ops) is_used[op.work.index()] = 1;
  std::vector<WorkId> out;
  for (std::size_t w = 0; w < is_used.size(); ++w)
    if (is_used[w] != 0) out.push_back(WorkId{w});
  return out;
}

/// The first one that begins with this op or a later one.
std::vector<Repetition>::const_iterator first_repetition(const Plan& plan, std::size_t op) {
  return std::lower_bound(plan.repetitions.begin(), plan.repetitions.end(), OpId{op},
                          [](const Repetition& r, OpId wanted) { return r.first < wanted; });
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

OpTable::OpTable(const Plan& plan, const Fleet& fleet, CostTable& costs) : num_kinds_{fleet.num_kinds()} {
  if (plan.ops.size() >= kMaxRecords) bug("a plan of more than 2^28 ops per class");
  std::vector<bool> wanted(plan.classes.size() * num_kinds_, false);
  for (std::uint32_t s = 0; s < fleet.size(); ++s) wanted[fleet.class_of(s) * num_kinds_ + fleet.kind(s)] = true;
  classes_.resize(plan.classes.size());
  schedules_.resize(wanted.size());
  records_.resize(plan.ops.size());
  find_partners(plan);
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    add_class(plan, c);
    add_blocks(plan, c);
    const std::vector<WorkId> works = works_of(plan, plan.ops_of(plan.classes[c]));
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
  partners_ = {};
  kinds_ = {};
  counts_ = {};
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

void OpTable::add_class(const Plan& plan, std::size_t c) {
  ClassOps& out = classes_[c];
  out.first_op = plan.classes[c].first_op;
  out.num_ops = plan.classes[c].num_ops;
  const std::span<const Op> ops = plan.ops_of(plan.classes[c]);
  std::array<std::uint32_t, kNumStreams> next{};
  for (const Op& op : ops) ++next[static_cast<std::size_t>(op.stream)];
  out.first_record[0] = out.first_op;
  for (std::size_t s = 0; s < kNumStreams; ++s) {
    out.first_record[s + 1] = out.first_record[s] + next[s];
    next[s] = out.first_record[s];
  }
  place_.resize(ops.size());
  std::fill(counts_.begin(), counts_.end(), 0u);
  auto repetition = first_repetition(plan, out.first_op);
  std::uint32_t begin = UINT32_MAX, length = 0, like = 0;  // of the repetition that comes or is there
  const auto find_next = [&] {
    begin = UINT32_MAX, length = 0;
    if (repetition == plan.repetitions.end() || repetition->first.index() >= out.first_op + ops.size()) return;
    begin = repetition->first.value - out.first_op;
    length = repetition->num_ops;
    like = repetition->like.value - out.first_op;
    ++repetition;
  };
  find_next();
  for (std::uint32_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    if (i == begin + length) find_next();
    place_[i] = next[static_cast<std::size_t>(op.stream)]++;
    EngineOp& record = records_[place_[i]];
    const std::uint8_t storage =
        i >= begin ? records_[place_[like + (i - begin)]].storage : storage_of(plan.operands_of(op));
    record = {i, op.work.value, static_cast<std::uint32_t>(deps_.size()), 0, kinds_[op.work.index()], storage};
    if (record.kind == OpKind::Single && op.num_deps == 0) continue;
    if (record.kind == OpKind::Wait && op.num_operands > 0) record.kind = OpKind::WaitToRead;
    for (OpId d : plan.deps_of(op)) {
      if (d.index() < out.first_op || d.index() >= out.first_op + i)
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
      out.waits.push_back(i);
    else if (record.kind != OpKind::Single)
      add_call(record, op.work);
  }
}

void OpTable::add_blocks(const Plan& plan, std::size_t c) {
  ClassOps& out = classes_[c];
  std::map<OpId, std::uint32_t> patterns;  // by the first op of what they are like
  std::array<std::uint32_t, kNumStreams> next{};
  std::copy_n(out.first_record.begin(), kNumStreams, next.begin());
  std::size_t op = out.first_op;
  const auto pass = [&](std::size_t until, std::array<std::uint32_t, kNumStreams>& count) {
    for (; op < until; ++op) ++count[static_cast<std::size_t>(plan.ops[op].stream)];
  };
  for (auto r = first_repetition(plan, op);
       r != plan.repetitions.end() && r->first.index() < out.first_op + std::size_t{out.num_ops}; ++r) {
    pass(r->first.index(), next);
    const auto [pattern, fresh] = patterns.try_emplace(r->like, static_cast<std::uint32_t>(patterns.size()));
    out.blocks.instances.push_back({static_cast<std::uint32_t>(op - out.first_op), r->num_ops, pattern->second, next});
    if (fresh) {
      out.blocks.patterns.emplace_back();
      pass(op + r->num_ops, out.blocks.patterns.back().count);
    } else {
      op += r->num_ops;
    }
    for (std::size_t s = 0; s < kNumStreams; ++s) next[s] += out.blocks.patterns[pattern->second].count[s];
  }
}

void OpTable::add_call(EngineOp& record, WorkId work) {
  record.work = static_cast<std::uint32_t>(calls_.size());
  calls_.push_back({work.value, counts_[partners_[work.index()]]++});
}

/// The host enqueues the ops of a class one after another, beginning anew after each wait: a wait itself launches
/// nothing.
void OpTable::add_schedule(const Plan& plan, std::size_t c, std::uint32_t kind, const CostTable& costs) {
  const std::span<const Op> ops = plan.ops_of(plan.classes[c]);
  std::vector<std::int64_t>& ready = schedules_[c * num_kinds_ + kind].ready_ps;
  ready.resize(ops.size());
  std::int64_t clock = 0;
  for (std::uint32_t i = 0; i < ops.size(); ++i) {
    const LaunchTime& l = costs.launch(ops[i].work, kind);
    const bool wait = is_wait(records_[place_[i]].kind);
    std::int64_t& at = ready[place_[i] - classes_[c].first_op];
    if (!l.runs_ahead)
      at = -l.enqueue_ps - 1;
    else if (wait)
      at = clock;
    else
      at = (clock += l.enqueue_ps) + l.latency_ps;
    if (wait) clock = 0;
  }
}

const std::int64_t* OpTable::ready(std::uint32_t c, std::uint32_t kind) const {
  const auto& ready = schedules_[c * num_kinds_ + kind].ready_ps;
  return ready.empty() ? nullptr : ready.data();
}

std::size_t OpTable::bytes() const {
  std::size_t n =
      records_.capacity() * sizeof(EngineOp) + deps_.capacity() * sizeof(Dependency) + calls_.capacity() * sizeof(Call);
  for (const HostSchedule& s : schedules_) n += s.ready_ps.capacity() * sizeof(std::int64_t);
  return n + classes_.capacity() * sizeof(ClassOps);
}

}  // namespace orrery
