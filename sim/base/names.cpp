// SPDX-License-Identifier: Apache-2.0
#include "sim/base/ids.hpp"

namespace orrery {

NameId Names::intern(std::string_view text) {
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  const NameId id{texts_.size()};
  texts_.emplace_back(text);
  ids_.emplace(texts_.back(), id);
  return id;
}

}  // namespace orrery
