// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/base/open_table.hpp"
#include "sim/program/embedding/row_cache.hpp"
#include "sim/program/embedding/warm_rows.hpp"

namespace orrery {

/// The protocol of HET (arXiv 2112.07221), as its program has it (github.com/Hsword/Hetu, src/hetu_cache and ps-lite):
/// clocks and decisions of a worker's cache and of the servers, without the rows' numbers.
///
/// A server counts the updates of each row (its version). A worker knows the version that its copy has, and how many
/// updates of its own the server has not seen. A step: `read` asks for all rows of the batch, each once; the server
/// sends those that the worker lacks, or whose version is ahead by more than the staleness s. The worker adds what the
/// server has not seen to what it gets. `write` adds an update to each row, and pushes those with more than s, and
/// those that leave the cache with any. So copies that are read are between s updates behind the server's and s ahead
/// of it, and two of them at most 2s apart.

/// Bytes of a message per row: of a request id and version; of a row its id, its version and `dim` numbers of 4 B.
constexpr std::int64_t kRequestBytes = 16;
constexpr std::int64_t row_bytes(std::int64_t dim) { return 8 + 8 + 4 * dim; }

/// A row that a worker asks for; no version: it has none.
struct RowRequest {
  std::int64_t row = 0;
  std::optional<std::int64_t> version;
};

/// Updates that a worker tells its server.
struct RowPush {
  std::int64_t row = 0, updates = 0;
};

/// The versions of rows that were ever updated.
class RowVersions {
 public:
  std::int64_t of(std::int64_t row) const;
  void push(const RowPush& push);
  /// Whether a worker is sent the row.
  bool sends(const RowRequest& request, std::int64_t staleness) const {
    return !request.version || of(request.row) - *request.version > staleness;
  }

 private:
  struct Version {
    std::int64_t row = -1, count = 0;
    std::uint64_t key() const { return static_cast<std::uint64_t>(row); }
    bool is_free() const { return row < 0; }
  };
  OpenTable<Version> versions_;
};

/// The copies that a worker has.
class WorkerCopies {
 public:
  struct Copy {
    std::int64_t version = 0, pending = 0;
    std::int64_t clock() const { return version + pending; }
  };

  /// `seed` draws how many updates each warm row misses and holds back, 0 … staleness each: as they are where all
  /// messages are long ago.
  WorkerCopies(CachePolicy policy, std::int32_t slots, std::int64_t staleness, std::optional<WarmRows> warm = {},
               std::uint64_t seed = 0);

  /// The rows of a batch, each once; what is asked for of the servers. Counts uses.
  std::vector<RowRequest> read(std::span<const std::int64_t> rows);
  /// The server has sent a row that was asked for.
  void received(std::int64_t row, std::int64_t version);
  /// One update of each row of the batch that was read; what is pushed, in order. `dropped`: rows that
  /// leave with nothing to tell.
  std::vector<RowPush> write(std::span<const std::int64_t> rows, std::vector<std::int64_t>* dropped = nullptr);

  /// Of a row that is in the cache.
  std::optional<Copy> copy(std::int64_t row) const;
  std::int64_t hits() const { return hits_; }
  std::int64_t misses() const { return misses_; }

 private:
  Copy& copy_in(std::int32_t slot) { return copies_[static_cast<std::size_t>(slot)]; }
  std::optional<std::int32_t> slot_of(std::int64_t row);
  Copy warm_copy(std::int64_t row) const;
  void update(std::int64_t row, Copy& copy, std::vector<RowPush>& pushes) const;
  void let_in(std::int64_t row, Copy copy, std::vector<RowPush>& pushes, std::vector<std::int64_t>* dropped);
  /// The slot of a row that comes in, and who left, with its copy; no slot where there is no room.
  std::optional<std::int32_t> make_room(std::int64_t row, std::optional<std::pair<std::int64_t, Copy>>& victim);

  RowCache cache_;
  std::int64_t staleness_, hits_ = 0, misses_ = 0;
  std::vector<Copy> copies_;                            // by slot
  std::vector<std::pair<std::int64_t, Copy>> fetched_;  // rows of the batch that were not there, ascending
  std::optional<WarmRows> warm_;
  std::uint64_t seed_;
};

}  // namespace orrery
