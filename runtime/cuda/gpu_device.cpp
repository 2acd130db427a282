// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "runtime/cuda/attention_trial.hpp"
#include "runtime/cuda/collectives.hpp"
#include "runtime/cuda/enqueued_plan.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/gpu_executor.hpp"
#include "runtime/plan_executor.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr const char* kLegalTypes = "legal types: f32, bf16, f16; i32 for indices";

bool is_legal(const Tensor& t) {
  return t.dtype == DType::F32 || t.dtype == DType::BF16 || t.dtype == DType::F16 || t.dtype == DType::F64 ||
         t.dtype == DType::I32 || t.dtype == DType::U8 ||
         (t.dtype == DType::F8E4M3 && t.role == TensorRole::Activation);
}

void enqueued_with_its_meeting(const OpCall&) { bug("a meeting is enqueued for all its members at once"); }

template <std::size_t... I>
void add_kinds(std::index_sequence<I...>, std::vector<std::size_t>& kinds) {
  ((find_gpu_kernel(Work{std::in_place_index<I>}) ? kinds.push_back(I) : void()), ...);
}

class GpuDevice final : public Device {
 public:
  GpuDevice(std::shared_ptr<GpuDriver> driver, const GpuOptions& options)
      : driver_{std::move(driver)}, options_{options}, capability_{driver_->info(0).capability} {}

  Kernel kernel(const Plan& plan, const Op& op) const override {
    const Work& work = plan.work(op);
    check_tiers(plan, op, work);
    check_capability(plan, op, work);
    if (const Kernel k = find_gpu_kernel(work)) return k;
    throw UserError{
        fmt::format("op '{}' of plan '{}' cannot run on a cuda device: {}", plan.name_of(op), plan.name, to_text(work)),
        "runtime/cuda/README.md lists the kinds that can"};
  }
  void check_tensors(const Plan& plan) const override {
    for (const Tensor& t : plan.tensors)
      if (!is_legal(t))
        throw UserError{fmt::format("tensor '{}' of plan '{}' has type {}, which a cuda device cannot hold here",
                                    plan.names[t.name], plan.name, name_of(t.dtype)),
                        kLegalTypes};
  }
  bool holds_data() const override { return true; }
  std::string machine() const override {
    const GpuInfo info = driver_->info(0);
    return fmt::format("{} × {}, driver {}", driver_->num_devices(), info.name, info.driver);
  }
  Peers* peers() const override { return options_.peers.get(); }
  std::unique_ptr<DeviceMemory> memory(Tier tier, RankId rank) const override {
    const int device = static_cast<int>(rank.index()) % driver_->num_devices();
    if (tier == Tier::Device || tier == Tier::Peer)
      return options_.plain ? driver_->plain_memory(device) : driver_->device_memory(device);
    return tier == Tier::Pinned ? driver_->pinned_memory() : nullptr;
  }
  Backing file() const override { return Backing::DirectFile; }
  std::unique_ptr<PreparedPlan> prepare(const Preparation& preparation) const override {
    const std::uint32_t attention = quick_attention_of(preparation.plan);
    return std::make_unique<EnqueuedPlan>(
        preparation, *this, driver_,
        EnqueuedPlan::Options{.fast_f32 = options_.fast_f32,
                              .graphs = options_.graphs,
                              .capability = capability_,
                              .activities = options_.activities.get(),
                              .account = options_.account.get(),
                              .peers = options_.peers,
                              .quick_attention = try_quick_attention(*driver_, attention, options_.warn)});
  }

 private:
  /// Kernels reach devices and pinned memory; pageable memory and disks are for copies and for the host.
  static void check_tiers(const Plan& plan, const Op& op, const Work& work) {
    const bool reaches_all = std::holds_alternative<Copy>(work) || std::holds_alternative<Alloc>(work) ||
                             std::holds_alternative<Free>(work) || std::holds_alternative<HostWork>(work);
    for (const Operand& o : plan.operands_of(op)) {
      const Tensor& t = plan.tensors[o.tensor().index()];
      if (reaches_all || (t.tier != Tier::Disk && (t.tier != Tier::Host || runs_on_host(work)))) continue;
      throw UserError{fmt::format("op '{}' of plan '{}' uses '{}' on tier {}, which a cuda device does not reach",
                                  plan.name_of(op), plan.name, plan.names[t.name], name_of(t.tier)),
                      "copy it to the device first"};
    }
  }

  /// Tensor cores of 8 bits came with compute capability 8.9.
  void check_capability(const Plan& plan, const Op& op, const Work& work) const {
    constexpr int kEightBits = 89;
    const auto* g = std::get_if<Gemm>(&work);
    const auto* of_groups = std::get_if<GroupedGemm>(&work);
    const Narrow narrow = g ? g->narrow : of_groups ? of_groups->narrow : Narrow::None;
    if (narrow == Narrow::FourBits)
      throw UserError{fmt::format("op '{}' of plan '{}' multiplies in 4 bits, which is not done on GPUs here",
                                  plan.name_of(op), plan.name),
                      "run it on the host, or set `narrow` to eight_bits or none"};
    if (capability_ >= kEightBits || narrow == Narrow::None) return;
    throw UserError{fmt::format("op '{}' of plan '{}' multiplies in 8 bits, which compute capability {}.{} cannot",
                                plan.name_of(op), plan.name, capability_ / 10, capability_ % 10),
                    "8.9 and newer can: Ada, Hopper; or leave out `narrow`"};
  }

  std::shared_ptr<GpuDriver> driver_;
  GpuOptions options_;
  int capability_;
};

}  // namespace

/// Rows whose number is bound are the host's so far: kernels take all that there is room for.
static bool has_bound_rows(const Work& work) {
  return std::visit(
      [](const auto& w) {
        if constexpr (requires { w.used.is_bound(); })
          return w.used.is_bound();
        else
          return false;
      },
      work);
}

Kernel find_gpu_kernel(const Work& work) {
  if (has_bound_rows(work)) return nullptr;
  if (can_enqueue_meeting(work)) return &enqueued_with_its_meeting;
  if (runs_on_host(work) && !std::holds_alternative<HostWork>(work)) return find_gpu_host_update(work);
  constexpr Kernel (*kFamilies[])(const Work&) = {
      find_gpu_product, find_gpu_attention, find_gpu_rows,           find_gpu_elementwise, find_gpu_tokens,
      find_gpu_update,  find_gpu_move,      find_gpu_host_work,      find_gpu_grouped,     find_gpu_routing,
      find_gpu_vision,  find_gpu_factor,    find_gpu_recommendation, find_gpu_speculation};
  for (const auto family : kFamilies)
    if (const Kernel k = family(work)) return k;
  return nullptr;
}

std::vector<std::size_t> gpu_kinds() {
  std::vector<std::size_t> kinds;
  add_kinds(std::make_index_sequence<kNumKinds>{}, kinds);
  return kinds;
}

std::unique_ptr<Executor> make_gpu_executor(std::shared_ptr<GpuDriver> driver, const HostOptions& options,
                                            const GpuOptions& gpu) {
  if (gpu.graphs && gpu.activities)
    throw UserError{"a replayed graph leaves records of no op: CUDA graphs and records of CUPTI exclude each other",
                    "leave out --graphs or --activities"};
  if (gpu.graphs && gpu.plain)
    throw UserError{"a replayed graph needs the same places in each execution, which plain allocation does not give",
                    "leave out --graphs or --plain-allocation"};
  if (gpu.graphs && options.allocator.allocator == AllocatorKind::PyTorch)
    throw UserError{
        "a replayed graph needs the same places in each execution, which the pytorch allocator does not give",
        "use the allocator best-fit or buddy, or leave out --graphs"};
  return std::make_unique<PlanExecutor>(std::make_unique<GpuDevice>(std::move(driver), gpu), options);
}

}  // namespace orrery
