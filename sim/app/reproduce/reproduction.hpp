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

inline constexpr double kMiB = 1 << 20, kGiB = 1 << 30;  // bytes: papers give memory in both

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

// Each paper has a source, and a namespace for what is local to it.

namespace papers::ring_self_attention {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::optimus {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::amp {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::cached_embedding {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::galvatron {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::galvatron_bmw {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::colossal_auto {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::sky_computing {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::memo {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::kraken {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::energonai {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::leviathan {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::medusa {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::eagle {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::glide_cape {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::clover {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::elixir {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::angel_ptm {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::flexmoe {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::patrickstar {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::zero_offload {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::datasculpt {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::baichuan_seed {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::zero_infinity {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::dense_to_sparse {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::het {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::ones {
Reproduction reproduce(const Reproducer& reproducer);
}
namespace papers::optex {
Reproduction reproduce(const Reproducer& reproducer);
}

}  // namespace orrery
