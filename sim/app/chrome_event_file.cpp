// SPDX-License-Identifier: Apache-2.0
#include "sim/app/chrome_event_file.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// Microseconds with three decimals.
std::string time(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }
std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
std::string json_text(std::string_view text) { return nlohmann::json(text).dump(); }

const std::string& with_suffix(const std::string& path) {
  if (!path.ends_with(".json"))
    throw UserError{fmt::format("{} is not the name of a Chrome JSON file", in_quotes(path)),
                    "it is written as Chrome JSON: let the name end in .json"};
  return path;
}

}  // namespace

ChromeEventFile::ChromeEventFile(const std::string& path) : file_{with_suffix(path)} {
  file_.stream() << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
}

void ChromeEventFile::event(const std::string& json) {
  file_.stream() << (first_ ? "\n" : ",\n") << json;
  first_ = false;
}

void ChromeEventFile::name_process(std::size_t process, std::string_view name) {
  event(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", process, json_text(name)));
}

void ChromeEventFile::name_thread(std::size_t process, std::size_t thread, std::string_view name) {
  event(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})", process, thread,
                    json_text(name)));
}

void ChromeEventFile::span(std::size_t process, std::size_t thread, double start, double end, std::string_view name,
                           std::string_view arguments) {
  const std::int64_t from = nanoseconds(start), to = nanoseconds(end);
  event(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"args":{{{}}}}})", process, thread,
                    time(from), time(to - from), json_text(name), arguments));
}

void ChromeEventFile::counter(std::size_t process, double at, std::string_view name, std::string_view series) {
  event(fmt::format(R"({{"ph":"C","pid":{},"ts":{},"name":"{}","args":{{{}}}}})", process, time(nanoseconds(at)), name,
                    series));
}

void ChromeEventFile::close() {
  file_.stream() << "\n]}\n";
  file_.close();
}

}  // namespace orrery
