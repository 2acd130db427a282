// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/base/error.hpp"
#include "sim/timeline/chrome.hpp"
#include "sim/timeline/foreign.hpp"
#include "sim/timeline/lanes.hpp"

namespace orrery {
namespace {

using nlohmann::json;

constexpr int kEventDepth = 2;  // of the objects in "traceEvents"
constexpr int kMaxDepth = 16;
constexpr double kMaxMicroseconds = 4e12;

class ChromeReader {
 public:
  explicit ChromeReader(const std::string& file) : builder_{file} {}

  Trace read(std::string_view text) {
    // Events are handled and dropped as soon as they are read, so that memory does not grow with the file.
    const json document = json::parse(
        text.begin(), text.end(),
        [this](int depth, json::parse_event_t event, json& value) {
          if (depth > kMaxDepth) builder_.fail("it is nested too deeply");
          if (depth != kEventDepth || event != json::parse_event_t::object_end) return true;
          handle(value);
          return false;
        },
        false);
    if (document.is_discarded()) builder_.fail("it is no complete JSON document");
    const auto header = document.is_object() ? document.find("orrery") : document.end();
    if (header == document.end() || !header->is_array())
      builder_.fail("it was not written by orrery; only such .json files can be read");
    for (const json& entry : *header) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_string())
        builder_.fail("an entry of 'orrery' is no pair of texts");
      builder_.add_header(entry[0].get_ref<const std::string&>(), entry[1].get_ref<const std::string&>());
    }
    return builder_.take();
  }

 private:
  const json& member(const json& object, const char* key) const {
    const auto it = object.find(key);
    if (it == object.end()) builder_.fail(fmt::format("an event has no '{}'", key));
    return *it;
  }

  std::int64_t integer(const json& object, const char* key) const {
    const json& value = member(object, key);
    if (!value.is_number_integer()) builder_.fail(fmt::format("'{}' of an event is no whole number", key));
    return value.get<std::int64_t>();
  }
  std::int64_t integer(const json& object, const char* key, std::int64_t otherwise) const {
    return object.contains(key) ? integer(object, key) : otherwise;
  }
  /// An integer that fits an id.
  std::uint32_t id(std::int64_t value) const {
    if (value < 0 || value >= UINT32_MAX) builder_.fail(fmt::format("an id is out of range: {}", value));
    return static_cast<std::uint32_t>(value);
  }

  std::string_view text(const json& object, const char* key) const {
    const json& value = member(object, key);
    if (!value.is_string()) builder_.fail(fmt::format("'{}' of an event is no text", key));
    return value.get_ref<const std::string&>();
  }

  /// Whole nanoseconds, exact: below 2^53 a double of microseconds with three decimals rounds to the right one.
  std::int64_t picoseconds(const json& object, const char* key) const {
    const json& value = member(object, key);
    const double us = value.is_number() ? value.get<double>() : -1;
    if (!(us >= 0 && us <= kMaxMicroseconds)) builder_.fail(fmt::format("'{}' of an event is no time", key));
    return std::llround(us * 1e3) * 1000;
  }

  void handle(const json& event) {
    const std::string_view phase = text(event, "ph");
    if (phase == "X") add_slice(event);
    if (phase == "C") add_sample(event);
  }

  void add_slice(const json& event) {
    const json& args = member(event, "args");
    if (!args.is_object()) builder_.fail("'args' of an event is no object");
    Slice s;
    s.span.start_ps = picoseconds(event, "ts");
    s.span.end_ps = s.span.start_ps + picoseconds(event, "dur");
    s.span.op = OpId{id(integer(args, "op"))};
    s.span.rank = RankId{id(integer(event, "pid"))};
    s.span.instance = id(integer(args, "instance", 0));
    s.span.part = id(integer(args, "part", 0));
    s.plan = id(integer(args, "plan", 0));
    s.stream = static_cast<Stream>(id(integer(event, "tid")) % kNumStreams);
    s.layer = integer(args, "layer", -1);
    s.microbatch = integer(args, "microbatch", 0);
    s.name = text(event, "name");
    s.work = text(args, "work");
    s.phase = text(args, "phase");
    const std::string_view categories = text(event, "cat");
    const std::size_t comma = categories.find(',');
    s.op_class = categories.substr(0, comma);
    if (comma != std::string_view::npos) s.kind = categories.substr(comma + 1);
    builder_.add(s);
    if (args.contains("after")) add_dependencies(s, args["after"]);
  }

  void add_dependencies(const Slice& s, const json& after) {
    for (const json& dep : after) {
      if (!dep.is_number_integer()) builder_.fail("'after' of an event is no list of ops");
      builder_.add_dependency(s.plan, s.span.op, OpId{id(dep.get<std::int64_t>())});
    }
  }

  void add_sample(const json& event) {
    const std::string_view name = text(event, "name");
    MemorySample m;
    m.at_ps = picoseconds(event, "ts");
    m.rank = RankId{id(integer(event, "pid"))};
    if (!find_by_name(name.substr(0, name.find(' ')), m.tier)) builder_.fail("a counter is no memory tier");
    m.bytes = integer(member(event, "args"), "bytes");
    builder_.add(m);
  }

  TraceBuilder builder_;
};

}  // namespace

Trace read_chrome(std::string_view text, const std::string& file) { return ChromeReader{file}.read(text); }

}  // namespace orrery
