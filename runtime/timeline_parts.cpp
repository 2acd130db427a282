// SPDX-License-Identifier: Apache-2.0
#include "runtime/timeline_parts.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// What a peak is without the list of its owners, which has a length of its own.
struct PlainPeak {
  RankId rank;
  Tier tier = Tier::Device;
  std::int64_t bytes = 0, arena_bytes = 0;
  OpId op;
  std::uint32_t instance = 0;
  std::uint64_t owners = 0;
};
struct Owner {
  TensorId tensor;
  std::int64_t bytes = 0;
};

template <class T, class A>
void put(std::string& out, const std::vector<T, A>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::uint64_t n = values.size();
  out.append(reinterpret_cast<const char*>(&n), sizeof n);
  out.append(reinterpret_cast<const char*>(values.data()), n * sizeof(T));
}

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_{bytes} {}
  template <class T>
  std::vector<T> take() {
    std::uint64_t n = 0;
    copy(&n, sizeof n);
    if (n > (bytes_.size() - at_) / sizeof(T)) throw DeviceError{"a process of another version takes part"};
    std::vector<T> values(n);
    copy(values.data(), n * sizeof(T));
    return values;
  }

 private:
  void copy(void* to, std::size_t bytes) {
    if (bytes > bytes_.size() - at_) throw DeviceError{"a process of another version takes part"};
    if (bytes > 0) std::memcpy(to, bytes_.data() + at_, bytes);
    at_ += bytes;
  }
  const std::string& bytes_;
  std::size_t at_ = 0;
};

std::string part_of(const Timeline& t) {
  std::vector<PlainPeak> peaks;
  std::vector<Owner> owners;
  for (const Peak& p : t.peaks) {
    peaks.push_back({p.rank, p.tier, p.bytes, p.arena_bytes, p.op, p.instance, p.owners.size()});
    for (const auto& [tensor, bytes] : p.owners) owners.push_back({tensor, bytes});
  }
  std::string out;
  put(out, t.spans);
  put(out, t.memory);
  put(out, t.transfers);
  put(out, t.instance_ends_ps);
  put(out, peaks);
  put(out, owners);
  return out;
}

template <class T, class A>
void append(std::vector<T, A>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

void add_part(Timeline& t, const std::string& bytes) {
  Reader in{bytes};
  append(t.spans, in.take<Span>());
  append(t.memory, in.take<MemorySample>());
  append(t.transfers, in.take<Transfers>());
  const auto ends = in.take<std::int64_t>();
  t.instance_ends_ps.resize(std::max(t.instance_ends_ps.size(), ends.size()));
  for (std::size_t i = 0; i < ends.size(); ++i) t.instance_ends_ps[i] = std::max(t.instance_ends_ps[i], ends[i]);
  const auto peaks = in.take<PlainPeak>();
  const auto owners = in.take<Owner>();
  std::size_t next = 0;
  for (const PlainPeak& p : peaks) {
    Peak peak{p.rank, p.tier, p.bytes, p.arena_bytes, p.op, p.instance, {}};
    for (std::uint64_t i = 0; i < p.owners && next < owners.size(); ++i, ++next)
      peak.owners.emplace_back(owners[next].tensor, owners[next].bytes);
    t.peaks.push_back(std::move(peak));
  }
}

}  // namespace

void join_parts(Timeline& mine, Peers& peers) {
  const std::vector<std::string> parts = peers.gather(part_of(mine));
  mine.spans.clear();
  mine.memory.clear();
  mine.transfers.clear();
  mine.instance_ends_ps.clear();
  mine.peaks.clear();
  for (const std::string& part : parts) add_part(mine, part);
}

}  // namespace orrery
