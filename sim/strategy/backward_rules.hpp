// SPDX-License-Identifier: Apache-2.0
// The rules of reverse-mode differentiation, one per op kind, of which `backward` calls one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/strategy/tape.hpp"

namespace orrery {

class BackwardRules {
 public:
  BackwardRules(const TapeNode& node, Tape& tape) : node_{node}, tape_{tape} {}

  /// Kinds without a rule pass no gradient on: index maps, routing tables, fills, sampling, copies, optimizers.
  template <class W>
  void operator()(const W&) {}

  void operator()(const Gemm& g) {
    input_gradient(g);
    weight_gradient(g);
  }
  void input_gradient(const Gemm& g);
  void weight_gradient(const Gemm& g);
  void operator()(const GroupedGemm& g);
  void operator()(const AttentionForward& a);
  void operator()(const RelativeBiasForward& r);
  void operator()(const NormForward& n);
  void operator()(const ActivationForward& a);
  void operator()(const GatedForward& g);
  void operator()(const Add& a);
  void operator()(const Multiply& m);
  void operator()(const ScaleRows& s);
  void operator()(const AddRows& a);
  void operator()(const Dropout& d);
  void operator()(const Cast& c);
  void operator()(const BroadcastHeads& b);
  void operator()(const CopyRows& c);
  void operator()(const SwapAxes& s);
  void operator()(const Gather& g);
  void operator()(const RotaryEmbedding& r);
  void operator()(const EmbeddingBagForward& e);
  void operator()(const DotInteractionForward& d);
  void operator()(const CrossEntropyForward& c);
  void operator()(const BinaryCrossEntropyForward& c);
  void operator()(const TopKGate& g);
  void operator()(const Permute& p);
  void operator()(const Unpermute& u);
  void operator()(const ConcatPrefix& c);
  void operator()(const MeanPool& m);

 private:
  TensorId in(std::size_t i) const { return node_.operands[i].tensor(); }
  std::string name(std::string_view suffix) const {
    return std::string{tape_.plan().names[node_.name]} + std::string{suffix};
  }
  TensorId saved(std::size_t i) { return tape_.saved(in(i)); }
  /// What the gradient of a product's weight reads in place of its input; none: the input.
  Tape::InputCopy copy_of_input(Narrow narrow) const {
    const Tape::InputCopy* copy = narrow == Narrow::EightBits ? tape_.copy_of(in(0)) : nullptr;
    return copy ? *copy : Tape::InputCopy{};
  }
  TensorId saved_input(const Tape::InputCopy& copy) {
    return copy.numbers.is_none() ? saved(0) : tape_.saved(copy.numbers);
  }
  void gemm_left(const Gemm& g, TensorId dc);
  void gemm_right(const Gemm& g, TensorId dc);
  bool is_parameter(TensorId t) const {
    return tape_.plan().tensors[tape_.plan().owner(t).index()].role == TensorRole::Parameter;
  }

  /// Gradients of weights may be wider than what they are computed from.
  bool is_wide(TensorId t, DType dtype) const {
    return tape_.plan().tensors[t.index()].dtype == DType::F32 && dtype != DType::F32;
  }

  /// One op that writes the gradient of input i: emits `work` with `operands` and the target behind them.
  void one(std::size_t i, const Work& work, std::vector<Operand> operands) {
    if (!tape_.wants(in(i))) return;
    const TensorId dx = tape_.contribution(in(i));
    operands.push_back(writes(dx));
    tape_.emit(name(".dx"), work, operands);
    tape_.contribute(in(i), dx);
  }

  const TapeNode& node_;
  Tape& tape_;
};

}  // namespace orrery
