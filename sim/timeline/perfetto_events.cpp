// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "sim/base/error.hpp"
#include "sim/timeline/compressed.hpp"
#include "sim/timeline/foreign_builder.hpp"
#include "sim/timeline/foreign_readers.hpp"
#include "sim/timeline/perfetto.hpp"
#include "sim/timeline/protobuf.hpp"

namespace orrery {
namespace {

namespace pf = perfetto;

constexpr std::uint32_t kDefaults = 59, kTrackEventDefaults = 11, kDeflated = 50, kZstandardPackets = 133,
                        kDoubleCounter = 44, kDouble = 5;

/// Texts and the track of events that name none, of one writer of the trace.
struct PacketSequence {
  std::unordered_map<std::uint32_t, std::unordered_map<std::uint64_t, std::string>> texts;  // by field, then iid
  std::uint64_t track = 0;
};

struct EventTrack {
  std::string name, process;
  std::uint64_t parent = 0;
  bool is_counter = false;
};

class PacketReader {
 public:
  PacketReader(const std::string& file, const ReadProgress& progress) : file_{file}, ticks_{progress} {}

  ForeignTrace read(std::string_view bytes) {
    ProtoReader reader{bytes};
    for (ProtoReader::Field f; reader.next(f);) {
      if (f.number != pf::trace::kPacket) continue;
      ticks_.item([&] { return double(f.bytes.data() - bytes.data()) / double(bytes.size()); });
      read_packet(f.bytes);
    }
    if (packets_ == 0)
      throw UserError{fmt::format("cannot read '{}' as a trace: its bytes are no protocol buffer", file_)};
    if (reader.is_damaged()) out_.trace.repaired("are the last before the file is cut off or damaged");
    if (out_.trace.events.empty() && out_.trace.counters.empty())
      throw UserError{fmt::format("cannot read '{}' as a trace: it has no track events", file_),
                      "scheduling and system traces of Perfetto have none; record with track_event or from PyTorch"};
    out_.trace.program = "Perfetto";
    return out_.take();
  }

 private:
  template <class Handle>
  void each(std::string_view message, Handle handle) {
    ProtoReader reader{message};
    for (ProtoReader::Field f; reader.next(f);) handle(f);
    if (reader.is_damaged()) out_.trace.repaired("stand in packets that are damaged");
  }

  void read_packet(std::string_view bytes) {
    ++packets_;
    std::string_view event, track, interned, defaults;
    std::uint64_t at = 0, sequence = 0, flags = 0;
    each(bytes, [&](const ProtoReader::Field& f) {
      if (f.number == pf::packet::kTimestamp) at = f.integer;
      if (f.number == pf::packet::kSequenceId) sequence = f.integer;
      if (f.number == pf::packet::kSequenceFlags) flags = f.integer;
      if (f.number == pf::packet::kTrackEvent) event = f.bytes;
      if (f.number == pf::packet::kTrackDescriptor) track = f.bytes;
      if (f.number == pf::packet::kInternedData) interned = f.bytes;
      if (f.number == kDefaults) defaults = f.bytes;
      if (f.number == kDeflated || f.number == kZstandardPackets) read_compressed(f.bytes, f.number);
    });
    PacketSequence& s = sequences_[sequence];
    if (flags & pf::packet::kStateCleared) s = {};
    if (!defaults.empty()) read_defaults(defaults, s);
    if (!interned.empty()) read_interned(interned, s);
    if (!track.empty()) read_track(track);
    if (!event.empty()) read_event(event, static_cast<std::int64_t>(std::min<std::uint64_t>(at, kLatestNs)) * 1000, s);
  }

  /// A packet that holds packets. One within another is no trace that anybody writes.
  void read_compressed(std::string_view bytes, std::uint32_t method) {
    constexpr std::size_t kMostOfAll = std::size_t{4} << 30;
    if (is_inside_) return out_.trace.repaired("stand in compressed packets within others, which are not read");
    try {
      const std::size_t most = kMostOfAll - std::min(kMostOfAll, inflated_);
      const std::string inner = method == kDeflated ? inflated(bytes, file_, most) : unzstd(bytes, file_, most);
      inflated_ += inner.size();
      is_inside_ = true;
      each(inner, [&](const ProtoReader::Field& f) {
        if (f.number == pf::trace::kPacket) read_packet(f.bytes);
      });
    } catch (const UserError&) {
      out_.trace.repaired("stand in compressed packets that are damaged");
    }
    is_inside_ = false;
  }

  void read_defaults(std::string_view bytes, PacketSequence& s) {
    each(bytes, [&](const ProtoReader::Field& f) {
      if (f.number != kTrackEventDefaults) return;
      each(f.bytes, [&](const ProtoReader::Field& g) {
        if (g.number == pf::event::kTrack) s.track = g.integer;
      });
    });
  }

  void read_interned(std::string_view bytes, PacketSequence& s) {
    each(bytes, [&](const ProtoReader::Field& f) {
      std::uint64_t iid = 0;
      std::string_view text;
      each(f.bytes, [&](const ProtoReader::Field& g) {
        if (g.number == pf::entry::kIid) iid = g.integer;
        if (g.number == pf::entry::kText) text = g.bytes;
      });
      s.texts[f.number][iid] = text;
    });
  }

  void read_track(std::string_view bytes) {
    std::uint64_t uuid = 0;
    EventTrack t;
    each(bytes, [&](const ProtoReader::Field& f) {
      if (f.number == pf::track::kUuid) uuid = f.integer;
      if (f.number == pf::track::kParent) t.parent = f.integer;
      if (f.number == pf::track::kName) t.name = f.bytes;
      if (f.number == pf::track::kCounter) t.is_counter = true;
      if (f.number == pf::track::kProcess)
        t.process = name_in(f.bytes, pf::process::kPid, pf::process::kName, "process");
      if (f.number == pf::track::kThread && t.name.empty())
        t.name = name_in(f.bytes, pf::thread::kTid, pf::thread::kName, "thread");
    });
    tracks_[uuid] = std::move(t);
  }

  std::string name_in(std::string_view bytes, std::uint32_t number, std::uint32_t name, std::string_view word) {
    std::string text;
    std::uint64_t id = 0;
    each(bytes, [&](const ProtoReader::Field& f) {
      if (f.number == number) id = f.integer;
      if (f.number == name) text = f.bytes;
    });
    return text.empty() ? fmt::format("{} {}", word, id) : text;
  }

  /// The process that a track belongs to, through its parents.
  std::string process_of(std::uint64_t uuid) const {
    constexpr int kDepth = 32;  // a file may have a circle
    for (int i = 0; i < kDepth; ++i) {
      const auto it = tracks_.find(uuid);
      if (it == tracks_.end()) break;
      if (!it->second.process.empty()) return it->second.process;
      uuid = it->second.parent;
    }
    return "trace";
  }

  std::uint32_t thread(std::uint64_t uuid) {
    const std::string process = process_of(uuid);
    const std::uint32_t thread = out_.thread(process, std::to_string(uuid));
    out_.trace.processes[out_.process(process)].name = process;
    const auto it = tracks_.find(uuid);
    if (it != tracks_.end() && !it->second.name.empty()) out_.trace.threads[thread].name = it->second.name;
    return thread;
  }

  void read_event(std::string_view bytes, std::int64_t at, PacketSequence& s) {
    std::uint64_t type = 0, track = s.track, counter = 0;
    double number = 0;
    bool is_double = false;
    std::string name;
    std::vector<std::uint64_t> leaving, arriving;
    each(bytes, [&](const ProtoReader::Field& f) {
      if (f.number == pf::event::kType) type = f.integer;
      if (f.number == pf::event::kTrack) track = f.integer;
      if (f.number == pf::event::kNameIid) name = s.texts[pf::interned::kEventNames][f.integer];
      if (f.number == pf::event::kName) name = f.bytes;
      if (f.number == pf::event::kCounterValue) counter = f.integer;
      if (f.number == kDoubleCounter) {
        number = std::bit_cast<double>(f.integer);
        is_double = true;
      }
      if (f.number == pf::event::kFlowIds) leaving.push_back(f.integer);
      if (f.number == pf::event::kTerminatingFlowIds) arriving.push_back(f.integer);
      if (f.number == pf::event::kAnnotations && type != pf::event::kEnd) read_annotation(f.bytes, s);
    });
    const std::uint32_t t = thread(track);
    if (name.empty()) name = "(no name)";
    if (type == pf::event::kCounter)
      out_.count(out_.process(process_of(track)), tracks_[track].name, "", at,
                 is_double ? number : double(static_cast<std::int64_t>(counter)));
    else if (type == pf::event::kBegin)
      out_.begin(t, name, at);
    else if (type == pf::event::kEnd)
      out_.end(t, at);
    else
      out_.add(t, name, at, at);
    for (const std::uint64_t id : leaving) out_.flow(std::to_string(id), t, at, true);
    for (const std::uint64_t id : arriving) out_.flow(std::to_string(id), t, at, false);
  }

  void read_annotation(std::string_view bytes, PacketSequence& s) {
    std::string name, value;
    each(bytes, [&](const ProtoReader::Field& f) {
      if (f.number == pf::annotation::kNameIid) name = s.texts[pf::interned::kAnnotationNames][f.integer];
      if (f.number == pf::annotation::kName) name = f.bytes;
      if (f.number == pf::annotation::kInt) value = std::to_string(static_cast<std::int64_t>(f.integer));
      if (f.number == kDouble) value = fmt::format("{}", std::bit_cast<double>(f.integer));
      if (f.number == pf::annotation::kString) value = f.bytes;
      if (f.number == pf::annotation::kStringIid) value = s.texts[pf::interned::kStrings][f.integer];
    });
    out_.argument(name, value);
  }

  const std::string& file_;
  ProgressTicks ticks_;
  ForeignBuilder out_;
  std::unordered_map<std::uint64_t, PacketSequence> sequences_;
  std::unordered_map<std::uint64_t, EventTrack> tracks_;
  std::uint64_t packets_ = 0;
  std::size_t inflated_ = 0;  // bytes of compressed packets
  bool is_inside_ = false;    // a compressed packet
};

}  // namespace

ForeignTrace read_perfetto_events(std::string_view bytes, const std::string& file, const ReadProgress& progress) {
  return PacketReader{file, progress}.read(bytes);
}

}  // namespace orrery
