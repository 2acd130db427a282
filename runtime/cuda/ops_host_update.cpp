// SPDX-License-Identifier: Apache-2.0
// Updates of weights that lie in the host's memory: its cores do them, in the order of the stream, on pieces that fit
// into a cache. Weights and gradients of 16 bits are widened on the way.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/host/optimizer.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/host_side.hpp"
#include "runtime/cuda/op_context.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kPiece = 1 << 14;          // elements that one core takes at a time
constexpr std::int64_t kShareOfThread = 1 << 19;  // below that a thread is not worth its start

/// Numbers of an operand in the host's memory, in float.
struct HostNumbers {
  std::uintptr_t at = 0;
  DType dtype = DType::F32;

  bool is_float() const { return dtype == DType::F32; }
  /// Those from `first` on: where they lie, or widened into `room`.
  float* read(std::int64_t first, std::int64_t n, float* room) const {
    if (is_float()) return reinterpret_cast<float*>(at) + first;
    for (std::int64_t i = 0; i < n; ++i)
      room[i] = dtype == DType::BF16 ? gpu::to_float(reinterpret_cast<const gpu::bf16*>(at)[first + i])
                                     : gpu::to_float(reinterpret_cast<const gpu::f16*>(at)[first + i]);
    return room;
  }
  void write(std::int64_t first, std::int64_t n, const float* from) const {
    if (from == reinterpret_cast<const float*>(at) + first && is_float()) return;
    for (std::int64_t i = 0; i < n; ++i) {
      if (is_float())
        reinterpret_cast<float*>(at)[first + i] = from[i];
      else if (dtype == DType::BF16)
        reinterpret_cast<gpu::bf16*>(at)[first + i] = gpu::round_to_bf16(from[i]);
      else
        reinterpret_cast<gpu::f16*>(at)[first + i] = gpu::round_to_f16(from[i]);
    }
  }
};

HostNumbers numbers(const GpuContextBase& c, int i) {
  return {reinterpret_cast<std::uintptr_t>(c.elements_of<void>(i)), c.operand(i).dtype};
}

bool is_on_host(Tier t) { return t == Tier::Pinned || t == Tier::Host; }

/// A single number that a function of the host reads: brought from a device into a slot first.
std::uintptr_t brought(const GpuContextBase& c, int i) {
  const std::uintptr_t place = c.call().place(c.operand(i));
  if (is_on_host(c.operand(i).tier)) return place;
  const std::uintptr_t slot = c.queue().host.slot();
  c.queue().driver.copy(slot, place, bits(c.operand(i).dtype) / 8, c.queue().stream);
  return slot;
}

/// piece(first, n) over all elements, on as many cores as are worth it.
void for_pieces(std::int64_t elements, const std::function<void(std::int64_t first, std::int64_t n)>& piece) {
  const std::int64_t pieces = (elements + kPiece - 1) / kPiece;
  const auto cores = static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  const std::int64_t threads = std::clamp<std::int64_t>(elements / kShareOfThread, 1, cores);
  const auto share = [&](std::int64_t t) {
    for (std::int64_t p = pieces * t / threads; p < pieces * (t + 1) / threads; ++p)
      piece(p * kPiece, std::min(kPiece, elements - p * kPiece));
  };
  std::vector<std::jthread> others;
  for (std::int64_t t = 1; t < threads; ++t) others.emplace_back(share, t);
  share(0);
}

/// What clipping and partial decay need: the squared norm, and how many elements decay.
struct Control {
  double max_norm = 0;
  const double* norm2 = nullptr;
  const std::int32_t* decayed = nullptr;

  double factor() const { return norm2 ? kernels::clip_factor(*norm2, max_norm) : 1.0; }
  /// Calls update(offset, n, decays) for the stretches of a piece that decay and those that do not.
  template <class F>
  void stretches(std::int64_t first, std::int64_t n, F&& update) const {
    const std::int64_t with = decayed ? std::clamp<std::int64_t>(*decayed - first, 0, n) : n;
    if (with > 0) update(std::int64_t{0}, with, true);
    if (with < n) update(with, n - with, false);
  }
};

template <class K>
Control control_of(const K& w, int norm_operand, const GpuContextBase& c) {
  Control control{.max_norm = w.max_norm};
  if (w.max_norm > 0) control.norm2 = reinterpret_cast<const double*>(brought(c, norm_operand));
  if (w.partly) control.decayed = reinterpret_cast<const std::int32_t*>(brought(c, c.size() - 1));
  return control;
}

/// One piece of an update by AdamW: in the master copy where there is one.
struct AdamWPieces {
  AdamW work;
  HostNumbers weights, gradient, master;
  float *m, *v;
  Control control;

  void update(std::int64_t step, double factor, std::int64_t first, std::int64_t n) const {
    std::vector<float> g_room(gradient.is_float() ? 0 : kPiece), w_room(weights.is_float() ? 0 : kPiece);
    const HostNumbers& kept = work.master ? master : weights;
    const float* g = gradient.read(first, n, g_room.data());
    float* w = kept.read(first, n, w_room.data());
    control.stretches(first, n, [&](std::int64_t at, std::int64_t count, bool decays) {
      kernels::adamw(kernels::AdamWArgs<float>{.n = count,
                                               .rate = work.rate,
                                               .beta1 = work.beta1,
                                               .beta2 = work.beta2,
                                               .epsilon = work.epsilon,
                                               .weight_decay = decays ? work.decay : 0.0,
                                               .step = step,
                                               .gradient_scale = factor,
                                               .weights = w + at,
                                               .gradient = g + at,
                                               .m = m + first + at,
                                               .v = v + first + at});
    });
    weights.write(first, n, w);
  }
};

}  // namespace

static void run(const AdamW& a, const GpuContext<void>& c) {
  const AdamWPieces p{.work = a,
                      .weights = numbers(c, 0),
                      .gradient = numbers(c, 1),
                      .master = a.master ? numbers(c, 4) : HostNumbers{},
                      .m = c.elements_of<float>(2),
                      .v = c.elements_of<float>(3),
                      .control = control_of(a, a.master ? 5 : 4, c)};
  c.queue().host.call(c.queue().stream, [p, &host = c.queue().host] {
    const std::int64_t step = p.work.step.at(*host.bindings);
    if (step == 0) return;  // of a delayed update: there is no gradient yet
    const double factor = p.control.factor();
    for_pieces(p.work.elements, [&](std::int64_t first, std::int64_t n) { p.update(step, factor, first, n); });
  });
}

static void run(const Sgd& s, const GpuContext<void>& c) {
  const HostNumbers weights = numbers(c, 0), gradient = numbers(c, 1);
  const HostNumbers velocity = s.has_velocity() ? numbers(c, 2) : HostNumbers{};
  const Control control = control_of(s, s.has_velocity() ? 3 : 2, c);
  c.queue().host.call(c.queue().stream, [=] {
    const double factor = control.factor();
    for_pieces(s.elements, [&](std::int64_t first, std::int64_t n) {
      std::vector<float> rooms(3 * kPiece);
      float *w = weights.read(first, n, rooms.data()), *v = nullptr;
      const float* g = gradient.read(first, n, rooms.data() + kPiece);
      if (s.has_velocity()) v = velocity.read(first, n, rooms.data() + 2 * kPiece);
      control.stretches(first, n, [&](std::int64_t at, std::int64_t count, bool decays) {
        kernels::sgd(kernels::SgdArgs<float>{.n = count,
                                             .rate = s.rate,
                                             .momentum = s.momentum,
                                             .weight_decay = decays ? s.decay : 0.0,
                                             .nesterov = s.nesterov,
                                             .gradient_scale = factor,
                                             .weights = w + at,
                                             .gradient = g + at,
                                             .velocity = v ? v + at : nullptr});
      });
      weights.write(first, n, w);
      if (v) velocity.write(first, n, v);
    });
  });
}

/// Sums of pieces are added in their order: the same in each execution.
static void run(const SumSquares& s, const GpuContext<void>& c) {
  const HostNumbers gradient = numbers(c, 0);
  const std::uintptr_t norm2 = brought(c, 1), home = c.call().place(c.operand(1));
  c.queue().host.call(c.queue().stream, [=] {
    std::vector<double> sums(static_cast<std::size_t>((s.elements + kPiece - 1) / kPiece));
    for_pieces(s.elements, [&](std::int64_t first, std::int64_t n) {
      std::vector<float> room(gradient.is_float() ? 0 : kPiece);
      kernels::sum_of_squares(n, gradient.read(first, n, room.data()), &sums[static_cast<std::size_t>(first / kPiece)]);
    });
    double all = 0;
    for (const double x : sums) all += x;
    *reinterpret_cast<double*>(norm2) += s.weight * all;
  });
  if (norm2 != home) c.queue().driver.copy(home, norm2, sizeof(double), c.queue().stream);
}

Kernel find_gpu_host_update(const Work& work) {
  if (!runs_on_host(work)) return nullptr;
  const auto legal = [](DType t) { return t == DType::F32 || t == DType::BF16 || t == DType::F16; };
  if (const auto* a = std::get_if<AdamW>(&work))
    return legal(a->dtype) && legal(a->gradient) && !a->narrow_moments && a->state == DType::F32 ? &enqueue<AdamW, void>
                                                                                                 : nullptr;
  if (const auto* s = std::get_if<Sgd>(&work)) return legal(s->dtype) ? &enqueue<Sgd, void> : nullptr;
  if (const auto* s = std::get_if<SumSquares>(&work)) return legal(s->dtype) ? &enqueue<SumSquares, void> : nullptr;
  return nullptr;
}

}  // namespace orrery
