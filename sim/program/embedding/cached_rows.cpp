// SPDX-License-Identifier: Apache-2.0
#include "sim/program/embedding/cached_rows.hpp"

#include <algorithm>
#include <charconv>

#include "sim/strategy/offload/cached_embedding.hpp"

namespace orrery {
namespace {

constexpr std::string_view kBags = "bag.";  // names of ports: bag.0, bag.1 …

/// Numbers of a port, as many as it has room for.
PortValues padded(std::string_view port, std::vector<std::int32_t> numbers, std::int64_t room) {
  numbers.resize(static_cast<std::size_t>(room), -1);
  return {std::string{port}, std::move(numbers), {}};
}

}  // namespace

CachedRows::CachedRows(std::unique_ptr<Program> program, IdStream frequencies)
    : program_{std::move(program)},
      frequencies_{std::move(frequencies)},
      admit_{*cache_of(program_->plans().front())},
      cache_{frequencies_, {.slots = admit_.slots, .policy = admit_.policy, .warm = admit_.warm}} {}

/// The steps whose rows come together.
void CachedRows::draw() {
  std::vector<std::int32_t> ids;
  while (std::ssize(drawn_) < admit_.batches) {
    std::optional<Step> step = program_->next();
    if (!step) break;
    for (PortValues& input : step->inputs) {
      if (!input.port.starts_with(kBags)) continue;
      std::int64_t table = 0;
      std::from_chars(input.port.data() + kBags.size(), input.port.data() + input.port.size(), table);
      const auto first = static_cast<std::int32_t>(frequencies_.first_row(table));
      for (std::int32_t& id : input.indices) id += first;
      ids.insert(ids.end(), input.indices.begin(), input.indices.end());
    }
    drawn_.push_back(std::move(*step));
  }
  if (drawn_.empty()) return;
  add_change(drawn_.front(), cache_.prepare(ids));
  std::reverse(drawn_.begin(), drawn_.end());
}

void CachedRows::add_change(Step& step, FrequencyCache::Change change) const {
  step.bindings[Symbol::CacheMisses] = std::ssize(change.missed);
  step.bindings[Symbol::CacheVictims] = std::ssize(change.victims);
  step.inputs.push_back(padded(kMissedPort, std::move(change.missed), admit_.slots));
  step.inputs.push_back(padded(kMissedSlotsPort, std::move(change.missed_slots), admit_.slots));
  step.inputs.push_back(padded(kVictimsPort, std::move(change.victims), admit_.slots));
  step.inputs.push_back(padded(kVictimSlotsPort, std::move(change.victim_slots), admit_.slots));
}

std::optional<Step> CachedRows::next() {
  if (drawn_.empty()) draw();
  if (drawn_.empty()) return std::nullopt;
  Step step = std::move(drawn_.back());
  drawn_.pop_back();
  if (!with_samples_)
    step.inputs.clear();
  else if (is_first_)
    step.inputs.push_back({std::string{kRanksPort}, frequency_ranks(frequencies_), {}});
  is_first_ = false;
  return step;
}

std::optional<WriteBack> CachedRows::write_back() const {
  WriteBack w{lower_write_back(plans().front()), {}};
  FrequencyCache::Change change = cache_.all();
  w.step.bindings[Symbol::CacheVictims] = std::ssize(change.victims);
  w.step.inputs = {padded(kVictimsPort, std::move(change.victims), admit_.slots),
                   padded(kVictimSlotsPort, std::move(change.victim_slots), admit_.slots)};
  return w;
}

std::unique_ptr<Program> with_cached_rows(std::unique_ptr<Program> program, IdStream frequencies) {
  return std::make_unique<CachedRows>(std::move(program), std::move(frequencies));
}

}  // namespace orrery
