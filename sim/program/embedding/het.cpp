// SPDX-License-Identifier: Apache-2.0
#include "sim/program/embedding/het.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace orrery {

std::int64_t RowVersions::of(std::int64_t row) const {
  const Version* version = versions_.find(static_cast<std::uint64_t>(row));
  return version ? version->count : 0;
}

void RowVersions::push(const RowPush& push) {
  if (Version* version = versions_.find(static_cast<std::uint64_t>(push.row)))
    version->count += push.updates;
  else
    versions_.insert({push.row, push.updates});
}

WorkerCopies::WorkerCopies(CachePolicy policy, std::int32_t slots, std::int64_t staleness, std::optional<WarmRows> warm,
                           std::uint64_t seed)
    : cache_{policy, slots}, staleness_{staleness}, warm_{std::move(warm)}, seed_{seed} {}

WorkerCopies::Copy WorkerCopies::warm_copy(std::int64_t row) const {
  Random random{seed_, static_cast<std::uint64_t>(row)};
  const auto drawn = [&] {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(staleness_) + 1));
  };
  const std::int64_t behind = drawn();
  return {-behind, drawn()};  // servers count from 0 when the simulation begins
}

std::optional<std::int32_t> WorkerCopies::slot_of(std::int64_t row) {
  if (const auto slot = cache_.find(row)) return slot;
  if (!warm_ || !warm_->contains(row)) return {};
  warm_->take(row);
  const std::int32_t slot = cache_.admit(row)->slot;  // warm rows and others are no more than there are slots
  copies_.resize(static_cast<std::size_t>(cache_.size()));
  copy_in(slot) = warm_copy(row);
  return slot;
}

std::vector<RowRequest> WorkerCopies::read(std::span<const std::int64_t> rows) {
  std::vector<RowRequest> requests;
  requests.reserve(rows.size());
  fetched_.clear();
  for (const std::int64_t row : rows) {
    if (const auto slot = slot_of(row)) {
      cache_.use(*slot);
      requests.push_back({row, copy_in(*slot).version});
    } else {
      fetched_.push_back({row, {}});
      requests.push_back({row, {}});
    }
  }
  std::sort(fetched_.begin(), fetched_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  misses_ += std::ssize(fetched_);
  hits_ += std::ssize(rows) - std::ssize(fetched_);
  return requests;
}

void WorkerCopies::received(std::int64_t row, std::int64_t version) {
  if (const auto slot = cache_.find(row)) {
    copy_in(*slot).version = version;
    return;
  }
  const auto at = std::lower_bound(fetched_.begin(), fetched_.end(), row,
                                   [](const auto& fetched, std::int64_t r) { return fetched.first < r; });
  if (at == fetched_.end() || at->first != row) bug("a row that nobody asked for");
  at->second.version = version;
}

void WorkerCopies::update(std::int64_t row, Copy& copy, std::vector<RowPush>& pushes) const {
  ++copy.pending;
  if (copy.pending <= staleness_) return;
  pushes.push_back({row, copy.pending});
  copy.version += copy.pending;
  copy.pending = 0;
}

std::vector<RowPush> WorkerCopies::write(std::span<const std::int64_t> rows, std::vector<std::int64_t>* dropped) {
  std::vector<RowPush> pushes;
  for (const std::int64_t row : rows)
    if (const auto slot = cache_.find(row)) update(row, copy_in(*slot), pushes);
  for (const auto& [row, copy] : fetched_) let_in(row, copy, pushes, dropped);
  fetched_.clear();
  return pushes;
}

void WorkerCopies::let_in(std::int64_t row, Copy copy, std::vector<RowPush>& pushes,
                          std::vector<std::int64_t>* dropped) {
  update(row, copy, pushes);
  const auto leave = [&](std::int64_t who, const Copy& with) {
    if (with.pending > 0)
      pushes.push_back({who, with.pending});
    else if (dropped != nullptr)
      dropped->push_back(who);
  };
  std::optional<std::pair<std::int64_t, Copy>> victim;
  const auto slot = make_room(row, victim);
  if (victim) leave(victim->first, victim->second);
  if (!slot) return leave(row, copy);
  copies_.resize(static_cast<std::size_t>(cache_.size()));
  copy_in(*slot) = copy;
}

std::optional<std::int32_t> WorkerCopies::make_room(std::int64_t row,
                                                    std::optional<std::pair<std::int64_t, Copy>>& victim) {
  if (warm_ && cache_.size() + warm_->size() >= cache_.slots())
    if (const auto coldest = warm_->take_coldest()) victim = std::pair{*coldest, warm_copy(*coldest)};
  const auto admission = cache_.admit(row);
  if (!admission) return {};
  if (admission->victim) victim = std::pair{*admission->victim, copy_in(admission->slot)};
  return admission->slot;
}

std::optional<WorkerCopies::Copy> WorkerCopies::copy(std::int64_t row) const {
  const auto slot = cache_.find(row);
  return slot ? std::optional{copies_[static_cast<std::size_t>(*slot)]} : std::nullopt;
}

}  // namespace orrery
