// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/packing/packing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>

#include "sim/base/error.hpp"
#include "sim/base/shuffle.hpp"
#include "sim/strategy/packing/datasculpt.hpp"

namespace orrery {
namespace {

constexpr std::uint64_t kPieceOrder = 1, kWindowOrder = 2;

/// Parts that follow one another in a window are one.
void join(const DocumentPart& part, PackedWindow& window) {
  if (!window.empty() && window.back().document == part.document && window.back().to == part.from)
    window.back().to = part.to;
  else
    window.push_back(part);
}

std::vector<PackedWindow> concatenated(std::span<const DocumentPart> pieces, std::int64_t size) {
  std::vector<PackedWindow> windows;
  std::int64_t room = 0;
  for (DocumentPart rest : pieces)
    while (rest.length() > 0) {
      if (room == 0) windows.emplace_back(), room = size;
      DocumentPart now = rest;
      now.to = std::min(rest.to, rest.from + room);
      join(now, windows.back());
      room -= now.length();
      rest.from = now.to;
    }
  return windows;
}

std::vector<PackedWindow> best_fit(std::vector<DocumentPart> pieces, std::int64_t size) {
  sort_longest_first(pieces);
  std::vector<PackedWindow> windows;
  std::set<std::pair<std::int64_t, std::size_t>> rooms;  // tokens left, window
  for (const DocumentPart& piece : pieces) {
    auto at = rooms.lower_bound({piece.length(), 0});
    if (at == rooms.end()) {
      at = rooms.emplace(size, windows.size()).first;
      windows.emplace_back();
    }
    const std::pair<std::int64_t, std::size_t> found = *at;
    rooms.erase(at);
    const std::int64_t room = put(piece, windows[found.second], found.first);
    if (room > 0) rooms.emplace(room, found.second);
  }
  return windows;
}

std::vector<PackedWindow> alone(std::span<const DocumentPart> pieces) {
  std::vector<PackedWindow> windows;
  for (const DocumentPart& piece : pieces) windows.push_back({piece});
  return windows;
}

/// Steps of windows that cost alike, in random order. In each, the costliest window goes to the rank with the least so
/// far that has room: a list schedule, longest first (Graham, SIAM J. Appl. Math. 17, 1969).
std::vector<PackedWindow> balanced(std::vector<PackedWindow> windows, const PackRequest& r) {
  std::stable_sort(windows.begin(), windows.end(),
                   [](const PackedWindow& a, const PackedWindow& b) { return squares_of(a) > squares_of(b); });
  const auto ranks = static_cast<std::size_t>(r.ranks), each = static_cast<std::size_t>(r.per_rank);
  const std::size_t step = ranks * each, steps = windows.size() / step;
  std::vector<std::size_t> order(steps);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Random random{r.seed, kWindowOrder};
  shuffle(order, random);
  std::vector<PackedWindow> out;
  for (const std::size_t s : order) {
    std::vector<std::vector<PackedWindow>> shares(ranks);
    std::vector<double> sums(ranks, 0.0);
    for (std::size_t i = s * step; i < (s + 1) * step; ++i) {
      std::size_t least = ranks;
      for (std::size_t k = 0; k < ranks; ++k)
        if (shares[k].size() < each && (least == ranks || sums[k] < sums[least])) least = k;
      sums[least] += squares_of(windows[i]);
      shares[least].push_back(std::move(windows[i]));
    }
    for (auto& share : shares) std::move(share.begin(), share.end(), std::back_inserter(out));
  }
  std::move(windows.begin() + static_cast<std::ptrdiff_t>(steps * step), windows.end(), std::back_inserter(out));
  return out;
}

std::int64_t room_of(const PackedWindow& window, std::int64_t size) {
  for (const DocumentPart& p : window) size -= p.length();
  return size;
}

/// Cuts the windows with the most room into what fills the others; what is left then does not fill one and is lost.
std::vector<PackedWindow> filled(std::vector<PackedWindow> windows, std::int64_t size) {
  std::stable_sort(windows.begin(), windows.end(), [size](const PackedWindow& a, const PackedWindow& b) {
    return room_of(a, size) < room_of(b, size);
  });
  for (std::size_t i = 0; i < windows.size(); ++i)
    for (std::int64_t room = room_of(windows[i], size); room > 0;) {
      while (windows.back().empty()) windows.pop_back();
      if (i + 1 >= windows.size()) {
        windows.resize(i);
        break;
      }
      DocumentPart& last = windows.back().back();
      room = put(last, windows[i], room);
      last.from += windows[i].back().length();
      if (last.length() == 0) windows.back().pop_back();
    }
  return windows;
}

std::vector<PackedWindow> packed(const PackRequest& r, std::vector<DocumentPart> pieces) {
  Random order{r.seed, kPieceOrder};
  switch (r.packer) {
    case PackerKind::Concatenate:
      return concatenated(pieces, r.window);
    case PackerKind::Shuffle:
      shuffle(pieces, order);
      return concatenated(pieces, r.window);
    case PackerKind::Alone:
      return alone(pieces);
    case PackerKind::LargestFit:
      return largest_fit(std::move(pieces), r.window);
    case PackerKind::DataSculpt:
      return datasculpt(r, pieces);
    case PackerKind::BestFit:
    case PackerKind::Balanced:
      return best_fit(std::move(pieces), r.window);
  }
  bug("a packer that is no packer");
}

/// The 95th percentile over the mean; the least value that 95 % do not exceed.
double spread_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
  return values[(values.size() * 95 + 99) / 100 - 1] / mean;
}

void add_spreads(std::span<const PackedWindow> windows, const PackRequest& r, PackingStatistics& out) {
  std::vector<double> each, shares;
  for (const PackedWindow& w : windows) each.push_back(squares_of(w));
  const auto per_rank = static_cast<std::size_t>(r.per_rank), ranks = static_cast<std::size_t>(r.ranks);
  const std::size_t steps = each.size() / (ranks * per_rank);
  double most = 0, all = 0;
  for (std::size_t s = 0; s < steps; ++s) {
    double slowest = 0;
    for (std::size_t k = 0; k < ranks; ++k) {
      const auto first = each.begin() + static_cast<std::ptrdiff_t>((s * ranks + k) * per_rank);
      shares.push_back(std::accumulate(first, first + r.per_rank, 0.0));
      slowest = std::max(slowest, shares.back());
      all += shares.back();
    }
    most += slowest * double(ranks);
  }
  out.window_spread = spread_of(std::move(each));
  out.rank_spread = spread_of(std::move(shares));
  out.slowest_rank = all > 0 ? most / all : 0;
}

}  // namespace

void sort_longest_first(std::vector<DocumentPart>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const DocumentPart& a, const DocumentPart& b) { return a.length() > b.length(); });
}

std::int64_t put(const DocumentPart& piece, PackedWindow& window, std::int64_t room) {
  const std::int64_t taken = std::min(room, piece.length());
  window.push_back({piece.document, piece.from, piece.from + taken});
  return room - taken;
}

double squares_of(const PackedWindow& window) {
  double sum = 0;
  for (const DocumentPart& p : window) sum += double(p.length()) * double(p.length());
  return sum;
}

std::vector<DocumentPart> pieces_of(std::span<const std::int64_t> lengths, std::int64_t window) {
  std::vector<DocumentPart> pieces;
  for (std::size_t d = 0; d < lengths.size(); ++d)
    for (std::int64_t from = 0; from < lengths[d]; from += window)
      pieces.push_back({static_cast<std::int64_t>(d), from, std::min(lengths[d], from + window)});
  return pieces;
}

std::vector<PackedWindow> largest_fit(std::vector<DocumentPart> pieces, std::int64_t size) {
  std::int64_t tokens = 0;
  for (const DocumentPart& p : pieces) tokens += p.length();
  std::vector<PackedWindow> windows(static_cast<std::size_t>(tokens / size));
  sort_longest_first(pieces);
  std::priority_queue<std::pair<std::int64_t, std::int64_t>> rooms;  // tokens left, −window: the first of equals
  for (std::int64_t w = 0; w < std::ssize(windows); ++w) rooms.emplace(size, -w);
  for (const DocumentPart& piece : pieces) {
    if (rooms.empty()) break;
    const auto [room, at] = rooms.top();
    rooms.pop();
    const std::int64_t left = put(piece, windows[static_cast<std::size_t>(-at)], room);
    if (left > 0) rooms.emplace(left, at);
  }
  return windows;
}

std::vector<PackedWindow> pack(const PackRequest& r, std::span<const std::int64_t> lengths) {
  if (r.window < 1) throw UserError{fmt::format("a window of {} tokens", r.window), "windows have at least one"};
  for (std::size_t d = 0; d < lengths.size(); ++d)
    if (lengths[d] < 1)
      throw UserError{fmt::format("document {} has {} tokens", d, lengths[d]), "leave empty documents out"};
  std::vector<PackedWindow> windows = packed(r, pieces_of(lengths, r.window));
  if (r.fills) windows = filled(std::move(windows), r.window);
  if (r.packer == PackerKind::Balanced || r.balances) return balanced(std::move(windows), r);
  Random random{r.seed, kWindowOrder};
  shuffle(windows, random);
  return windows;
}

PackingStatistics statistics_of(std::span<const PackedWindow> windows, std::span<const std::int64_t> lengths,
                                const PackRequest& r) {
  PackingStatistics out{.documents = std::ssize(lengths), .windows = std::ssize(windows)};
  std::int64_t parts = 0, truncations = 0;
  double squares = 0;
  for (const PackedWindow& w : windows) {
    parts += std::ssize(w);
    squares += squares_of(w);
    for (const DocumentPart& p : w) {
      out.tokens += p.length();
      truncations += p.to < lengths[static_cast<std::size_t>(p.document)] && p.to % r.window != 0 ? 1 : 0;
    }
  }
  out.lost = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}) - out.tokens;
  if (windows.empty()) return out;
  const double n = double(windows.size()), size = double(r.window);
  out.parts_per_window = double(parts) / n;
  out.truncations_per_window = double(truncations) / n;
  out.padding = 1 - double(out.tokens) / (n * size);
  out.squares = squares / (n * size * size);
  add_spreads(windows, r, out);
  return out;
}

}  // namespace orrery
