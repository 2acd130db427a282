// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

/// How Slurm is to run a sweep: in one allocation, on whose first node it gives points to a worker on each node; or in
/// `array` tasks that know nothing of each other and compute a part of the points each.
struct SlurmRequest {
  std::int64_t nodes = 1, array = 0;
  std::string time;                  // as sbatch takes it; empty: what the site gives
  std::string program, directory;    // absolute
  std::vector<std::string> command;  // "sweep" and its options, without those of the launcher and --out
  std::string folder;                // --out
};
std::string slurm_script(const SlurmRequest& request);

/// A command line without some options that take a value, and without some that take none.
std::vector<std::string> without_options(const std::vector<std::string>& words, const std::vector<std::string>& valued,
                                         const std::vector<std::string>& bare);

}  // namespace orrery
