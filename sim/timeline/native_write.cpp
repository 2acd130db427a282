// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/timeline/native.hpp"
#include "sim/timeline/sqlite.hpp"

namespace orrery {
namespace {

constexpr const char* kSchema = R"(
  PRAGMA journal_mode = OFF;
  CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
  CREATE TABLE notes(position INTEGER PRIMARY KEY, key TEXT, value TEXT);
  CREATE TABLE plans(plan INTEGER PRIMARY KEY, name TEXT, tokens REAL, model_flops REAL);
  CREATE TABLE axes(plan INTEGER, id INTEGER, name TEXT, size INTEGER, PRIMARY KEY(plan, id)) WITHOUT ROWID;
  CREATE TABLE classes(plan INTEGER, id INTEGER, name TEXT, first_op INTEGER, num_ops INTEGER, ranges BLOB,
                       PRIMARY KEY(plan, id)) WITHOUT ROWID;
  CREATE TABLE rank_groups(plan INTEGER, id INTEGER, name TEXT, axes BLOB, only_at BLOB, PRIMARY KEY(plan, id)) WITHOUT ROWID;
  CREATE TABLE names(plan INTEGER, id INTEGER, text TEXT, PRIMARY KEY(plan, id)) WITHOUT ROWID;
  CREATE TABLE works(plan INTEGER, id INTEGER, kind INTEGER, text INTEGER, class INTEGER, meeting INTEGER, axis INTEGER,
                     shift INTEGER, rank_group INTEGER, tag INTEGER, flops REAL, moved REAL, message REAL,
                     PRIMARY KEY(plan, id)) WITHOUT ROWID;
  CREATE TABLE columns(section TEXT, plan INTEGER, chunk INTEGER, name TEXT, num_rows INTEGER, data BLOB,
                       PRIMARY KEY(section, plan, chunk, name));
  BEGIN;)";

/// Writes one trace into an empty database.
class NativeWriter {
 public:
  explicit NativeWriter(const std::string& file) : database_{file} { database_.execute(kSchema); }

  void write(const Trace& trace) {
    write_meta(trace);
    for (std::size_t p = 0; p < trace.plans.size(); ++p) write_plan(static_cast<std::int64_t>(p), trace.plans[p]);
    write_timeline(trace.timeline);
    database_.execute("COMMIT");
  }
  std::string bytes() const { return database_.bytes(); }

 private:
  void write_meta(const Trace& trace) {
    Statement meta{database_, "INSERT INTO meta VALUES(?, ?)"};
    const Timeline& t = trace.timeline;
    meta.bind(1, std::string_view{"format"}).bind(2, std::string_view{"orrery trace"}).step();
    meta.bind(1, std::string_view{"version"}).bind(2, kNativeVersion).step();
    meta.bind(1, std::string_view{"source"}).bind(2, to_number(t.source)).step();
    meta.bind(1, std::string_view{"plan_name"}).bind(2, std::string_view{t.plan_name}).step();
    meta.bind(1, std::string_view{"machine"}).bind(2, std::string_view{t.machine}).step();
    meta.bind(1, std::string_view{"num_ranks"}).bind(2, t.num_ranks).step();
    meta.bind(1, std::string_view{"makespan_ps"}).bind(2, t.makespan_ps).step();
    Statement notes{database_, "INSERT INTO notes(key, value) VALUES(?, ?)"};
    for (const auto& [key, value] : trace.metadata)
      notes.bind(1, std::string_view{key}).bind(2, std::string_view{value}).step();
  }

  void write_plan(std::int64_t id, const PlanDigest& plan) {
    Statement row{database_, "INSERT INTO plans VALUES(?, ?, ?, ?)"};
    row.bind(1, id)
        .bind(2, std::string_view{plan.name})
        .bind(3, plan.purpose.tokens)
        .bind(4, plan.purpose.model_flops.base())
        .step();
    write_mesh(id, plan);
    write_groups(id, plan);
    write_works(id, plan);
    write_columns<Op>("ops", id, plan.ops, kOpFields);
    std::vector<DepRow> deps;
    for (const OpId dep : plan.deps) deps.push_back({dep});
    write_columns<DepRow>("deps", id, deps, kDepFields);
    write_columns<TensorDigest>("tensors", id, plan.tensors, kTensorFields);
    write_columns<StorageUse>("storage", id, plan.storage, kStorageFields);
  }

  void write_mesh(std::int64_t id, const PlanDigest& plan) {
    Statement axis{database_, "INSERT INTO axes VALUES(?, ?, ?, ?)"};
    for (std::size_t i = 0; i < plan.mesh.axes.size(); ++i) {
      const Axis& a = plan.mesh.axes[i];
      axis.bind(1, id).bind(2, static_cast<std::int64_t>(i)).bind(3, std::string_view{a.name}).bind(4, a.size).step();
    }
    Statement row{database_, "INSERT INTO classes VALUES(?, ?, ?, ?, ?, ?)"};
    for (std::size_t i = 0; i < plan.classes.size(); ++i) {
      const RankClass& c = plan.classes[i];
      std::vector<std::int64_t> ranges;
      for (const CoordRange& r : c.ranges) ranges.insert(ranges.end(), {r.first, r.last});
      const std::string blob = encode_column(ranges);
      row.bind(1, id).bind(2, static_cast<std::int64_t>(i)).bind(3, std::string_view{c.name});
      row.bind(4, std::int64_t{c.first_op}).bind(5, std::int64_t{c.num_ops}).bind_blob(6, blob).step();
    }
    Statement name{database_, "INSERT INTO names VALUES(?, ?, ?)"};
    for (std::size_t i = 0; i < plan.names.size(); ++i)
      name.bind(1, id).bind(2, static_cast<std::int64_t>(i)).bind(3, plan.names[NameId{i}]).step();
  }

  /// `only_at` holds, per axis, how many coordinates take part and which.
  void write_groups(std::int64_t id, const PlanDigest& plan) {
    Statement row{database_, "INSERT INTO rank_groups VALUES(?, ?, ?, ?, ?)"};
    for (std::size_t i = 0; i < plan.groups.size(); ++i) {
      const Group& g = plan.groups[i];
      const std::string axes = encode_column(std::vector<std::int64_t>{g.axes.begin(), g.axes.end()});
      std::vector<std::int64_t> only;
      for (const std::vector<std::int64_t>& coordinates : g.only) {
        only.push_back(static_cast<std::int64_t>(coordinates.size()));
        only.insert(only.end(), coordinates.begin(), coordinates.end());
      }
      const std::string blob = encode_column(only);
      row.bind(1, id).bind(2, static_cast<std::int64_t>(i)).bind(3, std::string_view{g.name});
      row.bind_blob(4, axes).bind_blob(5, blob).step();
    }
  }

  void write_works(std::int64_t id, const PlanDigest& plan) {
    Statement row{database_, "INSERT INTO works VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"};
    for (std::size_t i = 0; i < plan.works.size(); ++i) {
      const WorkDigest& w = plan.works[i];
      row.bind(1, id).bind(2, static_cast<std::int64_t>(i)).bind(3, to_number(w.kind)).bind(4, to_number(w.text));
      row.bind(5, to_number(w.op_class)).bind(6, to_number(w.meeting)).bind(7, std::int64_t{w.peer.axis});
      row.bind(8, std::int64_t{w.peer.offset}).bind(9, to_number(w.group)).bind(10, w.tag);
      row.bind(11, w.flops.base()).bind(12, w.moved.base()).bind(13, w.message.base()).step();
    }
  }

  void write_timeline(const Timeline& t) {
    write_columns<Span>("spans", 0, t.spans, kSpanFields);
    write_columns<MemorySample>("memory", 0, t.memory, kMemoryFields);
    std::vector<InstanceRow> instances;
    for (std::uint32_t i = 0; i < t.instance_ends_ps.size(); ++i)
      instances.push_back({t.instance_ends_ps[i], t.plan_of(i)});
    write_columns<InstanceRow>("instances", 0, instances, kInstanceFields);
    std::vector<PeakRow> peaks;
    std::vector<OwnerRow> owners;
    for (const Peak& p : t.peaks) {
      const auto count = static_cast<std::uint32_t>(p.owners.size());
      peaks.push_back({p.rank, p.tier, p.bytes, p.arena_bytes, p.op, p.instance, count});
      for (const auto& [tensor, bytes] : p.owners) owners.push_back({tensor, bytes});
    }
    write_columns<Standing>("standing", 0, t.standing, kStandingFields);
    write_columns<PeakRow>("peaks", 0, peaks, kPeakFields);
    write_columns<OwnerRow>("owners", 0, owners, kOwnerFields);
  }

  template <class T>
  void write_columns(std::string_view section, std::int64_t plan, std::span<const T> rows,
                     std::span<const Field<T>> fields) {
    Statement insert{database_, "INSERT INTO columns VALUES(?, ?, ?, ?, ?, ?)"};
    std::vector<std::int64_t> values;
    for (std::size_t chunk = 0; chunk * kNativeChunk < rows.size(); ++chunk) {
      const auto part = rows.subspan(chunk * kNativeChunk, std::min(kNativeChunk, rows.size() - chunk * kNativeChunk));
      for (const Field<T>& f : fields) {
        values.clear();
        for (const T& row : part) values.push_back(f.get(row));
        const std::string data = encode_column(values);
        insert.bind(1, section)
            .bind(2, plan)
            .bind(3, static_cast<std::int64_t>(chunk))
            .bind(4, std::string_view{f.name});
        insert.bind(5, static_cast<std::int64_t>(part.size())).bind_blob(6, data).step();
      }
    }
  }

  Database database_;
};

}  // namespace

std::string write_native(const Trace& trace, const std::string& file) {
  NativeWriter writer{file};
  writer.write(trace);
  return writer.bytes();
}

}  // namespace orrery
