// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/timeline/foreign_readers.hpp"
#include "sim/timeline/foreign_trace.hpp"

namespace orrery {

/// The latest time in nanoseconds that is read as it stands: in picoseconds, differences of two still fit.
constexpr std::int64_t kLatestNs = INT64_MAX / 4000;

/// Passes on where a reader is, every few thousand items.
class ProgressTicks {
 public:
  explicit ProgressTicks(const ReadProgress& progress) : progress_{progress} {}
  template <class Share>
  void item(Share share) {
    if (++count_ % kEvery == 0 && progress_) progress_(share());
  }

 private:
  static constexpr std::uint64_t kEvery = 4096;
  const ReadProgress& progress_;
  std::uint64_t count_ = 0;
};

/// Puts a trace of another program together: processes and threads by the names of the file, begin and end events,
/// flows by their place.
class ForeignBuilder {
 public:
  ForeignTrace trace;
  std::optional<std::int64_t> rank;  // of all processes, where the file says it

  std::uint32_t process(const std::string& id);
  std::uint32_t thread(const std::string& process_id, const std::string& id);

  /// Arguments added before belong to the event.
  void argument(std::string_view name, std::string_view value);
  std::uint32_t add(std::uint32_t thread, std::string_view name, std::int64_t start_ps, std::int64_t end_ps);
  void begin(std::uint32_t thread, std::string_view name, std::int64_t at_ps);
  void end(std::uint32_t thread, std::int64_t at_ps);
  void count(std::uint32_t process, const std::string& name, std::string_view unit, std::int64_t at_ps, double value);
  /// An end of an arrow at an instant of a thread: bound to the event that is running then.
  void flow(std::string_view id, std::uint32_t thread, std::int64_t at_ps, bool is_start);

  /// Closes what is open, binds flows, repairs times.
  ForeignTrace take();

 private:
  struct FlowEnd {
    std::uint32_t thread = 0;
    std::int64_t at = 0;
    bool is_start = false;
  };
  void bind_flows();
  void find_devices();

  std::unordered_map<std::string, std::uint32_t> processes_, threads_;
  std::map<std::pair<std::uint32_t, std::string>, std::size_t> counters_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> open_;  // events that began, by thread
  std::map<std::string, std::vector<FlowEnd>, std::less<>> flows_;
  std::uint32_t first_argument_ = 0;
};

}  // namespace orrery
