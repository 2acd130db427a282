// SPDX-License-Identifier: Apache-2.0
// One maker per schedule, for the table in schedules.cpp. The shape is legal and its chunks are set.
#pragma once

#include "sim/strategy/pipeline/schedules.hpp"

namespace orrery {

Schedule make_gpipe(const PipelineShape& shape);
Schedule make_one_f_one_b(const PipelineShape& shape);
Schedule make_interleaved(const PipelineShape& shape);
Schedule make_chimera(const PipelineShape& shape);
Schedule make_zb_h1(const PipelineShape& shape);
Schedule make_zb_v(const PipelineShape& shape);
Schedule make_dualpipe(const PipelineShape& shape);

/// "chimera needs an even number of stages, not 5", with the even numbers beside it as hint.
std::optional<Diagnostic> need_even_stages(std::string_view name, const PipelineShape& shape);

std::optional<Diagnostic> problem_of_interleaved(const PipelineShape& shape);
std::optional<Diagnostic> problem_of_chimera(const PipelineShape& shape);
std::optional<Diagnostic> problem_of_dualpipe(const PipelineShape& shape);

}  // namespace orrery
