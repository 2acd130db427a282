// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/packing/datasculpt.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <optional>

#include "sim/base/error.hpp"
#include "sim/base/shuffle.hpp"

namespace orrery {
namespace {

using Vector = std::vector<double>;
constexpr std::uint64_t kCentroids = 3;
constexpr std::size_t kMostCompared = 256;

void normalise(Vector& v) {
  const double length = std::sqrt(dot(v, v));
  if (length > 0)
    for (double& x : v) x /= length;
}

/// Different numbers below n, in order of drawing.
std::vector<std::size_t> some_of(std::size_t n, std::size_t count, Random& random) {
  std::vector<std::size_t> all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  draw_to_front(all, count, random);
  all.resize(count);
  return all;
}

double mean_likeness(std::span<const Vector> vectors, Random& random) {
  const auto drawn = some_of(vectors.size(), std::min(vectors.size(), kMostCompared), random);
  double sum = 0, pairs = 0;
  for (std::size_t i = 0; i < drawn.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) sum += dot(vectors[drawn[i]], vectors[drawn[j]]), ++pairs;
  return pairs > 0 ? sum / pairs : 1;
}

struct Nearest {
  std::size_t at = 0;
  double likeness = -2;  // below any cosine
};

Nearest nearest(std::span<const double> v, std::span<const Vector> centroids) {
  Nearest best;
  for (std::size_t c = 0; c < centroids.size(); ++c)
    if (const double l = dot(v, centroids[c]); l > best.likeness) best = {c, l};
  return best;
}

/// Means of the vectors of each cluster, of length 1; those of clusters without any stay.
std::vector<Vector> means(std::span<const Vector> vectors, std::span<const std::size_t> cluster,
                          const std::vector<Vector>& before) {
  std::vector<Vector> sums(before.size(), Vector(vectors.front().size(), 0.0));
  std::vector<bool> has(before.size(), false);
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    has[cluster[i]] = true;
    for (std::size_t d = 0; d < vectors[i].size(); ++d) sums[cluster[i]][d] += vectors[i][d];
  }
  for (std::size_t c = 0; c < sums.size(); ++c)
    if (has[c])
      normalise(sums[c]);
    else
      sums[c] = before[c];
  return sums;
}

/// Centroids without those that are like an earlier one, which takes their vectors.
void merge(std::vector<Vector>& centroids, std::vector<std::size_t>& cluster, double likeness) {
  std::vector<Vector> kept;
  std::vector<std::size_t> to;
  for (const Vector& c : centroids) {
    const Nearest n = nearest(c, kept);
    to.push_back(n.likeness >= likeness ? n.at : kept.size());
    if (to.back() == kept.size()) kept.push_back(c);
  }
  for (std::size_t& c : cluster) c = to[c];
  centroids = std::move(kept);
}

void number_by_first(std::vector<std::size_t>& cluster) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> number;
  std::size_t next = 0;
  for (std::size_t& c : cluster) {
    if (c >= number.size()) number.resize(c + 1, kNone);
    if (number[c] == kNone) number[c] = next++;
    c = number[c];
  }
}

/// A window that is filled, and what its documents are like.
struct Filling {
  std::int64_t room = 0;
  Vector mean;  // empty: nothing is in it
  double count = 0;

  double likeness(const Vector& v) const {
    if (mean.empty()) return 1;
    const double length = std::sqrt(dot(mean, mean) * dot(v, v));
    return length > 0 ? dot(mean, v) / length : 0;
  }
  void add(const Vector& v) {
    mean.resize(v.size(), 0.0);
    ++count;
    for (std::size_t d = 0; d < v.size(); ++d) mean[d] += (v[d] - mean[d]) / count;
  }
};

void pack_cluster(const PackRequest& r, std::vector<DocumentPart> pieces, std::vector<PackedWindow>& out) {
  std::int64_t tokens = 0;
  for (const DocumentPart& p : pieces) tokens += p.length();
  const auto count = static_cast<std::size_t>(tokens / r.window);
  std::vector<PackedWindow> windows(count);
  std::vector<Filling> fillings(count, Filling{.room = r.window, .mean = {}});
  sort_longest_first(pieces);
  for (const DocumentPart& piece : pieces) {
    const Vector& v = r.vectors[static_cast<std::size_t>(piece.document)];
    std::optional<std::size_t> best;
    double most = 0;
    for (std::size_t w = 0; w < count; ++w) {
      if (fillings[w].room == 0) continue;
      const double score = fillings[w].likeness(v) * double(fillings[w].room);
      if (!best || score > most) best = w, most = score;
    }
    if (!best) break;
    fillings[*best].room = put(piece, windows[*best], fillings[*best].room);
    fillings[*best].add(v);
  }
  std::move(windows.begin(), windows.end(), std::back_inserter(out));
}

}  // namespace

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<std::size_t> clusters_of(std::span<const Vector> vectors, const PackRequest& r) {
  if (vectors.empty()) return {};
  std::vector<Vector> all(vectors.begin(), vectors.end());
  for (Vector& v : all) normalise(v);
  Random random{r.seed, kCentroids};
  const double density = std::clamp(mean_likeness(all, random), 0.0, 1.0);
  const auto first = std::max<std::size_t>(1, static_cast<std::size_t>(double(all.size()) * density));
  std::vector<Vector> centroids;
  for (const std::size_t i : some_of(all.size(), first, random)) centroids.push_back(all[i]);
  std::vector<std::size_t> cluster(all.size(), 0);
  for (std::int64_t round = 0; round < r.rounds; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Nearest n = nearest(all[i], centroids);
      cluster[i] = n.likeness >= r.likeness ? n.at : centroids.size();
      if (cluster[i] == centroids.size()) centroids.push_back(all[i]);
    }
    std::vector<Vector> moved = means(all, cluster, centroids);
    double movement = 0;
    for (std::size_t c = 0; c < moved.size(); ++c)
      movement += std::sqrt(std::max(0.0, 2 - 2 * dot(moved[c], centroids[c]))) / double(moved.size());
    centroids = std::move(moved);
    merge(centroids, cluster, r.likeness);
    if (movement < r.movement) break;
  }
  number_by_first(cluster);
  return cluster;
}

std::vector<PackedWindow> datasculpt(const PackRequest& r, std::span<const DocumentPart> pieces) {
  if (r.vectors.empty()) return largest_fit({pieces.begin(), pieces.end()}, r.window);
  const std::vector<std::size_t> cluster = clusters_of(r.vectors, r);
  std::vector<std::vector<DocumentPart>> parts;
  for (const DocumentPart& p : pieces) {
    const auto document = static_cast<std::size_t>(p.document);
    if (document >= cluster.size()) bug("a document without a vector");
    if (cluster[document] >= parts.size()) parts.resize(cluster[document] + 1);
    parts[cluster[document]].push_back(p);
  }
  std::vector<PackedWindow> out;
  for (auto& part : parts) pack_cluster(r, std::move(part), out);
  return out;
}

std::vector<double> hashed_words(std::string_view text, std::size_t places) {
  constexpr std::uint64_t kOffset = 14695981039346656037u, kPrime = 1099511628211u;
  Vector out(places, 0.0);
  std::uint64_t hash = kOffset;
  const auto end_word = [&] {
    if (hash != kOffset) out[hash % places] += 1;
    hash = kOffset;
  };
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) == 0 && byte < 128)
      end_word();
    else
      hash = (hash ^ static_cast<std::uint64_t>(std::tolower(byte))) * kPrime;
  }
  end_word();
  normalise(out);
  return out;
}

}  // namespace orrery
