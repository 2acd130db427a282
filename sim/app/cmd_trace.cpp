// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"
#include "sim/base/table.hpp"
#include "sim/timeline/analysis.hpp"
#include "sim/timeline/render_text.hpp"
#include "sim/timeline/trace_file.hpp"

namespace orrery {
namespace {

nlohmann::json info_json(const Trace& trace, const Analysis& a) {
  nlohmann::json metadata = nlohmann::json::object(), classes = nlohmann::json::object(),
                 plans = nlohmann::json::array(), peaks = nlohmann::json::array();
  for (const auto& [key, value] : trace.metadata) metadata[key] = value;
  for (int c = 0; c < kNumOpClasses; ++c)
    if (const double s = a.by_class[static_cast<std::size_t>(c)]; s > 0)
      classes[std::string{name_of(static_cast<OpClass>(c))}] = s;
  for (const PlanDigest& p : trace.plans)
    plans.push_back({{"name", p.name}, {"ops", p.ops.size()}, {"ranks", p.mesh.size()}});
  for (const PeakSummary& p : a.peaks)
    peaks.push_back({{"rank", p.rank.value}, {"tier", name_of(p.tier)}, {"bytes", p.bytes}, {"op", p.op}});
  return {{"schema_version", kSchemaVersion},
          {"source", trace.timeline.source == TimelineSource::Measured ? "measured" : "predicted"},
          {"machine", trace.timeline.machine},
          {"makespan", a.makespan.base()},
          {"instances", trace.timeline.instance_ends_ps.size()},
          {"spans", trace.timeline.spans.size()},
          {"ranks", trace.timeline.num_ranks},
          {"by_class", classes},
          {"bubble", a.bubble},
          {"plans", plans},
          {"peaks", peaks},
          {"metadata", metadata}};
}

std::string info_text(const Trace& trace, const Analysis& a, const Console& console) {
  const Timeline& t = trace.timeline;
  const auto counted = [](std::size_t n, std::string_view what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string text = fmt::format("{} timeline on {}: {} in {}, {}, {}\n",
                                 t.source == TimelineSource::Measured ? "measured" : "predicted", t.machine,
                                 to_text(a.makespan), counted(t.instance_ends_ps.size(), "execution"),
                                 counted(t.spans.size(), "span"), counted(t.num_ranks, "rank"));
  for (const PlanDigest& p : trace.plans) text += fmt::format("  plan {}: {} ops\n", p.name, p.ops.size());
  for (const auto& [key, value] : trace.metadata) text += fmt::format("  {}: {}\n", key, value);
  Table table{{{"class"}, {"time", Align::Right}, {"share", Align::Right}}};
  for (int c = 0; c < kNumOpClasses; ++c)
    if (const double s = a.by_class[static_cast<std::size_t>(c)]; s > 0)
      table.add({std::string{name_of(static_cast<OpClass>(c))}, to_text(Seconds{s}),
                 fmt::format("{:.1f} %", 100 * s / a.makespan.base())});
  text += "\n" + table.text("  ") + fmt::format("  bubble {:.2f} %\n", 100 * a.bubble);
  for (const PeakSummary& p : a.peaks)
    text += fmt::format("  peak of {} memory on rank {}: {}{}\n", name_of(p.tier), p.rank.value,
                        to_text(Bytes{double(p.bytes)}), p.op.empty() ? "" : " at " + p.op);
  return text + "\n" + render_text(t, trace.plans, {.width = console.width()});
}

class Info final : public Command {
 public:
  std::string_view name() const override { return "trace info"; }
  std::string_view summary() const override { return "what a timeline holds, with a picture"; }
  std::string_view arguments() const override { return "FILE"; }
  Arity arity() const override { return {1, 1}; }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const Trace trace = read_trace(arguments[0]);
    const Analysis a = analyse(trace.timeline, trace.plans);
    context.console.out(context.json ? info_json(trace, a).dump(2) + "\n" : info_text(trace, a, context.console));
    return exit_code::kOk;
  }
};

class Convert final : public Command {
 public:
  std::string_view name() const override { return "trace convert"; }
  std::string_view summary() const override {
    return "rewrite a timeline as .orrery, .pftrace (Perfetto) or .json (Chrome)";
  }
  std::string_view arguments() const override { return "FROM TO"; }
  Arity arity() const override { return {2, 2}; }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    convert_trace(arguments[0], arguments[1]);
    if (context.json)
      context.console.out(
          nlohmann::json{{"schema_version", kSchemaVersion}, {"from", arguments[0]}, {"to", arguments[1]}}.dump(2) +
          "\n");
    else
      context.console.out(fmt::format("written to {}\n", arguments[1]));
    return exit_code::kOk;
  }
};

}  // namespace

std::unique_ptr<Command> make_trace_info() { return std::make_unique<Info>(); }
std::unique_ptr<Command> make_trace_convert() { return std::make_unique<Convert>(); }

}  // namespace orrery
