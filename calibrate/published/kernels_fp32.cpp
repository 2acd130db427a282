// SPDX-License-Identifier: Apache-2.0
// Ops of PyTorch in single precision, tensor cores off. b matrices [m,k]·[k,n] (bmm); b·m rows times [n → k] (linear);
// b rows of h elements for all else. A name with u works on one tensor and a number, without on two tensors.
#include <fmt/format.h>

#include "calibrate/published/kernels.hpp"

namespace orrery {
namespace {

constexpr DType kType = DType::F32;

std::optional<Work> product(std::string_view op, Sizes& size) {
  if (op == "bmm") {
    const std::int64_t b = size["b"], m = size["m"], n = size["n"], k = size["k"];
    return Gemm{.m = m, .n = n, .k = k, .batch = b, .dtype = kType};
  }
  if (op == "linear") {
    const std::int64_t b = size["b"], m = size["m"], n = size["n"], k = size["k"];
    return Gemm{.m = b * m, .n = k, .k = n, .bias = true, .dtype = kType};
  }
  return {};
}

std::optional<Work> stream(std::string_view op, std::int64_t rows, std::int64_t cols) {
  if (op == "softmax") return SoftmaxForward{.rows = rows, .cols = cols, .dtype = kType};
  if (op == "ln") return NormForward{.rows = rows, .dim = cols, .dtype = kType};
  if (op == "relu") return ActivationForward{ActivationKind::Relu, rows, cols, kType};
  if (op == "gelu") return ActivationForward{ActivationKind::GeluErf, rows, cols, kType};
  if (op == "tanh") return ActivationForward{ActivationKind::Tanh, rows, cols, kType};
  if (op == "add") return Add{rows, cols, kType};
  if (op == "mul" || op == "div" || op == "pow") return Multiply{rows, cols, kType};
  if (op == "addu" || op == "mulu" || op == "divu" || op == "powu")
    return ScaleRows{.rows = rows, .cols = cols, .dtype = kType};
  return {};
}

}  // namespace

KernelRow read_fp32_row(const CsvRow& row) {
  auto begun = begin_kernel_row(row, "op b m n k h torch", "latency_ms", 1e-3);
  if (std::holds_alternative<Skip>(begun)) return std::get<Skip>(begun);
  KernelCase c = std::get<KernelCase>(std::move(begun));
  const std::string_view op = row["op"];
  Sizes size{row};
  std::optional<Work> work = product(op, size);
  const bool is_product = work.has_value();
  if (!is_product) {
    const std::int64_t rows = size["b"], cols = size["h"];
    work = stream(op, rows, cols);
  }
  if (!work) return Skip{SkipReason::UnsupportedOp, std::string{op}};
  if (!size.missing().empty()) return size.skip();
  c.harness = fmt::format("PyTorch {}", row["torch"]);
  c.eager_loop = true;
  c.op = fmt::format("{} f32", op);
  const Amount amount = orrery::amount(*work);
  c.size = is_product ? amount.flops.base() : (amount.read + amount.written).base();
  c.works.push_back(std::move(*work));
  return c;
}

}  // namespace orrery
