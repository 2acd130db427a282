// SPDX-License-Identifier: Apache-2.0
#include "sim/app/commands.hpp"

namespace orrery {

void add_commands(Commands& commands) {
  constexpr std::unique_ptr<Command> (*kMake[])() = {
      make_validate,      make_calibrate,   make_simulate,      make_run,
      make_search,        make_fit,         make_campaign,      make_serve,
      make_serve_plan,    make_schedule,    make_compare,       make_sensitivity,
      make_speculate,     make_sweep,       make_sweep_worker,  make_reproduce,
      make_accuracy,      make_fit_profile, make_memory,        make_pack,
      make_plan,          make_list,        make_model_show,    make_topo_show,
      make_topo_import,   make_config_show, make_config_check,  make_config_explain,
      make_config_schema, make_trace_info,  make_trace_convert, make_trace_render,
      make_gui,           make_node_report, make_version,
  };
  for (const auto make : kMake) commands.push_back(make());
  commands.push_back(make_completion(commands));
}

}  // namespace orrery
