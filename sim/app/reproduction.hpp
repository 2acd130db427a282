// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/app/report.hpp"
#include "sim/base/kept_files.hpp"

namespace orrery {

/// One published value beside ours.
struct Claim {
  std::string name, source;
  double paper = 0, ours = 0;
  std::string unit;
  double within = 0;  // relative difference that counts as reproduced
  std::string note;
  bool calibrated = false;  // an input was set so that this comes out: it says nothing, and does not count

  bool holds() const;  // never where calibrated
};

/// What comes out under other inputs, of which papers do not give all.
struct Ablation {
  std::string inputs;                         // what is different
  std::vector<std::optional<double>> values;  // one per quantity; none: not asked
};

/// Claims, and what they owe to each input.
struct Reproduction {
  std::vector<Claim> claims;
  std::vector<std::string> quantities;
  std::vector<Ablation> ablations;
};

/// One simulated step, and how much of it comes before its first op of the backward pass.
struct Prediction {
  Report report;
  double forward_seconds = 0;
};

/// Predictions, and refusals of scenarios, by what was asked: claims and what they owe to each input ask for many of
/// them twice.
class KnownPredictions {
 public:
  Prediction get(const std::string& question, const std::function<Prediction()>& make);

 private:
  struct Answer {
    std::optional<Prediction> prediction;
    std::exception_ptr refusal;
  };
  std::mutex mutex_;
  std::map<std::string, Answer> answers_;
};

/// What a reproduction works with.
struct Reproducer {
  const Wiring& wiring;
  std::function<void()> pause;  // called between predictions; may throw to stop
  mutable KnownPredictions known = {};
  mutable KeptFiles files = {};  // of scenarios

  /// One simulated step of a scenario, given as the text of a scenario file; parameters of the hardware times factors,
  /// as `--what-if` names them. Made once for each question.
  /// `fused`: a generation with the kernels of an engine, of which no memory is asked.
  Prediction predict(const std::string& scenario, const std::vector<std::pair<std::string, double>>& scales = {},
                     bool fused = false) const;
  /// A cluster that comes with the program, with so many nodes, as a value for a scenario.
  std::string cluster(const std::string& name, std::int64_t nodes) const;
  /// The largest multiple of `step`, at most `most`, for which the scenario that `text` makes of it fits; 0: none does.
  std::int64_t largest_that_fits(const std::function<std::string(std::int64_t)>& text, std::int64_t step,
                                 std::int64_t most) const;
};

struct ReproductionEntry {
  std::string_view name, summary, source;
  Reproduction (*make)(const Reproducer& reproducer);
};

/// All reproductions, one line each in reproductions.cpp.
std::span<const ReproductionEntry> reproductions();
/// Throws UserError that names those there are.
const ReproductionEntry& find_reproduction(std::string_view name);

Reproduction reproduce_ring_self_attention(const Reproducer& reproducer);
Reproduction reproduce_optimus(const Reproducer& reproducer);
Reproduction reproduce_amp(const Reproducer& reproducer);
Reproduction reproduce_cached_embedding(const Reproducer& reproducer);
Reproduction reproduce_galvatron(const Reproducer& reproducer);
Reproduction reproduce_galvatron_bmw(const Reproducer& reproducer);
Reproduction reproduce_colossal_auto(const Reproducer& reproducer);
Reproduction reproduce_sky_computing(const Reproducer& reproducer);
Reproduction reproduce_memo(const Reproducer& reproducer);
Reproduction reproduce_kraken(const Reproducer& reproducer);
Reproduction reproduce_energonai(const Reproducer& reproducer);
Reproduction reproduce_leviathan(const Reproducer& reproducer);
Reproduction reproduce_medusa(const Reproducer& reproducer);
Reproduction reproduce_eagle(const Reproducer& reproducer);
Reproduction reproduce_glide_cape(const Reproducer& reproducer);
Reproduction reproduce_clover(const Reproducer& reproducer);
Reproduction reproduce_elixir(const Reproducer& reproducer);
Reproduction reproduce_angel_ptm(const Reproducer& reproducer);
Reproduction reproduce_flexmoe(const Reproducer& reproducer);
Reproduction reproduce_patrickstar(const Reproducer& reproducer);
Reproduction reproduce_zero_offload(const Reproducer& reproducer);
Reproduction reproduce_datasculpt(const Reproducer& reproducer);
Reproduction reproduce_baichuan_seed(const Reproducer& reproducer);
Reproduction reproduce_zero_infinity(const Reproducer& reproducer);
Reproduction reproduce_dense_to_sparse(const Reproducer& reproducer);
Reproduction reproduce_het(const Reproducer& reproducer);
Reproduction reproduce_ones(const Reproducer& reproducer);
Reproduction reproduce_optex(const Reproducer& reproducer);

}  // namespace orrery
