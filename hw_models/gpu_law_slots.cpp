// SPDX-License-Identifier: Apache-2.0
// The table of laws: forms with their variants.
#include <algorithm>
#include <vector>

#include "hw_models/gpu_laws.hpp"

namespace orrery {
namespace {

struct Slot {
  std::string name;
  const GpuLawForm* form;
};

constexpr DType kProducts[] = {DType::F64, DType::F32, DType::TF32, DType::BF16, DType::F16};
constexpr DType kNarrow[] = {DType::F8E4M3, DType::F8E5M2, DType::I8, DType::F4E2M1, DType::I4};
constexpr std::string_view kStreams[] = {"softmax", "norm", "elementwise"};
constexpr std::size_t kTypes = std::size(kProducts) + std::size(kNarrow);
constexpr LawSlot kGemm = 0, kGrouped = kTypes, kPrefill = 2 * kTypes, kDecode = kPrefill + 1,
                  kGroupedDecode = kPrefill + 2, kSoftmax = kPrefill + 3, kNorm = kPrefill + 4,
                  kElementwise = kPrefill + 5;

const std::vector<Slot>& slots() {
  static const std::vector<Slot> all = [] {
    std::vector<Slot> s;
    for (const DType t : kProducts) s.push_back({"gemm." + std::string{name_of(t)}, &gemm_law()});
    for (const DType t : kNarrow) s.push_back({"gemm." + std::string{name_of(t)}, &narrow_gemm_law()});
    for (const DType t : kProducts) s.push_back({"grouped_gemm." + std::string{name_of(t)}, &grouped_gemm_law()});
    for (const DType t : kNarrow) s.push_back({"grouped_gemm." + std::string{name_of(t)}, &grouped_gemm_law()});
    s.push_back({"prefill", &prefill_law()});
    s.push_back({"decode", &decode_law()});
    s.push_back({"grouped_decode", &grouped_decode_law()});
    for (const std::string_view name : kStreams) s.push_back({std::string{name}, &stream_law()});
    return s;
  }();
  return all;
}

LawSlot of_type(LawSlot first, DType type) {
  for (std::size_t i = 0; i < std::size(kProducts); ++i)
    if (kProducts[i] == type) return static_cast<LawSlot>(first + i);
  for (std::size_t i = 0; i < std::size(kNarrow); ++i)
    if (kNarrow[i] == type) return static_cast<LawSlot>(first + std::size(kProducts) + i);
  return static_cast<LawSlot>(first + 1);  // integers and the like as single precision
}

/// Rows of a token tree share the keys of their sequence as heads of a group do: kernels for speculation take them
/// together, a tile of 64 rows at a time.
constexpr std::int64_t kTreeRows = 64;

/// Few queries per sequence against more keys are decoding. Heads that share keys are taken together where enough
/// blocks of 128 keys fill a quarter of the SMs and no more heads share than the program's kernel takes (32 in
/// TensorRT-LLM 1.0: the rule by which it chooses its XQA).
LawSlot attention_slot(const AttentionShape& s, const Bindings& b, double sms, std::int64_t most_shared) {
  constexpr std::int64_t kMostQueries = 8, kBlock = 128;
  constexpr double kFilled = 4;
  const std::int64_t group = s.heads / std::max<std::int64_t>(1, s.kv_heads);
  if (s.contexts && s.q > 1 && s.kv.at(b) > s.q) return s.q * group <= kTreeRows ? kGroupedDecode : kPrefill;
  if (s.q > kMostQueries || s.kv.at(b) <= s.q) return kPrefill;
  const double blocks = double(s.batch * s.kv_heads) * double(std::max<std::int64_t>(1, s.keys_read(b) / kBlock));
  return group > 1 && group <= most_shared && kFilled * blocks >= sms ? kGroupedDecode : kDecode;
}

}  // namespace

LawSlot law_slot(const Work& work, const Bindings& bindings, double sms, const KernelChoice& kernels) {
  if (const auto* g = std::get_if<Gemm>(&work)) return of_type(kGemm, g->arithmetic());
  if (const auto* g = std::get_if<GroupedGemm>(&work)) return of_type(kGrouped, g->arithmetic());
  if (const auto* a = std::get_if<AttentionForward>(&work))
    return attention_slot(a->shape, bindings, sms, kernels.shared_heads);
  if (std::holds_alternative<AttentionBackward>(work)) return kPrefill;
  if (std::holds_alternative<SoftmaxForward>(work) || std::holds_alternative<SoftmaxBackward>(work)) return kSoftmax;
  return class_of(work) == OpClass::Norm ? kNorm : kElementwise;
}

std::size_t num_law_slots() { return slots().size(); }
std::string law_name(LawSlot slot) { return slot < slots().size() ? slots()[slot].name : std::string{}; }
const GpuLawForm& law_form(LawSlot slot) { return *slots()[slot].form; }

std::vector<LawSlot> stand_ins(LawSlot slot) {
  std::vector<LawSlot> out;
  const auto add = [&](LawSlot s) {
    if (s != slot && slots()[s].form == slots()[slot].form) out.push_back(s);
  };
  if (slot < kPrefill) {
    const LawSlot first = slot < kGrouped ? kGemm : kGrouped;
    for (const DType t : {DType::BF16, DType::F16, DType::F8E4M3, DType::F32, DType::F4E2M1}) add(of_type(first, t));
  } else if (slot >= kSoftmax) {
    for (const LawSlot s : {kElementwise, kNorm, kSoftmax}) add(s);
  }
  return out;
}

}  // namespace orrery
