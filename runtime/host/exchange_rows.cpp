// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/exchange_rows.hpp"

#include <fmt/format.h>

#include <cstring>

#include "runtime/rendezvous.hpp"

namespace orrery {
namespace {

/// The operands of a member: in, spans of in, spans of out, out.
enum Position : std::size_t { kIn, kSpansOfIn, kSpansOfOut, kOut };

template <class T>
T* operand_of(const Meeting& m, std::size_t member, Position i) {
  return reinterpret_cast<T*>(m.place(member, m.seats[member].op->operands[i]));
}

}  // namespace

void exchange_rows(const Collective& work, const OpContext<void>& c) {
  const Meeting& m = *c.call().meeting;
  const std::size_t me = c.call().member, members = m.seats.size();
  const auto parts = static_cast<std::size_t>(c.elements(kSpansOfOut)) / 2 / members;
  const auto row_bytes = static_cast<std::size_t>(size_of(work.dtype, work.row).base());
  auto* out = operand_of<std::byte>(m, me, kOut);
  for (std::size_t from = 0; from < members; ++from) {
    const auto* in = operand_of<const std::byte>(m, from, kIn);
    const auto* theirs = operand_of<const std::int32_t>(m, from, kSpansOfIn) + 2 * me * parts;
    const auto* mine = operand_of<const std::int32_t>(m, me, kSpansOfOut) + 2 * from * parts;
    for (std::size_t p = 0; p < 2 * parts; p += 2) {
      const std::int32_t rows = theirs[p + 1] - theirs[p];
      if (rows != mine[p + 1] - mine[p])
        c.fail(fmt::format("member {} sends {} rows, {} are awaited", from, rows, mine[p + 1] - mine[p]));
      std::memcpy(out + static_cast<std::size_t>(mine[p]) * row_bytes,
                  in + static_cast<std::size_t>(theirs[p]) * row_bytes, static_cast<std::size_t>(rows) * row_bytes);
    }
  }
}

}  // namespace orrery
