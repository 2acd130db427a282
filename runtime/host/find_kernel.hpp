// SPDX-License-Identifier: Apache-2.0
// From the overloads `run(const Kind&, const OpContext<T>&)` of a source to function pointers. A source of this folder
// defines the overloads of its family and one function that looks them up.
#pragma once

#include "runtime/host/op_context.hpp"
#include "sim/plan/work.hpp"

namespace orrery {

template <class K, class T>
void invoke(const OpCall& call) {
  run(*static_cast<const K*>(call.op->work), OpContext<T>{call});
}

/// The scalar type of a kind.
template <class K>
DType scalar_type(const K& kind) {
  if constexpr (requires { kind.shape.dtype; })
    return kind.shape.dtype;
  else
    return kind.dtype;
}

template <class K>
Kernel typed_kernel(const K& kind) {
  switch (scalar_type(kind)) {
    case DType::F32:
      return &invoke<K, float>;
    case DType::F64:
      return &invoke<K, double>;
    default:
      return nullptr;
  }
}

/// The function for the kind that `work` holds, if it is one of these and of a legal type; else null.
template <class... Kinds>
Kernel find_typed(const Work& work) {
  Kernel found = nullptr;
  (void)((std::holds_alternative<Kinds>(work) && (found = typed_kernel(std::get<Kinds>(work)), true)) || ...);
  return found;
}

/// The same for kinds that treat all types alike.
template <class... Kinds>
Kernel find_untyped(const Work& work) {
  Kernel found = nullptr;
  (void)((std::holds_alternative<Kinds>(work) && (found = &invoke<Kinds, void>, true)) || ...);
  return found;
}

}  // namespace orrery
