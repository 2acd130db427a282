// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <deque>

#include "sim/base/error.hpp"
#include "sim/timeline/foreign_builder.hpp"
#include "sim/timeline/foreign_readers.hpp"

namespace orrery {
namespace {

namespace sj = simdjson::ondemand;

constexpr std::int64_t kFarPs = std::int64_t{1} << 62;

/// The parts of an event that come in any order.
struct Event {
  std::string_view phase, name, category, id;
  std::string process, thread;
  std::int64_t at = 0, duration = 0;
  bool has_time = false, has_duration = false;
  std::vector<std::pair<std::string_view, std::string_view>> arguments;
  std::deque<std::string> lists;  // texts of arguments that are lists
};

/// A value as text: what stands between quotes, or the token itself.
std::string_view text_of(sj::value v) {
  std::string_view text;
  if (v.type() == sj::json_type::string) {
    if (v.get_string().get(text) != simdjson::SUCCESS) return {};
    return text;
  }
  text = v.raw_json_token();
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

constexpr std::string_view kSpace = " \t\r\n";

bool is_complete(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpace), last = text.find_last_not_of(kSpace);
  if (first == std::string_view::npos) return true;
  return text[first] == '[' ? text[last] == ']' : text[first] != '{' || text[last] == '}';
}

/// The text up to the end of its last object, with the brackets that are missing: writers that are killed leave none.
std::string closed(std::string_view text) {
  const std::size_t end = text.rfind('}');
  std::string out{text.substr(0, end == std::string_view::npos ? 0 : end + 1)};
  out += text[text.find_first_not_of(kSpace)] == '[' ? "]" : "]}";
  return out;
}

class EventReader {
 public:
  EventReader(const std::string& file, const ReadProgress& progress) : file_{file}, ticks_{progress} {}

  ForeignTrace read(std::string_view bytes) {
    const bool is_cut = !is_complete(bytes);
    const simdjson::padded_string text{is_cut ? closed(bytes) : std::string{bytes}};
    text_ = text;
    if (is_cut) out_.trace.repaired("are the last before the file is cut off or damaged");
    sj::parser parser;
    sj::document document;
    if (parser.iterate(text).get(document) != simdjson::SUCCESS) fail("it is no JSON");
    try {
      sj::json_type type = document.type();
      if (type == sj::json_type::array)
        read_events(document.get_array());
      else if (type == sj::json_type::object)
        read_object(document.get_object());
      else
        fail("it holds neither events nor an object with 'traceEvents'");
    } catch (const simdjson::simdjson_error&) {
      // As far as it goes: a trace that was cut off is still worth seeing.
      if (out_.trace.events.empty()) fail("it is damaged before its first event");
      out_.trace.repaired("are the last before the file is cut off or damaged");
    }
    if (!has_events_) fail("it has no 'traceEvents'");
    out_.trace.program = is_kineto_ ? "PyTorch profiler" : "Chrome";
    return out_.take();
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw UserError{fmt::format("cannot read '{}' as a trace: {}", file_, what)};
  }

  void read_object(sj::object object) {
    for (sj::field field : object) {
      const std::string_view key = field.unescaped_key();
      sj::value value = field.value();
      if (key == "traceEvents") {
        read_events(value.get_array());
      } else if (key == "distributedInfo" && value.type() == sj::json_type::object) {
        is_kineto_ = true;
        read_rank(value.get_object());
      } else if (key == "schemaVersion" || key == "deviceProperties" || key == "distributedInfo") {
        is_kineto_ = true;
      } else if (value.type() == sj::json_type::string || value.type() == sj::json_type::number) {
        const std::string name{key};
        out_.trace.metadata.emplace_back(name, std::string{text_of(value)});
      }
    }
  }

  void read_rank(sj::object info) {
    for (sj::field field : info) {
      const std::string_view key = field.unescaped_key();
      sj::value value = field.value();
      if (key != "rank" || !is_plain(value.type())) continue;
      const std::string_view text = text_of(value);
      std::int32_t rank = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), rank).ec == std::errc{} && rank >= 0)
        out_.rank = rank;
    }
  }

  void read_events(sj::array events) {
    has_events_ = true;
    for (sj::value value : events) {
      if (value.type() != sj::json_type::object) {
        out_.trace.repaired("are no objects and cannot be drawn");
        continue;
      }
      ticks_.item([&] { return double(value.raw_json_token().data() - text_.data()) / double(text_.size()); });
      Event e;
      for (sj::field field : value.get_object()) take(field, e);
      handle(e);
    }
  }

  void take(sj::field& field, Event& e) {
    const std::string_view key = field.unescaped_key();
    sj::value value = field.value();
    if (key == "ph")
      e.phase = text_of(value);
    else if (key == "name")
      e.name = text_of(value);
    else if (key == "cat")
      e.category = text_of(value);
    else if (key == "id")
      e.id = text_of(value);
    else if (key == "pid")
      e.process = text_of(value);
    else if (key == "tid")
      e.thread = text_of(value);
    else if (key == "ts")
      e.has_time = picoseconds_of(text_of(value), e.at);
    else if (key == "dur")
      e.has_duration = picoseconds_of(text_of(value), e.duration);
    else if (key == "args" && value.type() == sj::json_type::object)
      for (sj::field argument : value.get_object()) take_argument(argument, e);
  }

  void take_argument(sj::field& field, Event& e) {
    const std::string_view key = field.unescaped_key();
    sj::value value = field.value();
    const sj::json_type type = value.type();
    if (type == sj::json_type::array) {
      std::string& all = e.lists.emplace_back();
      for (sj::value item : value.get_array())
        if (is_plain(item.type())) all += (all.empty() ? "" : ", ") + std::string{text_of(item)};
      e.arguments.emplace_back(key, all);
    } else if (is_plain(type)) {
      e.arguments.emplace_back(key, text_of(value));
    }
  }

  static bool is_plain(sj::json_type t) { return t != sj::json_type::object && t != sj::json_type::array; }

  void handle(const Event& e) {
    if (e.phase == "M") return name_something(e);
    if (e.phase.empty()) return out_.trace.repaired("have no 'ph' and cannot be drawn");
    if (!e.has_time) out_.trace.repaired("have no time and are drawn at the start");
    const std::uint32_t thread = out_.thread(e.process, e.thread);
    if (e.phase == "C") return add_counts(e);
    if (e.phase == "s" || e.phase == "t" || e.phase == "f")
      return out_.flow(fmt::format("{} {} {}", e.category, e.name, e.id), thread, e.at, e.phase == "s");
    if (e.phase == "E") return out_.end(thread, e.at);
    for (const auto& [name, value] : e.arguments) out_.argument(name, value);
    if (e.phase == "B") return out_.begin(thread, e.name, e.at);
    if (e.phase == "X" && !e.has_duration) out_.trace.repaired("have no duration and are drawn empty");
    const std::int64_t end = e.duration > kFarPs - std::abs(e.at) ? kFarPs : e.at + e.duration;
    ForeignEvent& event = out_.trace.events[out_.add(thread, e.name, e.at, e.phase == "X" ? end : e.at)];
    event.is_device = is_device(e.category);
    event.is_marker = e.category == "user_annotation" || e.category == "gpu_user_annotation";
    if (e.category == "cuda_runtime" || e.category == "cuda_driver") event.op_class = OpClass::Host;
    if (e.category.find("cpu_op") != std::string_view::npos || e.category == "python_function")
      event.op_class = OpClass::Host;
    is_kineto_ = is_kineto_ || e.category == "kernel" || e.category == "cpu_op";
  }

  /// Of the PyTorch profiler, old and new.
  static bool is_device(std::string_view category) {
    constexpr std::string_view kDevice[] = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"};
    return std::find(std::begin(kDevice), std::end(kDevice), category) != std::end(kDevice);
  }

  std::string_view argument(const Event& e, std::string_view name) const {
    for (const auto& [key, value] : e.arguments)
      if (key == name) return value;
    return {};
  }

  void name_something(const Event& e) {
    const std::string_view value = argument(e, "name"), order = argument(e, "sort_index");
    std::int64_t n = 0;
    std::from_chars(order.data(), order.data() + order.size(), n);
    if (e.name == "process_name") out_.trace.processes[out_.process(e.process)].name = value;
    if (e.name == "thread_name") out_.trace.threads[out_.thread(e.process, e.thread)].name = value;
    if (e.name == "thread_sort_index") out_.trace.threads[out_.thread(e.process, e.thread)].order = n;
  }

  void add_counts(const Event& e) {
    for (const auto& [key, value] : e.arguments) {
      double number = 0;
      if (std::from_chars(value.data(), value.data() + value.size(), number).ec != std::errc{}) continue;
      const bool is_bytes = key.find("bytes") != std::string_view::npos || key.find("Bytes") != std::string_view::npos;
      out_.count(out_.process(e.process), fmt::format("{} {}", e.name, key), is_bytes ? "B" : "", e.at, number);
    }
  }

  const std::string& file_;
  ProgressTicks ticks_;
  std::string_view text_;
  ForeignBuilder out_;
  bool has_events_ = false, is_kineto_ = false;
};

}  // namespace

bool picoseconds_of(std::string_view text, std::int64_t& out) {
  constexpr std::int64_t kMost = std::int64_t{1} << 61;
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  if (text.find_first_of("eE") != std::string_view::npos) {
    double us = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), us).ec != std::errc{}) return false;
    out = us * 1e6 >= double(kMost) ? kMost : static_cast<std::int64_t>(us * 1e6);
  } else {
    const std::size_t point = std::min(text.find('.'), text.size());
    std::uint64_t whole = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + point, whole);
    if (error == std::errc::invalid_argument || end != text.data() + point) return false;
    std::int64_t part = 0;
    for (std::size_t i = 0; i < 6; ++i) {
      const char c = point + 1 + i < text.size() ? text[point + 1 + i] : '0';
      if (c < '0' || c > '9') return false;
      part = part * 10 + (c - '0');
    }
    const bool is_far =
        error == std::errc::result_out_of_range || whole > static_cast<std::uint64_t>(kMost) / 1'000'000;
    out = is_far ? kMost : static_cast<std::int64_t>(whole) * 1'000'000 + part;
  }
  if (is_negative) out = -out;
  return true;
}

ForeignTrace read_chrome_events(std::string_view text, const std::string& file, const ReadProgress& progress) {
  return EventReader{file, progress}.read(text);
}

}  // namespace orrery
