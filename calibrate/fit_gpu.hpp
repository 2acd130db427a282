// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calibrate/published/kernels.hpp"
#include "hw_models/gpu_model.hpp"

namespace orrery {

/// Which points of a law its fit does not see. Nothing: where others judge the law.
enum class HoldOut : std::uint8_t { Fifths, Nothing };

/// Fits the laws of a GPU to measurements of its kernels, each law for which there are enough. Repeats are averaged,
/// and the random fifth and the fifth with the most work of each op are not seen: the errors of these go into the law.
///
///   1. coefficients of the physical form: least squares of ln(predicted / measured), robust (soft L1 at 0.1), each
///      coefficient held near its start by its stiffness;
///   2. correction: ridge regression of what is left on the form's basis, few large residuals not counting in full;
///   3. spread: ln of the residuals, each as if its point had not been in the fit, on the axes; scaled so that the 90 %
///      interval covers its share of them;
///   4. growth: by what a law of the smaller four fifths of the points misses the others, per doubling of the time
///      beyond nine tenths of its own. More than the law of all misses beyond its own, which has seen longer ones.
///
/// Gives the names of the laws that it fitted. Streams come first: products of experts contain an activation.
std::vector<std::string> fit_gpu(GpuParameters& parameters, const std::vector<KernelCase>& cases,
                                 const std::vector<BorrowedLaws>& borrowed, HoldOut hold_out = HoldOut::Fifths);

}  // namespace orrery
