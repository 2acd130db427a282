// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hw_models/software_profile.hpp"
#include "sim/app/accuracy/step_model.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {

/// What the memory of a step's devices is made of: of the first and of the last stage, or of the only one.
std::vector<MemoryShape> memory_shapes(const PublishedStep& step, const PredictedStep& predicted);
/// Those of them that a published peak is of.
std::vector<MemoryShape> watched_shapes(const PublishedStep& step, std::vector<MemoryShape> stages);
/// Bytes of the device that needs most.
double needed_memory(const SoftwareProfile& profile, const std::vector<MemoryShape>& stages);
/// Bytes of the device that has most, with those that its allocator keeps as long as there is room for them.
double peak_memory(const SoftwareProfile& profile, const std::vector<MemoryShape>& stages, double room);

/// Bytes of a device that are there for a step: without its context, libraries and fragments.
double room_of(const Machine& machine);

/// A published step: with a peak of memory, or at least one that ran, so that it had room.
struct MemoryCase {
  std::string row_id, model;
  double measured = 0;  // bytes; 0: not published
  double room = 0;      // bytes; of a step that ran
  std::vector<MemoryShape> stages;
};
std::vector<MemoryCase> memory_cases(const CsvTable& table, const Wiring& wiring, std::string_view profile);

struct MemoryFit {
  SoftwareProfile profile;
  std::size_t rows = 0, fitted = 0;  // with a published peak
  std::size_t ran = 0, refused = 0;  // without one; of those, said not to fit
  std::vector<std::string> held_out;
  double error_fitted = 0, error_rest = 0, error_held_out = 0;  // mean |predicted − measured| / measured
};

/// Fits what a software takes of the memory beside the tensors of a plan, the four numbers of `start` that say so:
/// least squares of the relative error, none negative, over rows chosen as those of `fit_profile`; again and again for
/// the stages that have most by the numbers so far. A step that ran without a published peak counts with what it is
/// predicted to take beyond the room it had, unless its tensors alone do (it kept some of them elsewhere).
MemoryFit fit_memory(SoftwareProfile start, const std::vector<MemoryCase>& cases);

}  // namespace orrery
