// SPDX-License-Identifier: Apache-2.0
#include "hw_models/fabric_model.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

constexpr double kExtrapolation = 0.15;  // deviation added per doubling of the ranks away from a curve

double doublings(std::int64_t a, std::int64_t b) { return std::abs(std::log2(double(a) / double(b))); }

}  // namespace

NcclSystem FabricModel::system(std::int64_t ranks, std::int64_t nodes, BytesPerSecond inside) const {
  return {ranks, nodes, p_.generation, p_.nvlink, p_.nvls, p_.channels, nodes > 1 ? inside : p_.bus, p_.bus};
}

ExchangeTime FabricModel::modelled(const ExchangeCase& c, BytesPerSecond inside) const {
  const NcclChoice choice = nccl_choice(kind_of(c.op), c.bytes, system(c.ranks, c.nodes, inside));
  return {choice.latency * p_.latency_factor, choice.fill + c.bytes / choice.bandwidth, p_.deviation, false};
}

/// A curve at other numbers of ranks: times what NCCL's model says of the difference.
ExchangeTime FabricModel::scaled(const CollectiveCurve& curve, const ExchangeCase& c, BytesPerSecond inside) const {
  const CurveSegment& segment = curve.segment(c.bytes);
  ExchangeTime t{segment.latency, c.bytes / segment.bandwidth, curve.deviation(c.bytes), true};
  if (curve.ranks == c.ranks && curve.nodes == c.nodes) return t;
  ExchangeCase there = c;
  there.ranks = curve.ranks, there.nodes = curve.nodes;
  const double ratio = modelled(c, inside).total() / modelled(there, inside).total();
  t.latency = t.latency * ratio, t.flowing = t.flowing * ratio;
  t.deviation += kExtrapolation * (doublings(curve.ranks, c.ranks) + doublings(curve.nodes, c.nodes));
  t.is_measured = false;
  return t;
}

ExchangeTime FabricModel::time(const ExchangeCase& c, const LinkRatio& ratio, BytesPerSecond inside) const {
  ExchangeTime t = measured(c, inside);
  t.latency = t.latency * ratio.latency, t.flowing = t.flowing / ratio.bandwidth;
  return t;
}

bool FabricModel::knows(const ExchangeCase& c) const {
  return std::any_of(p_.curves.begin(), p_.curves.end(), [&](const CollectiveCurve& curve) {
    return curve.op == c.op && curve.software == c.software && (curve.nodes > 1) == (c.nodes > 1);
  });
}

ExchangeTime FabricModel::measured(const ExchangeCase& c, BytesPerSecond inside) const {
  const CollectiveCurve *below = nullptr, *above = nullptr;
  const auto is_other_span = [&](const CollectiveCurve& curve) { return (curve.nodes > 1) != (c.nodes > 1); };
  const auto place = [](const CollectiveCurve& curve) { return std::pair{curve.nodes, curve.ranks}; };
  for (const CollectiveCurve& curve : p_.curves) {
    if (curve.op != c.op || curve.software != c.software || is_other_span(curve)) continue;
    if (place(curve) <= std::pair{c.nodes, c.ranks} && (!below || place(curve) > place(*below))) below = &curve;
    if (place(curve) >= std::pair{c.nodes, c.ranks} && (!above || place(curve) < place(*above))) above = &curve;
  }
  if (!below && !above) return modelled(c, inside);
  if (!below || !above || below == above) return scaled(below ? *below : *above, c, inside);
  const ExchangeTime low = scaled(*below, c, inside), high = scaled(*above, c, inside);
  const double from_low = doublings(c.ranks, below->ranks) + doublings(c.nodes, below->nodes),
               from_high = doublings(c.ranks, above->ranks) + doublings(c.nodes, above->nodes);
  const double w = from_high / std::max(from_low + from_high, 1e-9);
  const double total = std::exp(w * std::log(low.total().base()) + (1 - w) * std::log(high.total().base()));
  const double latency = std::min(total, w * low.latency.base() + (1 - w) * high.latency.base());
  return {Seconds{latency}, Seconds{total - latency}, std::min(low.deviation, high.deviation), false};
}

}  // namespace orrery
