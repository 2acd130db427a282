// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/collective_steps.hpp"

#include <cmath>

#include "sim/base/error.hpp"
#include "sim/plan/collective_algorithms.hpp"

namespace orrery {
namespace {

const StepAlgorithm* find_algorithm(CollectiveKind kind, CollectiveAlgorithm algorithm) {
  for (const auto family :
       {ring_algorithms(), doubling_algorithms(), direct_algorithms(), tree_algorithms(), binary_tree_algorithms()})
    for (const StepAlgorithm& a : family)
      if (a.kind == kind && a.algorithm == algorithm) return &a;
  return nullptr;
}

/// Of one member alone: its input is its output.
std::int64_t lone_size(const StepMember& m) { return m.shape.kind == CollectiveKind::Barrier ? 0 : m.copies(); }
CollectiveStep lone_step(const StepMember& m, std::int64_t) {
  return copy_step(m.whole(StepBuffer::In), m.whole(StepBuffer::Out));
}
std::int64_t no_stage(const CollectiveShape&) { return 0; }
constexpr StepAlgorithm kLone{CollectiveKind::Barrier, CollectiveAlgorithm::Direct, lone_size, lone_step, no_stage};

const StepAlgorithm& algorithm_of(const CollectiveShape& shape) {
  if (shape.members == 1) return kLone;
  const StepAlgorithm* found = find_algorithm(shape.kind, shape.algorithm);
  if (found == nullptr) bug("a collective by an algorithm that its kind does not have");
  return *found;
}

}  // namespace

std::span<const EnumName<CollectiveAlgorithm>> enum_names(CollectiveAlgorithm) {
  static constexpr EnumName<CollectiveAlgorithm> kNames[] = {
      {CollectiveAlgorithm::Auto, "auto"},       {CollectiveAlgorithm::Ring, "ring"},
      {CollectiveAlgorithm::Tree, "tree"},       {CollectiveAlgorithm::DoubleTree, "double_tree"},
      {CollectiveAlgorithm::Halving, "halving"}, {CollectiveAlgorithm::Hierarchical, "hierarchical"},
      {CollectiveAlgorithm::Direct, "direct"},   {CollectiveAlgorithm::Bruck, "bruck"}};
  return kNames;
}

std::string_view name_of(CollectiveAlgorithm a) { return enum_names(a)[static_cast<std::size_t>(a)].name; }

bool has_algorithm(CollectiveKind kind, CollectiveAlgorithm algorithm) {
  return find_algorithm(kind, algorithm) != nullptr;
}

CollectiveAlgorithm usable_algorithm(CollectiveKind kind, CollectiveAlgorithm wanted, std::int64_t members,
                                     std::int64_t per_node) {
  const bool is_uneven = wanted == CollectiveAlgorithm::Hierarchical && members % per_node != 0;
  if (has_algorithm(kind, wanted) && !is_uneven) return wanted;
  if (kind == CollectiveKind::Broadcast || kind == CollectiveKind::Reduce) return CollectiveAlgorithm::Tree;
  return has_algorithm(kind, CollectiveAlgorithm::Ring) ? CollectiveAlgorithm::Ring : CollectiveAlgorithm::Direct;
}

CollectiveShape shape_of(const Collective& work, CollectiveAlgorithm algorithm, std::int64_t members,
                         std::int64_t per_node) {
  constexpr double kPiece = 524288, kMostPieces = 64;
  CollectiveShape s{.kind = work.kind, .algorithm = algorithm, .members = members};
  s.elements = std::llround(work.bytes.base() * 8 / static_cast<double>(bits(work.dtype)));
  s.root = work.root;
  s.per_node = per_node;
  s.pieces = static_cast<std::int64_t>(std::clamp(std::ceil(work.bytes.base() / kPiece), 1.0, kMostPieces));
  return s;
}

int num_lanes(const CollectiveShape& shape) {
  return shape.algorithm == CollectiveAlgorithm::DoubleTree && shape.members > 1 ? 2 : 1;
}

std::int64_t stage_elements(const CollectiveShape& shape) { return algorithm_of(shape).stage(shape); }

CollectiveSteps::CollectiveSteps(const CollectiveShape& shape, std::int64_t member, int lane)
    : shape_{shape}, member_{member}, lane_{lane}, algorithm_{&algorithm_of(shape)} {}

std::int64_t CollectiveSteps::size() const { return algorithm_->size({shape_, member_, lane_}); }

CollectiveStep CollectiveSteps::operator[](std::int64_t k) const {
  return algorithm_->step({shape_, member_, lane_}, k);
}

}  // namespace orrery
