// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>

#include "sim/app/commands.hpp"
#include "sim/app/memory_plot.hpp"
#include "sim/app/memory_snapshot.hpp"
#include "sim/app/report.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/app/session.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/table.hpp"
#include "sim/base/yaml.hpp"
#include "sim/search/memory_plan.hpp"

namespace orrery {
namespace {

constexpr std::size_t kShownOwners = 12;
constexpr Seconds kPlanLimit{5.0};

/// An allocator as `--allocator` names it.
struct Choice {
  std::string name;
  AllocatorOptions options;
};

/// "pytorch", or "pytorch {expandable_segments: true}".
Choice parse_choice(const std::string& text) {
  const auto space = text.find(' ');
  const std::string settings = space == std::string::npos ? "{}" : text.substr(space + 1);
  Node node = parse_yaml(settings, "--allocator");
  if (node.kind != Node::Kind::Map)
    throw UserError{fmt::format("--allocator takes a name and settings, not '{}'", text),
                    "such as 'pytorch {expandable_segments: true}'"};
  node.fields.insert(node.fields.begin(), {"allocator", Node::of(text.substr(0, space), {"--allocator", 0, 0, {}})});
  Choice choice{text, {}};
  read_options(node, choice.options);
  check(choice.options);
  return choice;
}

std::string choice_name(const AllocatorOptions& options) {
  const std::string name{enum_name(options.allocator)};
  return options == AllocatorOptions{.allocator = options.allocator} ? name : name + ", as the scenario says";
}

std::string bytes(std::int64_t b) { return to_text(Bytes{double(b)}); }

/// A trace and what it is of.
struct Subject {
  AllocationTrace trace;
  std::string title;
  std::int64_t capacity = std::numeric_limits<std::int64_t>::max();
  std::optional<MemorySnapshot> recorded;
};

class Memory final : public Command {
 public:
  std::string_view name() const override { return "memory"; }
  std::string_view summary() const override { return "follow the memory of a device, under several allocators"; }
  std::string_view arguments() const override { return "[SCENARIO]"; }
  Arity arity() const override { return {0, 1}; }

  std::vector<Flag> flags() override {
    std::vector<Flag> all = scenario_.flags();
    all.push_back({"--allocator", "NAME",
                   "best-fit, buddy or pytorch, with settings as in "
                   "'pytorch {expandable_segments: true}'; repeatable; default: the scenario's, "
                   "of a snapshot pytorch",
                   [this](const std::string& v) { choices_.push_back(parse_choice(v)); }});
    all.push_back({"--snapshot", "FILE", "in place of a scenario: a memory snapshot of PyTorch as JSON",
                   [this](const std::string& v) { snapshot_ = v; }});
    all.push_back({"--rank", "N", "rank, of a snapshot device; default: the rank that needs most, device 0",
                   [this](const std::string& v) { rank_ = integer_option("--rank", v, 0); }});
    all.push_back({"--capacity", "SIZE", "memory of the device; default: the cluster's, of a snapshot not limited",
                   [this](const std::string& v) { capacity_ = size_option("--capacity", v); }});
    all.push_back({"--steps", "N", "steps to simulate; default 2",
                   [this](const std::string& v) { steps_ = integer_option("--steps", v, 1); }});
    all.push_back({"--plan", "", "also fixed places for all blocks, planned layer by layer, then for the whole",
                   [this](const std::string&) { plans_ = true; }});
    all.push_back(
        {"--svg", "FILE", "draw what is reserved, active and allocated", [this](const std::string& v) { svg_ = v; }});
    return all;
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    if (!snapshot_.empty() && !arguments.empty())
      throw UserError{"--snapshot stands in place of a scenario", "leave one of them out"};
    Subject subject = snapshot_.empty() ? simulated_trace(context, arguments) : recorded_trace();
    if (capacity_) subject.capacity = static_cast<std::int64_t>(capacity_->base());
    std::vector<AllocationReplay> replays;
    for (const Choice& c : choices_) replays.push_back(replay(subject.trace, c.options, subject.capacity));
    if (plans_) plan(subject.trace);
    if (!svg_.empty()) draw(subject, replays);
    context.console.out(context.json ? to_json(subject, replays).dump(2) + "\n" : text_of(subject, replays));
    return exit_code::kOk;
  }

 private:
  Subject simulated_trace(AppContext& context, const std::vector<std::string>& arguments) {
    const Scenario scenario = scenario_.load(arguments.empty() ? "" : arguments[0], context);
    const Machine machine = context.wiring.machine(scenario.options, scenario.cluster);
    Simulation s = simulate_scenario(
        scenario, machine, context.wiring, steps_, [&](std::size_t) { context.interrupt.check(); },
        always(Logged::Allocations));
    if (choices_.empty()) choices_.push_back({choice_name(scenario.options.memory), scenario.options.memory});
    const RankId rank = rank_of(s);
    Subject out;
    out.trace = std::move(s.allocations.at(rank));
    const double capacity = machine.cost->capacity(Tier::Device, rank).base();
    if (capacity > 0) out.capacity = static_cast<std::int64_t>(capacity);
    out.title = fmt::format("{}, rank {} of {}", scenario.name, rank.value, s.recording.timeline.num_ranks);
    return out;
  }

  RankId rank_of(const Simulation& s) const {
    if (rank_) {
      const RankId wanted{static_cast<std::uint32_t>(*rank_)};
      if (s.allocations.contains(wanted)) return wanted;
      std::string ranks;
      for (const auto& [rank, trace] : s.allocations)
        ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank.value);
      if (*rank_ >= s.recording.timeline.num_ranks)
        throw UserError{fmt::format("there is no rank {}", *rank_),
                        fmt::format("ranks are 0 to {}", s.recording.timeline.num_ranks - 1)};
      throw UserError{fmt::format("rank {} is not simulated", *rank_),
                      fmt::format("ranks {} stand for all; `--set ranks=expanded` simulates each", ranks)};
    }
    const Peak* most = nullptr;
    for (const Peak& p : s.recording.timeline.peaks)
      if (p.tier == Tier::Device && (most == nullptr || p.bytes > most->bytes)) most = &p;
    return most == nullptr ? s.allocations.begin()->first : most->rank;
  }

  void plan(const AllocationTrace& trace) {
    const auto start = std::chrono::steady_clock::now();
    planned_ = plan_memory(trace, kPlanLimit);
    plan_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  Subject recorded_trace() {
    Subject out;
    out.recorded = read_memory_snapshot(snapshot_, rank_.value_or(0));
    out.trace = out.recorded->trace;
    out.title = fmt::format("{}, device {}", snapshot_, rank_.value_or(0));
    if (choices_.empty()) choices_.push_back(parse_choice("pytorch"));
    return out;
  }

  void draw(const Subject& subject, const std::vector<AllocationReplay>& replays) const {
    std::vector<MemoryPanel> panels;
    if (subject.recorded) panels.push_back({subject.title + ", as recorded", &subject.recorded->points});
    for (std::size_t i = 0; i < replays.size(); ++i)
      panels.push_back({subject.title + ", " + choices_[i].name, &replays[i].points});
    const bool is_limited = subject.capacity < std::numeric_limits<std::int64_t>::max();
    write_file_atomically(svg_, memory_svg(panels, is_limited ? subject.capacity : 0));
  }

  std::string text_of(const Subject& subject, const std::vector<AllocationReplay>& replays) const {
    std::string text = fmt::format("memory of {}: {} events\n", subject.title, subject.trace.events.size());
    if (subject.recorded) text += recorded_lines(*subject.recorded);
    Table table{{{"allocator"},
                 {"reserved", Align::Right},
                 {"allocated", Align::Right},
                 {"active", Align::Right},
                 {"asked for", Align::Right},
                 {"fragments", Align::Right},
                 {"from device", Align::Right},
                 {"retries", Align::Right},
                 {"refused", Align::Right}}};
    for (std::size_t i = 0; i < replays.size(); ++i) {
      const AllocatorStats& s = replays[i].stats;
      table.add({choices_[i].name, bytes(s.peak_reserved), bytes(s.peak_allocated), bytes(s.peak_active),
                 bytes(s.peak_requested), fmt::format("{:.1f} %", 100 * replays[i].fragmentation()),
                 std::to_string(s.num_device_allocs), std::to_string(s.num_alloc_retries),
                 std::to_string(replays[i].refused.size())});
    }
    text += "\n" + table.text("  ");
    for (std::size_t i = 0; i < replays.size(); ++i)
      if (!replays[i].refused.empty()) text += refused_line(subject, i, replays[i]);
    if (planned_) text += plan_lines(*planned_);
    if (subject.capacity < std::numeric_limits<std::int64_t>::max())
      text +=
          fmt::format("\n  peaks, of {} on the device; fragments: what nobody has of the peak of what is reserved\n",
                      bytes(subject.capacity));
    return text + "\n" + owner_lines(subject, replays.front());
  }

  /// What an allocator had no room for first.
  std::string refused_line(const Subject& subject, std::size_t choice, const AllocationReplay& replay) const {
    const AllocationTrace::Event& e = subject.trace.events[replay.refused.front()];
    return fmt::format("  {} first had no room for {} of {}, after {}\n", choices_[choice].name, bytes(e.bytes),
                       subject.trace.labels[e.label], to_text(SimTime{e.at_ps} - SimTime{}));
  }

  std::string recorded_lines(const MemorySnapshot& r) const {
    std::string text = fmt::format(
        "  recorded: reserved {} at its peak, asked for {}; at the end reserved {}, active {}, "
        "allocated {}\n",
        bytes(r.peak_reserved), bytes(r.peak_requested), bytes(r.reserved), bytes(r.active), bytes(r.allocated));
    if (r.live_before > 0)
      text +=
          fmt::format("  {} blocks were there before the trace begins: they are placed first, in order of addresses\n",
                      r.live_before);
    if (r.ooms > 0) text += fmt::format("  {} requests were refused\n", r.ooms);
    return text;
  }

  std::string plan_lines(const MemoryPlan& p) const {
    std::string text = fmt::format("\n  fixed places for all blocks: {}; {} are live at a time, so {}\n",
                                   bytes(p.places.height), bytes(p.most_live),
                                   p.places.height == p.most_live
                                       ? "no plan is lower"
                                       : fmt::format("at most {:.2f} % could be saved",
                                                     100 * (1 - double(p.most_live) / double(p.places.height))));
    text += fmt::format(
        "  {} passes over layers of {} kinds, {} of them proved to be as low as any; {} blocks die in their pass, "
        "which "
        "takes up to {}\n",
        p.passes, p.kinds, p.proved, p.transient_blocks, bytes(p.largest_pass));
    return text + fmt::format("  planned in {}\n", to_text(Seconds{plan_seconds_}));
  }

  static std::string owner_lines(const Subject& subject, const AllocationReplay& replay) {
    Table table{{{"at the peak of what is allocated"}, {"asked for", Align::Right}, {"share", Align::Right}}};
    std::int64_t all = 0, others = 0;
    for (const auto& o : replay.owners) all += o.bytes;
    for (std::size_t i = 0; i < replay.owners.size(); ++i) {
      const auto& o = replay.owners[i];
      if (i >= kShownOwners) {
        others += o.bytes;
        continue;
      }
      table.add({subject.trace.labels[o.label], bytes(o.bytes),
                 fmt::format("{:.1f} %", 100 * double(o.bytes) / double(all))});
    }
    if (others > 0)
      table.add({fmt::format("{} others", replay.owners.size() - kShownOwners), bytes(others),
                 fmt::format("{:.1f} %", 100 * double(others) / double(all))});
    return table.text("  ");
  }

  nlohmann::json to_json(const Subject& subject, const std::vector<AllocationReplay>& replays) const {
    nlohmann::json out{
        {"schema_version", kSchemaVersion}, {"title", subject.title}, {"events", subject.trace.events.size()}};
    if (subject.capacity < std::numeric_limits<std::int64_t>::max()) out["capacity"] = subject.capacity;
    if (const auto& r = subject.recorded)
      out["recorded"] = {{"peak_reserved", r->peak_reserved}, {"peak_requested", r->peak_requested},
                         {"reserved", r->reserved},           {"active", r->active},
                         {"allocated", r->allocated},         {"requested", r->requested},
                         {"live_before", r->live_before},     {"ooms", r->ooms},
                         {"segments", r->num_segments}};
    if (const auto& p = planned_)
      out["plan"] = {{"height", p->places.height},
                     {"most_live", p->most_live},
                     {"skeletal_live", p->skeletal_live},
                     {"largest_pass", p->largest_pass},
                     {"passes", p->passes},
                     {"kinds", p->kinds},
                     {"proved", p->proved},
                     {"transient_blocks", p->transient_blocks},
                     {"wall_seconds", plan_seconds_}};
    for (std::size_t i = 0; i < replays.size(); ++i) {
      const AllocationReplay& replay = replays[i];
      const AllocatorStats& s = replay.stats;
      nlohmann::json one{{"allocator", choices_[i].name},
                         {"peak_reserved", s.peak_reserved},
                         {"peak_allocated", s.peak_allocated},
                         {"peak_active", s.peak_active},
                         {"peak_requested", s.peak_requested},
                         {"reserved", s.reserved},
                         {"allocated", s.allocated},
                         {"active", s.active},
                         {"requested", s.requested},
                         {"inactive_split", s.inactive_split},
                         {"fragmentation", replay.fragmentation()},
                         {"num_alloc_retries", s.num_alloc_retries},
                         {"num_device_allocs", s.num_device_allocs},
                         {"num_device_frees", s.num_device_frees},
                         {"refused", replay.refused.size()},
                         {"owners", nlohmann::json::array()}};
      for (std::size_t o = 0; o < std::min(replay.owners.size(), kShownOwners); ++o)
        one["owners"].push_back(
            {{"name", subject.trace.labels[replay.owners[o].label]}, {"bytes", replay.owners[o].bytes}});
      out["allocators"].push_back(std::move(one));
    }
    return out;
  }

  ScenarioFlags scenario_;
  std::vector<Choice> choices_;
  std::string snapshot_, svg_;
  std::optional<std::int64_t> rank_;
  std::optional<Bytes> capacity_;
  std::int64_t steps_ = 2;
  bool plans_ = false;
  std::optional<MemoryPlan> planned_;
  double plan_seconds_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_memory() { return std::make_unique<Memory>(); }

}  // namespace orrery
