// SPDX-License-Identifier: Apache-2.0
#include "sim/app/serving/serve_trace.hpp"

#include <fmt/format.h>

namespace orrery {
namespace {

std::string_view name_of(const BatchShape& s) {
  return s.prompts == 0 ? "answers" : s.decodes == 0 ? "prompts" : "prompts and answers";
}

}  // namespace

void ServeTrace::add(const ServedStep& s) {
  for (; named_ <= s.replica; ++named_) {
    file_.name_process(named_, fmt::format("replica {}", named_));
    file_.name_thread(named_, 0, "steps");
  }
  if (s.shape.rows > 0)
    file_.span(s.replica, 0, s.start, s.start + s.seconds, name_of(s.shape),
               fmt::format(R"("prompts":{},"answers":{},"tokens":{})", s.shape.prompts, s.shape.decodes, s.shape.rows));
  file_.counter(s.replica, s.start, "tokens of",
                fmt::format(R"("prompts":{},"answers":{})", s.shape.prompt_rows, s.shape.decodes));
  file_.counter(s.replica, s.start, "requests", fmt::format(R"("running":{},"waiting":{})", s.running, s.waiting));
  file_.counter(s.replica, s.start, "pool", fmt::format(R"("held, %":{:.6g})", s.held * 100));
}

}  // namespace orrery
