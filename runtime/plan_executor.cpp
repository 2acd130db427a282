// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan_executor.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "runtime/clock.hpp"
#include "runtime/peers.hpp"
#include "runtime/tensor_io.hpp"
#include "runtime/timeline_parts.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// Of a device that holds nothing, an arena is as large as addresses go.
constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;

std::int64_t memory_of_machine() { return std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE); }

}  // namespace

PlanExecutor::PlanExecutor(std::unique_ptr<const Device> device, const HostOptions& options)
    : device_{std::move(device)}, options_{options}, links_{options_} {
  if (options_.arena_bytes == 0) options_.arena_bytes = device_->holds_data() ? memory_of_machine() : kUnlimited;
  for (std::int64_t& bytes : options_.tier_bytes)
    if (bytes == 0) bytes = options_.arena_bytes;
}

void PlanExecutor::prepare(const Plan& plan) { prepared(plan); }

PreparedPlan& PlanExecutor::prepared(const Plan& plan) {
  if (const auto it = plans_.find(&plan); it != plans_.end()) return *it->second;
  while (memories_.size() < static_cast<std::size_t>(plan.mesh.size()))
    memories_.push_back(std::make_unique<RankMemory>(
        RankId{memories_.size()},
        RankMemory::Options{options_.tier_bytes, device_.get(), options_.record_memory, options_.allocator}));
  auto fresh = device_->prepare({plan, memories_, links_, options_, workers_});
  in_order_.push_back(fresh.get());
  return *(plans_[&plan] = std::move(fresh));
}

void PlanExecutor::execute(const Plan& plan, const Bindings& bindings) {
  PreparedPlan& p = prepared(plan);
  if (ends_ns_.capacity() == ends_ns_.size()) ends_ns_.reserve(std::max<std::size_t>(64, 2 * ends_ns_.size()));
  if (ends_ns_.empty()) {
    plan_name_ = plan.name;
    if (Peers* peers = device_->peers()) (void)peers->gather({});  // all start at the same instant
    origin_ns_ = now_ns();
  }
  p.execute(bindings, static_cast<std::uint32_t>(ends_ns_.size()));
  ends_ns_.push_back(now_ns());
}

const RankRun& PlanExecutor::rank_of(const Plan& plan, TensorId tensor, RankId rank) const {
  const auto it = plans_.find(&plan);
  if (it == plans_.end()) throw UserError{fmt::format("plan '{}' is not prepared", plan.name)};
  if (rank.index() >= it->second->ranks().size())
    throw UserError{fmt::format("plan '{}' has no rank {}", plan.name, rank.index()),
                    fmt::format("its ranks are 0 to {}", it->second->ranks().size() - 1)};
  const RankRun& run = it->second->ranks()[rank.index()];
  const auto& held = run.program->persistent;
  if (!std::binary_search(held.begin(), held.end(), plan.owner(tensor)))
    throw UserError{fmt::format("'{}' is not a persistent tensor of rank {} in plan '{}'", plan.name_of(tensor),
                                rank.index(), plan.name),
                    "only persistent tensors that an op of the rank uses can be read and written"};
  return run;
}

template <class V>
void PlanExecutor::store(const Plan& plan, TensorId tensor, RankId rank, std::span<const V> values) {
  prepared(plan);
  const RankRun& run = rank_of(plan, tensor, rank);
  const std::int64_t elements = plan.shape(tensor).elements();
  if (static_cast<std::int64_t>(values.size()) != elements)
    throw UserError{
        fmt::format("'{}' has {} elements, {} values are given", plan.name_of(tensor), elements, values.size())};
  if (!device_->holds_data() || !run.is_here()) return;
  write_tensor(plan, tensor, run.places[plan.owner(tensor).index()], *run.memory, values);
}

void PlanExecutor::write(const Plan& plan, TensorId tensor, RankId rank, std::span<const double> values) {
  store(plan, tensor, rank, values);
}

void PlanExecutor::write(const Plan& plan, TensorId tensor, RankId rank, std::span<const std::int32_t> values) {
  store(plan, tensor, rank, values);
}

std::vector<double> PlanExecutor::read(const Plan& plan, TensorId tensor, RankId rank) const {
  const RankRun& run = rank_of(plan, tensor, rank);
  if (!device_->holds_data()) return std::vector<double>(static_cast<std::size_t>(plan.shape(tensor).elements()), 0.0);
  if (!run.is_here())
    throw UserError{fmt::format("another process executes rank {} of plan '{}'", rank.index(), plan.name)};
  return read_tensor(plan, tensor, run.places[plan.owner(tensor).index()], *run.memory);
}

bool PlanExecutor::holds(const Plan& plan, RankId rank) const {
  const Peers* peers = device_->peers();
  return !peers || peers->holds(rank, static_cast<std::size_t>(plan.mesh.size()));
}

std::vector<double> PlanExecutor::fetch(const Plan& plan, TensorId tensor, RankId rank) const {
  Peers* peers = device_->peers();
  if (!peers) return read(plan, tensor, rank);
  const int owner = peers->process_of(rank, static_cast<std::size_t>(plan.mesh.size()));
  std::vector<double> values;
  if (owner == peers->process()) values = read(plan, tensor, rank);
  const std::string bytes =
      peers->from(owner, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
  values.resize(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void PlanExecutor::take_disturbed() {
  disturbed_.assign(options_.watch_cores ? ends_ns_.size() : 0, 0.0);
  looks_.assign(memories_.size(), {});
  for (PreparedPlan* p : in_order_)
    for (RankRun& r : p->ranks()) {
      for (auto first = r.cores.begin(); first != r.cores.end();) {
        const auto last =
            std::find_if(first, r.cores.end(), [&](const CoreSample& s) { return s.instance != first->instance; });
        if (first->instance < disturbed_.size())  // that one has ended
          disturbed_[first->instance] += slowed_by({first, last}) / double(p->ranks().size());
        first = last;
      }
      for (CoreSample look : r.cores) look.at_ns -= origin_ns_, looks_[r.rank.index()].push_back(look);
      r.cores.clear();
    }
  for (std::vector<CoreSample>& looks : looks_)
    std::sort(looks.begin(), looks.end(), [](const CoreSample& a, const CoreSample& b) { return a.at_ns < b.at_ns; });
}

double PlanExecutor::disturbed(const Span& span) const {
  if (span.rank.index() >= looks_.size()) return 0;
  return slowed_around(looks_[span.rank.index()], span.start_ps / 1000, span.end_ps / 1000);
}

namespace {

/// The last look at the cores comes behind the last op, and is no part of the execution.
void leave_out_last_looks(Timeline& t) {
  std::vector<std::int64_t> last(t.instance_ends_ps.size(), INT64_MIN);
  for (const Span& s : t.spans) last[s.instance] = std::max(last[s.instance], s.end_ps);
  for (std::size_t i = 0; i < last.size(); ++i)
    if (last[i] != INT64_MIN) t.instance_ends_ps[i] = last[i];
}

}  // namespace

Timeline PlanExecutor::take() {
  take_disturbed();
  Timeline t;
  t.source = TimelineSource::Measured;
  t.plan_name = plan_name_;
  t.machine = device_->machine();
  t.num_ranks = static_cast<std::int64_t>(memories_.size());
  for (PreparedPlan* p : in_order_)
    for (RankRun& r : p->ranks())
      for (auto& spans : r.spans) {
        for (const RawSpan& s : spans)
          t.spans.push_back(
              {(s.start_ns - origin_ns_) * 1000, (s.end_ns - origin_ns_) * 1000, s.op, r.rank, s.instance, 0});
        spans.clear();
      }
  for (std::size_t i = 0; i < memories_.size(); ++i) {
    memories_[i]->take_account(origin_ns_, t.peaks, t.memory);
    memories_[i]->transfers().take(RankId{i}, t.transfers);
  }
  for (std::int64_t end : ends_ns_) t.instance_ends_ps.push_back((end - origin_ns_) * 1000);
  ends_ns_.clear();
  if (options_.watch_cores) leave_out_last_looks(t);
  if (Peers* peers = device_->peers()) join_parts(t, *peers);
  std::stable_sort(t.spans.begin(), t.spans.end(), [](const Span& a, const Span& b) {
    return std::tuple{a.instance, a.rank, a.op} < std::tuple{b.instance, b.rank, b.op};
  });
  std::stable_sort(t.memory.begin(), t.memory.end(),
                   [](const MemorySample& a, const MemorySample& b) { return a.at_ps < b.at_ps; });
  if (!t.instance_ends_ps.empty()) t.makespan_ps = t.instance_ends_ps.back();
  return t;
}

}  // namespace orrery
