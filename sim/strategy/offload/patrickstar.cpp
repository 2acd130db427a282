// SPDX-License-Identifier: Apache-2.0
// PatrickStar (Fang et al., IEEE TPDS 34(1), arXiv 2108.05818): model data in chunks of so many elements.
//   chunks   weights, master copies and both moments in lists that lie alike; tensors in the order of their creation,
//   one
//            that does not fit opens a new chunk. The gradient takes the place of its weight when nobody reads that any
//            more: in 16 bits 14 bytes per parameter in place of 16.
//   room     the plan tells what lies beside chunks at each op, as its warm-up step does: at an op chunks may have
//            usable · memory − max(beside now, beside at the next op) − reserve. A chunk that no longer fits leaves.
//   moves    an op brings the chunks that it needs; which ones leave is planned from all later uses (belady), or by
//            another policy. Copies are made in the passes' own stream, or, asynchronous, in streams of their own: a
//            chunk leaves behind the op that used it last, and the next one that is needed comes ahead (issue 269 of
//            the reference).
//   update   on the host, in the chunk, one after the other: whoever copies a gradient down updates and copies the new
//            weights back before the next chunk (ops/fp16_cpu_adam.py). Of a chunk that is on the device, the gradient
//            goes down and the master copy comes up, which the device rounds (ops/chunk_io_buff.py): 2 and 4 bytes per
//            element. The reference copies it up at once, we before the passes of the next step; that takes as long.
//            `write_buffer`: what it comes through stays on the device, which the reference's warm-up step does not
//            see. Where all weights fit on the device, as many chunks as fit beside the passes are updated there.
// A chunk that leaves the device keeps its place on the host, where the reference gives it back and takes it anew: with
// `host_memory` as many chunks as the host has no room for never leave the device, so that both memories add up.
// Several ranks: with `data: {kind: zero3}` chunks hold what a rank owns, and buckets are what is gathered; with
// `owners` and a `part` these are whole chunks, one of each rank in turn. Its owner alone brings a chunk up before it
// is broadcast, while the others wait (core/client.py, `_fetch_remote_chunks` with `with_mem_saving_comm`).
#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/strategy/offload/chunked_states.hpp"
#include "sim/strategy/offload/strategies.hpp"

namespace orrery {
namespace {

struct PatrickStarOptions {
  ParallelOptions parallel;
  ChunkOptions chunks{.chunk = 0};

  template <class V>
  void visit(V& v) {
    v.field("parallel", parallel, kParallelHelp);
    v.field("chunk", chunks.chunk, "elements of a chunk; 0: the size that leaves least of its chunks empty",
            at_least(0));
    Rest<V> rest{v};
    chunks.visit(rest);
  }

 private:
  template <class V>
  struct Rest {  // all fields but the one above
    V& v;
    template <class... A>
    void field(std::string_view name, A&&... a) {
      if (name != "chunk") v.field(name, std::forward<A>(a)...);
    }
    template <class... A>
    void required(A&&... a) {
      v.required(std::forward<A>(a)...);
    }
  };
};

class PatrickStar final : public TierStrategy {
 public:
  explicit PatrickStar(PatrickStarOptions o) : TierStrategy{"patrickstar", o.parallel}, options_{std::move(o)} {}

 protected:
  /// Sizes from that of the largest tensor on to four times as much, as the reference tries 64 to 312 Mi elements:
  /// the fullest chunks that a step can run with; smaller ones where equal.
  Plan move_tensors(const Plan& plan, const TrainOptions&, const WorkspaceModel* workspaces) const override {
    ChunkOptions o = options_.chunks;
    if (o.chunk > 0) return chunk_states(plan, o, workspaces);
    const std::int64_t least = least_chunk(plan);
    std::vector<std::pair<double, std::int64_t>> sizes;
    for (std::int64_t k = 4; k <= 16; ++k) sizes.emplace_back(-chunk_utilisation(plan, least * k / 4), least * k / 4);
    std::sort(sizes.begin(), sizes.end());
    for (const auto& [waste, size] : sizes) {
      o.chunk = size;
      try {
        return chunk_states(plan, o, workspaces);
      } catch (const UserError&) {
        if (size == sizes.back().second) throw;
      }
    }
    bug("no chunk size was tried");
  }

 private:
  PatrickStarOptions options_;
};

}  // namespace

std::unique_ptr<Strategy> make_patrickstar(const Node& node) {
  PatrickStarOptions o;
  read_options(node, o);
  return std::make_unique<PatrickStar>(std::move(o));
}

std::vector<OptionInfo> patrickstar_options() { return describe_options<PatrickStarOptions>(); }

}  // namespace orrery
