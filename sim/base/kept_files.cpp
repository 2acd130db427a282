// SPDX-License-Identifier: Apache-2.0
#include "sim/base/kept_files.hpp"

#include "sim/base/error.hpp"

namespace orrery {
namespace {

thread_local KeptFiles* kept = nullptr;

}  // namespace

KeptFiles::KeptFiles() {
  if (kept != nullptr) bug("files of one thread are kept twice");
  kept = this;
}

KeptFiles::~KeptFiles() { kept = nullptr; }

Node KeptFiles::once(const std::string& name, const std::function<Node()>& make) {
  if (kept == nullptr) return make();
  const auto found = kept->known_.find(name);
  if (found != kept->known_.end()) return found->second;
  return kept->known_.emplace(name, make()).first->second;
}

}  // namespace orrery
