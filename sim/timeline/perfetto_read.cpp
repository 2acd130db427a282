// SPDX-License-Identifier: Apache-2.0
#include <unordered_map>

#include "sim/timeline/foreign.hpp"
#include "sim/timeline/lanes.hpp"
#include "sim/timeline/perfetto.hpp"
#include "sim/timeline/protobuf.hpp"

namespace orrery {
namespace {

namespace pf = perfetto;

constexpr std::int64_t kMaxNanoseconds = INT64_MAX / 2000;

/// A text, an integer, or both, under a name.
struct Annotation {
  std::string_view name, text;
  std::int64_t integer = 0;
};

/// A track event with its iids looked up.
struct PerfettoEvent {
  std::int64_t at_ps = 0;
  std::uint64_t type = 0, track = 0, op = UINT32_MAX, counter = 0;
  std::string_view name;
  std::vector<std::string_view> categories;
  std::vector<Annotation> annotations;
  std::vector<std::uint64_t> leaving, arriving;
};

struct PerfettoTrack {
  RankId rank;
  Stream stream = Stream::Compute;
  Tier tier = Tier::Device;
  bool is_counter = false;
};

class PerfettoReader {
 public:
  explicit PerfettoReader(const std::string& file) : builder_{file} {}

  Trace read(std::string_view bytes) {
    each(bytes, [&](const ProtoReader::Field& f) {
      if (f.number == pf::trace::kPacket) read_packet(f.bytes);
    });
    if (!has_header_) builder_.fail("it was not written by orrery; only such .pftrace files can be read");
    for (const auto& [track, slices] : open_)
      if (!slices.empty()) builder_.fail("a slice has no end");
    for (const auto& [flow, to] : arriving_) {
      const auto from = leaving_.find(flow);
      if (from == leaving_.end()) builder_.fail("a flow has no start");
      builder_.add_dependency(to.first, to.second, from->second.second);
    }
    return builder_.take();
  }

 private:
  using OpOfPlan = std::pair<std::uint32_t, OpId>;
  using Texts = std::unordered_map<std::uint64_t, std::string_view>;

  template <class Handle>
  void each(std::string_view message, Handle handle) {
    ProtoReader reader{message};
    for (ProtoReader::Field f; reader.next(f);) handle(f);
    if (reader.is_damaged()) builder_.fail("its bytes are no protocol buffer");
  }

  void read_packet(std::string_view bytes) {
    std::string_view event, track;
    std::uint64_t at = 0;
    each(bytes, [&](const ProtoReader::Field& f) {
      if (f.number == pf::packet::kTimestamp) at = f.integer;
      if (f.number == pf::packet::kTrackEvent) event = f.bytes;
      if (f.number == pf::packet::kTrackDescriptor) track = f.bytes;
      if (f.number == pf::packet::kInternedData) read_interned(f.bytes);
    });
    if (at > static_cast<std::uint64_t>(kMaxNanoseconds)) builder_.fail("a time is out of range");
    if (!track.empty()) read_track(track);
    if (!event.empty()) read_event(event, static_cast<std::int64_t>(at) * 1000);
  }

  void read_interned(std::string_view bytes) {
    each(bytes, [&](const ProtoReader::Field& f) {
      std::uint64_t iid = 0;
      std::string_view text;
      each(f.bytes, [&](const ProtoReader::Field& g) {
        if (g.number == pf::entry::kIid) iid = g.integer;
        if (g.number == pf::entry::kText) text = g.bytes;
      });
      texts_[f.number][iid] = text;
    });
  }

  std::string_view text(std::uint32_t table, std::uint64_t iid) {
    const auto it = texts_[table].find(iid);
    if (it == texts_[table].end()) builder_.fail("a text that is referred to is missing");
    return it->second;
  }

  void read_track(std::string_view bytes) {
    std::uint64_t uuid = 0, parent = 0, pid = 0;
    std::string_view name, process, thread, counter;
    each(bytes, [&](const ProtoReader::Field& f) {
      if (f.number == pf::track::kUuid) uuid = f.integer;
      if (f.number == pf::track::kParent) parent = f.integer;
      if (f.number == pf::track::kName) name = f.bytes;
      if (f.number == pf::track::kProcess) process = f.bytes;
      if (f.number == pf::track::kThread) thread = f.bytes;
      if (f.number == pf::track::kCounter) counter = f.bytes;
    });
    PerfettoTrack track;
    if (const auto it = tracks_.find(parent); it != tracks_.end()) track = it->second;
    each(process.empty() ? thread : process, [&](const ProtoReader::Field& f) {
      if (f.number == pf::process::kPid) pid = f.integer;  // the same number in both messages
    });
    if (pid > UINT32_MAX - 1) builder_.fail("a process id is out of range");
    if (pid != 0) track.rank = RankId{pid - 1};
    if (!thread.empty() && !find_by_name(name, track.stream)) builder_.fail("a thread is no stream");
    track.is_counter = !counter.empty();
    if (track.is_counter && !find_by_name(name.substr(0, name.find(' ')), track.tier))
      builder_.fail("a counter is no memory tier");
    tracks_[uuid] = track;
  }

  Annotation annotation(std::string_view bytes) {
    Annotation a;
    each(bytes, [&](const ProtoReader::Field& f) {
      if (f.number == pf::annotation::kNameIid) a.name = text(pf::interned::kAnnotationNames, f.integer);
      if (f.number == pf::annotation::kName) a.name = f.bytes;
      if (f.number == pf::annotation::kInt) a.integer = static_cast<std::int64_t>(f.integer);
      if (f.number == pf::annotation::kString) a.text = f.bytes;
      if (f.number == pf::annotation::kStringIid) a.text = text(pf::interned::kStrings, f.integer);
    });
    return a;
  }

  void read_event(std::string_view bytes, std::int64_t at_ps) {
    PerfettoEvent e;
    e.at_ps = at_ps;
    each(bytes, [&](const ProtoReader::Field& f) {
      switch (f.number) {
        case pf::event::kType:
          e.type = f.integer;
          break;
        case pf::event::kTrack:
          e.track = f.integer;
          break;
        case pf::event::kNameIid:
          e.name = text(pf::interned::kEventNames, f.integer);
          break;
        case pf::event::kName:
          e.name = f.bytes;
          break;
        case pf::event::kCategoryIids:
          e.categories.push_back(text(pf::interned::kCategories, f.integer));
          break;
        case pf::event::kAnnotations:
          e.annotations.push_back(annotation(f.bytes));
          break;
        case pf::event::kCounterValue:
          e.counter = f.integer;
          break;
        case pf::event::kFlowIds:
          e.leaving.push_back(f.integer);
          break;
        case pf::event::kTerminatingFlowIds:
          e.arriving.push_back(f.integer);
          break;
        case pf::event::kCorrelationId:
          e.op = f.integer;
          break;
        default:
          break;
      }
    });
    handle(e);
  }

  void handle(const PerfettoEvent& e) {
    if (e.type == pf::event::kInstant && e.name == "orrery") {
      has_header_ = true;
      for (const Annotation& a : e.annotations) builder_.add_header(a.name, a.text);
      return;
    }
    const auto track = tracks_.find(e.track);
    if (track == tracks_.end()) builder_.fail("an event is on no track");
    const PerfettoTrack& t = track->second;
    if (e.type == pf::event::kBegin) {
      open_[e.track].push_back(slice_of(e, t));
    } else if (e.type == pf::event::kEnd) {
      std::vector<Slice>& open = open_[e.track];
      if (open.empty()) builder_.fail("a slice ends that did not begin");
      open.back().span.end_ps = e.at_ps;
      builder_.add(open.back());
      open.pop_back();
    } else if (e.type == pf::event::kCounter && t.is_counter) {
      builder_.add(MemorySample{e.at_ps, t.rank, t.tier, static_cast<std::int64_t>(e.counter)});
    }
  }

  Slice slice_of(const PerfettoEvent& e, const PerfettoTrack& t) {
    if (e.op >= UINT32_MAX || e.categories.size() != 2) builder_.fail("a slice has no op id or not two categories");
    Slice s;
    s.span.start_ps = e.at_ps;
    s.span.op = OpId{e.op};
    s.span.rank = t.rank;
    s.stream = t.stream;
    s.name = e.name;
    s.op_class = e.categories[0];
    s.kind = e.categories[1];
    for (const Annotation& a : e.annotations) {
      if (a.name == "work") s.work = a.text;
      if (a.name == "phase") s.phase = a.text;
      if (a.name == "layer") s.layer = a.integer;
      if (a.name == "microbatch") s.microbatch = a.integer;
      if (a.name == "instance") s.span.instance = static_cast<std::uint32_t>(a.integer);
      if (a.name == "part") s.span.part = static_cast<std::uint32_t>(a.integer);
      if (a.name == "plan") s.plan = static_cast<std::uint32_t>(a.integer);
    }
    for (const std::uint64_t flow : e.leaving) leaving_[flow] = {s.plan, s.span.op};
    for (const std::uint64_t flow : e.arriving) arriving_[flow] = {s.plan, s.span.op};
    return s;
  }

  TraceBuilder builder_;
  bool has_header_ = false;
  std::unordered_map<std::uint32_t, Texts> texts_;  // by the field of the interned data
  std::unordered_map<std::uint64_t, PerfettoTrack> tracks_;
  std::unordered_map<std::uint64_t, std::vector<Slice>> open_;
  std::unordered_map<std::uint64_t, OpOfPlan> leaving_, arriving_;
};

}  // namespace

Trace read_perfetto(std::string_view bytes, const std::string& file) { return PerfettoReader{file}.read(bytes); }

}  // namespace orrery
