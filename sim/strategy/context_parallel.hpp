// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>

#include "sim/plan/builder.hpp"
#include "sim/strategy/distribution.hpp"

namespace orrery {

/// A tensor on its way round the ranks of an axis: every hop goes one place further, so that after h hops a rank has
/// what the rank h places before it had. Two buffers take turns: one hop can be under way while what the last one
/// brought is in use, and no more than that.
class Ring {
 public:
  Ring(PlanBuilder& builder, const Split& axis, std::string name, Stream stream)
      : builder_{builder}, axis_{axis}, name_{std::move(name)}, stream_{stream} {}

  /// Emits a hop: every rank gives `t` and gets the result.
  TensorId pass_on(TensorId t);

 private:
  PlanBuilder& builder_;
  Split axis_;
  std::string name_;
  Stream stream_;
  std::array<TensorId, 2> buffers_;
  std::size_t hops_ = 0;
};

/// The rank whose tensor is at hand after `hops` hops.
inline std::int64_t origin(const Split& axis, std::int64_t rank, std::int64_t hops) {
  return (rank - hops % axis.ranks + axis.ranks) % axis.ranks;
}

}  // namespace orrery
