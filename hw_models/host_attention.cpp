// SPDX-License-Identifier: Apache-2.0
// Laws of attention. The tiles below are those of the host kernels.
#include <algorithm>
#include <cmath>

#include "hw_models/host_laws.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kQueryTile = 64, kKeyTile = 128, kKeyPart = 32, kRowTile = 8;
constexpr double kMillion = 1e6, kLeast = 1e-12;
constexpr OperandRange kKeysAndValues{1, 3};  // of the operands of attention
constexpr double kPage = 4096;                // bytes

double pad(std::int64_t n, std::int64_t to) { return double((n + to - 1) / to * to); }
std::int64_t tile_cols(DType t) { return t == DType::F64 ? 16 : 32; }

const AttentionShape& shape_of(const Work& work) {
  if (const auto* f = std::get_if<AttentionForward>(&work)) return f->shape;
  return std::get<AttentionBackward>(work).shape;
}

/// Scores that one head of one sequence computes, with the rows padded or as they are.
struct Visited {
  double padded = 0, rows = 0;
};

/// The share of all tiles that is visited when positions say what is visible: those with visible scores, half of which
/// are visible in the tiles at the edge.
double visible_share(const AttentionShape& s, std::int64_t kv) {
  const double share = double(s.visible) / (double(s.q) * double(kv));
  return share < 1 ? std::min(1.0, share + double(kKeyTile) / (2.0 * double(kv))) : 1.0;
}

/// Keys that a tile of queries visits, d documents in a sequence: those that its first row sees, its own rows, and what
/// rounding to whole parts adds in front. Documents but the first begin anywhere in a tile of queries and in a part.
double keys_of_documents(const AttentionShape& s, std::int64_t kv) {
  const double query = double(kQueryTile), part = double(kKeyPart), seen = double(s.visible) / double(s.q);
  return std::min(pad(kv, kKeyPart), seen + query / 2 + (query + part) / 2 * (1 - 1 / double(s.documents)));
}

Visited visit_keys(const AttentionShape& s, std::int64_t kv) {
  if (s.visible > 0) {
    const double keys = s.documents > 0 ? keys_of_documents(s, kv) : visible_share(s, kv) * pad(kv, kKeyPart);
    return {keys * pad(s.q, kRowTile), keys * double(s.q)};
  }
  Visited v;
  for (std::int64_t i = 0; i < s.q; i += kQueryTile) {
    const std::int64_t rows = std::min(kQueryTile, s.q - i), offset = kv - s.q;
    const std::int64_t end = s.causal ? std::clamp<std::int64_t>(i + rows + offset, 0, kv) : kv;
    const std::int64_t sees = s.chunked ? s.chunk_start(i + offset) : i + offset - s.window + 1;
    const std::int64_t begin = s.window > 0 ? std::clamp<std::int64_t>(sees, 0, end) : 0;
    const double keys = pad(end, kKeyPart) - double(begin / kKeyPart * kKeyPart);
    v.padded += keys * pad(rows, kRowTile);
    v.rows += keys * double(rows);
  }
  return v;
}

/// The part of a page that lies between a head's rows of two tokens, or a whole one: from row to row a core does not
/// read ahead over pages.
double page_between_rows(const AttentionShape& s) {
  return std::min(1.0, double(s.heads * s.qk_dim) * bits(s.dtype) / 8.0 / kPage);
}

/// Sequences of unequal length hold fewer scores than `batch` of the longest.
double batch_of(const AttentionShape& s, std::int64_t kv) {
  if (s.ragged_pairs == 0) return double(s.batch);
  return double(s.ragged_pairs) / (double(s.q) * double(std::max<std::int64_t>(1, kv)));
}

constexpr Feature kFeatures[] = {
    {"call", Spends::Overhead, "op"},
    {"head", Spends::Overhead, "head of a sequence"},
    {"math", Spends::Math, "10^6 FLOP, rows and columns filled up"},
    {"scores", Spends::Math, "10^6 scores"},
    {"pack", Spends::Memory, "10^6 elements of keys and values"},
    {"rows", Spends::Memory, "10^6 elements of queries and outputs"},
    {"apart", Spends::Memory, "10^6 rows of heads of queries, as far as the heads of a token fill a page of 4 KiB",
     kMostPerMillionRows},
    {"far", Spends::Memory, "MB beyond the second-level cache", kMostPerMegabyte},
    {"dram", Spends::Memory, "MB beyond the last cache", kMostPerMegabyte},
    {"cold", Spends::Memory, "MB that have left the last cache since their last use", kMostPerMegabyte, 1}};
constexpr std::string_view kAxes[] = {"q", "kv", "dim", "heads"};

Moved moved(const LawInput& in) {
  const Amount a = amount(in.work, in.bindings);
  return {a.read.base() / kMillion, a.written.base() / kMillion};
}

/// Time of tiled attention over heads H (Hkv of keys), batch b, queries in tiles of 64, of each the keys that it sees
/// in whole parts of 32; S is the number of scores of these, S₈ the same with rows padded to 8:
///
///   t = call + b·H·head + math·2·b·H·S₈·(dk + ⌈dv⌉₃₂) + scores·b·H·S + pack·b·Hkv·kv·(dk + dv) +
///   rows·b·H·q·(dk + dv) + apart·b·H·q·min(1, bytes of a token's queries / 4 KiB) + misses
///
/// Zeros that fill up what is packed cost next to nothing: counted as the rest, 73 shapes (16 to 1,024 queries, heads
/// of 32 to 128) were off by 3.4 and not by 2.9 % (RMS; Xeon, Emerald Rapids). Leaves out bias and masks, which add a
/// read of a score each, and bounds of scores: their tanh took 0.9 ns a score, where all else took 2.2 (heads of 32
/// numbers) to 7.3 (128) (Xeon at 2.5 GHz, f32, 512 queries and keys). Coefficients: `attention.tiled`, fitted by
/// calibrate.
FeatureRow attention_values(const LawInput& in, const Caches& caches) {
  const AttentionShape& s = shape_of(in.work);
  const std::int64_t kv = s.kv.at(in.bindings);
  const double b = batch_of(s, kv), heads = b * double(s.heads), width = pad(s.v_dim, tile_cols(s.dtype));
  const Visited v = visit_keys(s, kv);
  const Bytes size{kMillion * moved(in).all()};
  return {1,
          heads,
          2 * heads * v.padded * (double(s.qk_dim) + width) / kMillion,
          heads * v.rows / kMillion,
          b * double(s.kv_heads) * double(kv) * double(s.qk_dim + s.v_dim) / kMillion,
          heads * double(s.q) * double(s.qk_dim + s.v_dim) / kMillion,
          heads * double(s.q) * page_between_rows(s) / kMillion,
          size.base() / kMillion * spill(size, caches.l2),
          size.base() / kMillion * spill(size, caches.l3),
          lost(in, caches, CacheLevel::Last, moved(in)).all()};
}

/// Time of the gradient: the five products of what is visited, and packing of keys, values, queries and outputs both
/// ways:
///
///   t = call + b·H·head + math·2·b·H·(S₈·(dk + dv + ⌈dk⌉₃₂) + S·(⌈dk⌉₃₂ + ⌈dv⌉₃₂)) + scores·b·H·S +
///   pack·b·Hkv·⌈kv⌉₃₂·(…) + rows·… + apart·… + misses
///
/// Without apart networks of 512 to 1,024 numbers were predicted 3 to 8 % too fast and those of 128 to 384 3 to 5 % too
/// slow (Xeon, Emerald Rapids). Leaves out the bias gradient. Coefficients: `attention_backward`, fitted by calibrate.
FeatureRow backward_values(const LawInput& in, const Caches& caches) {
  const AttentionShape& s = shape_of(in.work);
  const std::int64_t kv = s.kv.at(in.bindings);
  const double b = batch_of(s, kv), heads = b * double(s.heads), dk = double(s.qk_dim), dv = double(s.v_dim);
  const double wk = pad(s.qk_dim, tile_cols(s.dtype)), wv = pad(s.v_dim, tile_cols(s.dtype));
  const Visited v = visit_keys(s, kv);
  const Bytes size{kMillion * moved(in).all()};
  return {1,
          heads,
          2 * heads * (v.padded * (dk + dv + wk) + v.rows * (wk + wv)) / kMillion,
          heads * v.rows / kMillion,
          b * double(s.kv_heads) * pad(kv, kKeyPart) * (dk + dv + 2 * wk + wv) / kMillion,
          heads * double(s.q) * 2 * (dk + dv) / kMillion,
          heads * double(s.q) * page_between_rows(s) / kMillion,
          size.base() / kMillion * spill(size, caches.l2),
          size.base() / kMillion * spill(size, caches.l3),
          lost(in, caches, CacheLevel::Last, moved(in)).all()};
}

constexpr Feature kDecodeFeatures[] = {
    {"call", Spends::Overhead, "op"},
    {"head", Spends::Overhead, "head of keys of a sequence"},
    {"math", Spends::Math, "10^6 FLOP"},
    {"scores", Spends::Math, "10^6 scores"},
    {"tail", Spends::Math, "10^6 multiplications that do not fill a vector"},
    {"keys", Spends::Memory, "10^6 elements of keys and values"},
    {"row", Spends::Memory, "10^6 keys"},
    {"warm", Spends::Memory, "MB of keys and values that have left the second-level cache since their last use",
     kMostPerMegabyte},
    {"cold", Spends::Memory, "MB of keys and values that have left the last cache since their last use",
     kMostPerMegabyte, 1},
    {"row_cold", Spends::Memory, "10^6 keys that have left the last cache since their last use", kMostPerMillionRows},
    {"wide", Spends::Memory,
     "MB of keys and values that have left the last cache, as far as their step passes over 128 MiB", kMostPerMegabyte},
    {"call_cold", Spends::Overhead, "op, as far as its step does not fit into the second-level cache",
     kMostPerColdCall}};

/// Time of attention of few queries, which reads keys and values once, where they lie:
///
///   t = call + b·Hkv·head + b·H·q·kv·(math·2·(⌈dk⌉c + dv) + scores + tail·(dv mod c))
///     + b·Hkv·kv·(keys·(dk + dv) + row) + misses of keys and values, by bytes, by keys and as far as
///     their step is wide (see few_rows_values)
///
/// c numbers are in a vector. Of keys what does not fill one is one more (all of it is multiplied one by one if there
/// are fewer, which is left out), of values it is multiplied one by one.
///
/// A head's part in a key is a loop over a few vectors, of which each costs something by itself: hence the cost by key.
/// Leaves out causal savings between the few queries. Coefficients: `attention.decode`, fitted by calibrate.
FeatureRow decode_values(const LawInput& in, const Caches& caches) {
  const AttentionShape& s = shape_of(in.work);
  const double b = double(s.batch);
  const double kv = s.visible > 0 ? double(s.visible) / double(s.q) : double(s.keys_of_row(s.kv.at(in.bindings)));
  const double dims = double(s.qk_dim + s.v_dim), scores = b * double(s.heads) * double(s.q) * kv,
               keys = b * double(s.kv_heads) * kv * dims;
  const Bytes size{keys * bits(s.dtype) / 8.0}, step = reuse_distance(in, size);
  const double rows = b * double(s.kv_heads) * kv / kMillion, lanes = double(tile_cols(s.dtype)) / 2;
  const Moved cached{size.base() / kMillion};
  const double cold = lost(in, caches, CacheLevel::Last, cached, kKeysAndValues).read;
  const double padded = std::ceil(double(s.qk_dim) / lanes) * lanes + double(s.v_dim);
  return {1,
          b * double(s.kv_heads),
          2 * scores * padded / kMillion,
          scores / kMillion,
          scores * std::fmod(double(s.v_dim), lanes) / kMillion,
          keys / kMillion,
          rows,
          lost(in, caches, CacheLevel::Second, cached, kKeysAndValues).read,
          cold,
          rows * cold / std::max(cached.read, kLeast),
          cold * spill(step, kTranslated),
          evicted(step, caches, CacheLevel::Second)};
}

AxisRow attention_sizes(const LawInput& in) {
  const AttentionShape& s = shape_of(in.work);
  return {double(s.q), double(s.kv.at(in.bindings)), double(std::max(s.qk_dim, s.v_dim)), double(s.batch * s.heads)};
}

}  // namespace

const LawForm& attention_form() {
  static constexpr LawForm kForm{"attention", "tiled attention", Knob::AttentionRate, kFeatures, attention_values,
                                 kAxes,       attention_sizes};
  return kForm;
}

const LawForm& attention_decode_form() {
  static constexpr LawForm kForm{
      "attention_decode", "attention of few queries", Knob::AttentionRate, kDecodeFeatures, decode_values, kAxes,
      attention_sizes};
  return kForm;
}

const LawForm& attention_backward_form() {
  static constexpr LawForm kForm{
      "attention_backward", "gradient of attention", Knob::AttentionRate, kFeatures, backward_values, kAxes,
      attention_sizes};
  return kForm;
}

}  // namespace orrery
