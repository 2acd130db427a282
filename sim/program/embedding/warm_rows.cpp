// SPDX-License-Identifier: Apache-2.0
#include "sim/program/embedding/warm_rows.hpp"

#include <numeric>

#include "sim/base/error.hpp"

namespace orrery {

WarmRows::WarmRows(const IdStream& stream, std::int64_t rows)
    : stream_{&stream},
      left_{stream.most_frequent(rows)},
      size_{std::accumulate(left_.begin(), left_.end(), std::int64_t{0})} {}

bool WarmRows::contains(std::int64_t row) const {
  const std::int64_t field = stream_->field_of(row);
  return row - stream_->first_row(field) < left_[static_cast<std::size_t>(field)] &&
         !taken_.find(static_cast<std::uint64_t>(row));
}

void WarmRows::take(std::int64_t row) {
  if (taken_.find(static_cast<std::uint64_t>(row))) bug("a row that has left already");
  taken_.insert({row});
  --size_;
}

std::optional<std::int64_t> WarmRows::take_coldest() {
  while (size_ > 0) {
    std::int64_t coldest = -1;
    double least = 2;
    for (std::size_t f = 0; f < left_.size(); ++f) {
      if (left_[f] == 0) continue;
      const std::int64_t row = stream_->first_row(static_cast<std::int64_t>(f)) + left_[f] - 1;
      if (const double p = stream_->probability(row); p < least) {
        least = p;
        coldest = row;
      }
    }
    --left_[static_cast<std::size_t>(stream_->field_of(coldest))];
    if (!taken_.take(static_cast<std::uint64_t>(coldest)).is_free()) continue;  // has left already
    --size_;
    return coldest;
  }
  return {};
}

}  // namespace orrery
