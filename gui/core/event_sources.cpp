// SPDX-License-Identifier: Apache-2.0
#include "gui/core/event_sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "gui/core/foreign_marks.hpp"
#include "sim/base/units.hpp"

namespace orrery::gui {
namespace {

class Spans final : public EventSource {
 public:
  explicit Spans(const Trace& trace) : trace_{trace} {}

  std::size_t size() const override { return trace_.timeline.spans.size(); }
  std::string_view name(EventIndex e) const override { return plan(e).name_of(span(e).op); }
  std::string_view work(EventIndex e) const override { return plan(e).names[plan(e).work(span(e).op).text]; }
  std::string_view kind(EventIndex e) const override { return plan(e).names[plan(e).work(span(e).op).kind]; }
  std::int64_t start(EventIndex e) const override { return span(e).start_ps; }
  std::int64_t end(EventIndex e) const override { return span(e).end_ps; }
  Facets facets(EventIndex e) const override {
    const Span& s = span(e);
    const Op& op = plan(e)[s.op];
    return {s.rank.value, s.instance, op.layer, op.microbatch, op.phase, plan(e).work(s.op).op_class};
  }

  std::vector<Detail> details(EventIndex e) const override {
    const Span& s = span(e);
    const PlanDigest& p = plan(e);
    const Op& op = p[s.op];
    const WorkDigest& w = p.work(s.op);
    const double seconds = double(s.end_ps - s.start_ps) * 1e-12;
    std::vector<Detail> out = {{"work", std::string{p.names[w.text]}},
                               {"class", std::string{orrery::name_of(w.op_class)}},
                               {"phase", std::string{orrery::name_of(op.phase)}},
                               {"rank", std::to_string(s.rank.value)},
                               {"step", std::to_string(s.instance)},
                               {"op", std::to_string(s.op.value)}};
    if (s.part != 0) out.push_back({"part", std::to_string(s.part)});
    if (op.layer >= 0) out.push_back({"layer", std::to_string(op.layer)});
    out.push_back({"microbatch", std::to_string(op.microbatch)});
    if (w.flops.base() > 0) {
      out.push_back({"arithmetic", to_text(w.flops)});
      if (seconds > 0) out.push_back({"rate", to_text(FlopsPerSecond{w.flops.base() / seconds})});
    }
    if (w.moved.base() > 0) {
      out.push_back({"memory traffic", to_text(w.moved)});
      if (seconds > 0) out.push_back({"bandwidth", to_text(BytesPerSecond{w.moved.base() / seconds})});
    }
    if (w.message.base() > 0) {
      out.push_back({"message", to_text(w.message)});
      if (seconds > 0) out.push_back({"message rate", to_text(BytesPerSecond{w.message.base() / seconds})});
    }
    if (!w.group.is_none()) out.push_back({"group", p.groups[w.group.index()].name});
    return out;
  }

 private:
  const Span& span(EventIndex e) const { return trace_.timeline.spans[e]; }
  const PlanDigest& plan(EventIndex e) const { return plan_of(trace_.timeline, trace_.plans, span(e)); }

  const Trace& trace_;
};

class Slices final : public EventSource {
 public:
  explicit Slices(const ForeignTrace& trace) : trace_{trace} {
    const ForeignMarks marks{trace};
    const std::vector<std::uint64_t>& steps = marks.steps();
    places_.resize(trace.events.size());
    for (EventIndex e = 0; e < places_.size(); ++e) {
      const ForeignPlace p = marks.place(e);
      Place& to = places_[e];
      if (p.step)
        to.step = static_cast<std::uint32_t>(std::lower_bound(steps.begin(), steps.end(), *p.step) - steps.begin());
      if (p.layer) to.layer = shown(*p.layer);
      if (p.microbatch) to.microbatch = shown(*p.microbatch);
      if (p.is_backward) to.phase = Phase::Backward;
    }
  }

  std::size_t size() const override { return trace_.events.size(); }
  std::string_view name(EventIndex e) const override { return trace_.names[trace_.events[e].name]; }
  std::string_view work(EventIndex e) const override { return name(e); }
  std::string_view kind(EventIndex e) const override { return orrery::name_of(trace_.events[e].op_class); }
  std::int64_t start(EventIndex e) const override { return trace_.events[e].start_ps; }
  std::int64_t end(EventIndex e) const override { return trace_.events[e].end_ps; }
  Facets facets(EventIndex e) const override {
    const ForeignEvent& event = trace_.events[e];
    const Place& place = places_[e];
    const std::int64_t rank = trace_.processes[trace_.threads[event.thread].process].rank;
    return {static_cast<std::uint32_t>(rank), place.step, place.layer, place.microbatch, place.phase, event.op_class};
  }
  std::vector<Detail> details(EventIndex e) const override {
    const ForeignEvent& event = trace_.events[e];
    const ForeignThread& thread = trace_.threads[event.thread];
    std::vector<Detail> out = {{"class", std::string{orrery::name_of(event.op_class)}},
                               {"thread", thread.name},
                               {"process", trace_.processes[thread.process].name}};
    if (places_[e].layer >= 0) out.push_back({"layer", std::to_string(places_[e].layer)});
    for (std::size_t i = 0; i < event.num_arguments; ++i) {
      const auto& [name, value] = trace_.arguments[event.first_argument + i];
      out.push_back({std::string{trace_.names[name]}, std::string{trace_.names[value]}});
    }
    return out;
  }

 private:
  /// What the marks around an event say.
  struct Place {
    std::uint32_t step = 0;
    std::int32_t layer = -1, microbatch = 0;
    Phase phase = Phase::Forward;
  };
  /// Numbers in names can be anything.
  static std::int32_t shown(std::uint64_t number) {
    return static_cast<std::int32_t>(std::min<std::uint64_t>(number, std::numeric_limits<std::int32_t>::max()));
  }

  const ForeignTrace& trace_;
  std::vector<Place> places_;
};

}  // namespace

std::unique_ptr<const EventSource> make_event_source(const Trace& trace) { return std::make_unique<Spans>(trace); }
std::unique_ptr<const EventSource> make_event_source(const ForeignTrace& trace) {
  return std::make_unique<Slices>(trace);
}

}  // namespace orrery::gui
