// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

namespace orrery {

/// Whether what goes to a file and comes from it stays in memory as well, as long as the system likes: then it is the
/// disk's speed that counts only when the file is larger than that.
enum class PageCache : std::uint8_t { Used, Passed };

/// The file behind a disk tier: without a name, gone when the process is. Of every block that was written it keeps a
/// checksum, and a read whose blocks do not have theirs fails: what came back from a disk is what went there. Throws
/// DeviceError with the text of the system, and when the file is shorter than it was or has changed. Goes past the page
/// cache where it is asked to and the file system can (O_DIRECT).
class DiskFile {
 public:
  explicit DiskFile(PageCache cache = PageCache::Used);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  void read(std::int64_t offset, void* to, std::int64_t bytes);
  void write(std::int64_t offset, const void* from, std::int64_t bytes);
  int descriptor() const { return file_; }
  /// Bytes of a block: one checksum, one read or write.
  std::int64_t block_bytes() const { return block_; }

 private:
  struct Block {
    std::int64_t bytes = 0;  // written of it, from its start
    std::uint64_t sum = 0;
  };
  void load(std::int64_t block);
  void read_block(std::int64_t block, std::int64_t first, std::byte* to, std::int64_t bytes);
  void write_block(std::int64_t block, std::int64_t first, const std::byte* from, std::int64_t bytes);

  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  int file_ = -1;
  bool direct_ = false;
  std::int64_t block_;
  std::mutex mutex_;
  std::vector<Block> blocks_;
  std::unique_ptr<std::byte, Free> buffer_;  // one block
};

}  // namespace orrery
