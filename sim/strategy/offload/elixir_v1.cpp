// SPDX-License-Identifier: Apache-2.0
// The first Elixir (Huang et al., arXiv 2212.05339 v1): a plan for each operator. Only its abstract was read: operators
// have plans of their own over a memory of devices and hosts. What it leaves open is ours:
//   operator  what one op of the passes reads first: a matrix with its bias, a norm, a table; with zero3 a bucket
//   plans     weights and states on the host, weights on the device and states on the host, both on the device
//   choice    the memory of the device goes to what saves most seconds per byte. Weights that stay save their copies,
//             as far as the ops that read them do not hide these: T = bytes/link − FLOP/rate per pass. States that stay
//             save gradients down and weights up, and update at the device's rate in place of the host's.
// Whatever splits a layer over ranks (`parallel`, layer by layer with `layers`, experts over ep) goes with it.
#include <algorithm>
#include <numeric>

#include "sim/strategy/offload/chunk_moves.hpp"
#include "sim/strategy/offload/elixir_search.hpp"
#include "sim/strategy/offload/strategies.hpp"

namespace orrery {
namespace {

struct ElixirV1Options {
  ParallelOptions parallel;
  Bytes device_memory{0};
  double usable = 0.95;
  HostMemory memory = HostMemory::Pinned;
  FlopsPerSecond rate{150e12};
  ProfileOptions profile;

  template <class V>
  void visit(V& v) {
    v.field("parallel", parallel, kParallelHelp);
    v.required("device_memory", device_memory, "memory of a device that the step may count on", more_than(Bytes{0}));
    v.field("usable", usable, "part of it that is used", between(0, 1));
    v.field("memory", memory, "host memory that copies go to and come from");
    v.field("rate", rate, "arithmetic of the passes on a device, behind which copies hide",
            more_than(FlopsPerSecond{0}));
    v.field("profile", profile, "rates that plans of operators are weighed with");
  }
};

/// A better plan for an operator, and what it saves.
struct Upgrade {
  std::uint32_t chunk = 0;
  bool weights = false, states = false;  // that stay from now on
  std::int64_t bytes = 0;
  double seconds = 0;
};

class Choice {
 public:
  Choice(const ChunkTrace& trace, const ElixirV1Options& o, double ranks)
      : trace_{trace}, o_{o}, ranks_{ranks}, profile_{o.profile.over_a100(ranks)} {}

  std::vector<ChunkPlace> run(std::int64_t room) {
    std::vector<ChunkPlace> places(trace_.layout.size());
    for (const Upgrade& u : upgrades()) {
      ChunkPlace& p = places[u.chunk];
      if (u.bytes > room || (u.states && !u.weights && !p.weights_stay)) continue;
      room -= u.bytes;
      p.weights_stay = p.weights_stay || u.weights;
      p.states_stay = p.states_stay || u.states;
    }
    return places;
  }

 private:
  /// Most seconds per byte first. Where states save more than the weights that they need, both are one upgrade.
  std::vector<Upgrade> upgrades() const {
    const std::vector<double> weights = saved_copies();
    std::vector<Upgrade> out;
    const auto k_end = static_cast<std::uint32_t>(trace_.layout.size());
    for (std::uint32_t k = 0; k < k_end; ++k) {
      const Upgrade first{k, true, false, trace_.weight_bytes[k], weights[k]};
      const Upgrade second{k, false, true, trace_.state_bytes[k], saved_update(k)};
      if (second.seconds * double(first.bytes) > first.seconds * double(second.bytes)) {
        out.push_back({k, true, true, first.bytes + second.bytes, first.seconds + second.seconds});
      } else {
        out.push_back(first);
        out.push_back(second);
      }
    }
    std::stable_sort(out.begin(), out.end(), [](const Upgrade& a, const Upgrade& b) {
      return a.seconds * double(b.bytes) > b.seconds * double(a.bytes);
    });
    return out;
  }

  /// What copies of each operator take that its own ops do not hide, over all passes.
  std::vector<double> saved_copies() const {
    const std::vector<ChunkAction> actions =
        chunk_actions(trace_.plan, trace_.rank_class, trace_.updates, trace_.layout, true);
    std::vector<std::vector<double>> flops(trace_.layout.size());  // by passes that use it
    std::vector<std::uint32_t> last(trace_.layout.size(), UINT32_MAX);
    for (std::size_t s = 0; s < actions.size(); ++s)
      for (const std::uint32_t k : trace_.steps[s].needed) {
        if (actions[s].deed != ChunkDeed::Emit) continue;
        if (last[k] != trace_.passes[s]) flops[k].push_back(0);
        last[k] = trace_.passes[s];
        flops[k].back() += amount(trace_.plan.work(actions[s].op)).flops.base();
      }
    std::vector<double> out;
    for (std::size_t k = 0; k < flops.size(); ++k) {
      const double copy = double(trace_.weight_bytes[k]) * ranks_ / profile_.to_device;
      out.push_back(std::accumulate(flops[k].begin(), flops[k].end(), 0.0, [&](double sum, double f) {
        return sum + std::max(0.0, copy - f / o_.rate.base());
      }));
    }
    return out;
  }

  double saved_update(std::uint32_t k) const {
    const Update& u = trace_.updates.all[trace_.layout.members[k].front()];
    const double elements = double(trace_.layout.sizes[k]) * ranks_;
    const double up = can_have_master(trace_.plan, u) ? size_of(state_type(trace_.plan, u), 1).base()
                                                      : double(trace_.weight_bytes[k]) / double(trace_.layout.sizes[k]);
    const double down = double(trace_.weight_bytes[k]) / double(trace_.layout.sizes[k]);
    return elements *
           (down / profile_.to_host + up / profile_.to_device + 1 / profile_.host_adam - 1 / profile_.device_adam);
  }

  const ChunkTrace& trace_;
  const ElixirV1Options& o_;
  double ranks_;
  ElixirProfile profile_;
};

class ElixirV1 final : public TierStrategy {
 public:
  explicit ElixirV1(ElixirV1Options o) : TierStrategy{"elixir-v1", o.parallel}, o_{std::move(o)} {}

 protected:
  Plan move_tensors(const Plan& plan, const TrainOptions&, const WorkspaceModel* workspaces) const override {
    const ChunkRules rules{
        .travel = {.memory = o_.memory,
                   .in = Stream::CopyIn,
                   .out = Stream::CopyOut,
                   .early = true,
                   .keep_clean = true,
                   .states = tier_of(o_.memory)},
        .lay_out = [](const Plan& p, ClassId c, const Updates& u) { return lay_out_operators(p, c, u); },
        .decide = [this](const ChunkTrace& t) { return decide(t); }};
    return move_chunks(plan, rules, workspaces);
  }

 private:
  /// What stays is chosen beside room for the two largest operators, one of which comes while the other is used.
  ChunkDecision decide(const ChunkTrace& trace) const {
    ChunkDecision out;
    out.places.resize(trace.layout.size());
    if (out.places.empty()) return out;
    const auto usable = static_cast<std::int64_t>(o_.usable * o_.device_memory.base());
    const std::vector<std::int64_t> leaving = trace.on_their_way();
    std::int64_t beside = 0;
    for (std::size_t s = 0; s < leaving.size(); ++s) beside = std::max(beside, trace.during[s] + leaving[s]);
    const std::int64_t largest = *std::max_element(trace.weight_bytes.begin(), trace.weight_bytes.end());
    Choice choice{trace, o_, double(mesh().size())};
    out.places = choice.run(usable - beside);
    const auto stays = [](const ChunkPlace& p) { return p.weights_stay; };
    if (!std::all_of(out.places.begin(), out.places.end(), stays))
      out.places = choice.run(usable - beside - 2 * largest);
    std::int64_t held = 0;
    for (std::size_t k = 0; k < out.places.size(); ++k)
      held += (out.places[k].weights_stay ? trace.weight_bytes[k] : 0) +
              (out.places[k].states_stay ? trace.state_bytes[k] : 0);
    out.steps = trace.moving(out.places, [&](std::size_t s) { return usable - held - trace.during[s] - leaving[s]; });
    out.cache = plan_cache(trace.weight_bytes, out.steps, Eviction::Belady);
    come_ahead(out.cache, trace.weight_bytes, out.steps, 1);
    return out;
  }

  ElixirV1Options o_;
};

}  // namespace

std::unique_ptr<Strategy> make_elixir_v1(const Node& node) {
  ElixirV1Options o;
  read_options(node, o);
  return std::make_unique<ElixirV1>(std::move(o));
}

std::vector<OptionInfo> elixir_v1_options() { return describe_options<ElixirV1Options>(); }

}  // namespace orrery
