// SPDX-License-Identifier: Apache-2.0
// How the time of each op kind grows with its sizes on a CPU: laws that are linear in features which the host kernels'
// loops suggest. `calibrate` fits the coefficients; HostModel applies them.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "hw_models/scales.hpp"
#include "sim/plan/reuse.hpp"
#include "sim/plan/work.hpp"

namespace orrery {

/// What a feature's time is spent on; decides which knobs scale it.
enum class Spends : std::uint8_t { Overhead, Math, Memory };

/// One term of a law: coefficient · value.
struct Feature {
  std::string_view name;
  Spends on = Spends::Overhead;
  std::string_view unit;                                  // that the coefficient is the time of
  double most = std::numeric_limits<double>::infinity();  // seconds that a coefficient can be
  // How often memory passes each MB of it: once what is read, twice what is written, as it is fetched before. A
  // coefficient is about what memory takes longer for these than the last cache (27 us each on a Sapphire Rapids).
  // 0: other features.
  int passes = 0;

  /// Whether it is of what has left a cache: these have a bound.
  bool is_beyond_caches() const { return most < std::numeric_limits<double>::infinity(); }
};

/// What no memory is slower than, in seconds: a MB whose cache lines each come alone, in 0.3 µs; 10^6 rows or pieces of
/// which each waits for a few lines; an op whose code and descriptions have left the caches. A fit that asks for more
/// has found something else, in points where there is next to nothing to move.
constexpr double kMostPerMegabyte = 5e-3, kMostPerMillionRows = 1, kMostPerColdCall = 3e-5;

constexpr std::size_t kMaxFeatures = 24;
using FeatureRow = std::array<double, kMaxFeatures>;

constexpr std::size_t kMaxAxes = 4;
using AxisRow = std::array<double, kMaxAxes>;

/// The caches that one core sees: one of its own, and the last one, which all cores share.
struct Caches {
  Bytes l2, l3;
  std::int64_t cores = 1;
  double foreign = 0;    // bytes that others pass through the last one while a core does one FLOP
  double steepness = 2;  // of how the last one loses what passes beyond its capacity; see evicted
};
enum class CacheLevel : std::uint8_t { Second, Last };

/// An op as a law sees it.
struct LawInput {
  const Work& work;
  const Bindings& bindings;
  std::int64_t ranks = 1;  // of a collective
  double crowd = 1;        // how much more passes through the caches between two uses than the plan itself touches
};

/// The form of a law, shared by all kinds that it describes; each kind (and variant of it) has coefficients of its own.
struct LawForm {
  std::string_view name;
  std::string_view summary;
  Knob math = Knob::GemmRate;  // scales what is spent on math
  std::span<const Feature> features;
  FeatureRow (*values)(const LawInput& input, const Caches& caches) = nullptr;
  std::span<const std::string_view> axes;  // sizes whose fitted range is kept
  AxisRow (*sizes)(const LawInput& input) = nullptr;
};

/// What one core has of a node on which r ranks run: each of the c cores that work has its part of the last cache,
/// L3 / c, and serves r / c of the ranks in turns, so that so much more passes through its caches between two uses of
/// what a step keeps. Leaves out that one rank may find in a cache what another has read.
struct CoreView {
  Caches caches;
  double crowd = 1;
};
CoreView core_view(const Bindings& bindings, const Caches& caches);

/// The features of an op as its core sees it.
FeatureRow features_of(const LawForm& form, const LawInput& input, const Caches& caches);

/// Σ coefficient · feature, and the part of it that goes to what has left a cache: how long that takes is also up to
/// whoever else uses the memory.
struct HostLawTime {
  double seconds = 0, beyond = 0;
};
HostLawTime law_time(const LawForm& form, std::span<const double> coefficients, const LawInput& input,
                     const Caches& caches);

/// How far that may be off because nobody knows how much of the last cache there is for this program at another time:
/// half of ln of the ratio under a capacity a third larger and a third smaller.
double cache_doubt(const LawForm& form, std::span<const double> coefficients, const LawInput& input,
                   const Caches& caches);

/// Products, tiled and with few rows; attention, tiled and decoding, and its gradient; what streams through memory;
/// small dense algebra; messages between ranks of one computer.
const LawForm& gemm_form();
const LawForm& few_rows_form();
const LawForm& attention_form();
const LawForm& attention_decode_form();
const LawForm& attention_backward_form();
const LawForm& stream_form();
const LawForm& dense_form();
const LawForm& message_form();

/// The part of the bytes of an op that a cache has lost since their last use, as the op's core sees the cache.
double share_lost(const LawInput& input, const Caches& caches, CacheLevel level);

/// Which coefficients an op uses: a kind and a variant of it, such as the transposes of a product.
constexpr std::size_t kMaxVariants = 8;
constexpr std::size_t kNumSlots = kNumKinds * kMaxVariants;
std::size_t slot_of(const Work& work);
/// "gemm.nt", "activation.silu", "adamw": the name in parameter files. Empty for numbers that no op has.
std::string slot_name(std::size_t slot);
const LawForm& form_of(std::size_t slot);

/// The product that a grouped one amounts to when its groups are even: one batch entry per group.
Gemm even_groups(const GroupedGemm& g);

/// The part of `size` that a cache of capacity `cache` does not keep while an op walks over it: size² / (size² +
/// cache²), a smooth step.
double spill(Bytes size, Bytes cache);
/// What a step may pass over until the tables that tell where its pages are have half left the caches, too: what is
/// read from memory takes longer from there on. It lies between 56 and 160 MB on a Zen 5 and on an Intel Xeon, virtual
/// machines both, whose tables are twice as deep.
constexpr Bytes kTranslated{128 * 1024.0 * 1024.0};
/// The part of what was used `distance` bytes ago that a cache no longer keeps: xᵖ / (1 + xᵖ) with x = distance /
/// capacity. A step walks over the same bytes again and again, of which a cache of its own that replaces the oldest
/// keeps all or nothing: p = 8. The last one spreads lines over its sets by a hash, keeps some of what is too large,
/// and loses some of what would fit to whoever else uses it: p is its steepness, and at least 4 below its capacity. An
/// EPYC with 32 MB read 16 to 160 MB again and again at rates of p = 2; an Emerald Rapids, of whose 260 MB a virtual
/// machine has some 50, at 26 GB/s up to 36 MB, 22 at 44, and 15 from 76 to 298: p = 8.
double evicted(Bytes distance, const Caches& caches, CacheLevel level);

/// What is touched between two uses of what a step keeps, such as code, or a weight of `size`: all that it touches.
Bytes reuse_distance(const LawInput& input, Bytes size);

/// MB that an op reads and writes.
struct Moved {
  double read = 0, written = 0;
  double all() const { return read + written; }
};
/// Which operands of an op.
struct OperandRange {
  std::size_t first = 0, end = SIZE_MAX;
};
/// What of some operands a cache has lost since their last use. `moved`: what they are in all where
/// nothing is known of when they were used, so that they were as long ago as what a step keeps.
Moved lost(const LawInput& input, const Caches& caches, CacheLevel level, const Moved& moved,
           const OperandRange& of = {});

}  // namespace orrery
