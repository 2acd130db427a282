// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"

namespace orrery {

/// Options that are right alone and do not go together, or not with the model or the machine: where they are read
/// nothing is wrong yet, and where it is found nobody knows their file. So the error names the options that it is
/// about, by their keys ("chunks", "data.kind", "layers[1].mesh"; "train.recompute" where others have the key too), and
/// who has the file finds the place (sim/app/placed_error.hpp): that of the first key that the file says.
class OptionError : public UserError {
 public:
  OptionError(std::vector<std::string> keys, std::string message, std::string hint = {})
      : UserError{std::move(message), std::move(hint)}, keys_{std::move(keys)} {}
  OptionError(std::vector<std::string> keys, const UserError& error) : UserError{error}, keys_{std::move(keys)} {}

  const std::vector<std::string>& keys() const { return keys_; }

 private:
  std::vector<std::string> keys_;
};

}  // namespace orrery
