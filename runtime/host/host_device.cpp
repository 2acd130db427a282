// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include "kernels/host/processor.hpp"
#include "runtime/host/families.hpp"
#include "runtime/plan_executor.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr const char* kLegalTypes = "legal types: f32, f64; i32 and i64 for indices";

bool is_float(DType t) { return t == DType::F32 || t == DType::F64; }

bool is_legal(const Tensor& t) {
  const bool is_byte = t.dtype == DType::U8 || (t.dtype == DType::F8E4M3 && t.role == TensorRole::Activation);
  return is_float(t.dtype) || t.dtype == DType::I32 || t.dtype == DType::I64 || is_byte;
}

Kernel find(const Work& work) {
  constexpr Kernel (*kFamilies[])(const Work&) = {
      find_gemm,      find_attention,      find_norm,          find_norm_pieces, find_elementwise, find_rows,
      find_embedding, find_recommendation, find_loss,          find_routing,     find_vision,      find_optimizer,
      find_factor,    find_move,           find_communication, find_speculation};
  for (const auto family : kFamilies)
    if (const Kernel k = family(work)) return k;
  return nullptr;
}

/// The scalar type of an op's floating operands; nothing for kinds that mix types or look at bytes only.
std::optional<DType> scalar_of(const Work& work) {
  return std::visit(
      [](const auto& w) -> std::optional<DType> {
        using K = std::decay_t<decltype(w)>;
        if constexpr (requires { w.shape.dtype; })
          return w.shape.dtype;
        else if constexpr (std::is_same_v<K, CopyRows> || !requires { w.dtype; })
          return std::nullopt;
        else
          return w.dtype;
      },
      work);
}

bool keeps_norm(const Work& work) {
  return std::holds_alternative<SumSquares>(work) || std::holds_alternative<Sgd>(work) ||
         std::holds_alternative<AdamW>(work);
}

/// Inputs of products that are kept as they were cast have a scale.
bool has_scale(const Work& work) {
  if (const auto* g = std::get_if<Gemm>(&work)) return g->input != InputCast::None;
  const auto* g = std::get_if<GroupedGemm>(&work);
  return g && g->input != InputCast::None;
}

/// The CPU's name and how many threads it offers.
std::string machine_name() {
  std::ifstream info{"/proc/cpuinfo"};
  std::string line, name = "unknown CPU";
  while (std::getline(info, line))
    if (line.starts_with("model name")) {
      if (const auto colon = line.find(": "); colon != std::string::npos) name = line.substr(colon + 2);
      break;
    }
  return fmt::format("{}, {} cores", name, std::thread::hardware_concurrency());
}

class HostDevice final : public Device {
 public:
  Kernel kernel(const Plan& plan, const Op& op) const override {
    const Work& work = plan.work(op);
    check_operands(plan, op, work);
    check_scratch(plan, op, work);
    if (const Kernel k = find(work)) return k;
    throw UserError{
        fmt::format("op '{}' of plan '{}' cannot run on the host: {}", plan.name_of(op), plan.name, to_text(work)),
        kLegalTypes};
  }
  void check_tensors(const Plan& plan) const override {
    for (const Tensor& t : plan.tensors)
      if (!is_legal(t))
        throw UserError{fmt::format("tensor '{}' of plan '{}' has type {}, which the host executor cannot hold",
                                    plan.names[t.name], plan.name, name_of(t.dtype)),
                        kLegalTypes};
  }
  bool holds_data() const override { return true; }
  std::string machine() const override { return machine_name(); }

 private:
  static void check_scratch(const Plan& plan, const Op& op, const Work& work) {
    const Bytes needed = host_workspaces().workspace(work);
    if (needed <= Bytes{}) return;
    const ClassId id = plan.class_of(OpId{static_cast<std::size_t>(&op - plan.ops.data())});
    const TensorId scratch = plan.workspaces[id.index()][static_cast<std::size_t>(op.stream)];
    const Bytes given = scratch.is_none() ? Bytes{} : plan.size(scratch);
    if (given < needed)
      throw UserError{fmt::format("op '{}' of plan '{}' needs {} of scratch, the plan gives its stream {}",
                                  plan.name_of(op), plan.name, to_text(needed), to_text(given)),
                      "build the plan with host_workspaces()"};
  }
  static void check_operands(const Plan& plan, const Op& op, const Work& work) {
    const auto scalar = scalar_of(work);
    const bool reaches_disk = std::holds_alternative<Copy>(work) || std::holds_alternative<Alloc>(work) ||
                              std::holds_alternative<Free>(work) || std::holds_alternative<HostWork>(work);
    for (const Operand& o : plan.operands_of(op)) {
      const Tensor& t = plan.tensors[o.tensor().index()];
      if (t.tier == Tier::Disk && !reaches_disk)
        throw UserError{
            fmt::format("op '{}' of plan '{}' uses '{}' on the disk", plan.name_of(op), plan.name, plan.names[t.name]),
            "copy it to a tier in memory first"};
      if (!scalar || !is_float(t.dtype) || t.dtype == *scalar || (keeps_norm(work) && t.dtype == DType::F64) ||
          (has_scale(work) && t.dtype == DType::F32))
        continue;
      throw UserError{fmt::format("op '{}' of plan '{}' computes in {}, but its operand '{}' is {}", plan.name_of(op),
                                  plan.name, name_of(*scalar), plan.names[t.name], name_of(t.dtype)),
                      "add a cast, or give both one type"};
    }
  }
};

}  // namespace

std::unique_ptr<Executor> make_host_executor(const HostOptions& options) {
  if (const std::string_view missing = kernels::missing_instructions(); !missing.empty())
    throw MissingError{fmt::format(
        "the kernels of this program were built for a processor with {}, which this computer lacks: build it here",
        missing)};
  return std::make_unique<PlanExecutor>(std::make_unique<HostDevice>(), options);
}

}  // namespace orrery
