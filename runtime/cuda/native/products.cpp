// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/native/products.hpp"

#include <cublasLt.h>
#include <fmt/format.h>

#include <map>
#include <tuple>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/library.hpp"

namespace orrery {
namespace {

struct ProductCalls {
  explicit ProductCalls(const Library& l) {
    l.find("cublasLtCreate", create);
    l.find("cublasLtDestroy", destroy);
    l.find("cublasLtMatmul", multiply);
    l.find("cublasLtMatmulDescCreate", make_product);
    l.find("cublasLtMatmulDescDestroy", free_product);
    l.find("cublasLtMatmulDescSetAttribute", set_product);
    l.find("cublasLtMatrixLayoutCreate", make_layout);
    l.find("cublasLtMatrixLayoutDestroy", free_layout);
    l.find("cublasLtMatrixLayoutSetAttribute", set_layout);
    l.find("cublasLtMatmulPreferenceCreate", make_preference);
    l.find("cublasLtMatmulPreferenceDestroy", free_preference);
    l.find("cublasLtMatmulPreferenceSetAttribute", set_preference);
    l.find("cublasLtMatmulAlgoGetHeuristic", advise);
  }
  decltype(cublasLtCreate)* create = nullptr;
  decltype(cublasLtDestroy)* destroy = nullptr;
  decltype(cublasLtMatmul)* multiply = nullptr;
  decltype(cublasLtMatmulDescCreate)* make_product = nullptr;
  decltype(cublasLtMatmulDescDestroy)* free_product = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* set_product = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* make_layout = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* free_layout = nullptr;
  decltype(cublasLtMatrixLayoutSetAttribute)* set_layout = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* make_preference = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* free_preference = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* set_preference = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* advise = nullptr;
};

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw DeviceError{fmt::format("{}: cuBLAS status {}", call, int(status))};
}

cudaDataType_t cuda_type_of(DType t) {
  switch (t) {
    case DType::BF16:
      return CUDA_R_16BF;
    case DType::F16:
      return CUDA_R_16F;
    case DType::F8E4M3:
      return CUDA_R_8F_E4M3;
    case DType::F8E5M2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

/// Bytes, at most 256, that an address is a multiple of: what cuBLASLt may assume.
std::uint32_t alignment(std::uintptr_t at) {
  const std::uintptr_t low = at & (~at + 1);
  return static_cast<std::uint32_t>(low == 0 || low > 256 ? 256 : low);
}

/// All that an advice depends on.
using Key = std::tuple<std::array<std::int64_t, 4>, std::array<std::int64_t, 6>, std::array<DType, 3>,
                       std::array<std::uint32_t, 3>, std::array<bool, 5>, std::int64_t, int>;
Key key_of(const GpuProduct& p, int device) {
  return {{p.m, p.n, p.k, p.count},
          {p.a.row, p.a.batch, p.b.row, p.b.batch, p.c.row, p.c.batch},
          {p.a.dtype, p.b.dtype, p.c.dtype},
          {alignment(p.a.at), alignment(p.b.at), alignment(p.c.at)},
          {p.transpose_a, p.transpose_b, p.accumulate, p.fast_f32, p.bias != 0},
          p.workspace_bytes,
          device};
}

/// cuBLASLt's matrices are column-major: Cᵀ = op(B)ᵀ·op(A)ᵀ, so that its A is our B and its m our n.
class LtProducts final : public Products {
 public:
  LtProducts() : library_{"cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so"}}, calls_{library_} {}
  ~LtProducts() override {
    for (auto& [key, p] : prepared_) release(p);
    for (auto& [device, handle] : handles_) calls_.destroy(handle);
  }

  void multiply(const GpuProduct& p, GpuStream stream) override {
    int device = 0;
    cudaGetDevice(&device);
    Prepared& ready = prepared(p, device);
    set_pointers(p, ready);
    const auto alpha = static_cast<float>(p.alpha), beta = p.accumulate ? 1.0f : 0.0f;
    const auto at = [](std::uintptr_t a) { return reinterpret_cast<void*>(a); };
    check(calls_.multiply(handle(device), ready.product, &alpha, at(p.b.at), ready.a, at(p.a.at), ready.b, &beta,
                          at(p.c.at), ready.c, at(p.c.at), ready.c, &ready.algorithm, at(p.workspace),
                          static_cast<std::size_t>(p.workspace_bytes), reinterpret_cast<cudaStream_t>(stream)),
          "cublasLtMatmul");
  }

 private:
  struct Prepared {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm;
  };
  void release(Prepared& p) {
    if (p.product) calls_.free_product(p.product);
    for (cublasLtMatrixLayout_t l : {p.a, p.b, p.c})
      if (l) calls_.free_layout(l);
  }
  /// Bias and scales. The operands change places, and so do their scales.
  void set_pointers(const GpuProduct& p, const Prepared& ready) {
    for (const auto& [attribute, place] : {std::pair{CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.b.scale},
                                           std::pair{CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.a.scale},
                                           std::pair{CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias}}) {
      if (place == 0) continue;
      const auto* at = reinterpret_cast<const void*>(place);
      check(calls_.set_product(ready.product, attribute, &at, sizeof at), "cublasLtMatmulDescSetAttribute");
    }
  }
  cublasLtHandle_t handle(int device) {
    cublasLtHandle_t& h = handles_[device];
    if (!h) check(calls_.create(&h), "cublasLtCreate");
    return h;
  }
  /// A stored [rows, cols] as column-major [cols, rows].
  cublasLtMatrixLayout_t layout(const GpuProduct::Matrix& x, std::int64_t rows, std::int64_t cols, std::int64_t count) {
    cublasLtMatrixLayout_t l = nullptr;
    check(calls_.make_layout(&l, cuda_type_of(x.dtype), static_cast<std::uint64_t>(cols),
                             static_cast<std::uint64_t>(rows), x.row),
          "cublasLtMatrixLayoutCreate");
    const auto batches = static_cast<std::int32_t>(count);
    calls_.set_layout(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches);
    calls_.set_layout(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &x.batch, sizeof x.batch);
    return l;
  }
  Prepared& prepared(const GpuProduct& p, int device) {
    const auto [it, fresh] = prepared_.try_emplace(key_of(p, device));
    if (!fresh) return it->second;
    try {
      prepare(p, it->second, device);
    } catch (...) {
      release(it->second);
      prepared_.erase(it);
      throw;
    }
    return it->second;
  }
  void prepare(const GpuProduct& p, Prepared& ready, int device) {
    const auto compute = p.a.dtype == DType::F32 && p.fast_f32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(calls_.make_product(&ready.product, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const cublasOperation_t of_a = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            of_b = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    calls_.set_product(ready.product, CUBLASLT_MATMUL_DESC_TRANSA, &of_a, sizeof of_a);
    calls_.set_product(ready.product, CUBLASLT_MATMUL_DESC_TRANSB, &of_b, sizeof of_b);
    if (p.bias != 0) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      const cudaDataType_t type = cuda_type_of(p.c.dtype);
      calls_.set_product(ready.product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
      calls_.set_product(ready.product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    }
    ready.a = p.transpose_b ? layout(p.b, p.n, p.k, p.count) : layout(p.b, p.k, p.n, p.count);
    ready.b = p.transpose_a ? layout(p.a, p.k, p.m, p.count) : layout(p.a, p.m, p.k, p.count);
    ready.c = layout(p.c, p.m, p.n, p.count);
    set_pointers(p, ready);  // the advice for 8 bits depends on there being scales
    advise(p, ready, device);
  }
  void advise(const GpuProduct& p, Prepared& ready, int device) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(calls_.make_preference(&preference), "cublasLtMatmulPreferenceCreate");
    const auto workspace = static_cast<std::uint64_t>(p.workspace_bytes);
    const std::uint32_t a = alignment(p.b.at), b = alignment(p.a.at), c = alignment(p.c.at);
    calls_.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    calls_.set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a);
    calls_.set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b);
    calls_.set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c);
    calls_.set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c);
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    const cublasStatus_t status =
        calls_.advise(handle(device), ready.product, ready.a, ready.b, ready.c, ready.c, preference, 1, &best, &found);
    calls_.free_preference(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0 || best.state != CUBLAS_STATUS_SUCCESS)
      throw DeviceError{fmt::format("cuBLASLt has no product of {} and {} into {} for m={} n={} k={} × {}",
                                    name_of(p.a.dtype), name_of(p.b.dtype), name_of(p.c.dtype), p.m, p.n, p.k,
                                    p.count)};
    ready.algorithm = best.algo;
  }

  Library library_;
  ProductCalls calls_;
  std::map<int, cublasLtHandle_t> handles_;  // per device
  std::map<Key, Prepared> prepared_;
};

}  // namespace

std::unique_ptr<Products> open_products() { return std::make_unique<LtProducts>(); }

}  // namespace orrery
