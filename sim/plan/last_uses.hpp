// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/base/pages.hpp"
#include "sim/plan/plan.hpp"

namespace orrery {

/// Who touched tensors last, while one goes through the ops of a plan in order: the op that wrote one and, per stream,
/// the last op that has read it since. Earlier readers of a stream cannot matter: the stream orders them before.
class LastUses {
 public:
  void resize(std::size_t tensors) {
    if (tensors > uses_.size()) pages_.grow(uses_, tensors - uses_.size());
    uses_.resize(tensors);
  }
  void reserve(std::size_t tensors) { uses_.reserve(tensors); }
  std::size_t size() const { return uses_.size(); }

  /// Whether nobody is known to have touched it.
  bool is_fresh(TensorId owner) const {
    return uses_[owner.index()].writer.is_none() && uses_[owner.index()].readers == kNone;
  }
  OpId writer(TensorId owner) const { return uses_[owner.index()].writer; }  // none: nobody yet
  template <class F>
  void for_each_reader(TensorId owner, F f) const {
    for (std::uint32_t r = uses_[owner.index()].readers; r != kNone; r = readers_[r].next) f(readers_[r].op);
  }

  void read(TensorId owner, OpId op, Stream stream) {
    for (std::uint32_t r = uses_[owner.index()].readers; r != kNone; r = readers_[r].next)
      if (readers_[r].stream == stream) {
        readers_[r].op = op;
        return;
      }
    const std::uint32_t fresh = free_;
    if (fresh == kNone) {
      readers_.push_back({op, uses_[owner.index()].readers, stream});
      uses_[owner.index()].readers = static_cast<std::uint32_t>(readers_.size() - 1);
      return;
    }
    free_ = readers_[fresh].next;
    readers_[fresh] = {op, std::exchange(uses_[owner.index()].readers, fresh), stream};
  }
  void write(TensorId owner, OpId op) {
    std::uint32_t& first = uses_[owner.index()].readers;
    while (first != kNone) {
      const std::uint32_t reader = first;
      first = std::exchange(readers_[reader].next, free_);
      free_ = reader;
    }
    uses_[owner.index()].writer = op;
  }
  void forget(TensorId owner) { write(owner, {}); }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Use {
    OpId writer;
    std::uint32_t readers = kNone;  // a list in readers_
  };
  struct Reader {
    OpId op;
    std::uint32_t next = kNone;
    Stream stream = Stream::Compute;
  };
  std::vector<Use> uses_;  // per tensor
  PagesAhead pages_;       // of these
  std::vector<Reader> readers_;
  std::uint32_t free_ = kNone;
};

}  // namespace orrery
