// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/native/device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kChunk = 64 << 20;

/// Memory that the processor reaches by copies of the driver.
class CopiedMemory : public DeviceMemory {
 public:
  void clear(std::uintptr_t place, std::int64_t bytes) final {
    ORRERY_CUDA(cudaMemset(reinterpret_cast<void*>(place), 0, static_cast<std::size_t>(bytes)));
    ORRERY_CUDA(cudaDeviceSynchronize());
  }
  void read(std::uintptr_t place, void* to, std::int64_t bytes) final {
    ORRERY_CUDA(
        cudaMemcpy(to, reinterpret_cast<const void*>(place), static_cast<std::size_t>(bytes), cudaMemcpyDefault));
  }
  void write(std::uintptr_t place, const void* from, std::int64_t bytes) final {
    ORRERY_CUDA(cudaMemcpy(reinterpret_cast<void*>(place), from, static_cast<std::size_t>(bytes), cudaMemcpyDefault));
    ORRERY_CUDA(cudaDeviceSynchronize());
  }
};

class PagedMemory final : public CopiedMemory {
 public:
  PagedMemory(std::shared_ptr<const VirtualMemoryCalls> calls, int device) : calls_{std::move(calls)}, device_{device} {
    ORRERY_CUDA(cudaSetDevice(device));
    ORRERY_CUDA(cudaFree(nullptr));  // makes the context
    std::size_t free = 0, total = 0;
    ORRERY_CUDA(cudaMemGetInfo(&free, &total));
    std::size_t unit = 0;
    const CUmemAllocationProp properties = allocation();
    check_driver(calls_->granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                 "cuMemGetAllocationGranularity");
    unit_ = static_cast<std::int64_t>(unit);
    capacity_ = static_cast<std::int64_t>(total) / unit_ * unit_;
    check_driver(calls_->reserve(&base_, static_cast<std::size_t>(capacity_), unit, 0, 0), "cuMemAddressReserve");
  }
  ~PagedMemory() override {
    cudaSetDevice(device_);
    for (const Chunk& c : chunks_) {
      calls_->unmap(base_ + static_cast<CUdeviceptr>(c.first), static_cast<std::size_t>(c.bytes));
      calls_->release(c.handle);
    }
    if (base_ != 0) calls_->free(base_, static_cast<std::size_t>(capacity_));
  }
  std::uintptr_t base() const override { return base_; }
  std::int64_t capacity() const override { return capacity_; }

  bool grow(std::int64_t bytes) override {
    if (bytes <= grown_) return true;
    ORRERY_CUDA(cudaSetDevice(device_));
    const std::int64_t wanted = std::min(std::max(bytes - grown_, kChunk), capacity_ - grown_);
    const std::int64_t needed = (wanted + unit_ - 1) / unit_ * unit_;
    return add(needed) || add((bytes - grown_ + unit_ - 1) / unit_ * unit_);
  }

 private:
  struct Chunk {
    CUmemGenericAllocationHandle handle;
    std::int64_t first, bytes;
  };
  CUmemAllocationProp allocation() const {
    CUmemAllocationProp p{};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = device_;
    return p;
  }
  /// Puts pages behind the next `bytes` addresses; false when the device has none left.
  bool add(std::int64_t bytes) {
    if (bytes <= 0 || grown_ + bytes > capacity_) return false;
    Chunk c{0, grown_, bytes};
    const CUmemAllocationProp properties = allocation();
    const CUresult made = calls_->create(&c.handle, static_cast<std::size_t>(bytes), &properties, 0);
    if (made == CUDA_ERROR_OUT_OF_MEMORY) return false;
    check_driver(made, "cuMemCreate");
    const CUdeviceptr at = base_ + static_cast<CUdeviceptr>(grown_);
    if (const CUresult mapped = calls_->map(at, static_cast<std::size_t>(bytes), 0, c.handle, 0);
        mapped != CUDA_SUCCESS) {
      calls_->release(c.handle);
      check_driver(mapped, "cuMemMap");
    }
    chunks_.push_back(c);
    grown_ += bytes;
    allow_access(at, bytes);
    return true;
  }
  void allow_access(CUdeviceptr at, std::int64_t bytes) const {
    int devices = 0;
    ORRERY_CUDA(cudaGetDeviceCount(&devices));
    std::vector<CUmemAccessDesc> access;
    for (int d = 0; d < devices; ++d) {
      int reaches = d == device_;
      if (!reaches) ORRERY_CUDA(cudaDeviceCanAccessPeer(&reaches, d, device_));
      if (!reaches) continue;
      CUmemAccessDesc& a = access.emplace_back();
      a.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      a.location.id = d;
      a.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    check_driver(calls_->set_access(at, static_cast<std::size_t>(bytes), access.data(), access.size()),
                 "cuMemSetAccess");
  }

  std::shared_ptr<const VirtualMemoryCalls> calls_;
  int device_;
  std::int64_t unit_ = 0, capacity_ = 0, grown_ = 0;
  CUdeviceptr base_ = 0;
  std::vector<Chunk> chunks_;
};

/// Blocks that the device is asked for one by one: nothing grows as one piece.
class PlainMemory final : public CopiedMemory {
 public:
  explicit PlainMemory(int device) : device_{device} {
    std::size_t free = 0;
    ORRERY_CUDA(cudaSetDevice(device_));
    ORRERY_CUDA(cudaMemGetInfo(&free, &total_));
  }
  bool is_plain() const override { return true; }
  std::optional<std::uintptr_t> allocate(std::int64_t bytes) override {
    ORRERY_CUDA(cudaSetDevice(device_));
    void* block = nullptr;
    const cudaError_t result = cudaMalloc(&block, static_cast<std::size_t>(bytes));
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return std::nullopt;
    }
    check_cuda(result, "cudaMalloc");
    return reinterpret_cast<std::uintptr_t>(block);
  }
  void release(std::uintptr_t place) override {
    cudaSetDevice(device_);
    cudaFree(reinterpret_cast<void*>(place));
  }
  std::uintptr_t base() const override { return 0; }
  std::int64_t capacity() const override { return static_cast<std::int64_t>(total_); }
  bool grow(std::int64_t) override { return true; }

 private:
  int device_;
  std::size_t total_ = 0;
};

class PinnedMemory final : public HostReachedMemory {
 public:
  explicit PinnedMemory(std::shared_ptr<PinnedPieces> pieces)
      : pieces_{std::move(pieces)},
        capacity_{std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) / kChunk * kChunk} {
    void* p = mmap(nullptr, static_cast<std::size_t>(capacity_), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw DeviceError{"mmap: no addresses for pinned memory"};
    base_ = reinterpret_cast<std::uintptr_t>(p);
  }
  ~PinnedMemory() override {
    for (const std::uintptr_t first : locked_) {
      cudaHostUnregister(reinterpret_cast<void*>(first));
      pieces_->remove(first);
    }
    munmap(reinterpret_cast<void*>(base_), static_cast<std::size_t>(capacity_));
  }
  std::uintptr_t base() const override { return base_; }
  std::int64_t capacity() const override { return capacity_; }
  bool grow(std::int64_t bytes) override {
    if (bytes <= grown_) return true;
    constexpr std::int64_t kLeast = 2 << 20;
    const std::int64_t unit = std::clamp(grown_, kLeast, kChunk);  // little for plans that need little
    const std::int64_t more = (bytes - grown_ + unit - 1) / unit * unit;
    if (grown_ + more > capacity_) return false;
    const std::uintptr_t first = base_ + static_cast<std::uintptr_t>(grown_);
    const cudaError_t result = cudaHostRegister(reinterpret_cast<void*>(first), static_cast<std::size_t>(more),
                                                cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (result == cudaErrorMemoryAllocation) return false;
    check_cuda(result, "cudaHostRegister");
    locked_.push_back(first);
    pieces_->add(first, more);
    grown_ += more;
    return true;
  }

 private:
  std::shared_ptr<PinnedPieces> pieces_;
  std::int64_t capacity_, grown_ = 0;
  std::uintptr_t base_ = 0;
  std::vector<std::uintptr_t> locked_;  // first address of each piece
};

}  // namespace

VirtualMemoryCalls::VirtualMemoryCalls(const Library& driver) {
  driver.find("cuMemAddressReserve", reserve);
  driver.find("cuMemAddressFree", free);
  driver.find("cuMemCreate", create);
  driver.find("cuMemRelease", release);
  driver.find("cuMemMap", map);
  driver.find("cuMemUnmap", unmap);
  driver.find("cuMemSetAccess", set_access);
  driver.find("cuMemGetAllocationGranularity", granularity);
}

std::unique_ptr<DeviceMemory> make_device_memory(std::shared_ptr<const VirtualMemoryCalls> calls, int device) {
  return std::make_unique<PagedMemory>(std::move(calls), device);
}

std::unique_ptr<DeviceMemory> make_plain_memory(int device) { return std::make_unique<PlainMemory>(device); }

std::unique_ptr<DeviceMemory> make_pinned_memory(std::shared_ptr<PinnedPieces> pieces) {
  return std::make_unique<PinnedMemory>(std::move(pieces));
}

}  // namespace orrery
