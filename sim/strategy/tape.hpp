// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/plan/builder.hpp"

namespace orrery {

/// One recorded op of the forward pass.
struct TapeNode {
  std::string name;
  Work work;
  std::vector<Operand> operands;
  int layer = -1;
  std::uint16_t microbatch = 0;
  bool recomputed = false;  // its outputs are dropped and made again when the backward pass asks for them
  Stream stream = Stream::Compute;
};

/// Records the forward ops that it adds to a plan and differentiates them: reverse mode, one rule per op kind
/// (sim/strategy/backward_*.cpp). What the backward pass reads of the forward pass keeps its storage until then, unless
/// it was made in a recomputed scope: then its ops are emitted again, on demand, right before they are needed.
class Tape {
 public:
  explicit Tape(PlanBuilder& builder) : builder_{builder} {}

  PlanBuilder& builder() { return builder_; }
  const Plan& plan() const { return builder_.plan(); }

  // Forward.
  OpId add(std::string_view name, const Work& work, std::initializer_list<Operand> operands,
           Stream stream = Stream::Compute);
  OpId add(std::string_view name, const Work& work, std::span<const Operand> operands, Stream stream = Stream::Compute);
  /// A tensor that takes part in differentiation although no recorded op makes it: a parameter, with the storage of its
  /// gradient.
  void parameter(TensorId parameter, TensorId gradient);
  /// From here on ops are recomputed (or not).
  void set_recompute(bool on) { recompute_ = on; }
  bool recompute() const { return recompute_; }
  /// `t` stays although it was made in a recomputed scope.
  void keep(TensorId t) { kept_.insert_or_assign(builder_.plan().owner(t).value, true); }

  // Backward.
  /// Emits the gradient ops of everything recorded since the last call, latest first, and forgets it. Losses are the
  /// nodes whose rules need no incoming gradient.
  void differentiate();

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
  /// Whether any op has written the gradient of this parameter in this step.
  bool has_gradient(TensorId parameter) const { return parameters_.at(parameter.value).second; }
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
  TensorId rematerialise(TensorId owner);
  void replay(std::size_t node);
  TensorId gradient_owner(TensorId owner);
  std::string name_of(TensorId t) const { return std::string{plan().names[plan().tensors[t.index()].name]}; }

  PlanBuilder& builder_;
  std::vector<TapeNode> nodes_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> makers_;  // owner → nodes that write it, in order
  std::unordered_map<std::uint32_t, bool> kept_;
  std::unordered_map<std::uint32_t, TensorId> again_;      // owner → made again in this backward pass
  std::unordered_map<std::uint32_t, bool> wanted_;         // owners that lead to a parameter
  std::unordered_map<std::uint32_t, TensorId> gradients_;  // owner → gradient owner
  std::unordered_map<std::uint32_t, TensorId> views_;      // view of an activation → view of its gradient
  std::unordered_map<std::uint32_t, bool> shared_;         // gradient owners that two tensors share
  std::unordered_map<std::uint32_t, int> pieces_;          // view or owner → contributions so far
  std::unordered_map<std::uint32_t, std::pair<TensorId, bool>>
      parameters_;  // owner → gradient storage, written in this step
  bool recompute_ = false;
};

}  // namespace orrery
