// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/slurm_script.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/app/run_directory.hpp"

namespace orrery {
namespace {

std::string head_of(const SlurmRequest& r) {
  std::string text = "#!/bin/bash\n#SBATCH --job-name=orrery-sweep\n";
  if (r.array > 0)
    text += fmt::format("#SBATCH --array=0-{}\n#SBATCH --nodes=1\n", r.array - 1);
  else
    text += fmt::format("#SBATCH --nodes={}\n", r.nodes);
  text += "#SBATCH --ntasks-per-node=1\n#SBATCH --exclusive\n";
  if (!r.time.empty()) text += fmt::format("#SBATCH --time={}\n", r.time);
  return text + "#SBATCH --requeue\n#SBATCH --open-mode=append\n";
}

}  // namespace

std::string slurm_script(const SlurmRequest& r) {
  std::vector<std::string> words = r.command;
  words.insert(words.begin(), r.program);
  words.insert(words.end(), {"--resume", "--out", r.folder});
  const std::string sweep = command_text(words), folder = command_text({r.folder});
  std::string text = head_of(r) + fmt::format("cd {} || exit 3\n", command_text({r.directory}));
  if (r.array > 0)
    return text + fmt::format(
                      "# Each task computes its part of the points; `{} sweep --merge {}` puts them together.\n"
                      "exec {} --shard \"$SLURM_ARRAY_TASK_ID/{}\"\n",
                      command_text({r.program}), folder, sweep, r.array);
  return text + fmt::format(
                    "# The sweep gives points to a worker on each node; all find it by its folder.\n"
                    "rm -f {0}/address\n"
                    "{1} --jobs 0 --listen \"$(hostname):0\" &\n"
                    "sweep=$!\n"
                    "srun --kill-on-bad-exit=0 {2} sweep-worker {0}\n"
                    "wait \"$sweep\"\n",
                    folder, sweep, command_text({r.program}));
}

std::vector<std::string> without_options(const std::vector<std::string>& words, const std::vector<std::string>& valued,
                                         const std::vector<std::string>& bare) {
  const auto is_in = [](const std::vector<std::string>& names, const std::string& word) {
    return std::find(names.begin(), names.end(), word.substr(0, word.find('='))) != names.end();
  };
  std::vector<std::string> out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (is_in(valued, words[i]))
      i += words[i].find('=') == std::string::npos ? 1 : 0;
    else if (!is_in(bare, words[i]))
      out.push_back(words[i]);
  }
  return out;
}

}  // namespace orrery
