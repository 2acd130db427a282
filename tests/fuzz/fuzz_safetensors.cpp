// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: tensors that cover the data exactly, or a UserError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "sim/base/error.hpp"
#include "sim/model/safetensors.hpp"

using namespace orrery;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  try {
    const SafetensorsHeader header = parse_safetensors_header(bytes, size, "fuzz.safetensors");
    std::uint64_t at = 0;
    for (const StoredTensor& t : header.tensors) {
      const auto bits = static_cast<std::uint64_t>(t.elements()) * static_cast<std::uint64_t>(*stored_bits(t.dtype));
      if (t.begin != at || bits != 8 * (t.end - t.begin)) std::abort();
      at = t.end;
    }
    if (header.data_start + at != size) std::abort();
  } catch (const UserError& e) {
    if (e.diagnostics().empty()) std::abort();
  }
  return 0;
}
