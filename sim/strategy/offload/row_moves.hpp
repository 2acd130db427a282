// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "sim/plan/builder.hpp"

namespace orrery {

/// Names of the tensors that hold all rows, on the host, and those that are cached.
constexpr std::string_view kCachedTable = "embedding.table", kCacheOfTable = "embedding.cache";

/// Rows, in pieces, from a cache to its table or back: gathered on one side, copied, scattered on the other. Which ones
/// is in tensors of both sides, of as many numbers as the cache has slots; how many of these count is bound.
class RowMoves {
 public:
  struct Places {
    TensorId table, cache;
    std::int64_t rows = 0, slots = 0, cols = 0;
    std::int64_t buffer = 0;  // rows of a piece; 0: all
    DType dtype = DType::F32;
    Tier host = Tier::Pinned;
    bool overlap = false;  // copies have streams of their own
  };
  RowMoves(PlanBuilder& builder, const Places& places) : b_{builder}, p_{places} {}

  /// A list of numbers of the device, on the host.
  TensorId list_down(TensorId numbers, Symbol used) const;
  /// Symbol::CacheVictims rows go down, Symbol::CacheMisses rows up. `rows` lies on the host, `slots` on the device.
  void down(TensorId slots, TensorId rows) const;
  void up(TensorId rows, TensorId slots) const;

 private:
  struct Part {
    std::string name;
    std::int64_t first = 0, rows = 0;
    Extent used;
    TensorId device, host;
  };
  std::int64_t piece(std::int64_t first) const;
  Part part(std::string_view what, Symbol symbol, std::int64_t first) const;
  TensorId view(TensorId index, const Part& p) const;
  Gather gather(const Part& p, std::int64_t table_rows, bool on_host) const;
  ScatterRows scatter(const Part& p, std::int64_t table_rows, bool on_host) const;
  void copy(const Part& p, TensorId from, TensorId to, Stream stream) const;

  PlanBuilder& b_;
  Places p_;
};

}  // namespace orrery
