// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/trace_file.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "sim/base/error.hpp"
#include "sim/base/yaml.hpp"
#include "sim/timeline/chrome.hpp"
#include "sim/timeline/compressed.hpp"
#include "sim/timeline/native.hpp"
#include "sim/timeline/perfetto.hpp"

namespace orrery {
namespace {

struct Format {
  std::string_view extension;
  std::string (*write)(const Trace&, const std::string& file);
  Trace (*read)(std::string_view bytes, const std::string& file);
};

constexpr Format kFormats[] = {
    {".orrery", write_native, read_native},
    {".pftrace", [](const Trace& t, const std::string&) { return write_perfetto(t); }, read_perfetto},
    {".json", [](const Trace& t, const std::string&) { return write_chrome(t); }, read_chrome},
};

const Format& format_of(const std::string& path) {
  const std::string extension = std::filesystem::path{plain_name(path)}.extension();
  for (const Format& f : kFormats)
    if (f.extension == extension) return f;
  throw UserError{fmt::format("cannot tell the format of the trace {} by its name", in_quotes(path)),
                  "names of traces end with .orrery, .pftrace or .json"};
}

}  // namespace

std::vector<std::string> trace_extensions() {
  std::vector<std::string> out;
  for (const Format& f : kFormats) out.emplace_back(f.extension);
  return out;
}

Trace parse_trace(std::string_view bytes, const std::string& path) { return format_of(path).read(bytes, path); }

Trace read_trace(const std::string& path) {
  format_of(path);  // a wrong name is reported before the work
  return parse_trace(read_plain(path), path);
}

void write_trace(const Trace& trace, const std::string& path) {
  if (plain_name(path) != path)
    throw UserError{fmt::format("cannot write {}: traces are read compressed, but not written so", in_quotes(path)),
                    "leave the last ending away, then compress the file"};
  write_file_atomically(path, format_of(path).write(trace, path));
}

void convert_trace(const std::string& from, const std::string& to) {
  format_of(to);  // a wrong name is reported before the work
  write_trace(read_trace(from), to);
}

}  // namespace orrery
