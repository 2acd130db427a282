// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hw_models/device_model.hpp"
#include "hw_models/host_laws.hpp"

namespace orrery {

/// How much ops feel of what slows their core: their time grows with a power of how much longer a fixed work takes,
/// which lies between these two as what an op moves lies between near caches and all that is farther.
struct CoreSensitivity {
  double near = 1;   // where all that it moves is in the caches of the core
  double far = 0.5;  // where all of it has left them

  double of(double share_lost) const { return near + (far - near) * share_lost; }
};

/// The coefficients of one law, and how well they fit.
struct LawFit {
  std::map<std::string, Seconds> coefficients;       // by feature, per its unit; features left out cost nothing
  std::map<std::string, std::vector<double>> range;  // by axis: least and most of the points fitted
  double deviation = 0;
  double bias = 0;
  double memory = 0;
  Seconds floor;
  CoreSensitivity sensitivity;
  std::int64_t points = 0;
  double median_error = 0, worst_error = 0;

  template <class V>
  void visit(V& v) {
    v.required("coefficients", coefficients, "time per unit of each feature");
    v.required("range", range, "least and most of each size that was measured");
    v.required("deviation", deviation, "relative standard deviation of one op, independent of all others", at_least(0));
    v.required("bias", bias, "relative standard deviation that all ops of the law share", at_least(0));
    v.field("memory", memory, "relative standard deviation of the part of the time that what has left a cache takes",
            at_least(0));
    v.field("floor", floor, "standard deviation of one op on top of the relative ones: what short ops err by",
            at_least(Seconds{0}));
    v.field("sensitivity", sensitivity.near,
            "power of how much longer a fixed work takes on a slowed core, with which the time of an op grows that "
            "moves what is in the caches of the core",
            between(0, 2));
    v.field("sensitivity_far", sensitivity.far, "the same of an op that moves what has left the second-level cache",
            between(0, 2));
    v.field("points", points, "measured points that the fit used", at_least(0));
    v.field("median_error", median_error, "median of the residuals, relative", at_least(0));
    v.field("worst_error", worst_error, "largest residual, relative", at_least(0));
  }
};

/// Parameters of a computer's cores, as its file has them.
struct HostParameters {
  Provenance provenance;
  Bytes l2, l3;
  double l3_steepness = 2;
  BytesPerSecond foreign;
  std::int64_t cores = 1;
  BytesPerSecond memory_bandwidth;
  FlopsPerSecond peak;
  Seconds dispatch;
  double beside = 0;
  double turns = 0;
  double sharing = 0;
  double message_cores = 1;
  Seconds quiet_core;
  Seconds probe, memory_probe;
  double drift = 0;
  std::map<std::string, LawFit> laws;
  CommunicationParameters communication;

  Caches caches() const {
    return {l2, l3, cores, peak > FlopsPerSecond{0} ? (foreign / peak).base() : 0.0, l3_steepness};
  }

  template <class V>
  void visit(V& v) {
    v.required("provenance", provenance, "where the numbers come from");
    v.required("l2", l2, "second-level cache of a core", more_than(Bytes{0}));
    v.required("l3", l3, "last-level cache", more_than(Bytes{0}));
    v.field(
        "l3_steepness", l3_steepness,
        "how steeply the last-level cache loses what passes beyond its capacity: of x times as much it keeps 1 / (1 "
        "+ x^steepness)",
        between(1, 16));
    v.field("foreign", foreign, "rate at which other programs and tenants pass data through the last-level cache",
            at_least(BytesPerSecond{0}));
    v.field("cores", cores, "cores that share the last-level cache", at_least(1));
    v.required("memory_bandwidth", memory_bandwidth, "rate of memory, all cores together",
               more_than(BytesPerSecond{0}));
    v.required("peak", peak, "most arithmetic of one core that a product reached", more_than(FlopsPerSecond{0}));
    v.required("dispatch", dispatch, "time between two ops of a stream", at_least(Seconds{0}));
    v.field("beside", beside, "part of its time that a rank loses while ranks work on all other cores", between(0, 1));
    v.field("turns", turns, "part of its time that a rank loses where more ranks than cores take turns", between(0, 1));
    v.field("sharing", sharing, "relative standard deviation of a step of several ranks, on top of that of one rank",
            at_least(0));
    v.field("message_cores", message_cores, "cores that a rank keeps busy while it is woken for a message",
            between(0, 1));
    v.field("quiet_core", quiet_core,
            "time of the fixed work that tells how much the cores are slowed, where laws hold as they stand",
            at_least(Seconds{0}));
    v.field("probe", probe, "time of the drift probe; another time says that the machine is slower or faster now",
            at_least(Seconds{0}));
    v.field("memory_probe", memory_probe,
            "time of the drift probe's pass over memory: what others left of it when the laws were measured",
            at_least(Seconds{0}));
    v.field("drift", drift,
            "relative standard deviation of the time of a step from one time to another, that all ops share",
            at_least(0));
    v.required("laws", laws, "fits by kind of op");
    v.field("communication", communication, "messages that leave the computer");
  }
};

/// Throws UserError with all problems: unknown keys, units, laws and features that no op has.
HostParameters read_host_parameters(const Node& document);
/// The document that `read_host_parameters` reads back.
Node write_host_parameters(const HostParameters& parameters);

}  // namespace orrery
