// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "sim/base/error.hpp"
#include "sim/timeline/native.hpp"
#include "sim/timeline/sqlite.hpp"

namespace orrery {
namespace {

class NativeReader {
 public:
  NativeReader(std::string_view bytes, const std::string& file) : database_{bytes, file} {}

  Trace read() {
    Trace trace;
    read_meta(trace.timeline);
    Statement notes{database_, "SELECT key, value FROM notes ORDER BY position"};
    while (notes.step()) trace.metadata.emplace_back(notes.text(0), notes.text(1));
    Statement plans{database_, "SELECT plan, name, tokens, model_flops FROM plans ORDER BY plan"};
    while (plans.step()) {
      require(plans.integer(0) == static_cast<std::int64_t>(trace.plans.size()), "plans are not numbered from 0");
      PlanDigest& plan = trace.plans.emplace_back();
      plan.name = plans.text(1);
      plan.purpose.tokens = plans.real(2);
      plan.purpose.model_flops = Flops{plans.real(3)};
      read_plan(plans.integer(0), plan);
    }
    read_timeline(trace.timeline);
    const std::vector<std::string> problems = check_trace(trace);
    if (!problems.empty()) fail(problems.front());
    return trace;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw UserError{fmt::format("cannot read '{}' as a trace: {}", database_.file(), what)};
  }
  void require(bool ok, std::string_view what) const {
    if (!ok) fail(what);
  }
  template <class T>
  void set(T& out, std::int64_t number) const {
    if (!from_number(number, out)) fail(fmt::format("a number is out of range: {}", number));
  }

  void read_meta(Timeline& t) {
    Statement version{database_, "SELECT value FROM meta WHERE key = 'version'"};
    require(version.step(), "it has no version");
    if (version.integer(0) != kNativeVersion)
      fail(fmt::format("it has version {}; this program reads version {}", version.integer(0), kNativeVersion));
    Statement meta{database_, "SELECT key, value FROM meta"};
    while (meta.step()) {
      const std::string_view key = meta.text(0);
      if (key == "source") set(t.source, meta.integer(1));
      if (key == "plan_name") t.plan_name = meta.text(1);
      if (key == "machine") t.machine = meta.text(1);
      if (key == "num_ranks") t.num_ranks = meta.integer(1);
      if (key == "makespan_ps") t.makespan_ps = meta.integer(1);
    }
  }

  void read_plan(std::int64_t id, PlanDigest& plan) {
    Statement axes{database_, "SELECT name, size FROM axes WHERE plan = ? ORDER BY id"};
    for (axes.bind(1, id); axes.step();) plan.mesh.axes.push_back({std::string{axes.text(0)}, axes.integer(1)});
    Statement names{database_, "SELECT text FROM names WHERE plan = ? ORDER BY id"};
    for (names.bind(1, id); names.step();) {
      const std::size_t next = plan.names.size();
      require(plan.names.intern(names.text(0)).index() == next, "a name occurs twice");
    }
    read_classes(id, plan);
    read_groups(id, plan);
    read_works(id, plan);
    plan.ops = read_columns<Op>("ops", id, kOpFields);
    std::vector<OpId> deps;
    for (const DepRow& dep : read_columns<DepRow>("deps", id, kDepFields)) deps.push_back(dep.op);
    plan.deps = std::move(deps);
    plan.tensors = read_columns<TensorDigest>("tensors", id, kTensorFields);
    plan.storage = read_columns<StorageUse>("storage", id, kStorageFields);
  }

  void read_classes(std::int64_t id, PlanDigest& plan) {
    Statement rows{database_, "SELECT name, first_op, num_ops, ranges FROM classes WHERE plan = ? ORDER BY id"};
    for (rows.bind(1, id); rows.step();) {
      RankClass c;
      c.name = rows.text(0);
      set(c.first_op, rows.integer(1));
      set(c.num_ops, rows.integer(2));
      const std::vector<std::int64_t> ranges = decode(rows.blob(3), 2 * plan.mesh.axes.size());
      for (std::size_t i = 0; i + 1 < ranges.size(); i += 2) c.ranges.push_back({ranges[i], ranges[i + 1]});
      plan.classes.push_back(std::move(c));
    }
  }

  void read_groups(std::int64_t id, PlanDigest& plan) {
    Statement rows{database_, "SELECT name, axes, only_at FROM rank_groups WHERE plan = ? ORDER BY id"};
    for (rows.bind(1, id); rows.step();) {
      Group g;
      g.name = rows.text(0);
      for (const std::int64_t axis : decode_all(rows.blob(1))) set(g.axes.emplace_back(), axis);
      const std::vector<std::int64_t> only = decode_all(rows.blob(2));
      for (std::size_t at = 0; at < only.size();) {
        const std::int64_t count = only[at++];
        require(count >= 0 && static_cast<std::uint64_t>(count) <= only.size() - at,
                "the coordinates of a group are damaged");
        const auto first = only.begin() + static_cast<std::ptrdiff_t>(at);
        g.only.emplace_back(first, first + count);
        at += static_cast<std::size_t>(count);
      }
      plan.groups.push_back(std::move(g));
    }
  }

  void read_works(std::int64_t id, PlanDigest& plan) {
    Statement rows{database_,
                   "SELECT kind, text, class, meeting, axis, shift, rank_group, tag, flops, moved, message "
                   "FROM works WHERE plan = ? ORDER BY id"};
    for (rows.bind(1, id); rows.step();) {
      WorkDigest& w = plan.works.emplace_back();
      set(w.kind, rows.integer(0));
      set(w.text, rows.integer(1));
      set(w.op_class, rows.integer(2));
      set(w.meeting, rows.integer(3));
      set(w.peer.axis, rows.integer(4));
      set(w.peer.offset, rows.integer(5));
      set(w.group, rows.integer(6));
      w.tag = rows.integer(7);
      w.flops = Flops{rows.real(8)};
      w.moved = Bytes{rows.real(9)};
      w.message = Bytes{rows.real(10)};
    }
  }

  void read_timeline(Timeline& t) {
    t.spans = read_columns<Span, Spans>("spans", 0, kSpanFields);
    t.memory = read_columns<MemorySample>("memory", 0, kMemoryFields);
    for (const InstanceRow& i : read_columns<InstanceRow>("instances", 0, kInstanceFields)) {
      t.instance_ends_ps.push_back(i.end_ps);
      t.instance_plans.push_back(i.plan);
    }
    t.standing = read_columns<Standing>("standing", 0, kStandingFields);
    const std::vector<OwnerRow> owners = read_columns<OwnerRow>("owners", 0, kOwnerFields);
    std::size_t next = 0;
    for (const PeakRow& row : read_columns<PeakRow>("peaks", 0, kPeakFields)) {
      require(row.owners <= owners.size() - next, "a peak has more owners than there are");
      Peak& p = t.peaks.emplace_back(Peak{row.rank, row.tier, row.bytes, row.arena_bytes, row.op, row.instance, {}});
      for (std::uint32_t i = 0; i < row.owners; ++i, ++next)
        p.owners.emplace_back(owners[next].tensor, owners[next].bytes);
    }
  }

  std::vector<std::int64_t> decode(std::string_view blob, std::size_t rows) const {
    std::optional<std::vector<std::int64_t>> values = decode_column(blob, rows);
    if (!values) fail("a column is damaged");
    return *std::move(values);
  }

  /// All numbers of a blob: one per byte that ends a number.
  std::vector<std::int64_t> decode_all(std::string_view blob) const {
    std::size_t rows = 0;
    for (const char byte : blob) rows += static_cast<unsigned char>(byte) < 0x80 ? 1 : 0;
    return decode(blob, rows);
  }

  template <class T, class List = std::vector<T>>
  List read_columns(std::string_view section, std::int64_t plan, std::span<const Field<T>> fields) {
    List out;
    Statement chunks{database_, "SELECT DISTINCT chunk FROM columns WHERE section = ? AND plan = ? ORDER BY chunk"};
    for (chunks.bind(1, section).bind(2, plan); chunks.step();) {
      const std::size_t before = out.size();
      for (const Field<T>& f : fields) read_column(section, plan, chunks.integer(0), f, before, out);
    }
    return out;
  }

  template <class T, class List>
  void read_column(std::string_view section, std::int64_t plan, std::int64_t chunk, const Field<T>& f,
                   std::size_t before, List& out) {
    Statement column{database_,
                     "SELECT num_rows, data FROM columns WHERE section = ? AND plan = ? AND chunk = ? AND name = ?"};
    column.bind(1, section).bind(2, plan).bind(3, chunk).bind(4, std::string_view{f.name});
    if (!column.step()) fail(fmt::format("column '{}' of '{}' is missing", f.name, section));
    require(column.integer(0) >= 0, "a column has a negative length");
    const std::vector<std::int64_t> values = decode(column.blob(1), static_cast<std::size_t>(column.integer(0)));
    if (out.size() == before) out.resize(before + values.size());
    require(out.size() == before + values.size(), "columns of one table differ in length");
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!f.set(out[before + i], values[i])) fail(fmt::format("a number is out of range: {}", values[i]));
  }

  Database database_;
};

}  // namespace

Trace read_native(std::string_view bytes, const std::string& file) {
  constexpr std::string_view kMagic{"SQLite format 3\0", 16};
  if (bytes.substr(0, kMagic.size()) != kMagic)
    throw UserError{fmt::format("cannot read '{}' as a trace: it is no database", file),
                    "traces of this kind are written by 'orrery simulate --trace FILE.orrery'"};
  return NativeReader{bytes, file}.read();
}

}  // namespace orrery
