// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/program/embedding/frequency_cache.hpp"
#include "sim/program/program.hpp"

namespace orrery {

/// A program whose training steps find the rows of their tables in a cache (the strategy cached-embedding): draws the
/// steps of `program`, which uses every step of it as it is but for the rows, and binds what comes and what leaves.
/// Ids are of the one table that all tables are in, and `frequencies` say how often each is drawn.
class CachedRows final : public Program {
 public:
  CachedRows(std::unique_ptr<Program> program, IdStream frequencies);

  std::span<const Plan> plans() const override { return program_->plans(); }
  std::optional<Step> next() override;
  void leave_out_samples() override { with_samples_ = false; }
  void told(const Outcome& outcome) override { program_->told(outcome); }
  std::optional<WriteBack> write_back() const override;

  /// Look-ups and rows so far.
  const FrequencyCache::Counts& counts() const { return cache_.counts(); }

 private:
  void draw();
  void add_change(Step& step, FrequencyCache::Change change) const;

  std::unique_ptr<Program> program_;
  IdStream frequencies_;
  AdmitRows admit_;
  FrequencyCache cache_;
  std::vector<Step> drawn_;  // in reverse
  bool with_samples_ = true, is_first_ = true;
};

std::unique_ptr<Program> with_cached_rows(std::unique_ptr<Program> program, IdStream frequencies);

}  // namespace orrery
