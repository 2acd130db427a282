// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/app/command.hpp"
#include "sim/app/scenario.hpp"
#include "sim/base/units.hpp"

namespace orrery {

/// The options of all commands that read a scenario. Flags win over `--set`, whatever their order.
class ScenarioFlags {
 public:
  std::vector<Flag> flags();
  /// `name`: a path, or a name of `orrery list scenarios`. Empty: made of `--model` and what is set; forward passes
  /// where no workload is.
  Scenario load(const std::string& name, const AppContext& context) const;
  /// The same before it is read.
  struct Named {
    std::string name;
    Node document;  // merged
  };
  Named document(const std::string& name, const AppContext& context) const;
  std::vector<Override> overrides() const;

 private:
  void set(const std::string& key, const std::string& value, const std::string& flag);

  std::vector<Override> sets_, flags_;
};

/// Reads an integer option; throws UserError that names it.
std::int64_t integer_option(const std::string& flag, const std::string& value, std::int64_t least);

/// Reads an option that is a share in percent, with or without the sign: "8" is 0.08. Throws UserError that names it
/// unless it lies between `least` and `most` percent.
double percent_option(const std::string& flag, const std::string& value, double least, double most);

/// Reads an option that is a number, or a quantity, of more than nothing; throws UserError that names it.
double positive_option(const std::string& flag, const std::string& value);
Seconds time_option(const std::string& flag, const std::string& value);
Bytes size_option(const std::string& flag, const std::string& value);

/// Throws UserError that names the option unless its value is one of these.
void check_choice(const std::string& flag, const std::string& value, const std::vector<std::string>& known);

}  // namespace orrery
