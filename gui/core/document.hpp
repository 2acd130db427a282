// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/core/counter.hpp"
#include "gui/core/events.hpp"
#include "gui/core/parallel.hpp"
#include "gui/core/pyramid.hpp"
#include "sim/timeline/digest.hpp"
#include "sim/timeline/foreign_trace.hpp"

namespace orrery::gui {

using ClassTimes = std::array<std::int64_t, kNumOpClasses>;
using ClassCounts = std::array<std::uint32_t, kNumOpClasses>;

/// One lane of slices.
struct Track {
  std::string name;          // "comm", "comm 2", "stream 7"
  std::uint32_t owner = 0;   // into Document::owners
  bool is_overflow = false;  // a further lane of the stream above it
  Columns slices;
  Pyramid pyramid;
  std::vector<ClassTimes> times;    // before each block of kBlock slices, and behind the last one
  std::vector<ClassCounts> counts;  // likewise
};
constexpr std::size_t kBlock = 64;

/// Whose lanes they are: a rank of a plan, a process of another program's trace.
struct Owner {
  std::string name;  // "rank 3"
  std::uint32_t id = 0;
  std::vector<std::uint32_t> tracks, counters;
};

/// A step, or a range that the program marked.
struct Marker {
  std::string name;
  std::int64_t start = 0, end = 0;
};

/// Where an event is drawn.
struct Place {
  std::uint32_t track = UINT32_MAX, slice = 0;
};

/// A trace prepared for being looked at. Built once; only categories change after that.
class Document {
 public:
  Document(Trace trace, std::string name);
  Document(ForeignTrace trace, std::string name);

  const std::string& name() const { return name_; }
  /// "predicted", "measured", or "recorded" where a file does not say.
  std::string_view source() const;
  std::string machine() const;
  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return end_; }
  const EventSource& events() const { return *events_; }
  const std::vector<Owner>& owners() const { return owners_; }
  const std::vector<Track>& tracks() const { return tracks_; }
  const std::vector<Counter>& counters() const { return counters_; }
  const std::vector<Marker>& markers() const { return markers_; }
  /// Null for a trace of another program.
  const Trace* trace() const { return trace_.get(); }
  std::shared_ptr<const Trace> shared_trace() const { return trace_; }
  const ForeignTrace* foreign() const { return foreign_.get(); }
  /// The devices of a node as the trace says; kNoNodes when it does not.
  std::int64_t devices_per_node() const;
  static constexpr std::int64_t kNoNodes = 0;

  Place place(EventIndex e) const { return places_[e]; }
  std::int64_t start(EventIndex e) const;
  std::int64_t end(EventIndex e) const;
  std::size_t num_slices() const;

  /// Gives each event a new category.
  template <class Category>
  void categorise(Category category) {
    is_by_class_ = false;
    in_parallel(tracks_.size(), [&](std::size_t t) {
      Columns& s = tracks_[t].slices;
      s.category.resize(s.size());
      for (std::size_t i = 0; i < s.size(); ++i) s.category[i] = category(s.event[i]);
      tracks_[t].pyramid.recolour(s);
    });
  }

  /// The category of an event is its class, as it is at first.
  void categorise_by_class();

  /// Slices at other times: `moved(owner id, time of the file)` must not change the order of an owner's times.
  template <class Moved>
  void move_times(Moved moved) {
    for (Track& t : tracks_) {
      const std::uint32_t owner = owners_[t.owner].id;
      for (std::size_t i = 0; i < t.slices.size(); ++i) {
        t.slices.start[i] = moved(owner, events_->start(t.slices.event[i]));
        t.slices.end[i] = moved(owner, events_->end(t.slices.event[i]));
      }
      t.pyramid = Pyramid{t.slices};
    }
    find_range();
  }

 private:
  void add_owner(std::uint32_t id, std::string name);
  void add_memory(const Timeline& timeline);
  void add_rates(const Trace& trace);
  void add_occupancy(const ForeignTrace& trace);
  void finish();
  void find_range();

  std::string name_;
  std::shared_ptr<const Trace> trace_;  // behind pointers, so that a document can move
  std::unique_ptr<const ForeignTrace> foreign_;
  std::unique_ptr<const EventSource> events_;
  std::vector<Owner> owners_;
  std::vector<Track> tracks_;
  std::vector<Counter> counters_;
  std::vector<Marker> markers_;
  std::vector<Place> places_;
  std::int64_t begin_ = 0, end_ = 0;
  bool is_by_class_ = true;
};

}  // namespace orrery::gui
