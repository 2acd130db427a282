// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "hw_models/gpu_laws.hpp"

namespace orrery {
namespace {

constexpr double kTile = 128;  // queries of a tile, and keys of a step of its loop
double power4(double x) { return x * x * x * x; }
double root4(double x) { return std::sqrt(std::sqrt(x)); }

const AttentionShape& shape_of(const Work& work) {
  if (const auto* a = std::get_if<AttentionForward>(&work)) return a->shape;
  return std::get<AttentionBackward>(work).shape;
}

enum Prefill : std::size_t { kLaunch, kRate, kTileTime, kInput, kOutput, kQuantum };
constexpr LawParameter kPrefill[] = {{"launch", 1e-5, 0.1}, {"rate", 0.55, 0.1},  {"tile", 0.5e-6, 0.1},
                                     {"input", 0.7, 0.1},   {"output", 0.6, 0.1}, {"quantum", 0.5, 0.1}};
constexpr double kKvKnots[] = {0, 4, 6, 7, 8, 9, 10, 11, 12, 14}, kHeadKnots[] = {0, 3, 5, 7, 9, 12},
                 kGroupKnots[] = {0, 1, 3, 6}, kBatchKnots[] = {0, 4, 8};
constexpr LawAxis kPrefillAxes[] = {
    {"kv", kKvKnots}, {"batch_heads", kHeadKnots}, {"group", kGroupKnots}, {"batch", kBatchKnots}};

/// Time of fused attention over many queries: one SM per tile of 128 queries of a head, which passes over the keys that
/// the mask leaves in steps of 128:
///
///   t = launch + max( (work/SMs)⁴ + (longest tile)⁴ )^¼, waves · mean tile · quantum ) + traffic
///   work = steps·unit + tiles·tile,  unit = 2·128·128·(dk + dv) / (peak/SMs · rate)
///   traffic = q, k, v read and written once more (cache, rotation) at `input`, the output at `output` of the bandwidth
///
/// A window ends within a step as the diagonal does: half a step more for each tile that it cuts, and the longest tile
/// passes over the keys of its first row's window and its own. Windows side by side begin at a step and end in the
/// diagonal. Documents behind one another are taken for sequences of one length, that with as many pairs for each
/// query; d of them have (d − 1)/2 tiles more, which they do not fill. Leaves out biases, masks and bounds of scores
/// (one more special function a score beside the exponential), and that the longest of unequal documents may come last.
/// Parameters: fits of tables of kernels, in which nothing has a window or a bound.
LawTime prefill_time(const double* p, const Work& work, const Bindings& b, const GpuFacts& gpu) {
  const AttentionShape& s = shape_of(work);
  const bool documents = s.documents > 0;
  const double heads = double(s.batch) * double(s.heads), all_keys = double(s.kv.at(b));
  const double window = s.window > 0 ? double(s.window) : all_keys;
  const double alike = documents ? 2 * double(s.visible) / double(s.q) - 1 : s.chunked ? window : window + kTile - 1;
  const double kv = std::max(1.0, std::min(all_keys, alike));
  const double d = double(s.qk_dim + s.v_dim);
  const double tiles_q = std::ceil(double(s.q) / kTile) + (documents ? 0.5 * double(s.documents - 1) : 0.0),
               tiles = heads * tiles_q;
  const double unit = 2 * kTile * kTile * d * gpu.sms / (gpu.peak * p[kRate]);
  const double cut =
      s.chunked || documents ? 0 : std::clamp((all_keys - window) / double(s.q), 0.0, 1.0);  // that slides
  const double diagonal = s.causal ? tiles * 0.5 * (1 + cut) : 0;
  const double steps =
      std::max(tiles, s.pairs(b) * double(s.heads) / (kTile * kTile) * (tiles_q * kTile / double(s.q)) + diagonal);
  const double all = steps * unit + tiles * p[kTileTime], longest = std::ceil(kv / kTile) * unit + p[kTileTime];
  const double waves = std::ceil(tiles / gpu.sms);
  const double slow = gpu.sustained > 0 ? 1 / gpu.sustained : 1;
  LawTime t;
  t.launch = p[kLaunch] * gpu.launch;
  t.math = slow * std::max(root4(power4(all / gpu.sms) + power4(longest)), p[kQuantum] * waves * all / tiles);
  const double rows = double(s.batch) * double(s.q), element = bits(s.dtype) / 8.0;
  const double input = rows * (double(s.heads) * double(s.qk_dim) + double(s.kv_heads) * d) * element;
  const double output = rows * double(s.heads) * double(s.v_dim) * element;
  t.memory = 2 * input / (gpu.bandwidth * p[kInput]) + 2 * output / (gpu.bandwidth * p[kOutput]);
  t.seconds = t.launch + t.math + t.memory;
  t.sm_share = std::min(1.0, tiles / gpu.sms);
  const double sequences = documents ? double(s.batch) * double(s.q) / kv : double(s.batch);
  t.axes = {std::log2(kv), std::log2(sequences * double(s.heads)), std::log2(double(s.heads) / double(s.kv_heads)),
            std::log2(sequences)};
  return t;
}

/// What both ways of decoding share: sizes of one step.
struct Step {
  double batch, kv, heads, kv_heads, group, key_bytes;  // key_bytes: key and value of one token and head
  double traffic;                                       // q, k, v and output of the step
  double width;                                         // work per token over that of a head of 128 numbers, at most 1
  double stream;  // seconds in which an SM's share of the bandwidth brings key and value of a head of that width
  // Rows of a token tree count as heads of a group: they read the same keys.

  Step(const AttentionShape& s, const Bindings& b, const GpuFacts& gpu)
      : batch{double(s.batch)},
        kv{std::max<double>(1, double(s.keys_of_row(s.kv.at(b))))},
        heads{double(s.heads) * (s.contexts ? double(s.q) : 1.0)},
        kv_heads{double(s.kv_heads)},
        group{heads / kv_heads},
        key_bytes{
            (size_quantised(s.cache, s.dtype, s.qk_dim, s.qk_dim) + size_quantised(s.cache, s.dtype, s.v_dim, s.v_dim))
                .base()},
        traffic{batch * double(s.q) * (double(s.heads) + 2 * kv_heads) * double(s.qk_dim) * bits(s.dtype) / 8.0},
        width{std::min(1.0, double(s.qk_dim + s.v_dim) / (2 * kTile))},
        stream{width * 2 * kTile * key_bytes / double(s.qk_dim + s.v_dim) * gpu.sms / gpu.bandwidth} {}
};

enum Grouped : std::size_t { kGLaunch, kGBlock, kGToken, kGMemory, kGMerge, kGTraffic, kGGroup };
constexpr LawParameter kGroupedDecode[] = {{"launch", 7e-6, 0.1}, {"block", 4e-6, 0.1},   {"token", 0.5, 0.1},
                                           {"memory", 0.9, 10},   {"merge", 0.7e-6, 0.1}, {"traffic", 0.2, 0.1},
                                           {"group", 1.0, 0.1}};
constexpr double kTokenKnots[] = {6, 7, 8, 9, 10, 12, 14}, kFillKnots[] = {-6, -4, -2, 0, 1, 2, 4, 6},
                 kShareKnots[] = {0, 2, 3, 4, 5};
constexpr LawAxis kGroupedAxes[] = {
    {"tokens_per_block", kTokenKnots}, {"sequences_per_sm", kFillKnots}, {"group", kShareKnots}};
constexpr std::string_view kGroupedMarks[] = {"quantised"};

/// Time of one token per sequence where heads that share keys are taken together; keys are split over up to 8 blocks
/// per SM of at least 128 tokens:
///
///   t = launch + waves·block + ( (waves·token·stream·tokens·(1 + group·(g/16 − 1)⁺))⁴ + (cache/bandwidth)⁴ )^¼
///       + merge·waves + traffic
///
/// Leaves out pages. Parameters: fits of tables of kernels (TensorRT-LLM's XQA).
LawTime grouped_decode_time(const double* p, const Work& work, const Bindings& b, const GpuFacts& gpu) {
  constexpr double kLeastTokens = 128, kMostBlocks = 8, kFloor = 64, kWide = 16;
  const Step s{shape_of(work), b, gpu};
  const double sequences = s.batch * s.kv_heads;
  const double split = std::max(1.0, std::floor(std::min(s.kv / kLeastTokens, kMostBlocks * gpu.sms / sequences)));
  const double units = sequences * split, waves = std::ceil(units / gpu.sms), tokens = std::max(s.kv / split, kFloor);
  LawTime t;
  t.launch = p[kGLaunch] * gpu.launch;
  const double block = waves * p[kGBlock];
  t.math = waves * p[kGToken] * s.stream * tokens * (1 + p[kGGroup] * std::max(0.0, s.group / kWide - 1));
  const double cache = sequences * s.kv * s.key_bytes / (gpu.bandwidth * p[kGMemory]);
  const double merge = split > 1 ? p[kGMerge] * waves : 0, traffic = s.traffic / (gpu.bandwidth * p[kGTraffic]);
  t.memory = cache + traffic;
  t.seconds = t.launch + block + root4(power4(t.math) + power4(cache)) + merge + traffic;
  t.sm_share = std::min(1.0, units / gpu.sms);
  t.axes = {std::log2(tokens), std::log2(sequences / gpu.sms), std::log2(s.group), 0};
  t.marks = {waves * gpu.sms / units};
  return t;
}

enum Single : std::size_t { kSLaunch, kSBlock, kSToken, kSMemory, kSMerge, kSTraffic, kSCache, kSTwo, kSFour };
constexpr LawParameter kDecode[] = {{"launch", 3e-6, 0.1}, {"block", 7e-6, 0.1}, {"token", 0.8, 0.1},
                                    {"memory", 0.9, 10},   {"merge", 1e-6, 0.1}, {"traffic", 0.6, 0.1},
                                    {"shared", 1.7, 10},   {"two", 0.95, 0.1},   {"four", 0.95, 0.1}};
constexpr double kAllTokenKnots[] = {1, 4, 6, 7, 8, 9, 10, 11, 13}, kRowKnots[] = {-6, -3, -1, 0, 1, 2, 4, 6, 9};
constexpr LawAxis kDecodeAxes[] = {
    {"tokens_per_block", kAllTokenKnots}, {"heads_per_sm", kRowKnots}, {"group", kGroupKnots}};
constexpr std::string_view kDecodeMarks[] = {"one_per_sm", "two_per_sm", "quantised_1", "quantised_2", "quantised_4"};

/// Time of one token per sequence with a block per head. A block takes a whole SM, half of one or a quarter, the more
/// heads there are; the keys of few heads are split. Where there are many, more blocks of narrow heads than four share
/// an SM: `block` then counts by their width (no table has heads of less than 128 numbers).
///
///   t = launch + ( (waves·(block + token·stream·tokens)·(1, two or four))⁴ + (cache/bandwidth)⁴ + (all heads' keys
///   through L2)⁴ )^¼ + …
///
/// Parameters: fits of tables of kernels (TensorRT-LLM's masked multi-head attention).
LawTime decode_time(const double* p, const Work& work, const Bindings& b, const GpuFacts& gpu) {
  constexpr double kLeastTokens = 512, kOne = 4.0 / 3, kTwo = 4.2;  // heads per SM up to which a block takes 1, 1/2
  constexpr double kMostPerSm = 4;                                  // blocks, of heads of 128 numbers
  const Step s{shape_of(work), b, gpu};
  const double rows = s.batch * s.heads;
  const double split = std::max(1.0, std::floor(std::min(s.kv / kLeastTokens, gpu.sms / rows)));
  const double per_sm = rows * split / gpu.sms, tokens = s.kv / split;
  const double share = per_sm < kOne ? 1 : per_sm < kTwo ? 2 : kMostPerSm;
  const double waves = std::ceil(per_sm / share), slower = share == 1 ? 1 : share == 2 ? p[kSTwo] : p[kSFour];
  LawTime t;
  t.launch = p[kSLaunch] * gpu.launch;
  const double block = p[kSBlock] * (share == kMostPerSm ? s.width : 1.0);
  t.math = waves * (block + p[kSToken] * s.stream * tokens) * slower;
  const double cache = s.batch * s.kv_heads * s.kv * s.key_bytes / (gpu.bandwidth * p[kSMemory]);
  const double through_l2 = rows * s.kv * s.key_bytes / (gpu.bandwidth * p[kSCache]);
  const double traffic = s.traffic / (gpu.bandwidth * p[kSTraffic]);
  t.memory = cache + traffic;
  t.seconds =
      t.launch + root4(power4(t.math) + power4(cache) + power4(through_l2)) + (split > 1 ? p[kSMerge] : 0) + traffic;
  t.sm_share = std::min(1.0, per_sm);
  t.axes = {std::log2(tokens), std::log2(rows / gpu.sms), std::log2(s.group), 0};
  const double quantised = waves * share / per_sm;
  t.marks = {double(share == 1), double(share == 2), quantised * (share == 1), quantised * (share == 2),
             quantised * (share == 4)};
  return t;
}

}  // namespace

const GpuLawForm& prefill_law() {
  static constexpr GpuLawForm kForm{"prefill", kPrefill, kPrefillAxes, {}, prefill_time};
  return kForm;
}
const GpuLawForm& decode_law() {
  static constexpr GpuLawForm kForm{"decode", kDecode, kDecodeAxes, kDecodeMarks, decode_time};
  return kForm;
}
const GpuLawForm& grouped_decode_law() {
  static constexpr GpuLawForm kForm{"grouped_decode", kGroupedDecode, kGroupedAxes, kGroupedMarks, grouped_decode_time};
  return kForm;
}

}  // namespace orrery
