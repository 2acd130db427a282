// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/base/error.hpp"
#include "sim/timeline/foreign_builder.hpp"
#include "sim/timeline/foreign_readers.hpp"
#include "sim/timeline/sqlite.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kPsPerNs = 1000;
constexpr const char* kTables[] = {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY",
                                   "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"};

class NsightReader {
 public:
  NsightReader(std::string_view bytes, const std::string& file, const ReadProgress& progress)
      : database_{bytes, file}, file_{file}, ticks_{progress} {}

  ForeignTrace read() {
    if (!has_table("StringIds")) fail("it has no table 'StringIds': it is no export of Nsight Systems");
    if (has_table("META_DATA_EXPORT")) read_version();
    for (const char* table : kTables) num_rows_ += has_table(table) ? rows_of(table) : 0;
    bool any = read_kernels();
    any |= read_copies("CUPTI_ACTIVITY_KIND_MEMCPY", "copy");
    any |= read_copies("CUPTI_ACTIVITY_KIND_MEMSET", "memset");
    any |= read_calls();
    any |= read_ranges();
    if (!any) fail("it has neither kernels nor copies, API calls or NVTX ranges");
    out_.trace.program = "Nsight Systems";
    return out_.take();
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw UserError{fmt::format("cannot read '{}' as a trace: {}", file_, what)};
  }

  std::set<std::string> columns(const std::string& table) {
    std::set<std::string> out;
    Statement info{database_, fmt::format("SELECT name FROM pragma_table_info('{}')", table)};
    while (info.step()) out.emplace(info.text(0));
    return out;
  }
  std::int64_t rows_of(const std::string& table) {
    Statement count{database_, fmt::format("SELECT count(*) FROM {}", table)};
    return count.step() ? count.integer(0) : 0;
  }
  void tick() {
    ++rows_;
    ticks_.item([&] { return double(rows_) / double(num_rows_); });
  }
  bool has_table(const std::string& table) { return !columns(table).empty(); }

  void read_version() {
    Statement rows{database_, "SELECT name, value FROM META_DATA_EXPORT"};
    while (rows.step()) out_.trace.metadata.emplace_back(rows.text(0), rows.text(1));
  }

  static std::int64_t picoseconds(std::int64_t ns) { return std::clamp(ns, -kLatestNs, kLatestNs) * kPsPerNs; }

  /// A column, or a constant where this version of the export does not have it.
  static std::string column(const std::set<std::string>& there, std::initializer_list<const char*> names,
                            const char* otherwise) {
    for (const char* name : names)
      if (there.contains(name)) return fmt::format("t.\"{}\"", name);
    return otherwise;
  }

  std::uint32_t stream(std::int64_t device, std::int64_t id) {
    const std::string process = fmt::format("GPU {}", device), name = fmt::format("stream {}", id);
    const std::uint32_t thread = out_.thread(process, name);
    out_.trace.processes[out_.process(process)].name = process;
    out_.trace.threads[thread].name = name;
    return thread;
  }

  std::uint32_t cpu_thread(std::int64_t global) {
    const std::int64_t pid = (global >> 24) & 0xffffff, tid = global & 0xffffff;
    const std::string process = fmt::format("process {}", pid);
    const std::uint32_t thread = out_.thread(process, std::to_string(tid));
    out_.trace.processes[out_.process(process)].name = process;
    return thread;
  }

  bool read_kernels() {
    const std::set<std::string> there = columns("CUPTI_ACTIVITY_KIND_KERNEL");
    if (there.empty()) return false;
    Statement rows{database_,
                   fmt::format("SELECT t.start, t.\"end\", s.value, {}, {}, {}, {} FROM CUPTI_ACTIVITY_KIND_KERNEL t "
                               "LEFT JOIN StringIds s ON s.id = {} ORDER BY t.start",
                               column(there, {"deviceId"}, "0"), column(there, {"streamId"}, "0"),
                               column(there, {"correlationId"}, "0"), column(there, {"gridX"}, "0"),
                               column(there, {"demangledName", "shortName", "mangledName"}, "0"))};
    while (rows.step()) {
      tick();
      out_.argument("correlation", std::to_string(rows.integer(5)));
      out_.argument("grid x", std::to_string(rows.integer(6)));
      const std::uint32_t thread = stream(rows.integer(3), rows.integer(4));
      out_.add(thread, rows.text(2).empty() ? "(no name)" : rows.text(2), picoseconds(rows.integer(0)),
               picoseconds(rows.integer(1)));
      out_.flow(fmt::format("{}", rows.integer(5)), thread, picoseconds(rows.integer(0)), false);
    }
    return true;
  }

  bool read_copies(const std::string& table, std::string_view word) {
    const std::set<std::string> there = columns(table);
    if (there.empty()) return false;
    Statement rows{database_, fmt::format("SELECT t.start, t.\"end\", {}, {}, {}, {} FROM {} t ORDER BY t.start",
                                          column(there, {"deviceId"}, "0"), column(there, {"streamId"}, "0"),
                                          column(there, {"bytes"}, "0"), column(there, {"copyKind"}, "0"), table)};
    while (rows.step()) {
      tick();
      out_.argument("bytes", std::to_string(rows.integer(4)));
      const std::int64_t kind = rows.integer(5);
      const std::string_view where = kind == 1    ? " HtoD"
                                     : kind == 2  ? " DtoH"
                                     : kind == 8  ? " DtoD"
                                     : kind == 10 ? " PtoP"
                                                  : "";
      const std::uint32_t e = out_.add(stream(rows.integer(2), rows.integer(3)), fmt::format("{}{}", word, where),
                                       picoseconds(rows.integer(0)), picoseconds(rows.integer(1)));
      out_.trace.events[e].op_class = OpClass::Copy;
    }
    return true;
  }

  bool read_calls() {
    const std::set<std::string> there = columns("CUPTI_ACTIVITY_KIND_RUNTIME");
    if (there.empty()) return false;
    Statement rows{
        database_,
        fmt::format("SELECT t.start, t.\"end\", s.value, {}, {} FROM CUPTI_ACTIVITY_KIND_RUNTIME t LEFT JOIN "
                    "StringIds s ON s.id = {} ORDER BY t.start",
                    column(there, {"globalTid"}, "0"), column(there, {"correlationId"}, "0"),
                    column(there, {"nameId"}, "0"))};
    while (rows.step()) {
      tick();
      const std::uint32_t thread = cpu_thread(rows.integer(3));
      const std::uint32_t e = out_.add(thread, rows.text(2).empty() ? "(no name)" : rows.text(2),
                                       picoseconds(rows.integer(0)), picoseconds(rows.integer(1)));
      out_.trace.events[e].op_class = OpClass::Host;
      out_.flow(fmt::format("{}", rows.integer(4)), thread, picoseconds(rows.integer(0)), true);
    }
    return true;
  }

  bool read_ranges() {
    const std::set<std::string> there = columns("NVTX_EVENTS");
    if (there.empty()) return false;
    Statement rows{
        database_,
        fmt::format("SELECT t.start, {}, coalesce({}, s.value, '(no name)'), {} FROM NVTX_EVENTS t LEFT JOIN "
                    "StringIds s ON s.id = {} ORDER BY t.start",
                    column(there, {"end"}, "t.start"), column(there, {"text"}, "NULL"),
                    column(there, {"globalTid"}, "0"), column(there, {"textId"}, "-1"))};
    while (rows.step()) {
      tick();
      const std::int64_t start = rows.integer(0), end = rows.integer(1);
      const std::uint32_t e = out_.add(cpu_thread(rows.integer(3)), rows.text(2), picoseconds(start),
                                       picoseconds(end < start ? start : end));
      out_.trace.events[e].is_marker = true;
    }
    return true;
  }

  Database database_;
  const std::string& file_;
  ProgressTicks ticks_;
  std::int64_t rows_ = 0, num_rows_ = 0;
  ForeignBuilder out_;
};

}  // namespace

ForeignTrace read_nsight(std::string_view bytes, const std::string& file, const ReadProgress& progress) {
  return NsightReader{bytes, file, progress}.read();
}

}  // namespace orrery
