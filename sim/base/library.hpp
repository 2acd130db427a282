// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/base/error.hpp"

namespace orrery {

/// The path of a file in the folder of this program; just its name where the system does not tell that folder.
std::string beside_program(const std::string& name);

/// A shared library that is opened when it is first needed, so that a program that was built with it starts without.
class Library {
 public:
  /// Throws MissingError, with what the system says, when none of these names can be opened.
  Library(const std::string& purpose, std::initializer_list<std::string> names);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// A function by the name of its declaration: `library.find("cuMemMap", &cuMemMap)`. Throws MissingError.
  template <class F>
  void find(const char* name, F*& function) const {
    function = reinterpret_cast<F*>(address(name));
  }

 private:
  void* address(const char* name) const;

  void* handle_ = nullptr;
};

}  // namespace orrery
