// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/native/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace orrery {

Library::Library(const std::string& purpose, std::initializer_list<const char*> names) {
  std::string problem;
  for (const char* name : names) {
    // Libraries that have threads of their own must not go away under them.
    handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_) return;
    if (problem.empty()) problem = dlerror();
  }
  throw MissingError{fmt::format("{} cannot be opened: {}", purpose, problem)};
}

Library::~Library() {
  if (handle_) dlclose(handle_);
}

void* Library::address(const char* name) const {
  void* found = dlsym(handle_, name);
  if (!found) throw MissingError{fmt::format("a library of CUDA is too old: it has no {}", name)};
  return found;
}

}  // namespace orrery
