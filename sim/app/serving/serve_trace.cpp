// SPDX-License-Identifier: Apache-2.0
#include "sim/app/serving/serve_trace.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

std::string_view name_of(const BatchShape& s) {
  return s.prompts == 0 ? "answers" : s.decodes == 0 ? "prompts" : "prompts and answers";
}

/// Microseconds with three decimals. Ends are rounded as starts are, so that a step never overlaps the next.
std::string time(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }
std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

const std::string& with_suffix(const std::string& path) {
  if (!path.ends_with(".json"))
    throw UserError{fmt::format("{} is not the name of a Chrome JSON file", orrery::quoted(path)),
                    "steps of served replicas are written as Chrome JSON: let the name end in .json"};
  return path;
}

}  // namespace

ServeTrace::ServeTrace(const std::string& path) : file_{with_suffix(path)} {
  file_.stream() << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
}

void ServeTrace::event(const std::string& json) {
  file_.stream() << (first_ ? "\n" : ",\n") << json;
  first_ = false;
}

void ServeTrace::name_replica(std::size_t replica) {
  event(fmt::format(R"({{"ph":"M","pid":{0},"name":"process_name","args":{{"name":"replica {0}"}}}})", replica));
  event(fmt::format(R"({{"ph":"M","pid":{},"tid":0,"name":"thread_name","args":{{"name":"steps"}}}})", replica));
}

void ServeTrace::add(const ServedStep& s) {
  for (; named_ <= s.replica; ++named_) name_replica(named_);
  const std::int64_t start = nanoseconds(s.start), end = nanoseconds(s.start + s.seconds);
  if (s.shape.rows > 0)
    event(fmt::format(
        R"({{"ph":"X","pid":{},"tid":0,"ts":{},"dur":{},"name":"{}","args":{{"prompts":{},"answers":{},"tokens":{}}}}})",
        s.replica, time(start), time(end - start), name_of(s.shape), s.shape.prompts, s.shape.decodes, s.shape.rows));
  const auto counter = [&](std::string_view name, const std::string& series) {
    event(fmt::format(R"({{"ph":"C","pid":{},"ts":{},"name":"{}","args":{{{}}}}})", s.replica, time(start), name,
                      series));
  };
  counter("tokens of", fmt::format(R"("prompts":{},"answers":{})", s.shape.prompt_rows, s.shape.decodes));
  counter("requests", fmt::format(R"("running":{},"waiting":{})", s.running, s.waiting));
  counter("pool", fmt::format(R"("held, %":{:.6g})", s.held * 100));
}

void ServeTrace::close() {
  file_.stream() << "\n]}\n";
  file_.close();
}

}  // namespace orrery
