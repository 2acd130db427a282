// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hw_models/device_model.hpp"
#include "hw_models/nccl_tuning.hpp"

namespace orrery {

/// What ranks do together, as tables of measurements call it.
enum class Exchange : std::uint8_t { AllReduce, AllGather, ReduceScatter, AllToAll, SendRecv, Broadcast, Reduce };
std::span<const EnumName<Exchange>> enum_names(Exchange);
/// The collective that it is; a send is a shift of two ranks.
CollectiveKind kind_of(Exchange e);
/// Nothing for those that have no measurements of their own.
std::optional<Exchange> exchange_of(CollectiveKind kind);

/// Message sizes over which a collective keeps its algorithm and protocol: t = latency + bytes / bandwidth.
struct CurveSegment {
  Bytes from;
  Seconds latency;
  BytesPerSecond bandwidth;

  template <class V>
  void visit(V& v) {
    v.field("from", from, "smallest message of the segment", at_least(Bytes{0}));
    v.required("latency", latency, "time that does not depend on the message", at_least(Seconds{0}));
    v.required("bandwidth", bandwidth, "bytes of the message per second", more_than(BytesPerSecond{0}));
  }
};

/// How far a curve may be off: standard deviations of ln(measured / fitted), by where a size lies among those that were
/// measured. Of rows that the curve was not told of, but for sizes that were measured once.
struct CurveSpread {
  double at = 0.03, between = 0.2, beyond = 0.1, below = 0.2;

  template <class V>
  void visit(V& v) {
    v.field("at", at, "at a size that was measured", at_least(0));
    v.field("between", between, "between two of them, times the root of how far apart their times leave it",
            at_least(0));
    v.field("beyond", beyond, "above the last one, times the root of the octaves", at_least(0));
    v.field("below", below, "below the first one, times the root of the octaves", at_least(0));
  }
};

/// A collective over so many ranks as it was measured, by segments in order of size.
struct CollectiveCurve {
  Exchange op = Exchange::AllReduce;
  std::string software = "nccl";
  std::int64_t ranks = 2, nodes = 1;
  std::vector<Bytes> sizes;
  CurveSpread spread;
  std::vector<CurveSegment> segments;

  Seconds time(Bytes bytes) const { return segment(bytes).latency + bytes / segment(bytes).bandwidth; }
  const CurveSegment& segment(Bytes bytes) const;
  /// A number of `spread`, and what it is multiplied by.
  struct Doubt {
    double CurveSpread::*of = &CurveSpread::at;
    double times = 1;
  };
  /// What the measured sizes leave open of another one. Between S₁ and S₂ no protocol takes less than t₁, nor less than
  /// it would if all of t₂ were per byte, and none more than t₂, nor than t₁ if all of it were:
  ///
  ///   max(t₁, t₂·S/S₂) ≤ t(S) ≤ min(t₂, t₁·S/S₁)
  ///
  /// and the doubt is the root of the logarithm of upper over lower end: none where latency or bytes alone decide, much
  /// where a protocol ends. Leaves out which sizes NCCL changes at.
  Doubt doubt(Bytes bytes) const;
  double deviation(Bytes bytes) const;

  template <class V>
  void visit(V& v) {
    v.required("op", op, "what the ranks do");
    v.field("software", software, "what did it: nccl, tensorrt_llm, or nccl under torch's clock (torch)");
    v.required("ranks", ranks, "how many took part", at_least(2));
    v.field("nodes", nodes, "on how many nodes", at_least(1));
    v.field("sizes", sizes, "that were measured, in order", more_than(Bytes{0}));
    v.field("spread", spread, "how far it may be off");
    v.required("segments", segments, "by size of the message");
  }
};

/// How collectives run over one kind of link: measured curves, and NCCL's model scaled where there are none.
struct FabricParameters {
  Provenance provenance;
  NcclGeneration generation = NcclGeneration::Hopper;
  bool nvlink = true;
  bool nvls = false;
  std::int64_t channels = 16;
  BytesPerSecond link;  // data-sheet rate of what was measured: of a device into its node, or of all cards of a node
  BytesPerSecond bus;   // what large rings reach of it
  double latency_factor = 1;
  double deviation = 0.2;
  std::vector<CollectiveCurve> curves;

  template <class V>
  void visit(V& v) {
    v.required("provenance", provenance, "where the numbers come from");
    v.field("generation", generation, "of the GPUs; NCCL has limits for each");
    v.field("nvlink", nvlink, "whether devices of a node talk over NVLink");
    v.field("nvls", nvls, "whether the switch adds up");
    v.field("channels", channels, "of NCCL", at_least(1));
    v.required("link", link,
               "data-sheet rate of the links measured: of a device into its node, or of all cards of a node",
               more_than(BytesPerSecond{0}));
    v.required("bus", bus, "what large rings reach of it", more_than(BytesPerSecond{0}));
    v.field("latency_factor", latency_factor, "latencies over those of NCCL's model", more_than(0));
    v.field("deviation", deviation, "relative standard deviation where no curve is near", at_least(0));
    v.field("curves", curves, "measured ones");
  }
};

/// From a document with the one key `fabric`. Throws UserError with all problems: also segments out of order.
FabricParameters read_fabric(const Node& document);
/// By the name of a file `NAME.yaml`, looked for in `folders` in order. Throws UserError naming those there are.
FabricParameters find_fabric(std::string_view name, const std::vector<std::string>& folders);
std::vector<std::string> fabric_names(const std::vector<std::string>& folders);
/// The folder of the fabrics that come with the program's sources.
std::string fabrics_folder();
/// As a file that `read_fabric` reads back.
std::string fabric_file(const FabricParameters& parameters);

}  // namespace orrery
