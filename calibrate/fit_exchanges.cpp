// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit_exchanges.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "calibrate/statistics.hpp"

namespace orrery {
namespace {

constexpr std::size_t kFewest = 4;  // sizes of a curve
constexpr std::size_t kMostSegments = 5;
constexpr std::size_t kFewestInside = 2;  // sizes of a segment
constexpr double kPenalty = 0.04;         // in |ln| that a further segment must save
constexpr double kHuge = 1e18;
constexpr double kExchangesCovered = 0.88;  // of sizes left out, by the 90 % interval
constexpr double kExchangeDeviation = 0.0025;
constexpr double kWorth = 4;                   // misses: what those of the whole fabric count beside a curve's own
constexpr std::ptrdiff_t kFewestRepeated = 2;  // sizes that tell how times of one size differ
constexpr std::size_t kFewestMisses = 8;       // that tell what share of them intervals hold
constexpr int kRounds = 6;
constexpr double kSmallEnough = 16384, kLargeEnough = 100e6;  // B: from here to there a curve needs no others
constexpr double kOfTwo = 0.76;  // of the rate of a ring of more ranks: A100, H100, B200 alike
constexpr double kNear = 0.15;

struct ExchangePoint {
  double size = 0, time = 0;
};
struct Line {
  double latency = 0, slope = 0;
  double at(double size) const { return latency + slope * size; }
};
using Points = std::vector<ExchangePoint>;
struct Ring {  // what is known of a curve besides its points
  double factor = 1, bus = 1;
  std::int64_t ranks = 2, nodes = 1;
};

/// Σ w (latency + slope·S − T)² / T² over lines that neither start below zero nor fall.
Line least_squares(const ExchangePoint* p, std::size_t n, const std::vector<double>& weights) {
  double a = 0, b = 0, c = 0, u = 0, v = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double w = weights[i] / (p[i].time * p[i].time);
    a += w, b += w * p[i].size, c += w * p[i].size * p[i].size;
    u += w * p[i].time, v += w * p[i].time * p[i].size;
  }
  const double determinant = a * c - b * b;
  Line line{u / a, 0};
  if (determinant > 1e-12 * a * c) line = {(c * u - b * v) / determinant, (a * v - b * u) / determinant};
  if (line.slope < 0) line = {u / a, 0};
  if (line.latency < 0) line = {0, c > 0 ? v / c : 0};
  return line;
}

Line fit_line(const ExchangePoint* p, std::size_t n) {
  std::vector<double> weights(n, 1.0);
  Line line;
  for (int round = 0; round < kRounds; ++round) {
    line = least_squares(p, n, weights);
    for (std::size_t i = 0; i < n; ++i)
      weights[i] = 0.01 / std::max(0.01, std::abs(line.at(p[i].size) / p[i].time - 1));
  }
  return line;
}

double misfit(const ExchangePoint* p, std::size_t n, const Line& line) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += std::abs(std::log(std::max(line.at(p[i].size), 1e-12) / p[i].time));
  return sum;
}

/// The best segments of points in order of size: dynamic programming over their ends.
class Segmentation {
 public:
  explicit Segmentation(Points points) : points_{std::move(points)}, n_{points_.size()} {
    lines_.resize((n_ + 1) * (n_ + 1));
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t j = i + kFewestInside; j <= n_; ++j) {
        Piece& piece = lines_[i * (n_ + 1) + j];
        piece.line = fit_line(&points_[i], j - i);
        piece.cost = misfit(&points_[i], j - i, piece.line) + kPenalty;
      }
  }

  std::vector<CurveSegment> best() const {
    std::vector<std::vector<double>> cost(kMostSegments + 1, std::vector<double>(n_ + 1, kHuge));
    std::vector<std::vector<std::size_t>> start(kMostSegments + 1, std::vector<std::size_t>(n_ + 1, 0));
    cost[0][0] = 0;
    for (std::size_t k = 1; k <= kMostSegments; ++k)
      for (std::size_t j = kFewestInside; j <= n_; ++j)
        for (std::size_t i = 0; i + kFewestInside <= j; ++i)
          if (const double c = cost[k - 1][i] + piece(i, j).cost; c < cost[k][j]) cost[k][j] = c, start[k][j] = i;
    std::size_t k = 1;
    for (std::size_t other = 2; other <= kMostSegments; ++other)
      if (cost[other][n_] < cost[k][n_]) k = other;
    std::vector<CurveSegment> segments;
    for (std::size_t j = n_; k > 0; j = start[k][j], --k) segments.push_back(segment(start[k][j], j));
    std::reverse(segments.begin(), segments.end());
    return segments;
  }

 private:
  struct Piece {
    Line line;
    double cost = kHuge;
  };
  const Piece& piece(std::size_t i, std::size_t j) const { return lines_[i * (n_ + 1) + j]; }

  /// It begins half-way, in the logarithm, to the last size of the one before.
  CurveSegment segment(std::size_t i, std::size_t j) const {
    const Line& line = piece(i, j).line;
    CurveSegment s;
    s.from = Bytes{i == 0 ? 0 : std::sqrt(points_[i - 1].size * points_[i].size)};
    s.latency = Seconds{line.latency};
    s.bandwidth = BytesPerSecond{1 / std::max(line.slope, 1e-18)};
    return s;
  }

  Points points_;
  std::size_t n_;
  std::vector<Piece> lines_;
};

/// Seconds per byte of messages larger than were measured: as from a quarter of the largest size to it, but no further
/// from what rings reach elsewhere in the fabric than `kNear`. Two ranks reach three quarters of what more do. A rate
/// that is more than three times as high is of other links (bridges between pairs) and stays.
double slope_beyond(const Points& points, const Ring& ring) {
  const ExchangePoint last = points.back();
  std::size_t i = points.size() - 1;
  while (i > 0 && points[i].size > last.size / 4) --i;
  const double own = std::max(0.0, (last.time - points[i].time) / std::max(1.0, last.size - points[i].size));
  const double expected = ring.factor / (ring.bus * (ring.ranks == 2 ? kOfTwo : 1.0));
  if (own > 0 && (ring.nodes > 1 || own < expected / 3)) return own;
  return std::clamp(own, expected / (1 + kNear), expected / (1 - kNear));
}

/// The points with what is assumed of the ends that were not measured.
Points with_ends(Points points, const Ring& ring) {
  const ExchangePoint first = points.front(), last = points.back();
  const double slope = slope_beyond(points, ring);
  if (first.size > kSmallEnough) {
    points.insert(points.begin(), {1024, first.time / 2});
    points.insert(points.begin(), {256, first.time / 2});
  }
  if (last.size < kLargeEnough)
    for (const double size : {std::max(4 * last.size, kLargeEnough), std::max(16 * last.size, 10 * kLargeEnough)})
      points.push_back({size, last.time + (size - last.size) * slope});
  return points;
}

/// |ln(measured / fitted)| of each number of a spread, over what doubt it multiplies.
constexpr std::array kSpreads{&CurveSpread::at, &CurveSpread::between, &CurveSpread::beyond, &CurveSpread::below};
using ExchangeMisses = std::array<std::vector<double>, kSpreads.size()>;
using Sizes = std::map<double, std::vector<double>>;  // times of each

void add_miss(ExchangeMisses& misses, const CollectiveCurve& curve, const ExchangePoint& p) {
  const CollectiveCurve::Doubt doubt = curve.doubt(Bytes{p.size});
  const auto number = std::find(kSpreads.begin(), kSpreads.end(), doubt.of) - kSpreads.begin();
  misses[std::size_t(number)].push_back(std::abs(std::log(p.time / curve.time(Bytes{p.size}).base())) / doubt.times);
}

CollectiveCurve curve_of(const Points& points, const Ring& ring) {
  CollectiveCurve c;
  for (const ExchangePoint& p : points) c.sizes.push_back(Bytes{p.size});
  c.segments = Segmentation{with_ends(points, ring)}.best();
  return c;
}

/// Where sizes were measured several times each time against the others, else against the curve.
void add_misses_at(ExchangeMisses& misses, const CollectiveCurve& curve, const Sizes& sizes) {
  const auto is_repeated = [](const auto& size) { return size.second.size() > 1; };
  if (std::count_if(sizes.begin(), sizes.end(), is_repeated) < kFewestRepeated) {
    for (const auto& [size, times] : sizes)
      for (const double t : times) add_miss(misses, curve, {size, t});
    return;
  }
  for (const auto& [size, times] : sizes) {
    for (std::size_t i = 0; i < times.size() && times.size() > 1; ++i) {
      std::vector<double> others = times;
      others.erase(others.begin() + std::ptrdiff_t(i));
      misses[0].push_back(std::abs(std::log(times[i] / median(std::move(others)))));
    }
  }
}

/// Each size by a curve that was not told of it; those of the largest fifth by one that knows none of them.
void add_misses_elsewhere(ExchangeMisses& misses, const Points& points, const Ring& ring) {
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    Points others = points;
    others.erase(others.begin() + std::ptrdiff_t(i));
    add_miss(misses, curve_of(others, ring), points[i]);
  }
  const std::size_t known = points.size() - (points.size() + 4) / 5;
  const CollectiveCurve small = curve_of({points.begin(), points.begin() + std::ptrdiff_t(known)}, ring);
  for (std::size_t i = known; i < points.size(); ++i) add_miss(misses, small, points[i]);
}

double deviation_of(const std::vector<double>& misses) {
  return misses.empty() ? kExchangeDeviation
                        : std::max(kExchangeDeviation, quantile(misses, kExchangesCovered) / kNinetyPercent);
}

/// Of two logarithms, the first as `n` observations, the second as `kWorth`.
double mixed(double own, std::size_t n, double common) {
  return std::exp((double(n) * std::log(own) + kWorth * std::log(common)) / (double(n) + kWorth));
}

/// One number of the spread of each curve: its own misses and those of the fabric, by their logarithms; scaled so that
/// the intervals hold their share of all.
void set_spread(std::vector<CollectiveCurve>& curves, const std::vector<ExchangeMisses>& misses, std::size_t number) {
  std::vector<double> all, needed;
  for (const ExchangeMisses& m : misses) all.insert(all.end(), m[number].begin(), m[number].end());
  const CurveSpread usual;
  const double common = mixed(deviation_of(all), all.size(), usual.*kSpreads[number]);
  const auto number_of = [&](std::size_t c) -> double& { return curves[c].spread.*kSpreads[number]; };
  for (std::size_t c = 0; c < curves.size(); ++c) {
    const std::vector<double>& own = misses[c][number];
    number_of(c) = mixed(deviation_of(own), own.size(), common);
    for (const double miss : own) needed.push_back(miss / (kNinetyPercent * number_of(c)));
  }
  if (needed.size() < kFewestMisses) return;
  const double scale = quantile(std::move(needed), kExchangesCovered);
  for (std::size_t c = 0; c < curves.size(); ++c) number_of(c) = std::max(kExchangeDeviation, number_of(c) * scale);
}

}  // namespace

double bus_factor(Exchange op, std::int64_t ranks) {
  const double n = double(ranks);
  if (op == Exchange::AllReduce) return 2 * (n - 1) / n;
  const bool is_whole = op == Exchange::SendRecv || op == Exchange::Broadcast || op == Exchange::Reduce;
  return is_whole ? 1 : (n - 1) / n;
}

std::vector<CollectiveCurve> fit_exchanges(const std::vector<ExchangeSample>& samples, BytesPerSecond bus) {
  using Kind = std::tuple<Exchange, std::string>;
  using Place = std::tuple<std::int64_t, std::int64_t>;
  std::map<Kind, std::map<Place, Sizes>> measured;
  for (const ExchangeSample& s : samples)
    measured[{s.op, s.software}][{s.nodes, s.ranks}][s.bytes.base()].push_back(s.measured.base());
  std::vector<CollectiveCurve> curves;
  std::vector<ExchangeMisses> misses;
  for (const auto& [kind, places] : measured)
    for (const auto& [place, sizes] : places) {
      if (sizes.size() < kFewest) continue;
      const auto& [nodes, ranks] = place;
      const Ring ring{bus_factor(std::get<0>(kind), ranks), bus.base(), ranks, nodes};
      Points points;
      for (const auto& [size, times] : sizes) points.push_back({size, median(times)});
      CollectiveCurve& curve = curves.emplace_back(curve_of(points, ring));
      curve.op = std::get<0>(kind), curve.software = std::get<1>(kind), curve.ranks = ranks, curve.nodes = nodes;
      add_misses_at(misses.emplace_back(), curve, sizes);
      add_misses_elsewhere(misses.back(), points, ring);
    }
  for (std::size_t number = 0; number < kSpreads.size(); ++number) set_spread(curves, misses, number);
  return curves;
}

}  // namespace orrery
