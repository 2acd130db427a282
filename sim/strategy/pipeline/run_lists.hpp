// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/strategy/pipeline/schedule.hpp"

namespace orrery {

/// What an action leaves behind and others wait for: the output of a part, or the gradient of its input.
enum class PassResultKind : std::uint8_t { Output, Gradient };

struct PassResult {
  PassResultKind kind = PassResultKind::Output;
  std::int32_t part = 0, microbatch = 0;

  std::size_t index(const Schedule& s) const {
    return (static_cast<std::size_t>(kind) * static_cast<std::size_t>(s.parts) + static_cast<std::size_t>(part)) *
               static_cast<std::size_t>(s.microbatches) +
           static_cast<std::size_t>(microbatch);
  }
};

/// At most two results that an action waits for: a forward for the output of the part before; a backward or input
/// gradient for its own output and the gradient of the part behind; a weight gradient for its own input gradient.
class PassNeeds {
 public:
  void add(PassResult r) { all_[size_++] = r; }
  const PassResult* begin() const { return all_.data(); }
  const PassResult* end() const { return all_.data() + size_; }

 private:
  std::array<PassResult, 2> all_{};
  std::size_t size_ = 0;
};

inline PassNeeds needs_of(const Schedule& s, std::int32_t stage, const Action& action) {
  const std::int32_t part = s.part(stage, action.chunk);
  PassNeeds needs;
  if (action.pass == Pass::WeightGradient) {
    needs.add({PassResultKind::Gradient, part, action.microbatch});
  } else if (action.pass == Pass::Forward) {
    if (part > 0) needs.add({PassResultKind::Output, part - 1, action.microbatch});
  } else {
    needs.add({PassResultKind::Output, part, action.microbatch});
    if (part + 1 < s.parts) needs.add({PassResultKind::Gradient, part + 1, action.microbatch});
  }
  return needs;
}

/// What an action leaves behind; nothing waits for a weight gradient.
inline std::optional<PassResult> result_of(const Schedule& s, std::int32_t stage, const Action& action) {
  if (action.pass == Pass::WeightGradient) return {};
  const PassResultKind kind = action.pass == Pass::Forward ? PassResultKind::Output : PassResultKind::Gradient;
  return PassResult{kind, s.part(stage, action.chunk), action.microbatch};
}

/// Goes through the lists of all stages in order. `start(stage, actions, first)` is called for actions that start
/// together, `first` being the index of the first, and says whether their needs are met. Returns how many actions of
/// each stage started: all of them, unless the stages wait for each other.
template <class Start>
std::vector<std::size_t> run_lists(const Schedule& s, Start&& start) {
  std::vector<std::size_t> next(s.actions.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::int32_t stage = 0; stage < s.stages; ++stage) {
      const std::span<const Action> list = s.actions[static_cast<std::size_t>(stage)];
      std::size_t& at = next[static_cast<std::size_t>(stage)];
      while (at < list.size()) {
        const std::size_t n = s.together(stage, at);
        if (!start(stage, list.subspan(at, n), at)) break;
        at += n;
        moved = true;
      }
    }
  }
  return next;
}

}  // namespace orrery
