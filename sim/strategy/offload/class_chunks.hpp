// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/strategy/offload/chunk_moves.hpp"

namespace orrery {

/// Chunks of one class. Weights of a chunk that came to the device lie in a tensor of that stay; else in its home.
class ClassChunks {
 public:
  ClassChunks(PlanRewriter& r, const Updates& updates, const ChunkRules& rules, ClassId c)
      : plan_{r.from()},
        r_{r},
        updates_{updates},
        travel_{rules.travel},
        class_{c},
        layout_{rules.lay_out(plan_, c, updates)} {}

  void decide(const ChunkRules& rules, const WorkspaceModel* workspaces);
  void run();
  const ChunkCounts& counts() const { return counts_; }

 private:
  struct Chunk {
    TensorId home, here, master;  // here: while it is on the device
    TensorId gradients;           // on the host, where they have room of their own
    std::vector<TensorId> moments;
    std::vector<std::pair<TensorId, TensorId>> staged;  // of states on a disk: on the host meanwhile, and their home
    ChunkPlace place;
    bool came = false, changed = false;  // in this step; on the device since it came
    bool down = false;                   // weights stay, gradients have gone to the host
    std::uint32_t updated = 0;           // tensors
    TensorId stage;                      // of those gradients
  };

  std::uint32_t chunk_of(std::uint32_t update) const { return layout_.slots[update].chunk; }
  DType dtype_of(const Update& u) const { return plan_.tensors[u.weight.index()].dtype; }
  DType state_type(const Update& u) const { return orrery::state_type(plan_, u); }
  bool lacks_master(const Update& u) const { return orrery::lacks_master(plan_, u); }
  TensorId master_of(std::uint32_t chunk) const;
  DType type_of(TensorId t) { return r_.builder().plan().tensors[t.index()].dtype; }
  Shape shape_of(std::uint32_t k) const { return Shape{layout_.sizes[k]}; }

  void make_chunk(std::uint32_t k);
  void stand(std::uint32_t chunk, TensorId where) { stand(chunk, where, where); }
  void stand(std::uint32_t chunk, TensorId weights, TensorId gradients);
  bool all_stashed(std::uint32_t chunk) const;
  void stand_states(std::uint32_t chunk);
  void keep_place();
  void come(std::uint32_t chunk);
  void leave(std::uint32_t chunk);
  void bring(std::uint32_t chunk, TensorId from, TensorId to, std::string_view name);
  TensorId way_up(std::uint32_t chunk, TensorId from, TensorId to);
  TensorId buffer(std::uint32_t chunk, DType type);
  void stash(const ChunkAction& a);
  void update(const ChunkAction& a);
  void give_up(std::uint32_t chunk);
  void go_down(std::uint32_t chunk);
  void read_states(std::uint32_t chunk);
  void write_states(std::uint32_t chunk);
  void emit(OpId op);
  void do_action(const ChunkAction& a);
  TensorId part(TensorId chunk, std::uint32_t update, std::string_view what);

  const Plan& plan_;
  PlanRewriter& r_;
  const Updates& updates_;
  const ChunkTravel& travel_;
  ClassId class_;
  ChunkLayout layout_;
  ChunkCounts counts_;
  std::vector<ChunkAction> actions_;
  std::vector<OpId> next_;  // per action: the first op of the passes from there on, of the old plan
  std::size_t now_ = 0;     // the action
  std::vector<Chunk> chunks_;
  std::vector<bool> wide_;     // per chunk that first comes as its master copy; empty: none does
  std::vector<bool> stashed_;  // per update: its gradient lies in the slot of its weight
  OpId computed_;              // the last op of the passes
  OpId moved_, hosted_;        // the last copy of a chunk in their stream, the last update on the host
  OpId leaving_, wait_;        // a chunk on its way down; what the next op of the passes waits for
  std::vector<OpId> written_;  // per chunk whose states went back to a disk
  TensorId buffer_;            // that master copies come through; none: not needed yet
  bool in_blocks_ = false;
  std::deque<OpId> free_;  // blocks without a chunk: behind which op each is free
};

}  // namespace orrery
