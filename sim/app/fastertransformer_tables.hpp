// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/app/reproduce/reproduction.hpp"

namespace orrery {

/// The tables of GPT that FasterTransformer's guide prints (175B and 89B on 8 A100, 20B on 1 to 8) beside what
/// `orrery accuracy` predicts for such rows: a claim per table about the mean error over all of its cells, and all
/// cells as ablations, two rows a setting.
struct PublishedTables {
  std::vector<std::string> quantities;
  std::vector<Claim> claims;
  std::vector<Ablation> cells;
};
PublishedTables fastertransformer_tables(const Reproducer& reproducer);

}  // namespace orrery
