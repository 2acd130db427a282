// SPDX-License-Identifier: Apache-2.0
// Any bytes as a trace file, the first byte choosing the format: a sound trace that can be analysed and drawn, or a
// UserError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "sim/base/error.hpp"
#include "sim/timeline/analysis.hpp"
#include "sim/timeline/chrome.hpp"
#include "sim/timeline/native.hpp"
#include "sim/timeline/perfetto.hpp"
#include "sim/timeline/render_text.hpp"

using namespace orrery;

namespace {

Trace read(std::uint8_t format, std::string_view bytes) {
  switch (format % 3) {
    case 0:
      return read_native(bytes, "fuzz.orrery");
    case 1:
      return read_perfetto(bytes, "fuzz.pftrace");
    default:
      return read_chrome(bytes, "fuzz.json");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    const Trace trace = read(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
    if (!check_trace(trace).empty()) std::abort();
    for (const PlanDigest& plan : trace.plans)
      if (plan.mesh.size() > 64) return 0;  // groups of millions of ranks only take time
    const Analysis analysis = analyse(trace.timeline, trace.plans);
    if (analysis.ops > trace.timeline.spans.size()) std::abort();
    if (render_text(trace.timeline, trace.plans).empty()) std::abort();
    if (write_perfetto(trace).empty()) std::abort();
  } catch (const UserError& e) {
    if (e.diagnostics().empty()) std::abort();
  }
  return 0;
}
