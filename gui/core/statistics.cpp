// SPDX-License-Identifier: Apache-2.0
#include "gui/core/statistics.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <unordered_map>

#include "sim/timeline/compare.hpp"

namespace orrery::gui {
namespace {

/// Adds or takes away the sums of slices before `index`.
void add_before(const Document& document, const Track& track, std::size_t index, int sign, RangeStatistics& out) {
  const std::size_t block = index / kBlock;
  for (std::size_t c = 0; c < out.times.size(); ++c) {
    out.times[c] += sign * track.times[block][c];
    out.counts[c] += static_cast<std::uint32_t>(sign) * track.counts[block][c];
  }
  for (std::size_t i = block * kBlock; i < index; ++i) {
    const auto c = static_cast<std::size_t>(document.events().facets(track.slices.event[i]).op_class);
    out.times[c] += sign * (track.slices.end[i] - track.slices.start[i]);
    out.counts[c] += static_cast<std::uint32_t>(sign);
  }
}

void add_lane(const Document& document, const Track& track, RangeStatistics& out) {
  const Columns& s = track.slices;
  const std::size_t first = s.first_after(out.range.begin);
  const auto last =
      static_cast<std::size_t>(std::lower_bound(s.start.begin(), s.start.end(), out.range.end) - s.start.begin());
  if (first >= last) return;
  add_before(document, track, last, 1, out);
  add_before(document, track, first, -1, out);
  const auto class_of = [&](std::size_t i) {
    return static_cast<std::size_t>(document.events().facets(s.event[i]).op_class);
  };
  out.times[class_of(first)] -= std::max<std::int64_t>(0, out.range.begin - s.start[first]);
  out.times[class_of(last - 1)] -= std::max<std::int64_t>(0, s.end[last - 1] - out.range.end);
}

std::string lower(std::string_view text) {
  std::string out{text};
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

/// Whether a text contains all words; remembers texts, which are few and shared by many events.
class Matcher {
 public:
  explicit Matcher(std::string_view text) {
    std::string word;
    for (const char c : lower(text) + " ") {
      if (c != ' ')
        word += c;
      else if (!word.empty())
        words_.push_back(std::exchange(word, {}));
    }
  }
  bool is_empty() const { return words_.empty(); }

  bool matches(std::string_view name, std::string_view work, std::string_view kind) {
    const auto [it, is_new] = known_.try_emplace({name.data(), work.data()}, false);
    if (is_new) {
      const std::string all = lower(name) + " " + lower(work) + " " + lower(kind);
      it->second = std::all_of(words_.begin(), words_.end(),
                               [&](const std::string& w) { return all.find(w) != std::string::npos; });
    }
    return it->second;
  }

 private:
  struct Hash {
    std::size_t operator()(const std::pair<const char*, const char*>& p) const {
      return std::hash<const char*>{}(p.first) * 31 + std::hash<const char*>{}(p.second);
    }
  };
  std::vector<std::string> words_;
  std::unordered_map<std::pair<const char*, const char*>, bool, Hash> known_;  // texts are stored once
};

}  // namespace

std::int64_t RangeStatistics::busy() const { return std::accumulate(times.begin(), times.end(), std::int64_t{0}); }
std::uint64_t RangeStatistics::count() const { return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}); }
double RangeStatistics::utilisation() const {
  return lanes == 0 || range.length() <= 0 ? 0 : double(busy()) / double(range.length()) / double(lanes);
}

RangeStatistics statistics(const Document& document, TimeRange range, std::span<const std::uint32_t> lanes) {
  RangeStatistics out;
  out.range = range;
  out.lanes = lanes.size();
  for (const std::uint32_t t : lanes) add_lane(document, document.tracks()[t], out);
  return out;
}

RangeStatistics statistics(const Document& document, TimeRange range) {
  std::vector<std::uint32_t> all(document.tracks().size());
  std::iota(all.begin(), all.end(), 0u);
  return statistics(document, range, all);
}

std::vector<NameStatistics> statistics_by_name(const Document& document, TimeRange range) {
  std::unordered_map<std::string, NameStatistics> rows;
  std::unordered_map<const char*, NameStatistics*> row_of;  // by the stored text
  for (const Track& track : document.tracks()) {
    const Columns& s = track.slices;
    for (std::size_t i = s.first_after(range.begin); i < s.size() && s.start[i] < range.end; ++i) {
      const std::string_view name = document.events().name(s.event[i]);
      NameStatistics*& row = row_of[name.data()];
      if (row == nullptr) {
        row = &rows[name_pattern(name)];
        row->op_class = document.events().facets(s.event[i]).op_class;
      }
      const std::int64_t duration = s.end[i] - s.start[i];
      row->shortest = row->count == 0 ? duration : std::min(row->shortest, duration);
      if (row->count == 0 || duration > row->longest) row->example = s.event[i];
      row->longest = std::max(row->longest, duration);
      row->total += duration;
      ++row->count;
    }
  }
  std::vector<NameStatistics> out;
  for (auto& [name, row] : rows) {
    row.name = name;
    out.push_back(row);
  }
  std::sort(out.begin(), out.end(), [](const NameStatistics& a, const NameStatistics& b) {
    return a.total != b.total ? a.total > b.total : a.name < b.name;
  });
  return out;
}

std::vector<EventIndex> search(const Document& document, std::string_view text) {
  Matcher matcher{text};
  std::vector<EventIndex> found;
  if (matcher.is_empty()) return found;
  const EventSource& events = document.events();
  for (EventIndex e = 0; e < events.size(); ++e)
    if (matcher.matches(events.name(e), events.work(e), events.kind(e))) found.push_back(e);
  std::stable_sort(found.begin(), found.end(),
                   [&](EventIndex a, EventIndex b) { return document.start(a) < document.start(b); });
  return found;
}

FoundSlices found_slices(const Document& document, std::span<const EventIndex> found) {
  FoundSlices out;
  out.of_track.resize(document.tracks().size());
  for (const EventIndex e : found) {
    const Place p = document.place(e);
    out.of_track[p.track].push_back(p.slice);
  }
  out.begins.resize(out.of_track.size());
  in_parallel(out.of_track.size(), [&](std::size_t t) {
    std::vector<std::uint32_t>& slices = out.of_track[t];
    std::sort(slices.begin(), slices.end());
    if (slices.size() < 2) return;
    const std::vector<std::int64_t>& start = document.tracks()[t].slices.start;
    Buckets<std::uint8_t>& begins = out.begins[t];
    begins = Buckets<std::uint8_t>{{start[slices.front()], start[slices.back()]}, slices.size()};
    const std::span<std::uint8_t> finest = begins.finest();
    for (const std::uint32_t i : slices)
      begins.each_bucket({start[i], start[i]}, [&](std::size_t b, std::int64_t) { finest[b] = 1; });
    begins.sum_up([](std::uint8_t a, std::uint8_t b) { return std::uint8_t(a | b); });
  });
  return out;
}

EventIndex neighbour(const Document& document, EventIndex e, int step) {
  const Place p = document.place(e);
  const Columns& s = document.tracks()[p.track].slices;
  const std::int64_t next = std::int64_t{p.slice} + step;
  return next >= 0 && next < std::ssize(s.event) ? s.event[static_cast<std::size_t>(next)] : kNoEvent;
}

}  // namespace orrery::gui
