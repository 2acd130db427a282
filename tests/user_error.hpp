// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/base/error.hpp"

namespace orrery {

/// The whole text of the UserError that a function throws; "no error" when it throws none.
template <class Function>
std::string user_error(Function&& function) {
  try {
    function();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace orrery
