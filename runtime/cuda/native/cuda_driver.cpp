// SPDX-License-Identifier: Apache-2.0
// GpuDriver over CUDA itself.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "kernels/cuda/entries.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/native/activity_records.hpp"
#include "runtime/cuda/native/check.hpp"
#include "runtime/cuda/native/collective_library.hpp"
#include "runtime/cuda/native/counters.hpp"
#include "runtime/cuda/native/device_memory.hpp"
#include "runtime/cuda/native/graphs.hpp"
#include "runtime/cuda/native/products.hpp"
#include "runtime/cuda/native/sensors.hpp"
#include "sim/base/error.hpp"

namespace orrery {

void check_cuda(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // an error that is reported is not the next call's
  throw DeviceError{fmt::format("CUDA: {} ({})", cudaGetErrorString(result), call)};
}

void check_driver(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) throw DeviceError{fmt::format("CUDA: driver error {} ({})", int(result), call)};
}

namespace {

cudaEvent_t native(GpuEvent e) { return reinterpret_cast<cudaEvent_t>(e); }

class CudaDriver final : public GpuDriver {
 public:
  explicit CudaDriver(int devices)
      : devices_{devices},
        library_{"the NVIDIA driver", {"libcuda.so.1"}},
        memory_{std::make_shared<VirtualMemoryCalls>(library_)} {
    for (const kernels::cuda::Entry& e : kernels::cuda::all_entries()) functions_[e.tag] = e.function;
  }

  int num_devices() const override { return devices_; }
  GpuInfo info(int device) const override {
    cudaDeviceProp p;
    ORRERY_CUDA(cudaGetDeviceProperties(&p, device));
    int version = 0;
    ORRERY_CUDA(cudaDriverGetVersion(&version));
    ORRERY_CUDA(cudaSetDevice(device));
    std::size_t free = 0, total = 0;
    ORRERY_CUDA(cudaMemGetInfo(&free, &total));
    return {.name = p.name,
            .capability = 10 * p.major + p.minor,
            .processors = p.multiProcessorCount,
            .memory_bytes = static_cast<std::int64_t>(total),
            .free_bytes = static_cast<std::int64_t>(free),
            .l2_bytes = p.l2CacheSize,
            .driver = fmt::format("{}.{}", version / 1000, version % 1000 / 10)};
  }

  GpuState state(int device) override {
    if (!looked_for_sensors_) sensors_ = open_sensors();
    looked_for_sensors_ = true;
    return sensors_ ? sensors_->read(device) : GpuState{};
  }

  GpuStream make_stream(int device) override {
    use(device);
    cudaStream_t s = nullptr;
    ORRERY_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    device_of_[reinterpret_cast<GpuStream>(s)] = device;
    return reinterpret_cast<GpuStream>(s);
  }
  void destroy(GpuStream stream) noexcept override {
    device_of_.erase(stream);
    cudaStreamDestroy(native(stream));
  }
  GpuEvent make_event(int device) override {
    use(device);
    cudaEvent_t e = nullptr;
    ORRERY_CUDA(cudaEventCreate(&e));
    return reinterpret_cast<GpuEvent>(e);
  }
  void destroy(GpuEvent event) noexcept override { cudaEventDestroy(native(event)); }
  void record(GpuEvent event, GpuStream stream) override {
    use(stream);
    ORRERY_CUDA(cudaEventRecord(native(event), native(stream)));
  }
  void wait(GpuStream stream, GpuEvent event) override {
    use(stream);
    ORRERY_CUDA(cudaStreamWaitEvent(native(stream), native(event), 0));
  }
  void synchronize(GpuStream stream) override {
    use(stream);
    // A kernel of NCCL waits for a member that is lost for ever: somebody has to look after it meanwhile.
    while (collectives_) {
      const cudaError_t state = cudaStreamQuery(native(stream));
      if (state != cudaErrorNotReady) break;
      collectives_->check();
      std::this_thread::yield();
    }
    ORRERY_CUDA(cudaStreamSynchronize(native(stream)));
  }
  std::int64_t nanoseconds(GpuEvent from, GpuEvent to) override {
    float milliseconds = 0;
    ORRERY_CUDA(cudaEventElapsedTime(&milliseconds, native(from), native(to)));
    return static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

  std::unique_ptr<DeviceMemory> device_memory(int device) override { return make_device_memory(memory_, device); }
  std::unique_ptr<DeviceMemory> pinned_memory() override { return make_pinned_memory(pinned_); }
  std::unique_ptr<DeviceMemory> plain_memory(int device) override { return make_plain_memory(device); }

  void stamp(GpuEvent event, GpuStream stream) override {
    use(stream);
    const unsigned kind = capture_ ? cudaEventRecordExternal : cudaEventRecordDefault;
    ORRERY_CUDA(cudaEventRecordWithFlags(native(event), native(stream), kind));
  }
  void begin_capture(GpuStream origin) override {
    use(origin);
    capture_.emplace(origin);
  }
  void slot(std::int64_t slot) override {
    if (capture_) capture_->slot(slot);
  }
  std::unique_ptr<GpuGraph> end_capture(GpuStream origin) override {
    if (!capture_) throw DeviceError{"no stream is being captured"};
    use(origin);
    GraphCapture done = std::move(*capture_);
    capture_.reset();
    return done.end(origin, graphs_);
  }
  void begin_update(GpuGraph& graph, std::int64_t slot) override { update_.emplace(graph, slot); }
  bool end_update() override {
    const bool fits = update_->fits();
    update_.reset();
    return fits;
  }

  void copy(std::uintptr_t to, std::uintptr_t from, std::int64_t bytes, GpuStream stream) override {
    for (std::int64_t done = 0; done < bytes;) {
      const auto at = static_cast<std::uintptr_t>(done);
      const std::int64_t piece = pinned_->within(to + at, pinned_->within(from + at, bytes - done));
      copy_piece(to + at, from + at, piece, stream);
      done += piece;
    }
  }
  void launch(const kernels::cuda::Launch& launch, GpuStream stream) override {
    use(stream);
    const auto function = functions_.find(launch.tag);
    if (function == functions_.end()) bug(fmt::format("no entry of kernel {}", launch.tag->name));
    void* arguments[] = {const_cast<void*>(launch.arguments)};
    const dim3 grid{static_cast<unsigned>(launch.blocks)}, block{static_cast<unsigned>(launch.tag->threads)};
    allow_shared(function->second, launch.shared_bytes);
    if (update_) return update_->launch(function->second, grid, block, arguments, launch.shared_bytes);
    ORRERY_CUDA(cudaLaunchKernel(function->second, grid, block, arguments, launch.shared_bytes, native(stream)));
    called(stream, function->second);
  }
  void multiply(const GpuProduct& product, GpuStream stream) override {
    if (update_) return update_->refuse();
    use(stream);
    if (!products_) products_ = open_products();
    products_->multiply(product, stream);
  }
  void call(void (*function)(void*), void* argument, GpuStream stream) override {
    if (update_) return update_->call(function, argument);
    use(stream);
    ORRERY_CUDA(cudaLaunchHostFunc(native(stream), function, argument));
    called(stream);
  }
  bool collective(std::span<const GpuCollective> members) override {
    look_for_collectives();
    return collectives_ && collectives_->run(members);
  }
  void connect(std::span<const GpuGroup> groups, const std::shared_ptr<Peers>& peers) override {
    look_for_collectives();
    if (!collectives_)
      throw MissingError{
          "several processes exchange tensors by NCCL, which is not here: install libnccl2, or run all "
          "ranks in one process, without --peers"};
    collectives_->connect(groups, peers);
    current_ = -1;  // it has changed the current device
  }
  void collective(const GpuGroup& group, std::span<const GpuCollective> members) override {
    collectives_->run(group, members);
    current_ = -1;
  }
  void exchange(const GpuGroup& group, std::span<const GpuExchange> members) override {
    collectives_->exchange(group, members);
    current_ = -1;
  }
  std::shared_ptr<ActivitySource> activities() override {
    std::shared_ptr<ActivityRecords> records = records_.lock();
    if (!records) records_ = records = open_activity_records();
    return records;
  }
  std::unique_ptr<CounterSource> counters(int device, const std::vector<std::string>& names) override {
    use(device);
    return open_counters(device, names);
  }
  void mark(std::uint64_t id) override {
    if (const auto records = records_.lock()) records->mark(id);
  }

 private:
  void copy_piece(std::uintptr_t to, std::uintptr_t from, std::int64_t bytes, GpuStream stream) {
    if (update_) return update_->copy(to, from, bytes);
    use(stream);
    ORRERY_CUDA(cudaMemcpyAsync(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from),
                                static_cast<std::size_t>(bytes), cudaMemcpyDefault, native(stream)));
    called(stream);
  }
  /// A communicator waits for the end of graphs that it is in, also when it is aborted.
  void look_for_collectives() {
    if (looked_for_collectives_) return;
    collectives_ = open_collective_library([graphs = graphs_] {
      for (NativeGraph* g : *graphs) g->drop();
    });
    looked_for_collectives_ = true;
  }
  void called(GpuStream stream, const void* function = nullptr) {
    if (capture_) capture_->called(stream, function);
  }
  void use(int device) {
    if (device == current_) return;
    ORRERY_CUDA(cudaSetDevice(device));
    current_ = device;
  }
  void use(GpuStream stream) {
    if (devices_ > 1) use(device_of_.at(stream));
  }
  /// More than 48 KiB of a block's memory have to be asked for, once per device and kernel.
  void allow_shared(const void* function, std::size_t bytes) {
    constexpr std::size_t kGiven = 48 << 10;
    if (bytes <= kGiven) return;
    std::size_t& allowed = shared_[{current_, function}];
    if (bytes <= allowed) return;
    ORRERY_CUDA(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
    allowed = bytes;
  }

  int devices_, current_ = -1;
  Library library_;
  std::shared_ptr<const VirtualMemoryCalls> memory_;
  std::shared_ptr<PinnedPieces> pinned_ = std::make_shared<PinnedPieces>();
  std::unordered_map<const kernels::cuda::KernelTag*, const void*> functions_;
  std::unordered_map<GpuStream, int> device_of_;
  std::map<std::pair<int, const void*>, std::size_t> shared_;
  std::unique_ptr<Products> products_;
  std::unique_ptr<Sensors> sensors_;
  bool looked_for_sensors_ = false;
  std::shared_ptr<NativeGraphs> graphs_ = std::make_shared<NativeGraphs>();
  std::unique_ptr<CollectiveLibrary> collectives_;
  bool looked_for_collectives_ = false;
  std::weak_ptr<ActivityRecords> records_;  // taken as long as somebody wants them
  std::optional<GraphCapture> capture_;
  std::optional<GraphUpdate> update_;
};

}  // namespace

std::shared_ptr<GpuDriver> open_gpu_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver)
    throw MissingError{
        "no NVIDIA driver on this computer (libcuda.so.1 is not there): a cuda device cannot be used; run on the "
        "processor with --device host"};
  dlclose(driver);
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result != cudaSuccess || devices == 0)
    throw MissingError{fmt::format("no cuda device on this computer: {}; run on the processor with --device host",
                                   result == cudaSuccess ? "the driver has none" : cudaGetErrorString(result))};
  return std::make_shared<CudaDriver>(devices);
}

}  // namespace orrery
