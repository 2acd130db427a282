// SPDX-License-Identifier: Apache-2.0
// Any text as a quantity: a finite number or a UserError. A number that is written and read again is the same number.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "sim/base/error.hpp"
#include "sim/base/units.hpp"

namespace {

using namespace orrery;

template <class Q>
void check(std::string_view text) {
  Q value;
  try {
    value = parse<Q>(text);
  } catch (const UserError&) {
    return;
  }
  if (!std::isfinite(value.base()) || to_text(value).empty()) std::abort();
  if (parse<Q>(to_exact_text(value)).base() != value.base()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  check<Bytes>(text);
  check<Seconds>(text);
  check<Flops>(text);
  check<BytesPerSecond>(text);
  check<FlopsPerSecond>(text);
  check<PerSecond>(text);
  check<FlopsPerByte>(text);
  return 0;
}
