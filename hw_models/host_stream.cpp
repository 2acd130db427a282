// SPDX-License-Identifier: Apache-2.0
// Laws of what streams through memory, of small dense algebra, and of messages between ranks of one computer.
#include <algorithm>
#include <cmath>
#include <concepts>

#include "hw_models/host_laws.hpp"

namespace orrery {
namespace {

constexpr double kMillion = 1e6, kLeast = 1e-12;
constexpr Bytes kStart{16384.0};  // of a pass, before the processor fetches ahead

/// An op that passes over its operands.
struct Pass {
  double rows = 1, elements = 0;
  Moved moved;
  Bytes resident;  // what the moved bytes are picked from: the operands, and a whole table where rows of it are picked
  Flops flops;

  Bytes bytes() const { return Bytes{kMillion * moved.all()}; }
};

template <class K>
double rows_of(const K& k) {
  if constexpr (requires { k.tokens; })
    return double(k.tokens);
  else if constexpr (requires { k.lookups; })
    return double(k.lookups);
  else if constexpr (requires {
                       k.batch;
                       k.rows;
                     })
    return double(k.batch * k.rows);
  else if constexpr (requires {
                       k.rows;
                       k.heads;
                     })
    return double(k.rows * k.heads);
  else if constexpr (requires { k.rows; })
    return double(k.rows);
  else if constexpr (requires { k.outer; })
    return double(k.outer * k.a * k.b);
  else if constexpr (requires { k.batch; })
    return double(k.batch);
  else if constexpr (requires { k.n; })
    return double(k.n);
  else
    return 1;
}

template <class K>
double item_of(const K& k) {
  if constexpr (requires { k.dtype; })
    return bits(k.dtype) / 8.0;
  else
    return 4;
}

template <class K>
Bytes table_of(const K& k) {
  if constexpr (requires {
                  k.table_rows;
                  k.cols;
                })
    return size_of(k.dtype, k.table_rows * k.cols);
  else
    return {};
}

Pass pass_of(const LawInput& in) {
  return std::visit(
      [&](const auto& k) {
        const Amount a = k.amount(in.bindings);
        const Bytes bytes = a.read + a.written;
        return Pass{rows_of(k),
                    bytes.base() / item_of(k),
                    {a.read.base() / kMillion, a.written.base() / kMillion},
                    bytes + table_of(k),
                    a.flops};
      },
      in.work);
}

constexpr Feature kStreamFeatures[] = {
    {"call", Spends::Overhead, "op"},
    {"row", Spends::Overhead, "10^6 rows"},
    {"element", Spends::Memory, "10^6 elements read or written"},
    {"far", Spends::Memory, "MB beyond the second-level cache", kMostPerMegabyte},
    {"dram", Spends::Memory, "MB beyond the last cache", kMostPerMegabyte},
    {"read_warm", Spends::Memory, "MB read that have left the second-level cache since their last use",
     kMostPerMegabyte},
    {"read_cold", Spends::Memory, "MB read that have left the last cache since their last use", kMostPerMegabyte, 1},
    {"write_warm", Spends::Memory, "MB written that have left the second-level cache since their last use",
     kMostPerMegabyte},
    {"write_cold", Spends::Memory, "MB written that have left the last cache since their last use", kMostPerMegabyte,
     2},
    {"row_cold", Spends::Memory, "10^6 rows, as far as what is read has left the last cache", kMostPerMillionRows},
    {"start_warm", Spends::Memory, "the first 16 KiB in MB, as far as they have left the second-level cache",
     kMostPerMegabyte},
    {"start_cold", Spends::Memory, "the first 16 KiB in MB, as far as they have left the last cache", kMostPerMegabyte},
    {"call_cold", Spends::Overhead, "op, as far as the step does not fit into the second-level cache",
     kMostPerColdCall},
    {"call_far", Spends::Overhead, "op, as far as the step does not fit into the last cache", kMostPerColdCall}};
constexpr std::string_view kStreamAxes[] = {"rows", "elements"};

/// Time of a pass over memory:
///
///   t = call + row·rows + element·elements + bytes·(far·spill(R, L2) + dram·spill(R, L3)) + read_warm·lost(read, L2)
///     + read_cold·lost(read, L3) + write_warm·lost(written, L2) + write_cold·lost(written, L3)
///     + row_cold·rows·λ(L3) + min(bytes, 16 KiB)·(start_warm·λ(L2) + start_cold·λ(L3))
///     + call_cold·evicted(W, L2) + call_far·evicted(W, L3)
///
/// R is the operands, and the whole table where rows of one are picked: what the op itself pushes out of a cache.
/// lost() is what other ops have, since the operands were used last, and λ the part of all bytes that is. W is what a
/// step touches: where W leaves a cache, so do the op's code and descriptions. Fitted by calibrate, one set per kind
/// and variant.
FeatureRow stream_values(const LawInput& in, const Caches& caches) {
  const Pass p = pass_of(in);
  const double mb = p.bytes().base() / kMillion, start = std::min(p.bytes(), kStart).base() / kMillion;
  const Bytes step = reuse_distance(in, p.resident);
  const Moved warm = lost(in, caches, CacheLevel::Second, p.moved), cold = lost(in, caches, CacheLevel::Last, p.moved);
  const double all = std::max(mb, kLeast);
  return {1,
          p.rows / kMillion,
          p.elements / kMillion,
          mb * spill(p.resident, caches.l2),
          mb * spill(p.resident, caches.l3),
          warm.read,
          cold.read,
          warm.written,
          cold.written,
          p.rows / kMillion * std::min(1.0, cold.all() / all),
          start * std::min(1.0, warm.all() / all),
          start * std::min(1.0, cold.all() / all),
          evicted(step, caches, CacheLevel::Second),
          evicted(step, caches, CacheLevel::Last)};
}

AxisRow stream_sizes(const LawInput& in) {
  const Pass p = pass_of(in);
  return {p.rows, p.elements};
}

constexpr Feature kDenseFeatures[] = {
    {"call", Spends::Overhead, "op"},
    {"row", Spends::Overhead, "10^6 rows"},
    {"element", Spends::Memory, "10^6 elements read or written"},
    {"math", Spends::Math, "10^6 FLOP"},
    {"warm", Spends::Memory, "MB that have left the second-level cache since their last use", kMostPerMegabyte}};

/// Time of small dense algebra (factorisations, pairwise dots): t = call + row·rows + element·elements + math·flops +
/// warm·lost(bytes, L2). Leaves out what lies behind the second-level cache.
FeatureRow dense_values(const LawInput& in, const Caches& caches) {
  const Pass p = pass_of(in);
  return {1, p.rows / kMillion, p.elements / kMillion, p.flops.base() / kMillion,
          lost(in, caches, CacheLevel::Second, p.moved).all()};
}

/// Bytes that each rank reads to take part, with slices of a reduction shared by the ranks.
double message_bytes(const LawInput& in) {
  const double bytes = amount(in.work, in.bindings).message.base(), n = double(in.ranks);
  const auto* c = std::get_if<Collective>(&in.work);
  if (!c) return bytes;
  switch (c->kind) {
    case CollectiveKind::AllReduce:
      return 2 * bytes;
    case CollectiveKind::Reduce:
      return n * bytes;
    case CollectiveKind::Barrier:
      return 0;
    default:
      return bytes;
  }
}

constexpr Feature kMessageFeatures[] = {{"call", Spends::Overhead, "op"},
                                        {"rank", Spends::Overhead, "rank that takes part"},
                                        {"turn", Spends::Overhead, "rank that waits for a core"},
                                        {"moved", Spends::Memory, "MB that a core reads"},
                                        {"far", Spends::Memory, "MB beyond the second-level cache", kMostPerMegabyte},
                                        {"dram", Spends::Memory, "MB beyond the last cache", kMostPerMegabyte}};
constexpr std::string_view kMessageAxes[] = {"ranks", "megabytes"};

/// Time of a collective or message between threads of one computer, from when the last rank has arrived:
///
///   t = call + rank·n + turn·(n − c) + bytes·n/c·(moved + far·spill(n·bytes, L2) + dram·spill(n·bytes, L3))
///
/// n ranks do it on c cores, c ≤ n. bytes is what a rank reads: 2·size for an all-reduce, n·size for a reduce, size
/// otherwise. Leaves out which core's cache holds the bytes. Coefficients: `collective.*` and `send`, fitted by
/// calibrate.
FeatureRow message_values(const LawInput& in, const Caches& caches) {
  const double n = double(in.ranks), c = std::min(n, double(caches.cores));
  const double bytes = message_bytes(in), mb = bytes / kMillion * n / c;
  const Bytes together{n * bytes};
  return {1, n, n - c, mb, mb * spill(together, caches.l2), mb * spill(together, caches.l3)};
}

AxisRow message_sizes(const LawInput& in) {
  return {double(in.ranks), amount(in.work, in.bindings).message.base() / kMillion};
}

}  // namespace

const LawForm& stream_form() {
  static constexpr LawForm kForm{"stream",      "pass over memory", Knob::MemoryBandwidth, kStreamFeatures,
                                 stream_values, kStreamAxes,        stream_sizes};
  return kForm;
}

const LawForm& dense_form() {
  static constexpr LawForm kForm{"dense",      "small dense algebra", Knob::GemmRate, kDenseFeatures,
                                 dense_values, kStreamAxes,           stream_sizes};
  return kForm;
}

const LawForm& message_form() {
  static constexpr LawForm kForm{"message",           "message between ranks of a computer",
                                 Knob::LinkBandwidth, kMessageFeatures,
                                 message_values,      kMessageAxes,
                                 message_sizes};
  return kForm;
}

}  // namespace orrery
