// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "sim/plan/builder.hpp"

namespace orrery {

/// One recorded op of the forward pass, or a backward step that stands for several.
struct TapeNode {
  NameId name;
  Work work;
  std::vector<Operand> operands;
  int layer = -1;
  std::uint16_t microbatch = 0;
  bool recomputed = false;  // its outputs are dropped and made again when the backward pass asks for them
  bool has_rule = true;     // differentiated by the rule of its kind
  Stream stream = Stream::Compute;
  std::function<void()> backward;                             // instead of an op
  std::function<void(std::span<const TensorId>)> steps = {};  // several ops, for tensors that stand for the operands
};

/// Where the gradients of parameters go in a step, shared by the tapes of its microbatches.
class GradientTargets {
 public:
  /// From here on contributions to the gradient of `parameter` (the tensor that ops read) go to `gradient`. The first
  /// contribution to a gradient writes, the others add, whichever parameter tensor they come through.
  void set(TensorId parameter, TensorId gradient) { targets_[parameter.value] = gradient; }
  /// Null when the tensor is no parameter.
  const TensorId* find(TensorId parameter) const {
    const auto it = targets_.find(parameter.value);
    return it == targets_.end() ? nullptr : &it->second;
  }
  bool is_written(TensorId gradient) const { return written_.contains(gradient.value); }
  /// Whether it was written before.
  bool mark_written(TensorId gradient) { return !written_.insert(gradient.value).second; }

 private:
  std::unordered_map<std::uint32_t, TensorId> targets_;
  std::unordered_set<std::uint32_t> written_;
};

/// One pass forward and back. Records the forward ops that it adds to a plan and differentiates them: reverse mode, one
/// rule per op kind (sim/strategy/backward_*.cpp). What the backward pass reads of the forward pass keeps its storage
/// until then, unless it was made in a recomputed scope: then its ops are emitted again, on demand, right before they
/// are needed.
class Tape {
 public:
  Tape(PlanBuilder& builder, GradientTargets& targets) : builder_{builder}, targets_{targets} {}

  PlanBuilder& builder() { return builder_; }
  const Plan& plan() const { return builder_.plan(); }

  // Forward.
  OpId add(std::string_view name, const Work& work, std::initializer_list<Operand> operands,
           Stream stream = Stream::Compute);
  OpId add(std::string_view name, const Work& work, std::span<const Operand> operands, Stream stream = Stream::Compute);
  /// An op that is recomputed like others but has no rule: `on_backward` gives the gradient of a group of such ops.
  OpId add_plain(std::string_view name, const Work& work, std::initializer_list<Operand> operands,
                 Stream stream = Stream::Compute);
  OpId add_plain(std::string_view name, const Work& work, std::span<const Operand> operands,
                 Stream stream = Stream::Compute) {
    return record(name, work, operands, stream, false);
  }
  /// Several ops that are recomputed as one and have no rule: `emit` adds them for the tensors that it is given in
  /// place of those of `operands`.
  void add_steps(std::span<const Operand> operands, std::function<void(std::span<const TensorId>)> emit);
  void add_steps(std::initializer_list<Operand> operands, std::function<void(std::span<const TensorId>)> emit) {
    add_steps(std::span<const Operand>{operands.begin(), operands.size()}, std::move(emit));
  }
  /// The same for what the backward pass alone may ask for: nothing is added before.
  void add_later_steps(std::initializer_list<Operand> operands, std::function<void(std::span<const TensorId>)> emit);
  /// An input of products as one of them has cast it: numbers and their scale, or one for each `rows` rows, which
  /// gradients of weights read in its place.
  struct InputCopy {
    TensorId numbers, scale;
    std::int64_t rows = 0;
  };
  void set_copy(TensorId input, const InputCopy& copy) { copies_[input.value] = copy; }
  /// Null when there is none.
  const InputCopy* copy_of(TensorId input) const {
    const auto it = copies_.find(input.value);
    return it == copies_.end() ? nullptr : &it->second;
  }
  /// Whether the backward pass makes `t` again before it reads it.
  bool is_made_again(TensorId t) const;
  /// `step` runs where the backward pass comes by: after the gradients of all that was recorded later.
  void on_backward(std::function<void()> step);
  /// A tensor that takes part in differentiation although no recorded op makes it: a parameter, what another stage
  /// sent.
  void want(TensorId t) { wanted_[key(t)] = true; }
  /// The same storage under a name of its own for gradients: what is contributed to the alias is not yet contributed to
  /// `t`.
  TensorId alias(TensorId t);
  /// A view of an activation, as the builder makes it; a view of an alias belongs to the alias.
  TensorId view(TensorId base, std::string_view name, const Layout& layout);
  /// From here on ops are recomputed (or not).
  void set_recompute(bool on) { recompute_ = on; }
  bool recompute() const { return recompute_; }
  /// The backward pass makes all of what has been recorded since `first` again when it comes by, also what it does not
  /// read.
  void make_all_again(std::size_t first);
  std::size_t num_recorded() const { return nodes_.size(); }
  /// What has been recorded since `first` is a pass over a block, which gives `output`.
  void add_scope(int block, std::size_t first, TensorId output) { scopes_[block] = {first, nodes_.size(), output}; }
  /// In the backward pass: the recomputed ops of a block run again. With `saves` what its backward pass reads stays
  /// from here on, otherwise its output alone.
  void run_again(int block, bool saves);
  /// `t` stays although it was made in a recomputed scope.
  void keep(TensorId t) { kept_.insert_or_assign(builder_.plan().owner(t).value, true); }

  // Backward.
  /// Emits the gradient ops of everything recorded, latest first; once. Losses are the nodes whose rules need no
  /// incoming gradient.
  void differentiate();
  /// Backward passes emit the gradients of weights only when `emit_deferred` asks for them, in the same order.
  void set_deferred(bool on) { deferred_ = on; }
  bool deferred() const { return deferred_; }
  void defer(std::function<void()> step);
  void emit_deferred();
  /// Wherever the backward pass would read a tensor stored in `before` it reads the same part of `after`.
  void rebind(TensorId before, TensorId after) { again_[before.value] = after; }
  /// The gradient that comes from outside: of what another stage has taken.
  void set_gradient(TensorId t, TensorId gradient) { gradients_[key(t)] = gradient; }

  // For rules.
  /// The gradient of an output; none when nothing uses it.
  TensorId gradient(TensorId output);
  /// Whether a gradient of this input is wanted at all.
  bool wants(TensorId input);
  /// The tensor as the backward pass may read it: itself, or made again.
  TensorId saved(TensorId t);
  /// A new tensor for a contribution to the gradient of `input`; pass it to `contribute` after the op that writes it.
  TensorId contribution(TensorId input, std::string_view suffix = ".grad");
  void contribute(TensorId input, TensorId gradient);
  /// What has been contributed to the gradient of `input`, if a rule may add to it in place; else none.
  TensorId gradient_so_far(TensorId input) const;
  /// `input` receives exactly the gradient of the output: no op, shared storage.
  void pass_through(TensorId input, TensorId gradient);
  /// The gradient storage of a parameter and whether something has been written there in this step already.
  struct ParameterTarget {
    TensorId tensor;
    bool accumulate;
  };
  ParameterTarget parameter_target(TensorId parameter);
  /// The same for ops that can only add: zeroes it first when it is fresh.
  TensorId added_parameter_target(TensorId parameter);
  /// A new activation like `t` in shape and type.
  TensorId like(TensorId t, std::string_view name);
  /// Adds an op of the backward pass.
  OpId emit(std::string_view name, const Work& work, std::initializer_list<Operand> operands) {
    return builder_.add(name, work, operands);
  }
  OpId emit(std::string_view name, const Work& work, std::span<const Operand> operands) {
    return builder_.add(name, work, operands);
  }

 private:
  struct Scope {
    std::size_t first = 0, last = 0;
    TensorId output;
  };
  void file_steps(std::span<const Operand> operands, std::function<void(std::span<const TensorId>)> emit,
                  bool recomputed);
  void forget(const Scope& scope);
  TensorId rematerialise(TensorId owner);
  void replay(std::size_t node);
  void finish_others(std::uint32_t node, TensorId owner);
  TensorId gradient_owner(TensorId owner);
  std::string name_of(TensorId t) const { return std::string{plan().name_of(t)}; }
  /// What gradients of a tensor are filed under: its owner, or an alias itself.
  std::uint32_t key(TensorId t) const {
    const auto it = aliases_.find(t.value);
    return it != aliases_.end() ? it->second : plan().owner(t).value;
  }
  OpId record(std::string_view name, const Work& work, std::span<const Operand> operands, Stream stream, bool has_rule);
  void file(TapeNode node);

  PlanBuilder& builder_;
  GradientTargets& targets_;
  std::vector<TapeNode> nodes_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> makers_;  // owner → nodes that write it, in order
  std::unordered_map<std::uint32_t, bool> kept_;
  std::unordered_map<std::uint32_t, TensorId> again_;         // owner → made again in this backward pass
  std::unordered_map<std::uint32_t, bool> wanted_;            // owners that lead to a parameter
  std::unordered_map<std::uint32_t, TensorId> gradients_;     // owner → gradient owner
  std::unordered_map<std::uint32_t, TensorId> views_;         // view of an activation → view of its gradient
  std::unordered_map<std::uint32_t, bool> shared_;            // gradient owners that two tensors share
  std::unordered_map<std::uint32_t, int> pieces_;             // view or owner → contributions so far
  std::unordered_map<std::uint32_t, std::uint32_t> aliases_;  // alias or view of one → the alias
  std::unordered_map<int, Scope> scopes_;                     // by block
  std::unordered_map<std::uint32_t, InputCopy> copies_;       // by input
  std::vector<std::function<void()>> later_;                  // deferred
  bool recompute_ = false, deferred_ = false;
};

/// While it lives ops are recomputed, if `on`; otherwise as before.
class RecomputeScope {
 public:
  RecomputeScope(Tape& tape, bool on) : tape_{tape}, before_{tape.recompute()} {
    if (on) tape.set_recompute(true);
  }
  ~RecomputeScope() { tape_.set_recompute(before_); }
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

 private:
  Tape& tape_;
  bool before_;
};

}  // namespace orrery
