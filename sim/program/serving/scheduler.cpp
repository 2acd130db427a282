// SPDX-License-Identifier: Apache-2.0
#include "sim/program/serving/scheduler.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kWatermark = 100;  // 1/100 of the blocks stay free when a request is admitted (vLLM v0)

std::vector<std::uint64_t> hashes_of(const Request& r, std::int64_t block) {
  if (!r.tokens.empty()) return block_hashes(r.tokens, block);
  std::vector<std::uint64_t> hashes;
  if (r.group < 0) return hashes;
  std::uint64_t h = chain_hash(0, static_cast<std::uint64_t>(r.group));
  for (std::int64_t at = block; at <= r.shared; at += block) hashes.push_back(h = chain_hash(h, 1));
  return hashes;
}

}  // namespace

/// A row at position p sees p + 1 keys.
void BatchShape::add(std::int64_t first, std::int64_t count, bool is_decode) {
  const std::int64_t keys = first + count;
  rows += count;
  if (is_decode) {
    ++decodes;
    decode_keys += keys;
    return;
  }
  ++prompts;
  prompt_rows += count;
  prompt_keys += keys;
  prompt_pairs += count * first + count * (count + 1) / 2;
}

Bindings BatchShape::bindings() const {
  Bindings b;
  b[Symbol::Decodes] = decodes;
  b[Symbol::DecodeKeys] = decode_keys;
  b[Symbol::Prompts] = prompts;
  b[Symbol::PromptRows] = prompt_rows;
  b[Symbol::PromptKeys] = prompt_keys;
  b[Symbol::PromptPairs] = prompt_pairs;
  return b;
}

Scheduler::Scheduler(const ReplicaOptions& options, const KvBlocks::Sizes& blocks)
    : options_{options}, rules_{find_scheduler(options.scheduler)}, blocks_{blocks}, expected_{options} {}

bool Scheduler::can_hold(const Request& r) const {
  return blocks_.blocks_for(r.prompt + r.output) <= blocks_.sizes().device;
}

void Scheduler::submit(Request request) {
  auto s = std::make_unique<Sequence>();
  s->tokens = request.tokens;
  if (options_.prefix_sharing) s->hashes = hashes_of(request, options_.block);
  s->request = std::move(request);
  s->request.tokens = {};
  accept(std::move(s));
}

void Scheduler::accept(Owned s) {
  load_ += s->request.prompt + s->request.output - s->computed;
  const bool is_late = (rules_.ahead || options_.notice_every > 1) && !running_.empty();
  (is_late ? coming_ : waiting_).push_back(std::move(s));
}

void Scheduler::add(StepBatch& batch, Sequence& s, std::int64_t rows) {
  const bool all = s.computed + rows == s.known();
  if (rules_.expects && all && !s.decodes()) expected_.take(s);
  batch.parts.push_back({&s, s.computed, rows, all});
  batch.shape.add(s.computed, rows, s.decodes());
  batch.shape.emitting += all;
}

/// Running sequences in the order in which a step takes them; who has to make room is taken from its end.
std::vector<Sequence*>& Scheduler::in_order() {
  order_.clear();
  later_.clear();
  for (const Owned& s : running_) (!rules_.decodes_first || s->decodes() ? order_ : later_).push_back(s.get());
  order_.insert(order_.end(), later_.begin(), later_.end());
  return order_;
}

Scheduler::Owned Scheduler::remove(const Sequence& s) {
  const auto at = std::find_if(running_.begin(), running_.end(), [&](const Owned& o) { return o.get() == &s; });
  if (at == running_.end()) bug("a sequence that does not run");
  Owned owned = std::move(*at);
  running_.erase(at);
  has_left_ = true;
  return owned;
}

void Scheduler::preempt(Sequence& s, StepBatch& batch) {
  preempted_ = true;
  ++preemptions_;
  ++s.preemptions;
  Owned owned = remove(s);
  if (options_.preemption == Preemption::Swap) {
    const std::vector<BlockCopy> copies = blocks_.swap_out(s.table);
    if (s.table.on_host) {
      batch.to_host.insert(batch.to_host.end(), copies.begin(), copies.end());
      swapped_.push_back(std::move(owned));
      return;
    }
  }
  blocks_.release(s.table);
  load_ += s.computed;
  s.computed = 0;
  rules_.expects ? waiting_.push_back(std::move(owned)) : waiting_.push_front(std::move(owned));
}

/// Before a step decodes: where what it adds does not fit, those give all back that have generated least, of these
/// those with the longest prompts first. The last one stays.
void Scheduler::take_back(StepBatch& batch) {
  const auto missing = [&](const Sequence& s) {
    return std::max<std::int64_t>(0, blocks_.blocks_for(s.computed + 1) - s.table.held());
  };
  order_.clear();
  std::int64_t all = 0;
  for (const Owned& s : running_)
    if (s->decodes()) {
      order_.push_back(s.get());
      all += missing(*s);
    }
  if (all <= blocks_.available()) return;
  std::stable_sort(order_.begin(), order_.end(), [](const Sequence* a, const Sequence* b) {
    return a->generated != b->generated ? a->generated > b->generated : a->request.prompt < b->request.prompt;
  });
  while (all > blocks_.available() && order_.size() > 1) {
    all -= missing(*order_.back());
    preempt(*order_.back(), batch);
    order_.pop_back();
  }
  expected_.taken_back(order_);
}

bool Scheduler::make_room(Sequence& s, std::int64_t tokens, std::vector<Sequence*>& order, StepBatch& batch) {
  while (!blocks_.grow(s.table, tokens)) {
    Sequence* last = order.back();
    order.pop_back();
    preempt(*last, batch);
    if (last == &s) return false;
  }
  return true;
}

void Scheduler::take_running(StepBatch& batch) {
  std::vector<Sequence*>& order = in_order();
  batch.parts.reserve(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    Sequence& s = *order[i];
    const std::int64_t rows = std::min(s.known() - s.computed, room(batch));
    if (rows <= 0) continue;
    if (make_room(s, s.computed + rows, order, batch)) add(batch, s, rows);
  }
}

/// Blocks for what the step computes, or for the whole answer; the prompt's part that others have computed is taken
/// over, but for its last token.
bool Scheduler::admit(Sequence& s, StepBatch& batch) {
  const std::int64_t block = options_.block;
  std::int64_t cached = s.computed;
  KvBlocks::Found found;
  if (s.computed == 0) {
    const auto usable = static_cast<std::size_t>((s.known() - 1) / block);
    found = blocks_.find(std::span{s.hashes}.first(std::min(usable, s.hashes.size())));
    cached = found.blocks * block;
  }
  std::int64_t rows = s.known() - cached;
  if (rules_.chunked) rows = std::min(rows, room(batch));
  if (rows <= 0 || (rows > room(batch) && !batch.is_empty())) return false;
  const std::int64_t tokens = rules_.reserves ? s.request.prompt + s.request.output : cached + rows;
  const bool has_watermark = !rules_.mixed && !rules_.expects && !running_.empty();
  const std::int64_t spare = has_watermark ? blocks_.sizes().device / kWatermark : 0;
  if (rules_.expects && !is_expected_to_fit(s, found)) return false;
  if (blocks_.blocks_for(tokens) - found.blocks + spare > blocks_.available() - found.idle) return false;
  if (found.blocks > 0) {
    blocks_.share(s.table, s.hashes, found.blocks);
    load_ -= cached;
    s.shared += cached;
    s.computed = cached;
  }
  if (!blocks_.grow(s.table, tokens)) bug("blocks that were counted are not there");
  add(batch, s, rows);
  return true;
}

/// Who would run alone always does.
bool Scheduler::is_expected_to_fit(const Sequence& s, const KvBlocks::Found& found) {
  const std::int64_t needed = blocks_.blocks_for(s.known()) - found.blocks, free = blocks_.available() - found.idle;
  is_full_ = !running_.empty() && !expected_.fits(s, needed * options_.block, free * options_.block);
  return !is_full_;
}

/// Prompts of which a part was computed, where they do not share steps with who decodes.
void Scheduler::take_cut_prompts(StepBatch& batch) {
  for (const Owned& s : running_) {
    const std::int64_t rows = std::min(s->known() - s->computed, room(batch));
    if (!s->decodes() && rows > 0 && blocks_.grow(s->table, s->computed + rows)) add(batch, *s, rows);
  }
}

void Scheduler::take_waiting(StepBatch& batch) {
  if (rules_.waits_for_full && !closed_ && static_cast<std::int64_t>(waiting_.size()) < options_.max_sequences) return;
  if (is_full_) return;
  while (!waiting_.empty() && has_seats() && room(batch) > 0) {
    if (!admit(*waiting_.front(), batch)) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Scheduler::take_swapped(StepBatch& batch) {
  while (!swapped_.empty() && has_seats() && room(batch) > 0) {
    Sequence& s = *swapped_.front();
    const std::int64_t rows = std::min(s.known() - s.computed, room(batch));
    if (blocks_.blocks_for(s.computed + rows) > blocks_.available()) return;
    const std::vector<BlockCopy> copies = blocks_.swap_in(s.table);
    batch.from_host.insert(batch.from_host.end(), copies.begin(), copies.end());
    if (!blocks_.grow(s.table, s.computed + rows)) bug("blocks that were counted are not there");
    add(batch, s, rows);
    running_.push_back(std::move(swapped_.front()));
    swapped_.pop_front();
  }
}

void Scheduler::notice_coming() {
  std::move(coming_.begin(), coming_.end(), std::back_inserter(waiting_));
  coming_.clear();
}

bool Scheduler::is_time_to_look() {
  if (!running_.empty() && !has_read_ && ++since_looked_ < options_.notice_every) return false;
  since_looked_ = 0;
  return true;
}

/// Who came while a step ran is noticed behind the decision for the next one where that is made ahead.
StepBatch Scheduler::begin() {
  const bool looks = is_time_to_look();
  if (looks && (running_.empty() || !rules_.ahead)) notice_coming();
  StepBatch batch = decide();
  if (looks) notice_coming();
  has_read_ = batch.shape.prompts > 0;
  return batch;
}

StepBatch Scheduler::decide() {
  StepBatch batch;
  preempted_ = false;
  const bool joins = rules_.continuous || (running_.empty() && finished_.empty());
  if (running_.empty()) is_full_ = false;
  if (rules_.expects && !waiting_.empty()) expected_.look_at(running_);
  if (!rules_.mixed && joins && swapped_.empty()) {
    take_cut_prompts(batch);
    take_waiting(batch);
  }
  if (!batch.is_empty()) return batch;
  if (rules_.expects) take_back(batch);
  take_running(batch);
  if (joins && !preempted_) take_swapped(batch);
  if (joins && !preempted_ && swapped_.empty() && rules_.mixed) take_waiting(batch);
  for (const Owned& s : finished_) {
    batch.shape.add(s->known() - 1, 1, true);
    ++batch.shape.emitting;
  }
  if (rules_.expects) learn(batch);
  return batch;
}

/// What a step tells that is no step of prompts alone.
void Scheduler::learn(const StepBatch& batch) {
  if (batch.is_empty())
    expected_.begin_anew();
  else if (batch.shape.prompts == 0 && !preempted_)
    expected_.step_decoded();
  if (std::exchange(has_left_, false)) is_full_ = false;
}

std::vector<std::unique_ptr<Sequence>> Scheduler::end(const StepBatch& batch) {
  std::vector<Owned> done;
  for (const Part& part : batch.parts) {
    Sequence& s = *part.sequence;
    s.computed += part.rows;
    load_ -= part.rows;
    if (options_.prefix_sharing && !s.hashes.empty())
      blocks_.publish(s.table, std::span{s.hashes}.first(
                                   std::min(s.hashes.size(), static_cast<std::size_t>(s.computed / options_.block))));
    if (!part.emits) continue;
    ++s.generated;
    if (!s.is_done()) continue;
    load_ -= 1;  // the last token is not computed
    Owned owned = remove(s);
    if (rules_.together) {
      finished_.push_back(std::move(owned));
      continue;
    }
    blocks_.release(s.table);
    done.push_back(std::move(owned));
  }
  if (running_.empty() && !finished_.empty()) {
    for (const Owned& s : finished_) blocks_.release(s->table);
    done = std::move(finished_);
    finished_.clear();
  }
  return done;
}

std::unique_ptr<Sequence> Scheduler::hand_over(Sequence& s) {
  Owned owned = remove(s);
  load_ -= s.request.prompt + s.request.output - s.computed;
  blocks_.release(s.table);
  return owned;
}

}  // namespace orrery
