// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/attention_trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/attention_hopper.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

namespace gpu = kernels::cuda;

constexpr int kHopper = 90;  // these instructions are of this compute capability alone
/// Each block goes twice around its ring of keys and values, and no size is one of whole tiles.
constexpr std::int64_t kHeads = 2, kQueries = 197, kKeys = 581;
/// Both kernels round their results and weights to 16 bits.
constexpr float kTolerance = 0.02f;

/// Memory of a device for one trial, and a stream; given back in the end.
class Bench {
 public:
  Bench(GpuDriver& driver, int device)
      : driver_{driver}, stream_{driver, driver.make_stream(device)}, memory_{driver.plain_memory(device)} {}
  Bench(const Bench&) = delete;
  ~Bench() {
    for (const std::uintptr_t place : places_) memory_->release(place);
  }
  template <class T>
  T* place(const std::vector<T>& values) {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
    const auto at = memory_->allocate(bytes);
    if (!at) throw DeviceError{"no memory left for a trial"};
    places_.push_back(*at);
    memory_->write(*at, values.data(), bytes);
    return reinterpret_cast<T*>(*at);
  }
  template <class K>
  void run(const K& kernel, std::int64_t blocks, std::size_t shared_bytes) {
    driver_.launch({&gpu::kTagOf<K>, &kernel, blocks, shared_bytes}, stream_.get());
    driver_.synchronize(stream_.get());
  }
  template <class T>
  std::vector<T> read(const T* at, std::size_t count) {
    std::vector<T> values(count);
    memory_->read(reinterpret_cast<std::uintptr_t>(at), values.data(), static_cast<std::int64_t>(count * sizeof(T)));
    return values;
  }

 private:
  GpuDriver& driver_;
  GpuOwned<GpuStream> stream_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<std::uintptr_t> places_;
};

/// Between −1 and 1, the same on every computer (Knuth's MMIX generator).
template <class T>
std::vector<T> random_numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<T> x;
  for (std::int64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    x.push_back(gpu::from_float<T>(static_cast<float>(seed >> 40) * 0x1p-23f - 1.0f));
  }
  return x;
}

float number(float x) { return x; }
template <class T>
float number(T x) {
  return gpu::to_float(x);
}
/// Each number to a share of the largest. What is no number agrees with nothing.
template <class T>
bool agree(const std::vector<T>& x, const std::vector<T>& y) {
  float most = 0;
  for (const T& b : y) most = std::max(most, std::abs(number(b)));
  return std::equal(x.begin(), x.end(), y.begin(),
                    [&](const T& a, const T& b) { return std::abs(number(a) - number(b)) <= kTolerance * most; });
}

template <class T, int D>
bool passes(GpuDriver& driver, int device, bool causal) {
  Bench bench{driver, device};
  const auto random = [&](std::int64_t tokens, std::int64_t heads, std::uint64_t seed) {
    return gpu::HeadView{bench.place(random_numbers<T>(tokens * heads * D, seed)), 0, heads * D, D};
  };
  const std::vector<T> poison(static_cast<std::size_t>(kQueries * kHeads * D), T{0xffff});
  const std::vector<float> no_sums(static_cast<std::size_t>(kQueries * kHeads), NAN);
  const gpu::AttentionProblem p{.batch = 1,
                                .heads = kHeads,
                                .kv_heads = 1,
                                .q_len = kQueries,
                                .kv_len = kKeys,
                                .qk_dim = D,
                                .v_dim = D,
                                .window = 0,
                                .scale = 0.25f,
                                .causal = causal,
                                .q = random(kQueries, kHeads, 1),
                                .k = random(kKeys, 1, 2),
                                .v = random(kKeys, 1, 3),
                                .bias = {},
                                .group_mask = {},
                                .tree_mask = {},
                                .pages = {}};
  T *quick_o = bench.place(poison), *known_o = bench.place(poison);
  float *quick_lse = bench.place(no_sums), *known_lse = bench.place(no_sums);
  auto* fault = bench.place(std::vector<std::int32_t>(4));
  const auto out = [](void* at) { return gpu::HeadView{at, 0, kHeads * D, D}; };
  const gpu::HopperAttentionKernel<T, D> quick{
      .p = p, .o = out(quick_o), .lse = {quick_lse, gpu::NumberType::F32}, .fault = {fault, 0}};
  bench.run(quick, quick.tiles(), quick.kShared);
  const gpu::TileAttentionKernel<T, D> known{.p = p, .o = out(known_o), .lse = {known_lse, gpu::NumberType::F32}};
  bench.run(known, known.tiles(), known.kShared);
  return bench.read(fault, 1)[0] == 0 &&
         agree(bench.read(quick_o, poison.size()), bench.read(known_o, poison.size())) &&
         agree(bench.read(quick_lse, no_sums.size()), bench.read(known_lse, no_sums.size()));
}

struct Trial {
  DType dtype;
  std::int64_t dim;
  bool (*passes)(GpuDriver&, int device, bool causal);
};
constexpr Trial kTrials[] = {{DType::BF16, 64, &passes<gpu::bf16, 64>},
                             {DType::BF16, 128, &passes<gpu::bf16, 128>},
                             {DType::F16, 64, &passes<gpu::f16, 64>},
                             {DType::F16, 128, &passes<gpu::f16, 128>}};

/// What a device that runs it says against a kernel; empty: nothing.
std::string objection(GpuDriver& driver, const Trial& trial) {
  try {
    for (int device = 0; device < driver.num_devices(); ++device)
      for (const bool causal : {false, true})
        if (!trial.passes(driver, device, causal)) return fmt::format("device {} computes something else", device);
    return {};
  } catch (const DeviceError& e) {
    return e.what();
  }
}

}  // namespace

std::uint32_t quick_attention_bit(DType dtype, std::int64_t qk_dim, std::int64_t v_dim) {
  for (std::size_t i = 0; i < std::size(kTrials); ++i)
    if (kTrials[i].dtype == dtype && kTrials[i].dim == qk_dim && qk_dim == v_dim) return 1u << i;
  return 0;
}

std::uint32_t quick_attention_of(const Plan& plan) {
  std::uint32_t bits = 0;
  for (const Work& work : plan.works)
    if (const auto* a = std::get_if<AttentionForward>(&work))
      bits |= quick_attention_bit(a->shape.dtype, a->shape.qk_dim, a->shape.v_dim);
  return bits;
}

std::uint32_t try_quick_attention(GpuDriver& driver, std::uint32_t wanted,
                                  const std::function<void(std::string_view)>& warn) {
  for (int device = 0; device < driver.num_devices(); ++device)
    if (driver.info(device).capability != kHopper) return 0;
  GpuTrials& known = driver.quick_attention;
  for (std::size_t i = 0; i < std::size(kTrials); ++i) {
    const std::uint32_t bit = 1u << i;
    if ((wanted & bit) == 0 || (known.tried & bit) != 0) continue;
    const std::string problem = objection(driver, kTrials[i]);
    known.tried |= bit;
    if (problem.empty()) {
      known.passed |= bit;
      continue;
    }
    known.refused.push_back(
        fmt::format("attention by wgmma in {} with heads of {} is not used, the slower kernel is: {}",
                    name_of(kTrials[i].dtype), kTrials[i].dim, problem));
    if (warn) warn(known.refused.back());
  }
  return known.passed;
}

}  // namespace orrery
