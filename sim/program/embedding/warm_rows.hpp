// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/open_table.hpp"
#include "sim/program/embedding/id_stream.hpp"

namespace orrery {

/// The most frequent rows of a stream, as what a cache begins with: of each field the first so many. None is stored, so
/// that a cache of millions of rows takes as much memory as was used of it.
class WarmRows {
 public:
  /// `rows`: how many at most.
  WarmRows(const IdStream& stream, std::int64_t rows);

  bool contains(std::int64_t row) const;
  /// Takes out a row that is there.
  void take(std::int64_t row);
  /// Takes out the one that comes least often; nothing where none is left.
  std::optional<std::int64_t> take_coldest();
  std::int64_t size() const { return size_; }

 private:
  struct Taken {
    std::int64_t row = -1;
    std::uint64_t key() const { return static_cast<std::uint64_t>(row); }
    bool is_free() const { return row < 0; }
  };

  const IdStream* stream_;
  std::vector<std::int64_t> left_;  // of each field: ranks from here on are gone
  OpenTable<Taken> taken_;
  std::int64_t size_ = 0;
};

}  // namespace orrery
