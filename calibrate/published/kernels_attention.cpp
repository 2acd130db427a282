// SPDX-License-Identifier: Apache-2.0
// One fused attention a row: prefill (as many queries as keys, causal) or decode (one query per sequence against a
// paged cache).
#include <fmt/format.h>

#include "calibrate/published/kernels.hpp"

namespace orrery {

namespace {

/// Rows of TensorRT-LLM 1.0 on A100 whose heads share keys have a cache of 8 bits, though they do not say so: in 16
/// they would read 1.69 times what the memory gives (3455 of 2039 GB/s), in 8 what rows without sharing read (1730).
bool has_narrow_cache(const CsvRow& row, const AttentionShape& s, std::string_view phase) {
  return phase == "decode" && s.heads > s.kv_heads && row["gpu"].starts_with("A100") &&
         row["software"].starts_with("TensorRT-LLM 1.0");
}

}  // namespace

KernelRow read_attention_row(const CsvRow& row) {
  auto begun = begin_kernel_row(row, "phase dtype batch q_len kv_len heads kv_heads head_dim", "latency_us", 1e-6);
  if (std::holds_alternative<Skip>(begun)) return std::get<Skip>(begun);
  KernelCase c = std::get<KernelCase>(std::move(begun));
  const std::optional<DType> type = dtype_of(row["dtype"]);
  if (!type) return Skip{SkipReason::UnsupportedPrecision, std::string{row["dtype"]}};
  const std::string_view phase = row["phase"];
  if (phase != "prefill" && phase != "decode") return Skip{SkipReason::UnsupportedOp, std::string{phase}};
  Sizes size{row};
  AttentionShape s;
  s.batch = size["batch"], s.heads = size["heads"], s.kv_heads = size["kv_heads"];
  s.q = size["q_len"], s.kv = Extent{size["kv_len"]};
  s.qk_dim = s.v_dim = size["head_dim"];
  s.dtype = *type;
  if (!size.missing().empty()) return size.skip();
  if (has_narrow_cache(row, s, phase)) s.cache = Quantised::I8;
  const AttentionForward a{s, false};
  c.op = fmt::format("{} {}", phase, name_of(*type));
  const Amount amount = a.amount({});
  c.size = phase == "prefill" ? amount.flops.base() : amount.read.base();
  c.works.push_back(a);
  return c;
}

}  // namespace orrery
