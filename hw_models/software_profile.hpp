// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hw_models/device_model.hpp"

namespace orrery {

class ClusterCostModel;

/// What of a step decides how much memory a program takes on a rank of one stage.
struct MemoryShape {
  double live = 0;        // bytes of the tensors of its plan, at their peak
  double parameters = 0;  // that the rank computes with, after tensor parallelism and full sharding
  double states = 0;      // parameters that the rank updates
  double passing = 0;     // bytes of `live` that do not stay from step to step
  double cached = 0;      // bytes that its allocator keeps of them beside `live`, and gives back where they are needed
};

/// What of a prediction decides how sure it can be.
struct Forecast {
  std::string_view kind = "step";  // or a pass; "assumed": one of lengths that its row leaves open; "memory": a peak;
                                   // of servers "first", "token", "request", "duration", "rate"
  std::string_view device = {};    // its parameter file; empty: one of those that the profile knows
  bool experts = false;            // of a network that has layers of them
};

/// How a training or inference program drives the hardware, beside what its plan says: seven factors on what kernels
/// and messages reach alone on an idle, cool machine, and what a server's host does around each step. Fitted to
/// published steps of that program (`orrery fit-profile`); the last number is the residual. As it is made it stands for
/// software of which nothing is known: kernels as they run alone, and how far published steps are off then.
struct SoftwareProfile {
  std::string name;  // of the file
  std::string summary;
  Provenance provenance;
  double products = 1, attention = 1, streams = 1, launch = 1, starts = 1, links = 1, network = 1;
  Seconds host_step{0}, host_sequence{0}, host_request{0}, host_token{0}, host_experts{0}, host_answer{0};
  std::int64_t graph_rows = 0;
  double conversion = 1;
  bool fused = false;
  KernelChoice kernels;
  double deviation = 0.34;  // root mean square of ln(measured / predicted) over ten tables of training steps
  Bytes memory_fixed{0};
  double memory_per_parameter = 0, memory_per_state = 0, memory_fragments = 0, memory_deviation = 0.05;
  std::vector<std::string> devices;
  std::map<std::string, double> deviations;
  std::string deviations_from;

  template <class V>
  void visit_memory(V& v) {
    v.field("memory_fixed", memory_fixed,
            "memory of a device that no tensor of a plan takes: context, libraries, buffers of collectives, fragments",
            at_least(Bytes{}));
    v.field("memory_per_parameter", memory_per_parameter,
            "bytes per parameter of a rank, likewise: flat copies of gradients and weights", at_least(0));
    v.field("memory_per_state", memory_per_state,
            "bytes per parameter that a rank updates, likewise: gradients laid side by side and widened for the update",
            at_least(0));
    v.field("memory_fragments", memory_fragments,
            "share of the tensors that come and go, likewise: rest of the blocks that an allocator keeps for them",
            at_least(0));
    v.field("memory_deviation", memory_deviation, "relative standard deviation of a predicted peak of memory",
            at_least(0));
  }
  template <class V>
  void visit_deviations(V& v) {
    v.field(
        "devices", devices,
        "kinds of device that the fit saw, as parameter files begin (a100), where others are known to be less sure");
    v.field(
        "deviations", deviations,
        "likewise of other forecasts: \"experts\" (steps of networks with layers of experts), \"elsewhere\" and "
        "\"memory_elsewhere\" (on devices that are not among those of `devices`), and of servers \"first\" (time "
        "to the first token), \"token_experts\", \"request\", \"duration\", \"rate\"; of static batches \"assumed\" "
        "(rows that do not say how long their sequences are). \"each_first\", \"each_token\" and \"each_request\" are "
        "of "
        "single requests of a run: multiples of what follows from the deviations of its steps, 1 where they are left "
        "out",
        at_least(0));
    v.field("deviations_from", deviations_from, "which rows told the deviations (`orrery fit-profile --deviations`)");
  }
  template <class V>
  void visit(V& v) {
    v.field("summary", summary, "one line for `orrery list profiles`");
    v.required("provenance", provenance, "where the numbers come from");
    v.field("products", products, "rate of matrix products: clocks under sustained load, kernels that were chosen",
            Range{.min = 0, .above_min = true});
    v.field("attention", attention, "rate of attention likewise", Range{.min = 0, .above_min = true});
    v.field("streams", streams, "rate of what memory limits: below 1 passes that are not fused",
            Range{.min = 0, .above_min = true});
    v.field("launch", launch, "time of the host thread to start an op", Range{.min = 0, .above_min = true});
    v.field("starts", starts,
            "time in which a kernel or collective comes to work: below 1 where it overlaps with what runs before",
            Range{.min = 0, .above_min = true});
    v.field("links", links, "rate of collectives inside of a node; above 1 not where a bus joins its devices",
            Range{.min = 0, .above_min = true});
    v.field("network", network, "rate of messages between nodes", Range{.min = 0, .above_min = true});
    v.field("host_step", host_step, "servers: time of the host per step in which no kernel runs: scheduling, sampling",
            at_least(Seconds{0}));
    v.field("host_sequence", host_sequence, "servers: the same for each sequence of a step", at_least(Seconds{0}));
    v.field("host_request", host_request, "servers: time of a request before it reaches the scheduler",
            at_least(Seconds{0}));
    v.field("host_token", host_token, "servers: time per token of a prompt before it reaches the scheduler",
            at_least(Seconds{0}));
    v.field(
        "host_experts", host_experts,
        "servers: time of the host to start a layer of experts in steps that are no graphs: many small kernels that "
        "no op here stands for, so that such a step takes no less than this for each of its layers",
        at_least(Seconds{0}));
    v.field("host_answer", host_answer,
            "servers: time per token of the process that hands them to clients one after another, beside the steps",
            at_least(Seconds{0}));
    v.field("graph_rows", graph_rows,
            "servers: steps of up to so many rows are replayed as graphs, padded to sizes that were captured, and do "
            "not wait for the host to start kernels; 0: none",
            at_least(0));
    v.field("conversion", conversion,
            "time to convert rows to 8 bits in front of products: 1 by a kernel of its own, 0 in the op before",
            between(0, 1));
    v.field("fused", fused,
            "whether ops that engines launch as one kernel are one: see sim/strategy/kernel_fusion.hpp");
    v.field("shared_heads", kernels.shared_heads,
            "decoding: most query heads over one head of keys that a kernel takes together", at_least(1));
    v.field("portable_attention", kernels.portable_attention,
            "attention by kernels for all devices, as FlashAttention-2: see `portable_attention` of devices");
    v.field("experts_apart", kernels.experts_apart,
            "a product over experts as one dense product for each expert, which the host starts one by one");
    v.field("own_all_reduce", kernels.own_all_reduce,
            "in a node, where it is faster than NCCL's, an all-reduce in which ranks read each other's memory");
    v.field("deviation", deviation, "relative standard deviation of a predicted step, from the residuals of the fit",
            at_least(0));
    visit_memory(v);
    visit_deviations(v);
  }

  /// One standard deviation of ln(measured / predicted): that of its kind, or where it is larger that of networks with
  /// experts or of devices that no fit saw. Kinds that rows have not told have the deviation of a step. Left out: that
  /// the parts of a step are known more or less well.
  double deviation_of(const Forecast& forecast) const;
  /// The name under which rows of such forecasts tell of it: that of the kind, or what makes it less sure.
  std::string_view told_by(const Forecast& forecast) const;
  /// Makes the machine what it is to this program.
  void apply(ClusterCostModel& cost) const;
  /// Bytes of a device under a step.
  double memory(const MemoryShape& shape) const {
    return shape.live + memory_fixed.base() + memory_per_parameter * shape.parameters +
           memory_per_state * shape.states + memory_fragments * shape.passing;
  }
};

/// The profiles that come with the program's sources, sorted by name.
std::vector<SoftwareProfile> software_profiles();
/// Throws UserError that names the profiles there are.
SoftwareProfile find_profile(std::string_view name);
/// All of them at hand. Software without a fitted profile drives the hardware as well as kernels run alone; predictions
/// of it have the interval of that doubt.
class Profiles {
 public:
  Profiles();
  const SoftwareProfile& of(std::string_view name) const;

 private:
  std::vector<SoftwareProfile> known_;
  SoftwareProfile none_;
};

/// The text of its file.
std::string to_text(const SoftwareProfile& profile);
std::string profiles_folder();

}  // namespace orrery
