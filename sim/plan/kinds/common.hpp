// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/base/dtype.hpp"
#include "sim/base/units.hpp"
#include "sim/plan/extent.hpp"

// Each header of this folder is one family of op kinds. A kind is a struct with
//   kName          the word in plans, reports and parameter files
//   kClass         the class that reports sum it under
//   visit(v)       calls v("field", field) for each field, for printing, hashing and plan files
//   amount(b)      its work under bindings b; never time
// and a comment that gives its operands in order (→ separates those read from those written; [x] is there if the field
// says so). A new kind is a struct here, its name in the list of sim/plan/work.hpp, its host function in runtime/host
// and, if it can be trained through, its rule in sim/strategy.

namespace orrery {

enum class OpClass : std::uint8_t {
  Gemm,
  Attention,
  Norm,
  Elementwise,
  Embedding,
  Loss,
  Routing,
  Optimizer,
  Copy,
  Collective,
  PointToPoint,
  Host,
  Other
};
constexpr int kNumOpClasses = 13;
std::string_view name_of(OpClass c);

/// Work of one op on one rank: arithmetic, least traffic to and from device memory (each operand moved once), and what
/// it sends.
struct Amount {
  Flops flops;
  Bytes read, written;
  Bytes message;  // payload of a collective, a send or a copy between tiers
};

}  // namespace orrery
