// SPDX-License-Identifier: Apache-2.0
#include "runtime/class_program.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "runtime/rank_memory.hpp"

namespace orrery {
namespace {

constexpr std::uint32_t kNone = ~0u;

class Compiler {
 public:
  Compiler(const Plan& plan, ClassId id, const Device& device)
      : plan_{plan}, class_{plan.classes[id.index()]}, id_{id}, device_{device} {
    for (const RankView& v : plan.rank_views) rank_views_.insert(v.view);
  }

  ClassProgram run() {
    find_lanes();
    find_counters();
    find_waits();
    for (std::uint32_t i = 0; i < class_.num_ops; ++i) add_op(i);
    add_persistent();
    bind_spans();
    return std::move(program_);
  }

 private:
  struct Ranges {
    std::size_t operands, takes, gives_back, waits;
  };

  const Op& op(std::uint32_t i) const { return plan_.ops[class_.first_op + i]; }
  void find_lanes();
  bool host_only_waits() const;
  std::size_t lane(std::uint32_t i) const { return lanes_[static_cast<std::size_t>(op(i).stream)]; }
  void find_counters();
  void find_waits();
  void wait_for(std::uint32_t op, std::uint32_t before);
  void add_op(std::uint32_t i);
  void add_operand(const Operand& operand);
  void add_persistent();
  void bind_spans();

  const Plan& plan_;
  const RankClass& class_;
  ClassId id_;
  const Device& device_;
  ClassProgram program_;
  std::array<std::size_t, kNumStreams> lanes_{};  // of each stream
  std::unordered_map<TensorId, std::int32_t> counter_of_;
  std::unordered_set<TensorId> rank_views_;
  std::vector<std::vector<std::uint32_t>> waits_;  // per op of the class: ops of other streams
  std::vector<std::int32_t> signals_;              // per op of the class
  std::vector<Ranges> ends_;                       // per op of the class: where its parts of the tables end
};

bool Compiler::host_only_waits() const {
  for (const Op& op : plan_.ops_of(class_)) {
    if (op.stream != Stream::Host) continue;
    const auto* work = std::get_if<HostWork>(&plan_.work(op));
    if (!work || !work->waits) return false;
  }
  return true;
}

void Compiler::find_lanes() {
  std::array<bool, kNumStreams> used{};
  for (const Op& op : plan_.ops_of(class_)) used[static_cast<std::size_t>(op.stream)] = true;
  const auto streams = std::count(used.begin(), used.end(), true);
  const bool one_lane = streams == 2 && used[static_cast<std::size_t>(Stream::Host)] && host_only_waits();
  std::size_t lanes = 0;
  for (std::size_t s = 0; s < used.size(); ++s)
    if (used[s]) lanes_[s] = one_lane ? 0 : lanes++;
  program_.lanes.resize(one_lane ? 1 : lanes);
}

/// A tensor that is used on several streams is given back by the last of the ops that carry its mark.
void Compiler::find_counters() {
  std::unordered_map<TensorId, std::uint32_t> marks;
  for (const Op& op : plan_.ops_of(class_))
    for (const Operand& o : plan_.operands_of(op))
      if (o.frees()) ++marks[plan_.owner(o.tensor())];
  for (const Op& op : plan_.ops_of(class_))
    for (const Operand& o : plan_.operands_of(op)) {
      const TensorId owner = plan_.owner(o.tensor());
      if (!o.frees() || marks[owner] == 1 || counter_of_.contains(owner)) continue;
      counter_of_[owner] = static_cast<std::int32_t>(program_.counters.size());
      program_.counters.push_back(marks[owner]);
    }
}

void Compiler::wait_for(std::uint32_t op, std::uint32_t before) {
  if (lane(op) == lane(before)) return;
  waits_[op].push_back(before);
  if (signals_[before] < 0) signals_[before] = static_cast<std::int32_t>(program_.num_signals++);
}

/// Dependencies between streams. A HostWork that waits stands for the host thread: where it reads nothing it comes
/// after all ops before it, and the first later op of each stream comes after it.
void Compiler::find_waits() {
  waits_.resize(class_.num_ops);
  signals_.assign(class_.num_ops, -1);
  std::array<std::uint32_t, kNumStreams> last, host;
  last.fill(kNone);
  host.fill(kNone);
  for (std::uint32_t i = 0; i < class_.num_ops; ++i) {
    const auto stream = static_cast<std::size_t>(op(i).stream);
    for (OpId d : plan_.deps_of(op(i))) wait_for(i, d.value - class_.first_op);
    if (const std::uint32_t h = std::exchange(host[stream], kNone); h != kNone) wait_for(i, h);
    if (const auto* work = std::get_if<HostWork>(&plan_.work(op(i))); work && work->waits) {
      for (std::size_t s = 0; s < last.size(); ++s)
        if (s != stream && last[s] != kNone && op(i).num_operands == 0) wait_for(i, last[s]);
      host.fill(i);
      host[stream] = kNone;
    }
    last[stream] = i;
  }
}

void Compiler::add_operand(const Operand& operand) {
  const Tensor& t = plan_.tensors[operand.tensor().index()];
  const Layout& layout = plan_.layouts[t.layout.index()];
  OperandRecord record;
  record.layout = &layout;
  record.tensor = operand.tensor();
  record.owner = plan_.owner(operand.tensor());
  record.tier = plan_.tensors[record.owner.index()].tier;
  record.dtype = t.dtype;
  record.access = operand.access();
  record.contiguous = layout.is_contiguous();
  record.byte_offset = layout.offset * bits(t.dtype) / 8;
  const TensorId owner = record.owner;
  if (rank_views_.contains(operand.tensor())) {
    record.moves = !plan_.tensors[owner.index()].persistent;
    if (!record.moves) record.owner = operand.tensor();  // has a place of its own per rank
  }
  program_.operands.push_back(record);
  if (!operand.allocates() && !operand.frees()) return;
  StorageMark mark{owner, record.tier, storage_bytes(plan_, owner), -1};
  if (operand.allocates()) program_.takes.push_back(mark);
  if (const auto it = counter_of_.find(record.owner); it != counter_of_.end()) mark.counter = it->second;
  if (operand.frees()) program_.gives_back.push_back(mark);
}

void Compiler::add_op(std::uint32_t i) {
  const Work& work = plan_.work(op(i));
  OpRecord record;
  record.kernel = device_.kernel(plan_, op(i));
  record.work = std::visit([](const auto& w) -> const void* { return &w; }, work);
  record.id = OpId{class_.first_op + i};
  record.stream = op(i).stream;
  record.signal = signals_[i];
  if (std::holds_alternative<Collective>(work)) record.encounter = Encounter::Collective;
  if (std::holds_alternative<Send>(work)) record.encounter = Encounter::Send;
  if (std::holds_alternative<Recv>(work)) record.encounter = Encounter::Recv;
  if (record.encounter != Encounter::None) {
    record.meeting = static_cast<std::int32_t>(program_.meetings.size());
    program_.meetings.push_back(class_.first_op + i);
  }
  for (const Operand& o : plan_.operands_of(op(i))) add_operand(o);
  for (std::uint32_t before : waits_[i]) program_.waits.push_back(static_cast<std::uint32_t>(signals_[before]));
  ends_.push_back({program_.operands.size(), program_.takes.size(), program_.gives_back.size(), program_.waits.size()});
  program_.lanes[lane(i)].push_back(record);
}

/// Views that lie elsewhere on each rank have the storage of their bases.
void Compiler::add_persistent() {
  std::vector<TensorId>& all = program_.persistent;
  for (const OperandRecord& o : program_.operands)
    if (const TensorId owner = plan_.owner(o.tensor); plan_.tensors[owner.index()].persistent) all.push_back(owner);
  for (TensorId workspace : plan_.workspaces[id_.index()])
    if (!workspace.is_none()) all.push_back(workspace);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
}

/// The tables no longer move: the records may point into them.
void Compiler::bind_spans() {
  const auto slice = [](const auto& table, std::size_t first, std::size_t last) {
    return std::span{table.data() + first, last - first};
  };
  for (auto& lane : program_.lanes)
    for (OpRecord& r : lane) {
      const std::size_t i = r.id.index() - class_.first_op;
      const Ranges first = i == 0 ? Ranges{} : ends_[i - 1], last = ends_[i];
      r.operands = slice(program_.operands, first.operands, last.operands);
      r.takes = slice(program_.takes, first.takes, last.takes);
      r.gives_back = slice(program_.gives_back, first.gives_back, last.gives_back);
      r.waits = slice(program_.waits, first.waits, last.waits);
    }
}

}  // namespace

ClassProgram compile(const Plan& plan, ClassId id, const Device& device) { return Compiler{plan, id, device}.run(); }

}  // namespace orrery
