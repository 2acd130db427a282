// SPDX-License-Identifier: Apache-2.0
#include "runtime/disk_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <string>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kSmallBlock = 1 << 16, kLargeBlock = 1 << 20;
constexpr std::int64_t kSector = 4096;  // what disks of today read and write as one

std::int64_t up(std::int64_t bytes) { return (bytes + kSector - 1) / kSector * kSector; }

/// Four independent multiply-and-add chains over 64-bit words: any changed bit changes the sum, and the place of a word
/// counts.
std::uint64_t checksum(const std::byte* p, std::int64_t bytes) {
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15ull;
  std::array<std::uint64_t, 4> h{1, 2, 3, 4};
  std::int64_t i = 0;
  for (; i + 32 <= bytes; i += 32)
    for (std::size_t k = 0; k < 4; ++k) {
      std::uint64_t word;
      std::memcpy(&word, p + i + 8 * static_cast<std::int64_t>(k), 8);
      h[k] = (h[k] ^ word) * kFactor;
    }
  for (; i < bytes; ++i) h[0] = (h[0] ^ static_cast<std::uint64_t>(p[i])) * kFactor;
  std::uint64_t all = static_cast<std::uint64_t>(bytes);
  for (const std::uint64_t x : h) all = (all ^ (x ^ x >> 29)) * kFactor;
  return all;
}

}  // namespace

DiskFile::DiskFile(PageCache cache) : block_{cache == PageCache::Passed ? kLargeBlock : kSmallBlock} {
  const std::string pattern = (std::filesystem::temp_directory_path() / "orrery-disk-XXXXXX").string();
  std::string path = pattern;
  if (cache == PageCache::Passed) file_ = mkostemp(path.data(), O_DIRECT);
  direct_ = file_ >= 0;
  if (!direct_) {  // or the file system cannot
    path = pattern;
    file_ = mkstemp(path.data());
  }
  if (file_ < 0) fail_call("mkstemp");
  unlink(path.c_str());
  buffer_.reset(static_cast<std::byte*>(std::aligned_alloc(kSector, static_cast<std::size_t>(block_))));
  if (!buffer_) throw std::bad_alloc{};
}

DiskFile::~DiskFile() {
  if (file_ >= 0) close(file_);
}

/// Brings what was written of a block into the buffer and compares it with its checksum. Whole sectors are read.
void DiskFile::load(std::int64_t block) {
  const Block& known = blocks_[static_cast<std::size_t>(block)];
  const std::int64_t wanted = direct_ ? up(known.bytes) : known.bytes;
  std::int64_t have = 0;
  for (bool ended = false; have < known.bytes;) {
    const ssize_t n =
        ended ? 0 : pread(file_, buffer_.get() + have, static_cast<std::size_t>(wanted - have), block * block_ + have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_call("pread");
    if (n == 0)
      throw DeviceError{
          fmt::format("the file of a disk tier ends at byte {}: more was written to it", block * block_ + have)};
    have += n;
    ended = direct_ && n % kSector != 0;
  }
  if (checksum(buffer_.get(), known.bytes) != known.sum)
    throw DeviceError{fmt::format("the file of a disk tier has changed between bytes {} and {} since they were written",
                                  block * block_, block * block_ + known.bytes)};
}

void DiskFile::read_block(std::int64_t block, std::int64_t first, std::byte* to, std::int64_t bytes) {
  if (block >= static_cast<std::int64_t>(blocks_.size()) ||
      blocks_[static_cast<std::size_t>(block)].bytes < first + bytes)
    throw DeviceError{fmt::format("the file of a disk tier ends before byte {}: nothing was written there",
                                  block * block_ + first + bytes)};
  load(block);
  std::memcpy(to, buffer_.get() + first, static_cast<std::size_t>(bytes));
}

/// Past the page cache whole sectors are written; what is in none yet are zeros.
void DiskFile::write_block(std::int64_t block, std::int64_t first, const std::byte* from, std::int64_t bytes) {
  if (block >= static_cast<std::int64_t>(blocks_.size())) blocks_.resize(static_cast<std::size_t>(block) + 1);
  Block& known = blocks_[static_cast<std::size_t>(block)];
  const bool covers = first == 0 && bytes >= known.bytes;
  if (!covers) load(block);
  const auto clear = [&](std::int64_t begin, std::int64_t end) {
    if (end > begin) std::memset(buffer_.get() + begin, 0, static_cast<std::size_t>(end - begin));
  };
  clear(known.bytes, first);
  std::memcpy(buffer_.get() + first, from, static_cast<std::size_t>(bytes));
  std::int64_t start = std::min(first, known.bytes), end = first + bytes;
  if (direct_) {
    start = start / kSector * kSector;
    clear(std::max(end, known.bytes), up(end));
    end = up(end);
  }
  for (std::int64_t done = start; done < end;) {
    const ssize_t n = pwrite(file_, buffer_.get() + done, static_cast<std::size_t>(end - done), block * block_ + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_call("pwrite");
    done += n;
  }
  known.bytes = std::max(known.bytes, first + bytes);
  known.sum = checksum(buffer_.get(), known.bytes);
}

void DiskFile::read(std::int64_t offset, void* to, std::int64_t bytes) {
  const std::lock_guard lock{mutex_};
  auto* p = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const std::int64_t first = offset % block_, n = std::min(bytes, block_ - first);
    read_block(offset / block_, first, p, n);
    p += n, offset += n, bytes -= n;
  }
}

void DiskFile::write(std::int64_t offset, const void* from, std::int64_t bytes) {
  const std::lock_guard lock{mutex_};
  const auto* p = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const std::int64_t first = offset % block_, n = std::min(bytes, block_ - first);
    write_block(offset / block_, first, p, n);
    p += n, offset += n, bytes -= n;
  }
}

}  // namespace orrery
