// SPDX-License-Identifier: Apache-2.0
#include "sim/base/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

namespace orrery {

std::string beside_program(const std::string& name) {
  std::error_code problem;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", problem);
  return problem ? name : (self.parent_path() / name).string();
}

Library::Library(const std::string& purpose, std::initializer_list<std::string> names) {
  std::string problem;
  for (const std::string& name : names) {
    // Libraries that have threads of their own must not go away under them.
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
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
  if (!found) throw MissingError{fmt::format("a library is too old: it has no {}", name)};
  return found;
}

}  // namespace orrery
