// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/timeline/chrome.hpp"
#include "sim/timeline/foreign.hpp"
#include "sim/timeline/lanes.hpp"

namespace orrery {
namespace {

/// A JSON string, quotes included; bytes that are no UTF-8 are replaced.
std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class ChromeWriter {
 public:
  explicit ChromeWriter(const Trace& trace) : trace_{trace}, track_of_(trace.timeline.spans.size(), 0) {}

  std::string write() {
    write_header();
    for (const Lane& lane : lanes_of(trace_)) write_lane(lane);
    const std::vector<Arrow> arrows = arrows_of(trace_);
    for (std::size_t i = 0; i < arrows.size(); ++i) write_arrow(i + 1, arrows[i]);
    for (const MemorySample& m : trace_.timeline.memory)
      print(R"({{"ph":"C","pid":{},"ts":{},"name":"{} memory","args":{{"bytes":{}}}}})", m.rank.value, time(m.at_ps),
            name_of(m.tier), m.bytes);
    text_ += "\n]}\n";
    return std::move(text_);
  }

 private:
  /// One event on a line of its own.
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    text_ += is_first_ ? "\n" : ",\n";
    is_first_ = false;
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  /// Microseconds with three decimals, from an integer.
  static std::string time(std::int64_t ps) { return nanoseconds(ps / 1000); }
  static std::string nanoseconds(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

  void write_header() {
    text_ = R"({"displayTimeUnit":"ns","orrery":[)";
    std::string_view separator = "";
    for (const auto& [key, value] : header_of(trace_)) {
      text_ += fmt::format("{}\n[{},{}]", separator, json_text(key), json_text(value));
      separator = ",";
    }
    text_ += "],\n\"traceEvents\":[";
  }

  void write_lane(const Lane& lane) {
    const std::uint32_t pid = lane.rank.value;
    const std::uint32_t tid = static_cast<std::uint32_t>(lane.stream) + lane.number * kNumStreams;
    if (named_.insert(pid).second) {
      print(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":"rank {}"}}}})", pid, pid);
      print(R"({{"ph":"M","pid":{},"name":"process_sort_index","args":{{"sort_index":{}}}}})", pid, pid);
    }
    print(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"{}"}}}})", pid, tid, name_of(lane));
    print(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})", pid, tid, tid);
    for (const SpanIndex s : lane.spans) write_span(s, tid);
  }

  void write_span(SpanIndex s, std::uint32_t tid) {
    const Span& span = trace_.timeline.spans[s];
    const PlanDigest& plan = plan_of(trace_.timeline, trace_.plans, span);
    const Op& op = plan[span.op];
    const WorkDigest& work = plan.work(span.op);
    track_of_[s] = tid;
    print(
        R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"cat":"{},{}","args":{{"op":{},"work":{},"phase":"{}")",
        span.rank.value, tid, time(span.start_ps), nanoseconds(span.end_ps / 1000 - span.start_ps / 1000),
        json_text(plan.name_of(span.op)), name_of(work.op_class), plan.names[work.kind], span.op.value,
        json_text(plan.names[work.text]), name_of(op.phase));
    if (op.layer >= 0) argument("layer", op.layer);
    if (op.microbatch != 0) argument("microbatch", op.microbatch);
    if (span.instance != 0) argument("instance", span.instance);
    if (span.part != 0) argument("part", span.part);
    if (trace_.timeline.plan_of(span.instance) != 0) argument("plan", trace_.timeline.plan_of(span.instance));
    if (op.num_deps != 0 && span.part == 0) after(plan.deps_of(span.op));
    text_ += "}}";
  }

  void argument(std::string_view name, std::int64_t value) { text_ += fmt::format(R"(,"{}":{})", name, value); }

  void after(std::span<const OpId> deps) {
    text_ += R"(,"after":[)";
    for (std::size_t i = 0; i < deps.size(); ++i) text_ += fmt::format("{}{}", i == 0 ? "" : ",", deps[i].value);
    text_ += "]";
  }

  /// Both ends lie on starts of slices: a viewer binds a flow to the slice that encloses it.
  void write_arrow(std::size_t id, const Arrow& a) {
    const Span& from = trace_.timeline.spans[a.from];
    const Span& to = trace_.timeline.spans[a.to];
    print(R"({{"ph":"s","pid":{},"tid":{},"ts":{},"id":{},"cat":"dep","name":"dep"}})", from.rank.value,
          track_of_[a.from], time(from.start_ps), id);
    print(R"({{"ph":"f","bp":"e","pid":{},"tid":{},"ts":{},"id":{},"cat":"dep","name":"dep"}})", to.rank.value,
          track_of_[a.to], time(to.start_ps), id);
  }

  const Trace& trace_;
  std::vector<std::uint32_t> track_of_;  // tid of each span
  std::set<std::uint32_t> named_;
  std::string text_;
  bool is_first_ = true;
};

}  // namespace

std::string write_chrome(const Trace& trace) { return ChromeWriter{trace}.write(); }

}  // namespace orrery
