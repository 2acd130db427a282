// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/app/command.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {

/// Where files are looked for that are named without a folder.
class Locations {
 public:
  explicit Locations(const Environment& environment);

  /// The folder of models, clusters and scenario folders that comes with the program.
  std::string scenarios() const;
  std::string models() const { return scenarios() + "/models"; }
  std::string clusters() const { return scenarios() + "/clusters"; }
  /// Where `calibrate` leaves the parameters of this computer.
  std::string own_parameters() const { return home_ + "/params"; }
  std::string host_parameters() const { return own_parameters() + "/host.yaml"; }
  /// Parameter files: this computer's before those of the program.
  std::vector<std::string> parameter_folders() const;

  /// A scenario file by its path, the path of its folder, or its name. Throws UserError that names the scenarios.
  std::string find_scenario(const std::string& name) const;
  std::string find_model(const std::string& name) const;
  std::string find_cluster(const std::string& name) const;
  /// The same for a value of a document, whose paths are relative to its file: see file_named_by.
  std::string find_model(const Node& value) const;
  std::string find_cluster(const Node& value) const;
  std::vector<std::string> scenario_names() const;
  std::vector<std::string> model_names() const;
  std::vector<std::string> cluster_names() const;

 private:
  std::string home_, scenarios_;
};

/// The file that a value of a scenario names: relative to the file in which the value stands, else to the working
/// directory. Empty when there is neither.
std::string file_named_by(const Node& value);

}  // namespace orrery
