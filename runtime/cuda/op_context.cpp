// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/op_context.hpp"

#include "runtime/cuda/host_side.hpp"
#include "sim/base/error.hpp"

namespace orrery {

gpu::NumberType number_type(DType t) {
  switch (t) {
    case DType::F32:
      return gpu::NumberType::F32;
    case DType::F64:
      return gpu::NumberType::F64;
    case DType::BF16:
      return gpu::NumberType::BF16;
    case DType::F16:
      return gpu::NumberType::F16;
    default:
      bug("an op of a cuda device counts with a type that is no floating one");
  }
}

gpu::Fault GpuContextBase::fault() const { return queue().host.fault(call().op->id); }

}  // namespace orrery
