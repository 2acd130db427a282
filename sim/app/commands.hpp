// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/app/command.hpp"

namespace orrery {

// One function per file cmd_*.cpp.
std::unique_ptr<Command> make_accuracy();
std::unique_ptr<Command> make_calibrate();
std::unique_ptr<Command> make_campaign();
std::unique_ptr<Command> make_fit();
std::unique_ptr<Command> make_search();
std::unique_ptr<Command> make_fit_profile();
std::unique_ptr<Command> make_simulate();
std::unique_ptr<Command> make_memory();
std::unique_ptr<Command> make_serve();
std::unique_ptr<Command> make_serve_plan();
std::unique_ptr<Command> make_schedule();
std::unique_ptr<Command> make_reproduce();
std::unique_ptr<Command> make_run();
std::unique_ptr<Command> make_speculate();
std::unique_ptr<Command> make_validate();
std::unique_ptr<Command> make_compare();
std::unique_ptr<Command> make_sensitivity();
std::unique_ptr<Command> make_sweep();
std::unique_ptr<Command> make_sweep_worker();
std::unique_ptr<Command> make_pack();
std::unique_ptr<Command> make_plan();
std::unique_ptr<Command> make_list();
std::unique_ptr<Command> make_model_show();
std::unique_ptr<Command> make_topo_show();
std::unique_ptr<Command> make_topo_import();
std::unique_ptr<Command> make_config_show();
std::unique_ptr<Command> make_config_check();
std::unique_ptr<Command> make_config_explain();
std::unique_ptr<Command> make_config_schema();
std::unique_ptr<Command> make_trace_info();
std::unique_ptr<Command> make_trace_convert();
std::unique_ptr<Command> make_trace_render();
std::unique_ptr<Command> make_gui();
std::unique_ptr<Command> make_node_report();
std::unique_ptr<Command> make_version();
/// Throws MissingError where the environment names no place for a window.
void need_display();
/// Completes the other commands: reads the list when it runs.
std::unique_ptr<Command> make_completion(const Commands& commands);

/// All commands, in the order of the help. `commands` is also what `completion` reads.
void add_commands(Commands& commands);

}  // namespace orrery
