// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "sim/plan/last_uses.hpp"
#include "sim/plan/plan.hpp"

namespace orrery {

/// Per stream the latest of some ops: as streams are in order, to come after it is enough.
class LatestOps {
 public:
  void add(OpId op, Stream stream) {
    const auto s = static_cast<std::size_t>(stream);
    if (!(streams_ >> s & 1u) || ops_[s] < op) ops_[s] = op;
    streams_ |= 1u << s;
  }
  /// Makes them what `op`, the next one of the plan, comes after.
  void write(Plan& plan, Op& op) const {
    op.first_dep = static_cast<std::uint32_t>(plan.deps.size());
    for (unsigned left = streams_; left != 0; left &= left - 1)
      plan.deps.push_back(ops_[static_cast<std::size_t>(std::countr_zero(left))]);
    op.num_deps = static_cast<std::uint16_t>(plan.deps.size() - op.first_dep);
  }

 private:
  std::array<OpId, kNumStreams> ops_;
  unsigned streams_ = 0;
};

/// What an operand of the next op, on some stream, says that it must come after; `owner` of its storage.
inline void add_order(const Plan& plan, const LastUses& uses, Operand o, TensorId owner, Stream stream,
                      LatestOps& before) {
  const auto add = [&](OpId on) {
    if (!on.is_none() && plan[on].stream != stream) before.add(on, plan[on].stream);
  };
  add(uses.writer(owner));
  if (o.writes()) uses.for_each_reader(owner, add);
}

inline void note_use(LastUses& uses, TensorId owner, bool writes, OpId op, Stream stream) {
  if (writes)
    uses.write(owner, op);
  else
    uses.read(owner, op, stream);
}

/// The later one of two ops, of which either may be none.
inline OpId later(OpId x, OpId y) {
  if (x.is_none() || y.is_none()) return x.is_none() ? y : x;
  return std::max(x, y);
}

/// Notes uses that were not noted one by one: an owner's last writer, and who has read it last since, all on one
/// stream; either may be none, or earlier than what is known.
inline void note_latest(const Plan& plan, LastUses& uses, TensorId owner, Stream stream, OpId writer, OpId reader) {
  writer = later(uses.writer(owner), writer);
  uses.for_each_reader(owner, [&](OpId op) {
    if (!reader.is_none() && plan[op].stream == stream) reader = later(reader, op);
  });
  if (writer != uses.writer(owner)) uses.write(owner, writer);
  if (!reader.is_none() && (writer.is_none() || reader >= writer)) uses.read(owner, reader, stream);
}

}  // namespace orrery
