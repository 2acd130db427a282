// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/event_queue.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace orrery {

void EventQueue::push(std::int64_t at_ps, Fired timer) {
  std::uint32_t& recent = recent_[hash(at_ps)];
  if (recent == kNone || buckets_[recent].at_ps != at_ps) {
    recent = new_bucket(at_ps);
    buckets_[recent].timer = timer;
    sift_up({at_ps, next_order_++ << kBucketBits | recent});
    return;
  }
  const std::uint32_t node = new_node(timer);
  Bucket& bucket = buckets_[recent];
  (bucket.second == kNone ? bucket.second : nodes_[bucket.last].next) = node;
  bucket.last = node;
}

std::int64_t EventQueue::pop(std::vector<Fired>& out) {
  out.clear();
  const std::int64_t at_ps = heap_.front().at_ps;
  while (!heap_.empty() && heap_.front().at_ps == at_ps) {
    const auto bucket = static_cast<std::uint32_t>(heap_.front().order & kBucketMask);
    pop_root();
    drain(bucket, out);
  }
  return at_ps;
}

std::uint32_t EventQueue::new_node(Fired timer) {
  if (free_node_ == kNone) {
    nodes_.push_back({timer, kNone});
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  const std::uint32_t node = free_node_;
  free_node_ = nodes_[node].next;
  nodes_[node] = {timer, kNone};
  return node;
}

std::uint32_t EventQueue::new_bucket(std::int64_t at_ps) {
  if (free_buckets_.empty()) {
    if (buckets_.size() >> kBucketBits) bug("more than 2^24 instants are pending");
    buckets_.emplace_back();
    free_buckets_.push_back(static_cast<std::uint32_t>(buckets_.size() - 1));
  }
  const std::uint32_t bucket = free_buckets_.back();
  free_buckets_.pop_back();
  buckets_[bucket] = {at_ps, {}, kNone, kNone};
  return bucket;
}

void EventQueue::drain(std::uint32_t index, std::vector<Fired>& out) {
  const Bucket bucket = buckets_[index];
  out.push_back(bucket.timer);
  for (std::uint32_t n = bucket.second; n != kNone; n = nodes_[n].next) out.push_back(nodes_[n].timer);
  if (bucket.second != kNone) {
    nodes_[bucket.last].next = free_node_;
    free_node_ = bucket.second;
  }
  free_buckets_.push_back(index);
  if (std::uint32_t& recent = recent_[hash(bucket.at_ps)]; recent == index) recent = kNone;
}

void EventQueue::sift_up(Instant moving) {
  heap_.push_back(moving);
  std::size_t hole = heap_.size() - 1;
  for (; hole > 0; hole = (hole - 1) / 4) {
    const Instant& parent = heap_[(hole - 1) / 4];
    if (!moving.before(parent)) break;
    heap_[hole] = parent;
  }
  heap_[hole] = moving;
}

/// Which of four is first is up to chance: it is told without branches.
std::size_t EventQueue::least_of_four(std::size_t first) const {
  const Instant* const at = heap_.data();
  const std::size_t left = first + std::size_t{at[first + 1].before(at[first])},
                    right = first + 2 + std::size_t{at[first + 3].before(at[first + 2])};
  return at[right].before(at[left]) ? right : left;
}

std::size_t EventQueue::least_of(std::size_t first, std::size_t end) const {
  std::size_t least = first;
  for (std::size_t i = first + 1; i < end; ++i)
    if (heap_[i].before(heap_[least])) least = i;
  return least;
}

void EventQueue::pop_root() {
  const Instant moving = heap_.back();
  heap_.pop_back();
  const std::size_t size = heap_.size();
  if (size == 0) return;
  std::size_t hole = 0;
  for (std::size_t child = 1; child < size; child = 4 * hole + 1) {
    const std::size_t least = child + 4 <= size ? least_of_four(child) : least_of(child, size);
    if (!heap_[least].before(moving)) break;
    heap_[hole] = heap_[least];
    hole = least;
  }
  heap_[hole] = moving;
}

}  // namespace orrery
