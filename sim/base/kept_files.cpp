// SPDX-License-Identifier: Apache-2.0
#include "sim/base/kept_files.hpp"

#include <utility>

namespace orrery {
namespace {

thread_local KeptFiles* in_use = nullptr;

}  // namespace

KeptFiles::InUse::InUse(KeptFiles& files) : outer_{std::exchange(in_use, &files)} {}
KeptFiles::InUse::~InUse() { in_use = outer_; }

const Node* KeptFiles::find(const std::string& name) {
  const std::lock_guard lock{mutex_};
  const auto found = known_.find(name);
  return found == known_.end() ? nullptr : &found->second;  // what is kept stays where it is
}

Node KeptFiles::once(const std::string& name, const std::function<Node()>& make) {
  if (in_use == nullptr) return make();
  if (const Node* known = in_use->find(name)) return *known;
  Node made = make();
  const std::lock_guard lock{in_use->mutex_};
  return in_use->known_.emplace(name, std::move(made)).first->second;
}

}  // namespace orrery
