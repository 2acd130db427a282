// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/app/reproduce/galvatron_model.hpp"
#include "sim/app/step_split.hpp"

namespace orrery {

/// How near ours is to a plan of its code that is the same: of samples per second as printed, and of what is counted.
inline constexpr double kHalfADigit = 0.005001, kExactly = 0.001;

/// Ways of which Galvatron's code is asked for plans: each alone, two kinds together, and all.
inline constexpr const char* kGalvatronFamilies[] = {"dp8",         "sdp8",   "tp8",    "pp8",
                                                     "pp2 tp2 dp2", "dp, tp", "dp, pp", "all"};
std::vector<GalvatronWay> galvatron_family(std::size_t family);

/// What its code plans: samples per second as it predicts them, 0 where nothing fits.
struct GalvatronCell {
  double speed = 0;
  std::int64_t batch = 0, stages = 0;
};
using GalvatronCells = std::array<GalvatronCell, std::size(kGalvatronFamilies)>;

/// A model on eight RTX TITAN on PCIe, by Galvatron's profile of its layers.
struct GalvatronNetwork {
  const char* name;
  GalvatronModel (*model)(std::size_t layers);
  bool is_bert = false;
};
std::span<const GalvatronNetwork> galvatron_networks();

/// What its code plans for a model of so many layers in so much memory.
struct GalvatronRow {
  std::size_t network, layers;
  std::int64_t gib;
  GalvatronCells cells;
  std::optional<std::int64_t> sharded = {};  // layers of the plan of all ways in which replicas share all, where told

  std::string name() const;
  GalvatronModel model() const;
};
std::span<const GalvatronRow> galvatron_rows();

/// A plan as a split of a step by this schedule; `replicas`: what replicas share where they do not share all.
StepSplit galvatron_split(const GalvatronPlan& plan, const std::string& schedule, const std::string& replicas);

}  // namespace orrery
