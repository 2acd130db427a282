// SPDX-License-Identifier: Apache-2.0
#include "sim/app/serving/served_types.hpp"

#include "hw_models/gpu_model.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

bool prefers_four_bits(const DeviceModel& device) {
  const auto* gpu = dynamic_cast<const GpuModel*>(&device);
  if (!gpu) return false;
  const auto& peaks = gpu->parameters().peak;
  return peaks.contains("f4e2m1") && peaks.contains("bf16") && peaks.at("f4e2m1") > peaks.at("bf16");
}

}  // namespace

WeightTypes weight_types(const ServeOptions& o, const DeviceModel& device) {
  const DType type = dtype_of(o.dtype);
  if (o.weights == "model") return {type, type};
  if (o.weights == "fp8") return {DType::F8E4M3, DType::F8E4M3};
  if (o.weights == "int8") return {DType::I8, DType::I8};
  if (o.weights == "fp4") return {DType::F4E2M1, DType::F4E2M1};
  if (o.weights == "fp4_experts") return {type, DType::I4, prefers_four_bits(device)};
  throw unknown_name("type of weights", o.weights, {"model", "fp8", "int8", "fp4", "fp4_experts"});
}

DType kv_dtype(const ServeOptions& o) {
  const KvType t = o.replica.kv_type;
  return t == KvType::F8 ? DType::F8E4M3 : t == KvType::I8 ? DType::I8 : dtype_of(o.dtype);
}

void narrow(Plan& plan, const WeightTypes& weights, DType pool) {
  std::vector<bool> in_block(plan.works.size());
  for (const Op& op : plan.ops) in_block[op.work.index()] = in_block[op.work.index()] || op.layer >= 0;
  for (std::size_t i = 0; i < plan.works.size(); ++i) {
    if (!in_block[i]) continue;
    if (auto* g = std::get_if<Gemm>(&plan.works[i])) g->dtype = weights.dense;
    if (auto* g = std::get_if<GroupedGemm>(&plan.works[i])) {
      if (weights.apart())
        g->weights = Quantised::I4;
      else
        g->dtype = weights.experts;
      if (weights.rows_of_experts_in_8_bits) g->narrow = Narrow::EightBits;
    }
    if (auto* p = std::get_if<PagedAttention>(&plan.works[i])) p->stored = pool;
  }
}

}  // namespace orrery
