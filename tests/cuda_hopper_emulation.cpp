// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_hopper_emulation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/attention_hopper.hpp"

namespace orrery::testing {
namespace {

/// A phase ends with the last of its arrivals.
struct Barrier {
  std::uint16_t arrivals, left;
  std::uint32_t phase;
};
static_assert(sizeof(Barrier) == sizeof(std::uint64_t));

std::uint32_t bits(std::uint64_t word, int first, int count) {
  return static_cast<std::uint32_t>(word >> first & ((std::uint64_t{1} << count) - 1));
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

/// In words of 16 bytes, T = 8 numbers of 16 bits (PTX ISA 9.0, "Canonical Layouts", 128B swizzling):
///   K-major   ((8,m),(T,2k)) : ((8T,SBO),(1,T))       a row is i = 8·m + r, a word of it one of 2k
///   MN-major  ((T,8,m),(8,k)) : ((1,T,LBO),(8T,SBO))  i = 64·m + 8·word + r, the sum 8·k + r
/// and Swizzle<3,4,3>: bits 4 … 6 of an address are xored with bits 7 … 9. The base offset is 0: patterns begin at
/// multiples of 1024.
std::uint32_t operand_at(std::uint64_t descriptor, Major major, int i, int k) {
  const std::uint32_t start = bits(descriptor, 0, 14) << 4, leading = bits(descriptor, 16, 14) << 4,
                      stride = bits(descriptor, 32, 14) << 4;
  const auto x = static_cast<std::uint32_t>(i), s = static_cast<std::uint32_t>(k);
  const std::uint32_t at = major == Major::K ? start + x % 8 * 128 + x / 8 * stride + 2 * s
                                             : start + x % 64 * 2 + x / 64 * leading + s % 8 * 128 + s / 8 * stride;
  return at ^ (at >> 7 & 7u) << 4;
}

std::byte* EmulatedHopperThread::memory(std::uint32_t address) const { return fibers->shared() + (address - kBase); }

void EmulatedHopperThread::copy(std::uint32_t to, const void* from, bool there, std::size_t bytes) const {
  if (to % bytes != 0 || reinterpret_cast<std::uintptr_t>(from) % bytes != 0) block_.complain("a copy is not aligned");
  landings_.push_back({to, there ? from : nullptr, bytes, batches_});
}

void EmulatedHopperThread::land(int most) const {
  const auto done = [&](const Landing& l) { return l.batch < batches_ - most; };
  for (const Landing& l : landings_) {
    if (!done(l)) continue;
    const gpu::Quad zeros{};
    std::memcpy(memory(l.to), l.from ? l.from : &zeros, l.bytes);
    if (!unfenced_) ++block_.unfenced;
    unfenced_ = true;
  }
  std::erase_if(landings_, done);
}

/// Lane 4g + q gets of matrix w, whose rows lanes 8w … 8w + 7 have named, numbers 2q and 2q + 1 of row g, or of column
/// g when transposed (PTX ISA, "ldmatrix").
void EmulatedHopperThread::load_posted(std::uint32_t (&to)[4], bool transposed) const {
  const int g = thread % gpu::kWarp / 4, q = thread % 4;
  for (int w = 0; w < 4; ++w) {
    std::uint16_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const int row = transposed ? 2 * q + i : g, number = transposed ? g : 2 * q + i;
      std::uint32_t address = 0;
      std::memcpy(&address, fibers->slot(thread, 8 * w + row), sizeof address);
      if (address % 16 != 0) block_.complain("a row of a matrix is not aligned");
      std::memcpy(&pair[i], memory(address) + 2 * number, sizeof pair[i]);
    }
    std::memcpy(&to[w], pair, sizeof pair);
  }
}

void EmulatedHopperThread::proxy_fence() const {
  if (unfenced_) --block_.unfenced;
  unfenced_ = false;
}

void EmulatedHopperThread::barrier_init(std::uint32_t at, std::uint32_t arrivals) const {
  const Barrier b{static_cast<std::uint16_t>(arrivals), static_cast<std::uint16_t>(arrivals), 0};
  std::memcpy(memory(at), &b, sizeof b);
}

void EmulatedHopperThread::barrier_arrive(std::uint32_t at) const {
  Barrier b;
  std::memcpy(&b, memory(at), sizeof b);
  if (--b.left == 0) {
    b.left = b.arrivals;
    ++b.phase;
  }
  std::memcpy(memory(at), &b, sizeof b);
  fibers->moved();
}

/// The phase before the one under way has the parity that is waited for.
bool EmulatedHopperThread::barrier_wait(std::uint32_t at, std::uint32_t parity) const {
  fibers->wait_until([&] {
    Barrier b;
    std::memcpy(&b, memory(at), sizeof b);
    return (b.phase + 1) % 2 == parity;
  });
  return true;
}

/// Of A, lane's row g or, with half 1, g + 8 of its warp. Eight numbers of a row lie together, in registers two.
EmulatedHopperThread::Sum EmulatedHopperThread::row_of(const Product& p, int half) const {
  const int row = thread % 128 / gpu::kWarp * 16 + thread % gpu::kWarp / 4;
  Sum a;
  if (!p.registers)
    for (int k = 0; k < 16; k += 8)
      p.numbers(memory(operand_at(p.a, Major::K, row + 8 * half, k)), 8, &a[std::size_t(k)]);
  else
    for (int k = 0; k < 16; k += 2) {
      const auto& words = p.rows[static_cast<std::size_t>(k % 8 / 2)];
      p.numbers(reinterpret_cast<const std::byte*>(&words[static_cast<std::size_t>(half + k / 8 * 2)]), 2,
                &a[std::size_t(k)]);
    }
  return a;
}

/// Columns `first`, which is even, and the next of B. Their numbers lie together by eights of a column, or by pairs.
std::array<EmulatedHopperThread::Sum, 2> EmulatedHopperThread::columns_of(const Product& p, int first) const {
  std::array<Sum, 2> b;
  if (!p.registers) {
    for (int c = 0; c < 2; ++c)
      for (int k = 0; k < 16; k += 8)
        p.numbers(memory(operand_at(p.b, Major::K, first + c, k)), 8, &b[std::size_t(c)][std::size_t(k)]);
    return b;
  }
  for (int k = 0; k < 16; ++k) {
    float pair[2];
    p.numbers(memory(operand_at(p.b, Major::MN, first, k)), 2, pair);
    for (std::size_t c = 0; c < 2; ++c) b[c][std::size_t(k)] = pair[c];
  }
  return b;
}

/// Lane's rows g and g + 8 of its warp times columns 8·n + p and 8·n + p + 1.
std::vector<float> EmulatedHopperThread::result_of(const Product& p) const {
  std::vector<float> d = p.before;
  const std::array<Sum, 2> a{row_of(p, 0), row_of(p, 1)};
  for (int n = 0; n < p.columns; ++n) {
    const std::array<Sum, 2> b = columns_of(p, 8 * n + thread % 4 * 2);
    for (std::size_t half = 0; half < 2; ++half)
      for (std::size_t c = 0; c < 2; ++c)
        for (std::size_t k = 0; k < 16; ++k) d[static_cast<std::size_t>(4 * n) + 2 * half + c] += a[half][k] * b[c][k];
  }
  return d;
}

void EmulatedHopperThread::hand_in(Product p) const {
  if (!fenced_) block_.complain("products without wgmma.fence before them");
  if (block_.unfenced > 0) block_.complain("products read memory whose writer has not made it visible to them");
  if (bits(p.b, 62, 2) != 1 || (!p.registers && bits(p.a, 62, 2) != 1)) block_.complain("not the swizzle of 128 bytes");
  auto& given = block_.given[static_cast<std::size_t>(thread / 128)];
  for (const std::uint64_t word : {p.a, p.b}) {
    if (given_ == given.size()) given.push_back(word);
    if (given[given_++] != word) block_.complain("threads of a group hand in different products");
  }
  const auto count = static_cast<std::size_t>(4 * p.columns);
  const auto last = std::find_if(products_.rbegin(), products_.rend(), [&](const Product& q) { return q.d == p.d; });
  p.before = last != products_.rend() ? last->after : std::vector<float>(p.d, p.d + count);
  if (!p.adds) p.before.assign(count, 0.0f);
  p.after = result_of(p);
  std::fill_n(p.d, count, std::numeric_limits<float>::quiet_NaN());
  products_.push_back(std::move(p));
}

/// What is waited for may be touched then, so what comes next needs a fence.
void EmulatedHopperThread::await(int most, const float* d) const {
  fenced_ = false;
  const auto done = [&](const Product& p) { return p.batch < batch_ - most; };
  for (const Product& p : products_) {
    if (!done(p)) continue;
    if (p.registers && std::memcmp(p.registers, p.rows[static_cast<std::size_t>(thread % 4)].data(), 16) != 0)
      block_.complain("registers of an operand changed while products were under way");
    if (!same(result_of(p), p.after)) block_.complain("memory of an operand changed while products were under way");
    std::copy(p.after.begin(), p.after.end(), p.d);
  }
  std::erase_if(products_, done);
  // Of sums that go on, nothing can be seen.
  for (const Product& p : products_) {
    std::fill_n(p.d, p.after.size(), std::numeric_limits<float>::quiet_NaN());
    if (p.d == d) block_.complain("sums that are waited for are still under way");
  }
}

void EmulatedHopperThread::finish() const {
  if (!products_.empty() || !landings_.empty()) block_.complain("a thread ends before its products or copies");
  if (given_ != block_.given[static_cast<std::size_t>(thread / 128)].size())
    block_.complain("threads of a group hand in different numbers of products");
}

void add_hopper_runners(GridRunners& runners) { add_hopper_runners(gpu::HopperAttentionKernels{}, runners); }

}  // namespace orrery::testing
