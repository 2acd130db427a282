// SPDX-License-Identifier: Apache-2.0
#include "sim/app/memory_snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
constexpr ReadLimits kLimits{.bytes = 1u << 30, .depth = 64, .nodes = 60'000'000};

const Node& field(const Node& map, std::string_view name) {
  if (const Node* n = map.find(name)) return *n;
  throw UserError{at(map, fmt::format("a memory snapshot has `{}` here", name),
                     "write torch.cuda.memory._snapshot() with json.dump")};
}

std::int64_t number(const Node& map, std::string_view name) {
  const Node& n = field(map, name);
  std::int64_t value = 0;
  std::vector<Diagnostic> problems;
  if (!detail::read_scalar(n, value, problems)) throw UserError{std::move(problems)};
  return value;
}

std::int64_t size_in(const Node& map, std::string_view name) {
  const std::int64_t bytes = number(map, name);
  if (bytes < 0 || bytes > kMostBytes)
    throw UserError{at(field(map, name), "a size in a memory snapshot that no memory has")};
  return bytes;
}

std::int64_t number_or(const Node& map, std::string_view name, std::int64_t otherwise) {
  return map.find(name) != nullptr ? number(map, name) : otherwise;
}

enum class TraceAction { Alloc, FreeRequested, FreeCompleted, SegmentIn, SegmentOut, Oom, Other };

TraceAction action_of(const Node& event) {
  static constexpr std::array<std::pair<std::string_view, TraceAction>, 9> kNames{
      {{"alloc", TraceAction::Alloc},
       {"free_requested", TraceAction::FreeRequested},
       {"free_completed", TraceAction::FreeCompleted},
       {"segment_alloc", TraceAction::SegmentIn},
       {"segment_map", TraceAction::SegmentIn},
       {"segment_free", TraceAction::SegmentOut},
       {"segment_unmap", TraceAction::SegmentOut},
       {"oom", TraceAction::Oom},
       {"snapshot", TraceAction::Other}}};
  const Node& n = field(event, "action");
  for (const auto& [name, action] : kNames)
    if (n.scalar == name) return action;
  throw UserError{at(n, fmt::format("unknown action '{}' in a memory snapshot", n.scalar),
                     "alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, "
                     "oom or snapshot")};
}

/// Who asked: the innermost frame that is no Python library's or C++, as "file:line function".
std::string label_of(const Node& event) {
  const Node* frames = event.find("frames");
  if (frames == nullptr) return "(no stack)";
  for (const Node& f : frames->items) {
    const Node *file = f.find("filename"), *name = f.find("name"), *line = f.find("line");
    if (file == nullptr || name == nullptr || !file->scalar.ends_with(".py")) continue;
    if (file->scalar.find("/torch/") != std::string::npos) continue;
    return fmt::format("{}:{} {}", file->scalar.substr(file->scalar.rfind('/') + 1), line ? line->scalar : "?",
                       name->scalar);
  }
  return "(library)";
}

struct Recorded {
  TraceAction action = TraceAction::Other;
  std::int64_t address = 0, size = 0, stream = 0, at_us = 0;
  std::string label;
};

class Reader {
 public:
  Reader(const Node& root, std::int64_t device) : root_{root}, device_{device} {}

  MemorySnapshot read() {
    read_segments();
    read_events();
    add_live_before();
    for (const Recorded& r : events_) {
      add(r);
      note(r.at_us);
    }
    finish();
    return std::move(out_);
  }

 private:
  struct Live {
    std::uint32_t block = 0, label = 0;
    std::int64_t bytes = 0;
    bool given = false;  // back, and waits for events
  };

  void read_segments() {
    for (const Node& s : field(root_, "segments").items) {
      if (number_or(s, "device", 0) != device_) continue;
      ++out_.num_segments;
      out_.reserved += size_in(s, "total_size");
      std::int64_t address = number_or(s, "address", 0);
      for (const Node& b : field(s, "blocks").items) {
        const std::int64_t size = size_in(b, "size");
        const std::string& state = field(b, "state").scalar;
        const std::int64_t requested = b.find("requested_size") != nullptr ? size_in(b, "requested_size") : size;
        const bool is_live = state == "active_allocated";
        if (is_live) out_.allocated += size;
        if (state.starts_with("active")) {
          out_.active += size;
          out_.requested += requested;
          at_end_[number_or(b, "address", address)] = {requested, number_or(s, "stream", 0), is_live, label_of(b)};
        }
        address += size;
      }
    }
  }

  void read_events() {
    const Node& traces = field(root_, "device_traces");
    if (device_ < 0 || static_cast<std::size_t>(device_) >= traces.items.size())
      throw UserError{at(traces, fmt::format("the snapshot has no device {}", device_),
                         fmt::format("it has {}", traces.items.size()))};
    for (const Node& e : traces.items[static_cast<std::size_t>(device_)].items) {
      const TraceAction action = action_of(e);
      out_.ooms += action == TraceAction::Oom;
      if (action == TraceAction::Other || action == TraceAction::Oom) continue;
      events_.push_back({action, number(e, "addr"), size_in(e, "size"), number_or(e, "stream", 0),
                         number_or(e, "time_us", 0), action == TraceAction::Alloc ? label_of(e) : std::string{}});
    }
    start_us_ = events_.empty() ? 0 : events_.front().at_us;
  }

  /// Addresses whose first event gives them back, or that are live at the end without any event.
  void add_live_before() {
    std::map<std::int64_t, Recorded> before;
    std::map<std::int64_t, bool> seen;
    for (const Recorded& r : events_) {
      if (r.action == TraceAction::SegmentIn || r.action == TraceAction::SegmentOut) continue;
      if (seen.emplace(r.address, true).second && r.action != TraceAction::Alloc)
        before[r.address] = {TraceAction::Alloc, r.address, r.size, r.stream, start_us_, "(before the trace)"};
    }
    for (const auto& [address, end] : at_end_)
      if (!seen.contains(address))
        before[address] = {TraceAction::Alloc, address, end.requested, end.stream, start_us_, end.label};
    out_.live_before = static_cast<std::int64_t>(before.size());
    for (const auto& [address, r] : before) add(r);
    std::int64_t net = 0;
    for (const Recorded& r : events_)
      net += r.action == TraceAction::SegmentIn ? r.size : r.action == TraceAction::SegmentOut ? -r.size : 0;
    reserved_ = out_.reserved - net;
    note(start_us_);
  }

  std::uint32_t label(const std::string& name) {
    const auto [it, is_new] = labels_.try_emplace(name, static_cast<std::uint32_t>(out_.trace.labels.size()));
    if (is_new) out_.trace.labels.push_back(name);
    return it->second;
  }

  void add(const Recorded& r) {
    using Kind = AllocationTrace::Kind;
    const std::int64_t at_ps = (r.at_us - start_us_) * 1'000'000;
    auto& events = out_.trace.events;
    const auto stream = streams_.try_emplace(r.stream, static_cast<std::int32_t>(streams_.size())).first->second;
    const auto it = live_.find(r.address);
    switch (r.action) {
      case TraceAction::Alloc: {
        if (it != live_.end()) give(it->second, stream, at_ps);  // the recorder lost how it came back
        const Live l{out_.trace.num_blocks++, label(r.label), r.size};
        live_[r.address] = l;
        requested_ += r.size;
        events.push_back({Kind::Take, stream, l.block, l.label, 0, r.size, at_ps});
        break;
      }
      case TraceAction::FreeRequested:
        if (it == live_.end() || it->second.given) break;
        events.push_back({Kind::Give, stream, it->second.block, it->second.label, 1, 0, at_ps});
        it->second.given = true;
        break;
      case TraceAction::FreeCompleted:
        if (it == live_.end()) break;
        give(it->second, stream, at_ps);
        live_.erase(it);
        break;
      case TraceAction::SegmentIn:
        reserved_ += r.size;
        break;
      case TraceAction::SegmentOut:
        reserved_ -= r.size;
        break;
      default:
        break;
    }
  }

  void give(const Live& l, std::int32_t stream, std::int64_t at_ps) {
    using Kind = AllocationTrace::Kind;
    requested_ -= l.bytes;
    out_.trace.events.push_back({l.given ? Kind::EventOver : Kind::Give, stream, l.block, l.label, 0, 0, at_ps});
  }

  void note(std::int64_t at_us) {
    out_.points.push_back({(at_us - start_us_) * 1'000'000, 0, 0, reserved_, requested_});
    out_.peak_reserved = std::max(out_.peak_reserved, reserved_);
    out_.peak_requested = std::max(out_.peak_requested, requested_);
  }

  /// A free that completes without an event of another stream in between is a plain one.
  void finish() {
    auto& events = out_.trace.events;
    std::vector<AllocationTrace::Event> merged;
    for (std::size_t i = 0; i < events.size(); ++i) {
      merged.push_back(events[i]);
      const bool completes = i + 1 < events.size() && events[i].kind == AllocationTrace::Kind::Give &&
                             events[i + 1].kind == AllocationTrace::Kind::EventOver &&
                             events[i + 1].block == events[i].block;
      if (completes) {
        merged.back().events = 0;
        ++i;
      }
    }
    events = std::move(merged);
  }

  struct AtEnd {
    std::int64_t requested = 0, stream = 0;
    bool is_live = false;
    std::string label;
  };
  const Node& root_;
  std::int64_t device_, start_us_ = 0, reserved_ = 0, requested_ = 0;
  MemorySnapshot out_;
  std::map<std::int64_t, AtEnd> at_end_;
  std::vector<Recorded> events_;
  std::unordered_map<std::int64_t, Live> live_;
  std::map<std::int64_t, std::int32_t> streams_;
  std::map<std::string, std::uint32_t> labels_;
};

}  // namespace

MemorySnapshot read_memory_snapshot(const std::string& path, std::int64_t device) {
  return Reader{read_json(path, kLimits), device}.read();
}

}  // namespace orrery
