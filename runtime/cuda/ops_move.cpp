// SPDX-License-Identifier: Apache-2.0
// Copies, fills, and work of the host.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "kernels/cuda/tokens.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/host_side.hpp"
#include "runtime/cuda/moves.hpp"
#include "runtime/cuda/op_context.hpp"
#include "runtime/disk_file.hpp"
#include "runtime/tier_links.hpp"

namespace orrery {
namespace {

/// Dimensions of a layout in words of so many elements.
gpu::StridedWords words_of(const StridedDims& dims, std::int64_t word) {
  gpu::StridedWords w{};
  for (int i = 0; i < dims.rank(); ++i) {
    const auto d = static_cast<std::size_t>(i);
    const bool inner = i == dims.rank() - 1 && dims.stride(d) == 1;
    w.size[i] = inner ? dims.size(d) / word : dims.size(d);
    w.stride[i] = inner ? 1 : dims.stride(d) / word;
  }
  return w;
}

/// The largest word that divides what lies in one piece on both sides, and where the pieces begin.
std::int64_t word_bytes(const StridedDims& from, std::uintptr_t source, const StridedDims& to, std::uintptr_t target,
                        std::int64_t element_bytes) {
  auto common = static_cast<std::int64_t>(16 | source | target);
  for (const StridedDims* dims : {&from, &to}) {
    common = std::gcd(common, dims->run() * element_bytes);
    for (int i = 0; i < dims->rank(); ++i) {
      const std::int64_t s = dims->stride(static_cast<std::size_t>(i));
      const bool inner = i == dims->rank() - 1 && s == 1;  // rows that overlap begin one element apart, too
      if (!inner) common = std::gcd(common, s * element_bytes);
    }
  }
  return std::min<std::int64_t>(16, common & -common);
}

template <class W>
void launch_copy(GpuQueue& queue, const StridedDims& from, std::uintptr_t source, const StridedDims& to,
                 std::uintptr_t target, std::int64_t element_bytes) {
  const std::int64_t word = static_cast<std::int64_t>(sizeof(W)) / element_bytes;
  const gpu::CopyKernel<W> k{.words = from.elements() / word,
                             .from = reinterpret_cast<const W*>(source),
                             .to = reinterpret_cast<W*>(target),
                             .from_rank = from.rank(),
                             .to_rank = to.rank(),
                             .source = words_of(from, word),
                             .target = words_of(to, word)};
  queue.driver.launch({&gpu::kTagOf<gpu::CopyKernel<W>>, &k, gpu::grid_for<gpu::CopyKernel<W>>(k.words), 0},
                      queue.stream);
}

}  // namespace

void enqueue_copy(GpuQueue& queue, const Layout& from_layout, std::uintptr_t from, const Layout& to_layout,
                  std::uintptr_t to, std::int64_t element_bytes) {
  const StridedDims source{from_layout}, target{to_layout};
  const std::int64_t bytes = source.elements() * element_bytes;
  if (bytes == 0) return;
  if (source.run() == source.elements() && target.run() == target.elements())
    return queue.driver.copy(to, from, bytes, queue.stream);
  switch (word_bytes(source, from, target, to, element_bytes)) {
    case 16:
      return launch_copy<gpu::Quad>(queue, source, from, target, to, element_bytes);
    case 8:
      return launch_copy<std::uint64_t>(queue, source, from, target, to, element_bytes);
    case 4:
      return launch_copy<std::uint32_t>(queue, source, from, target, to, element_bytes);
    case 2:
      return launch_copy<std::uint16_t>(queue, source, from, target, to, element_bytes);
    default:
      return launch_copy<std::uint8_t>(queue, source, from, target, to, element_bytes);
  }
}

namespace {

void copy_operand(const GpuContextBase& c, int from, int to) {
  enqueue_copy(c.queue(), c.layout(from), c.call().place(c.operand(from)), c.layout(to), c.call().place(c.operand(to)),
               bits(c.operand(from).dtype) / 8);
}

}  // namespace

namespace {

bool lies_on_device(const GpuContextBase& c, int i) {
  return c.operand(i).tier == Tier::Device || c.operand(i).tier == Tier::Peer;
}

/// To or from the file of a rank: the host reads and writes it in the order of the stream; what lies on a device goes
/// through a pinned buffer.
void copy_with_file(const GpuContextBase& c) {
  const int file = c.operand(0).tier == Tier::Disk ? 0 : 1, memory = 1 - file;
  for (int i : {0, 1})
    if (!c.operand(i).contiguous) c.refuse_layout(i, "its elements one after another to go to or from a file");
  if (c.operand(memory).tier == Tier::Disk) c.refuse_layout(memory, "a tier in memory");
  GpuQueue& queue = c.queue();
  const bool staged = lies_on_device(c, memory), reads = file == 0;
  const auto bytes = static_cast<std::int64_t>(size_of(c.operand(0).dtype, c.elements(0)).base());
  const std::int64_t each = staged ? HostSide::kBuffer : bytes;
  const std::uintptr_t buffer = staged ? queue.host.buffer(queue.stream) : 0;
  for (std::int64_t done = 0; done < bytes; done += each) {
    const std::int64_t n = std::min(each, bytes - done);
    const auto offset = static_cast<std::int64_t>(c.call().place(c.operand(file))) + done;
    const std::uintptr_t place = c.call().place(c.operand(memory)) + static_cast<std::uintptr_t>(done);
    const std::uintptr_t here = staged ? buffer : place;
    if (staged && !reads) queue.driver.copy(buffer, place, n, queue.stream);
    queue.host.call(queue.stream, [disk = c.call().disk, reads, offset, here, n] {
      reads ? disk->read(offset, reinterpret_cast<void*>(here), n)
            : disk->write(offset, reinterpret_cast<const void*>(here), n);
    });
    if (staged && reads) queue.driver.copy(place, buffer, n, queue.stream);
  }
}

}  // namespace

static void run(const Copy& w, const GpuContext<void>& c) {
  c.call().transfers->count(w.from, w.to, static_cast<std::int64_t>(w.bytes.base()));
  const bool with_file = c.operand(0).tier == Tier::Disk || c.operand(1).tier == Tier::Disk;
  with_file ? copy_with_file(c) : copy_operand(c, 0, 1);
}

static void run(const CopyRows&, const GpuContext<void>& c) { copy_operand(c, 0, 1); }

namespace {

/// Where a row of each sequence stands is known on the device only.
template <class W>
void append_rows(const AppendCache& w, const GpuContextBase& c) {
  const int cache = c.output();
  const Layout &from = c.layout(0), part = c.appended_part(w, cache, 0);
  const int tokens = part.shape.rank == 2 && w.batch == 1 ? 0 : 1;
  const std::int64_t x_row = from.shape.rank > 2 ? from.strides[1] : from.strides[0];
  c.each_row(gpu::AppendRowsKernel<W>{.batch = w.batch,
                                      .rows = w.rows,
                                      .cols = w.cols,
                                      .capacity = c.elements(cache) / (w.batch * w.cols),
                                      .at = w.at.base,
                                      .x_batch = from.shape.rank > 2 ? from.strides[0] : w.rows * x_row,
                                      .x_row = x_row,
                                      .cache_batch = tokens == 0 ? 0 : part.strides[0],
                                      .cache_row = part.strides[static_cast<std::size_t>(tokens)],
                                      .contexts = c.ints(1),
                                      .x = c.element<W>(0),
                                      .cache = c.element<W>(cache),
                                      .fault = c.fault()},
             w.batch * w.rows);
}

}  // namespace

static void run(const AppendCache& w, const GpuContext<void>& c) {
  if (w.contexts)
    return w.dtype == DType::F32    ? append_rows<float>(w, c)
           : w.dtype == DType::BF16 ? append_rows<gpu::bf16>(w, c)
                                    : append_rows<gpu::f16>(w, c);
  const Layout part = c.appended_part(w, 1, c.at(w.at));
  const std::int64_t size = bits(w.dtype) / 8;
  enqueue_copy(c.queue(), c.layout(0), c.call().place(c.operand(0)), part,
               c.call().place(c.operand(1)) + static_cast<std::uintptr_t>(part.offset * size), size);
}

/// y[o,j,i,:] = x[o,i,j,:]: a copy out of a layout whose axes are exchanged.
static void run(const SwapAxes& s, const GpuContext<void>& c) {
  const Layout swapped{.shape = Shape{s.outer, s.b, s.a, s.inner},
                       .strides = {s.a * s.b * s.inner, s.inner, s.b * s.inner, 1}};
  enqueue_copy(c.queue(), swapped, reinterpret_cast<std::uintptr_t>(c.elements_of<void>(0)),
               Layout::contiguous(swapped.shape), reinterpret_cast<std::uintptr_t>(c.elements_of<void>(1)),
               bits(s.dtype) / 8);
}

/// y[r,h,:] = x[r,:]: a copy out of a layout whose heads lie on one another.
static void run(const BroadcastHeads& b, const GpuContext<void>& c) {
  const kernels::TokenStrides to = c.tokens(1, 1, b.heads, b.cols);
  const Shape shape{b.rows, b.heads, b.cols};
  enqueue_copy(c.queue(), {.shape = shape, .strides = {c.row_stride(0, b.rows, b.cols), 0, 1}},
               c.call().place(c.operand(0)), {.shape = shape, .strides = {to.token, to.head, 1}},
               c.call().place(c.operand(1)), bits(b.dtype) / 8);
}

static void run(const Fill& f, const GpuContext<void>& c) {
  const auto fill = [&](auto word) {
    using W = decltype(word);
    c.over(gpu::FillKernel<W>{f.elements, c.elements_of<W>(0), word}, f.elements);
  };
  const auto value = static_cast<float>(f.value);
  switch (f.dtype) {
    case DType::F64:
      return fill(std::bit_cast<std::uint64_t>(f.value));
    case DType::BF16:
      return fill(gpu::round_to_bf16(value).bits);
    case DType::F16:
      return fill(gpu::round_to_f16(value).bits);
    case DType::I32:
      return fill(static_cast<std::uint32_t>(static_cast<std::int32_t>(f.value)));
    default:
      return fill(std::bit_cast<std::uint32_t>(value));
  }
}

static void run(const Alloc&, const GpuContext<void>&) {}
static void run(const Free&, const GpuContext<void>&) {}

Kernel find_gpu_move(const Work& work) {
  if (const auto* f = std::get_if<Fill>(&work))
    return f->dtype == DType::F32 || f->dtype == DType::F64 || f->dtype == DType::BF16 || f->dtype == DType::F16 ||
                   f->dtype == DType::I32
               ? &enqueue<Fill, void>
               : nullptr;
  if (const auto* append = std::get_if<AppendCache>(&work);
      append && (append->cache != Quantised::None ||
                 (append->dtype != DType::F32 && append->dtype != DType::BF16 && append->dtype != DType::F16)))
    return nullptr;
  if (const auto* copy = std::get_if<Copy>(&work); copy && copy->from == Tier::Disk && copy->to == Tier::Disk)
    return nullptr;
  return find_gpu_untyped<Copy, CopyRows, AppendCache, SwapAxes, BroadcastHeads, Alloc, Free>(work);
}

}  // namespace orrery
