// SPDX-License-Identifier: Apache-2.0
// Where functions begin and how long they are, and which types there are, read from text laid out by clang-format.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace orrery::testing {

struct Function {
  std::size_t line;   ///< of its first line, from 1
  std::size_t lines;  ///< from there to the closing brace
};

/// The function definitions of a source, member functions and test cases included. A lambda belongs to the function
/// around it. Relies on the layout for one thing: a body's brace stands after a space, a member initialiser's does not.
std::vector<Function> functions_of(const std::string& source);

/// The types that a source defines for others to see, as "namespace::Name"; specialisations have another's name.
std::vector<std::string> shared_types_of(const std::string& source);

}  // namespace orrery::testing
