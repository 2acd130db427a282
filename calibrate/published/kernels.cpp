// SPDX-License-Identifier: Apache-2.0
#include "calibrate/published/kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "calibrate/published/devices.hpp"

namespace orrery {
namespace {

constexpr KernelTable kTables[] = {
    {"gemm", "matrix products on one GPU", "gpu dtype m n k latency_us", read_gemm_row},
    {"attention", "fused attention on one GPU, prefill and decode", "gpu phase q_len kv_len heads latency_us",
     read_attention_row},
    {"moe", "the experts of one MoE layer on one GPU", "gpu num_tokens expert_ffn topk n_experts latency_us",
     read_moe_row},
    {"fp32_ops", "single-precision ops of PyTorch on one GPU", "gpu op b m/h latency_ms", read_fp32_row},
};

struct NamedType {
  std::string_view name;
  DType type;
};
constexpr NamedType kTypes[] = {
    {"bf16", DType::BF16},       {"bfloat16", DType::BF16}, {"fp16", DType::F16},    {"float16", DType::F16},
    {"half", DType::F16},        {"fp32", DType::F32},      {"float32", DType::F32}, {"float", DType::F32},
    {"tf32", DType::TF32},       {"fp64", DType::F64},      {"fp8", DType::F8E4M3},  {"float8", DType::F8E4M3},
    {"fp8_e4m3", DType::F8E4M3}, {"nvfp4", DType::F4E2M1},  {"fp4", DType::F4E2M1},  {"int8", DType::I8},
};

/// Calls f(word) for each word of a text.
template <class F>
void each_word(std::string_view text, char between, F&& f) {
  for (std::size_t first = 0; first < text.size();) {
    const std::size_t end = std::min(text.find(between, first), text.size());
    f(text.substr(first, end - first));
    first = end + 1;
  }
}

}  // namespace

std::span<const KernelTable> kernel_tables() { return kTables; }

std::vector<std::string> lacking_columns(const CsvTable& table, std::string_view columns) {
  std::vector<std::string> lacking;
  each_word(columns, ' ', [&](std::string_view asked) {
    const bool unwanted = asked.starts_with('!');
    bool found = false;
    each_word(unwanted ? asked.substr(1) : asked, '/',
              [&](std::string_view name) { found = found || table.column(name).has_value(); });
    if (found == unwanted) lacking.emplace_back(asked);
  });
  return lacking;
}

std::string id_of(const CsvRow& row) {
  const std::string_view id = row["row_id"];
  if (!id.empty()) return std::string{id};
  return fmt::format("{}:{}", std::filesystem::path{row.table().file()}.stem().string(), row.line());
}

KernelRow begin_kernel_row(const CsvRow& row, std::string_view inputs, std::string_view column, double unit) {
  KernelCase c;
  c.row_id = id_of(row);
  c.gpu = row["gpu"];
  c.device = device_of(c.gpu);
  if (c.device.empty()) return Skip{SkipReason::UnknownDevice, c.gpu};
  c.harness = row["software"];
  c.source = row["source"];
  c.key = fmt::format("{}|{}|{}", c.gpu, c.harness, c.source);
  each_word(inputs, ' ', [&](std::string_view i) { c.key += fmt::format("|{}", row[i]); });
  c.seconds = row.number(column).value_or(0) * unit;
  if (c.seconds <= 0) return Skip{SkipReason::NoMeasurement, fmt::format("{} is '{}'", column, row[column])};
  return c;
}

std::vector<KernelCase> averaged(const std::vector<KernelCase>& cases) {
  std::vector<KernelCase> out;
  std::map<std::string, std::size_t> first;
  std::vector<double> repeats;
  for (const KernelCase& c : cases) {
    const auto [it, is_new] = first.try_emplace(c.key, out.size());
    if (is_new) {
      out.push_back(c);
      repeats.push_back(1);
      continue;
    }
    KernelCase& all = out[it->second];
    double& n = repeats[it->second];
    all.seconds = (all.seconds * n + c.seconds) / (n + 1);
    ++n;
  }
  return out;
}

std::int64_t Sizes::operator[](std::string_view column) {
  const std::optional<std::int64_t> v = row_.integer(column);
  if (v && *v > 0) return *v;
  if (missing_.empty()) missing_ = column;
  return 1;
}

Skip Sizes::skip() const { return {SkipReason::Incomplete, fmt::format("{} is '{}'", missing_, row_[missing_])}; }

std::optional<DType> dtype_of(std::string_view name) {
  for (const NamedType& t : kTypes)
    if (t.name == name) return t.type;
  return {};
}

}  // namespace orrery
