// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/tensor_scheme.hpp"

namespace orrery {

Split TensorScheme::columns(const Roles&) const { return {}; }
TensorId TensorScheme::enter(Layers&, std::string_view, TensorId x, std::span<const Reader>) const { return x; }
TensorId TensorScheme::leave(Layers&, std::string_view, TensorId partial) const { return partial; }

const TensorScheme& scheme_of(const Roles& roles) {
  if (roles.data_attention) return alone();
  return feed_forward_scheme_of(roles);
}

const TensorScheme& feed_forward_scheme_of(const Roles& roles) {
  if (roles.row) return tensor_2d();
  return roles.x ? tensor_3d() : tensor_1d();
}

}  // namespace orrery
