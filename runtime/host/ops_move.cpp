// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "kernels/host/elementwise.hpp"
#include "runtime/disk_file.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"
#include "runtime/host/host_work.hpp"
#include "runtime/tier_links.hpp"

namespace orrery {
namespace {

std::int64_t file_offset(const OpContextBase& c, int i) {
  return static_cast<std::int64_t>(c.call().place(c.operand(i)));
}

/// From file to file over a small buffer, in order.
void copy_in_file(DiskFile& file, std::int64_t from, std::int64_t to, std::int64_t bytes) {
  std::array<std::byte, 1 << 16> buffer;
  for (std::int64_t done = 0; done < bytes;) {
    const std::int64_t n = std::min<std::int64_t>(bytes - done, buffer.size());
    file.read(from + done, buffer.data(), n);
    file.write(to + done, buffer.data(), n);
    done += n;
  }
}

/// Bytes [first, first + n) of a copy of contiguous tensors.
void copy_bytes(const OpContextBase& c, std::int64_t first, std::int64_t n) {
  const bool from_disk = c.operand(0).tier == Tier::Disk, to_disk = c.operand(1).tier == Tier::Disk;
  if (from_disk && to_disk)
    copy_in_file(*c.call().disk, file_offset(c, 0) + first, file_offset(c, 1) + first, n);
  else if (from_disk)
    c.call().disk->read(file_offset(c, 0) + first, c.element<std::byte>(1) + first, n);
  else if (to_disk)
    c.call().disk->write(file_offset(c, 1) + first, c.element<std::byte>(0) + first, n);
  else
    std::memmove(c.element<std::byte>(1) + first, c.element<std::byte>(0) + first, static_cast<std::size_t>(n));
}

void copy_views(const OpContextBase& c) {
  copy_elements(c.layout(0), c.element<std::byte>(0), c.layout(1), c.element<std::byte>(1),
                bits(c.operand(0).dtype) / 8);
}

}  // namespace

static void run(const Copy& w, const OpContext<void>& c) {
  const OpCall& call = c.call();
  const auto bytes = static_cast<std::int64_t>(w.moved(*call.bindings).base());
  call.transfers->count(w.from, w.to, bytes);
  const PacedCopy* paced = call.links->find(w.from, w.to);
  TierLinks::Passage passage{*call.links, paced, call.rank};
  const bool contiguous = c.operand(0).contiguous && c.operand(1).contiguous;
  if (!contiguous) {
    for (int i : {0, 1})
      if (c.operand(i).tier == Tier::Disk) c.refuse_layout(i, "its elements one after another to go to or from a file");
    copy_views(c);
    return passage.advance(bytes);
  }
  const std::int64_t piece = paced ? TierLinks::kPiece : bytes;
  for (std::int64_t done = 0; done < bytes; done += piece) {
    const std::int64_t n = std::min(piece, bytes - done);
    copy_bytes(c, done, n);
    passage.advance(n);
  }
}

static void run(const CopyRows&, const OpContext<void>& c) { copy_views(c); }

template <class T>
void run(const SwapAxes& s, const OpContext<T>& c) {
  kernels::swap_axes(s.outer, s.a, s.b, s.inner, c.dense(0), c.dense(1));
}

static void run(const Alloc&, const OpContext<void>&) {}
static void run(const Free&, const OpContext<void>&) {}

/// Does the arithmetic and reads the memory that the op says, over its first operand in memory or over 4 KiB of its
/// own.
static void run(const HostWork& w, const OpContext<void>& c) {
  const std::array<std::byte, 4096> own{};
  const std::byte* p = own.data();
  std::int64_t size = own.size();
  for (int i = c.size() - 1; i >= 0; --i) {
    if (c.operand(i).tier == Tier::Disk || !c.operand(i).contiguous) continue;
    p = c.element<std::byte>(i);
    size = static_cast<std::int64_t>(size_of(c.operand(i).dtype, c.elements(i)).base());
  }
  do_host_work(w, p, size);
}

Kernel find_move(const Work& work) {
  if (const auto* s = std::get_if<SwapAxes>(&work); s && s->dtype == DType::I32) return &invoke<SwapAxes, std::int32_t>;
  if (const Kernel k = find_typed<SwapAxes>(work)) return k;
  return find_untyped<Copy, CopyRows, Alloc, Free, HostWork>(work);
}

}  // namespace orrery
