// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <mutex>
#include <vector>

#include "runtime/prepared_plan.hpp"
#include "runtime/workers.hpp"

namespace orrery {

/// A plan whose lanes have a thread each, which does the work of their ops.
class ThreadedPlan final : public PreparedPlan, private Workers::Jobs {
 public:
  ThreadedPlan(const Preparation& preparation, const Device& device);

 private:
  struct Task {
    RankRun* run;
    std::size_t lane;
  };
  void run_lanes(const Bindings& bindings) override;
  void clean_up() override;
  void run(std::size_t task) noexcept override;
  void run_lane(RankRun& r, std::size_t lane);
  bool watches(const RankRun& r, std::size_t lane) const;
  std::int64_t meet(const OpRecord& op, OpCall& call, const RankRun& r);  // when it started
  std::int64_t take_storage(const OpRecord& op, RankRun& r);              // when it was taken
  void give_storage_back(const OpRecord& op, RankRun& r, std::int64_t at_ns);
  void cancel(std::exception_ptr error);

  Workers& workers_;
  Pace pace_;
  bool watches_cores_;
  std::vector<Task> tasks_;
  bool shares_ranks_ = false;  // some rank has several lanes
  const Bindings* bindings_ = nullptr;
  std::uint32_t round_ = 0;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace orrery
