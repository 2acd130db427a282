// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <unordered_map>

#include "sim/timeline/foreign.hpp"
#include "sim/timeline/lanes.hpp"
#include "sim/timeline/perfetto.hpp"
#include "sim/timeline/protobuf.hpp"

namespace orrery {
namespace {

namespace pf = perfetto;

constexpr std::uint64_t kFirstThread = 1 << 23;  // thread ids, apart from process ids

std::uint64_t nanoseconds(std::int64_t ps) { return static_cast<std::uint64_t>(ps / 1000); }

/// Texts that a sequence has named already; new ones are written with the next packet.
class Interner {
 public:
  explicit Interner(std::uint32_t field) : field_{field} {}

  std::uint64_t id(std::string_view text, std::string& interned) {
    const auto [it, is_new] = ids_.try_emplace(std::string{text}, ids_.size() + 1);
    if (is_new) {
      entry_.clear();
      ProtoWriter entry{entry_};
      entry.integer(pf::entry::kIid, it->second);
      entry.bytes(pf::entry::kText, text);
      ProtoWriter{interned}.bytes(field_, entry_);
    }
    return it->second;
  }

 private:
  std::uint32_t field_;
  std::string entry_;
  std::unordered_map<std::string, std::uint64_t> ids_;
};

class PerfettoWriter {
 public:
  explicit PerfettoWriter(const Trace& trace) : trace_{trace} {
    const std::vector<Arrow> arrows = arrows_of(trace);
    for (std::size_t i = 0; i < arrows.size(); ++i) {
      leaving_.emplace_back(arrows[i].from, i + 1);
      arriving_.emplace_back(arrows[i].to, i + 1);
    }
    std::sort(leaving_.begin(), leaving_.end());
  }

  std::string write() {
    write_header();
    for (const Lane& lane : lanes_of(trace_)) write_lane(lane);
    write_memory();
    return std::move(out_);
  }

 private:
  using Flows = std::vector<std::pair<SpanIndex, std::size_t>>;

  /// Appends the packet with this event or descriptor.
  void packet(std::int64_t at_ps, std::uint32_t field, std::string_view content) {
    packet_.clear();
    ProtoWriter p{packet_};
    if (field == pf::packet::kTrackEvent) p.integer(pf::packet::kTimestamp, nanoseconds(at_ps));
    p.integer(pf::packet::kSequenceId, 1);
    p.bytes(field, content);
    if (!interned_.empty()) p.bytes(pf::packet::kInternedData, interned_);
    p.integer(pf::packet::kSequenceFlags, pf::packet::kNeedsState | (out_.empty() ? pf::packet::kStateCleared : 0));
    ProtoWriter{out_}.bytes(pf::trace::kPacket, packet_);
    interned_.clear();
  }

  std::uint64_t track(std::uint64_t parent, std::string_view name, std::uint32_t kind_field = 0,
                      std::string_view kind = {}) {
    std::string text;
    ProtoWriter t{text};
    t.integer(pf::track::kUuid, ++last_track_);
    t.bytes(pf::track::kName, name);
    if (parent != 0) t.integer(pf::track::kParent, parent);
    if (kind_field != 0) t.bytes(kind_field, kind);
    t.integer(pf::track::kSiblingMerge, pf::track::kMergeNone);
    packet(0, pf::packet::kTrackDescriptor, text);
    return last_track_;
  }

  std::uint64_t process(RankId rank) {
    std::uint64_t& uuid = processes_[rank];
    if (uuid != 0) return uuid;
    const std::string name = "rank " + std::to_string(rank.value);
    std::string text;
    ProtoWriter p{text};
    p.integer(pf::process::kPid, std::uint64_t{rank.value} + 1);
    p.bytes(pf::process::kName, name);
    return uuid = track(0, name, pf::track::kProcess, text);
  }

  std::uint64_t thread(RankId rank, Stream stream) {
    std::string text;
    ProtoWriter t{text};
    t.integer(pf::thread::kPid, std::uint64_t{rank.value} + 1);
    t.integer(pf::thread::kTid,
              kFirstThread + std::uint64_t{rank.value} * kNumStreams + static_cast<std::uint64_t>(stream));
    t.bytes(pf::thread::kName, name_of(stream));
    return track(process(rank), name_of(stream), pf::track::kThread, text);
  }

  void annotate(std::string_view name, std::int64_t value) {
    annotation_.clear();
    ProtoWriter a{annotation_};
    a.integer(pf::annotation::kNameIid, annotation_names_.id(name, interned_));
    a.integer(pf::annotation::kInt, static_cast<std::uint64_t>(value));
    ProtoWriter{event_}.bytes(pf::event::kAnnotations, annotation_);
  }
  void annotate(std::string_view name, std::string_view value) {
    annotation_.clear();
    ProtoWriter a{annotation_};
    a.integer(pf::annotation::kNameIid, annotation_names_.id(name, interned_));
    a.integer(pf::annotation::kStringIid, strings_.id(value, interned_));
    ProtoWriter{event_}.bytes(pf::event::kAnnotations, annotation_);
  }

  void write_header() {
    const std::uint64_t uuid = track(0, "orrery");
    event_.clear();
    ProtoWriter e{event_};
    e.integer(pf::event::kType, pf::event::kInstant);
    e.integer(pf::event::kTrack, uuid);
    e.bytes(pf::event::kName, "orrery");
    for (const auto& [key, value] : header_of(trace_)) {
      annotation_.clear();
      ProtoWriter a{annotation_};
      a.bytes(pf::annotation::kName, key);
      a.bytes(pf::annotation::kString, value);
      e.bytes(pf::event::kAnnotations, annotation_);
    }
    packet(0, pf::packet::kTrackEvent, event_);
  }

  void write_lane(const Lane& lane) {
    if (lane.number == 0) thread_ = thread(lane.rank, lane.stream);
    const std::uint64_t uuid = lane.number == 0 ? thread_ : track(thread_, name_of(lane));
    for (const SpanIndex s : lane.spans) {
      const Span& span = trace_.timeline.spans[s];
      begin(s, uuid);
      packet(span.start_ps, pf::packet::kTrackEvent, event_);
      event_.clear();
      ProtoWriter e{event_};
      e.integer(pf::event::kType, pf::event::kEnd);
      e.integer(pf::event::kTrack, uuid);
      packet(span.end_ps, pf::packet::kTrackEvent, event_);
    }
  }

  void begin(SpanIndex s, std::uint64_t uuid) {
    const Span& span = trace_.timeline.spans[s];
    const PlanDigest& plan = plan_of(trace_.timeline, trace_.plans, span);
    const Op& op = plan[span.op];
    const WorkDigest& work = plan.work(span.op);
    event_.clear();
    ProtoWriter e{event_};
    e.integer(pf::event::kCategoryIids, categories_.id(name_of(work.op_class), interned_));
    e.integer(pf::event::kCategoryIids, categories_.id(plan.names[work.kind], interned_));
    e.integer(pf::event::kType, pf::event::kBegin);
    e.integer(pf::event::kNameIid, event_names_.id(plan.name_of(span.op), interned_));
    e.integer(pf::event::kTrack, uuid);
    annotate("work", plan.names[work.text]);
    annotate("phase", name_of(op.phase));
    if (op.layer >= 0) annotate("layer", op.layer);
    if (op.microbatch != 0) annotate("microbatch", op.microbatch);
    if (span.instance != 0) annotate("instance", span.instance);
    if (span.part != 0) annotate("part", span.part);
    if (trace_.timeline.plan_of(span.instance) != 0) annotate("plan", trace_.timeline.plan_of(span.instance));
    add_flows(leaving_, s, pf::event::kFlowIds);
    add_flows(arriving_, s, pf::event::kTerminatingFlowIds);
    e.integer(pf::event::kCorrelationId, span.op.value);
  }

  void add_flows(const Flows& flows, SpanIndex s, std::uint32_t field) {
    for (auto it = std::lower_bound(flows.begin(), flows.end(), std::pair{s, std::size_t{0}});
         it != flows.end() && it->first == s; ++it)
      ProtoWriter{event_}.fixed64(field, it->second);
  }

  void write_memory() {
    std::map<std::pair<RankId, Tier>, std::uint64_t> tracks;
    for (const MemorySample& m : trace_.timeline.memory) {
      std::uint64_t& uuid = tracks[{m.rank, m.tier}];
      if (uuid == 0) {
        std::string unit;
        ProtoWriter{unit}.integer(pf::counter::kUnit, pf::counter::kBytes);
        const std::uint64_t parent = process(m.rank);
        uuid = track(parent, std::string{name_of(m.tier)} + " memory", pf::track::kCounter, unit);
      }
      event_.clear();
      ProtoWriter e{event_};
      e.integer(pf::event::kType, pf::event::kCounter);
      e.integer(pf::event::kTrack, uuid);
      e.integer(pf::event::kCounterValue, static_cast<std::uint64_t>(m.bytes));
      packet(m.at_ps, pf::packet::kTrackEvent, event_);
    }
  }

  const Trace& trace_;
  Flows leaving_, arriving_;
  std::string out_, packet_, event_, interned_, annotation_;
  std::uint64_t last_track_ = 0, thread_ = 0;
  std::map<RankId, std::uint64_t> processes_;
  Interner categories_{pf::interned::kCategories}, event_names_{pf::interned::kEventNames},
      annotation_names_{pf::interned::kAnnotationNames}, strings_{pf::interned::kStrings};
};

}  // namespace

std::string write_perfetto(const Trace& trace) { return PerfettoWriter{trace}.write(); }

}  // namespace orrery
