// SPDX-License-Identifier: Apache-2.0
// How long kernels take on a GPU: physical forms (tiles, waves, bandwidth, latency) with coefficients that are fitted
// or borrowed from a similar device, times a smooth correction in the logarithm. Coefficients are ratios to the data
// sheet or times, so one device's law is a first guess of another's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hw_models/scales.hpp"
#include "sim/base/options.hpp"
#include "sim/plan/work.hpp"

namespace orrery {

/// What a law knows of the device and of where the op stands. Plain numbers in base units: laws are called for each op.
struct GpuFacts {
  double sms = 1;
  double peak = 1;         // FLOP/s of the op's data type
  double vector_rate = 1;  // FLOP/s outside of matrix units
  double bandwidth = 1;    // B/s of the data sheet
  double launch = 1;       // factor of launch times
  double conversion = 1;   // factor of the time of conversions to 8 bits in front of products
  double sustained = 0;    // clock under lasting load over the best clock; 0: the op stands alone and the clock is best
};

constexpr std::size_t kMaxLawAxes = 4, kMaxLawMarks = 5, kMaxLawParameters = 20;

/// What the physical form of a law says. Seconds.
struct LawTime {
  double seconds = 0, launch = 0, math = 0, memory = 0;
  double sm_share = 1;                       // of the SMs that the arithmetic fills
  std::array<double, kMaxLawAxes> axes{};    // log₂ of sizes: where the correction is looked up
  std::array<double, kMaxLawMarks> marks{};  // further terms of the correction, linear
};

/// A coefficient: its place to start a fit from, and how firmly the fit is held there (weight of ln(x/start)).
struct LawParameter {
  std::string_view name;
  double start = 1;
  double stiffness = 0.1;
};

struct LawAxis {
  std::string_view name;
  std::span<const double> knots;  // in log₂; the correction is linear between them and constant outside
};

struct GpuLawForm {
  std::string_view name;
  std::span<const LawParameter> parameters;
  std::span<const LawAxis> axes;
  std::span<const std::string_view> marks;
  LawTime (*time)(const double* p, const Work& work, const Bindings& bindings, const GpuFacts& gpu);
};

// One function per file gpu_law_*.cpp.
const GpuLawForm& gemm_law();         // 16 bits and more
const GpuLawForm& narrow_gemm_law();  // 8 and 4 bits: with the conversion of A from 16
const GpuLawForm& grouped_gemm_law();
const GpuLawForm& prefill_law();
const GpuLawForm& decode_law();          // every head by itself
const GpuLawForm& grouped_decode_law();  // heads that share keys together
const GpuLawForm& stream_law();          // what memory limits

/// Which law a work has: one per form and variant (data type of products, kind of stream).
using LawSlot = std::uint8_t;
LawSlot law_slot(const Work& work, const Bindings& bindings, double sms, const KernelChoice& kernels = {});
std::size_t num_law_slots();
/// "gemm.bf16", "prefill", "softmax"; empty for numbers that are no slot.
std::string law_name(LawSlot slot);
const GpuLawForm& law_form(LawSlot slot);
/// Slots whose law stands in where this one's is not in the file, nearest first.
std::vector<LawSlot> stand_ins(LawSlot slot);

/// The law of one slot on one device, as its file has it.
struct GpuLaw {
  std::map<std::string, double> parameters;
  std::vector<std::vector<double>> correction;       // coefficients in order of the basis, in short rows
  std::vector<std::vector<double>> spread;           // the same for ln of the relative deviation of one op
  std::map<std::string, std::vector<double>> range;  // least and most of each axis in the fit, in log₂
  double growth = 0.03;
  std::string harness;
  bool eager_loop = false;
  double loop_clock = 0;
  std::int64_t points = 0;
  double median_error = 0, p90_error = 0;                  // of the points of the fit
  double random_median_error = 0, random_p90_error = 0;    // of the random fifth that it did not see
  double largest_median_error = 0, largest_p90_error = 0;  // of the fifth with the most work that it did not see

  template <class V>
  void visit(V& v) {
    v.required("parameters", parameters, "coefficients of the physical form", at_least(0));
    v.field("correction", correction, "coefficients of ln(measured / physical form)");
    v.field("spread", spread, "coefficients of ln of one op's relative deviation");
    v.field("range", range, "least and most of each axis that was fitted, and of nine tenths of the seconds, in log2");
    v.field("growth", growth,
            "deviation added, in the square, per doubling of the time beyond nine tenths of what was fitted: by what a "
            "law of the smaller points misses the largest fifth",
            at_least(0));
    v.field("harness", harness, "program that measured");
    v.field("eager_loop", eager_loop,
            "whether it called kernels one after another and kept the device busy: launches are then its own, and the "
            "clock is that of lasting load");
    v.field("loop_clock", loop_clock,
            "clock that a power limit left to its card in that loop, over the best one: ops of a plan, between which "
            "others draw less, run at `sustained_clock` in its place; 0: it was held by none",
            between(0, 1));
    v.field("points", points, "measurements fitted");
    v.field("median_error", median_error, "of the points fitted");
    v.field("p90_error", p90_error, "of the points fitted");
    v.field("random_median_error", random_median_error, "of a random fifth left out");
    v.field("random_p90_error", random_p90_error, "of a random fifth left out");
    v.field("largest_median_error", largest_median_error, "of the fifth with the most work, left out");
    v.field("largest_p90_error", largest_p90_error, "of the fifth with the most work, left out");
  }
};

/// A law ready to be asked.
class FittedLaw {
 public:
  /// The coefficients are those of `form` in its order; missing ones were refused by the reader.
  FittedLaw(const GpuLawForm& form, const GpuLaw& law);

  struct Answer {
    LawTime form;
    double seconds = 0;
    double deviation = 0;  // one standard deviation of ln(measured / predicted)
  };
  Answer operator()(const Work& work, const Bindings& bindings, const GpuFacts& gpu) const;
  /// The first axis on which an op lies outside of what was fitted by more than a factor of two; nothing inside.
  std::optional<std::string> outside(const Work& work, const Bindings& bindings, const GpuFacts& gpu) const;
  /// Whether it has a correction and knows its deviation, as fitted laws do.
  bool is_corrected() const { return !correction_.empty() && !spread_.empty(); }

 private:
  /// The form's time. Of a law from an eager loop, in a plan: the launch takes no longer than where graphs were
  /// measured, and the clock needs no lowering; where a power limit held it in the loop it is raised to that of plans.
  LawTime in_place(const Work& work, const Bindings& bindings, GpuFacts gpu) const;

  const GpuLawForm* form_;
  std::array<double, kMaxLawParameters> parameters_{};
  std::vector<double> correction_, spread_;
  std::vector<std::pair<double, double>> range_;
  bool eager_loop_;
  double loop_clock_;
  double long_, growth_;  // log₂ of the seconds beyond which little was fitted, and the deviation of each doubling
};

/// The basis of the correction at a point: 1, products of hats of each pair of axes, marks. `row` has basis_size
/// values.
std::size_t basis_size(const GpuLawForm& form);
void basis_row(const GpuLawForm& form, const LawTime& at, double weight, std::span<double> row);

}  // namespace orrery
