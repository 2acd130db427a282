// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_gpu.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/host/gemm.hpp"
#include "sim/base/error.hpp"
#include "tests/emulated_graph.hpp"
#include "tests/emulated_numbers.hpp"

namespace orrery::testing {

double number(const GpuProduct::Matrix& x, std::int64_t i) {
  const auto* p = reinterpret_cast<const std::byte*>(x.at);
  switch (x.dtype) {
    case DType::BF16:
      return gpu::to_float(reinterpret_cast<const gpu::bf16*>(p)[i]);
    case DType::F16:
      return gpu::to_float(reinterpret_cast<const gpu::f16*>(p)[i]);
    case DType::F8E4M3:
      return from_e4m3(std::to_integer<std::uint8_t>(p[i]));
    case DType::F8E5M2:
      return from_e5m2(std::to_integer<std::uint8_t>(p[i]));
    default:
      return reinterpret_cast<const float*>(p)[i];
  }
}

void set_number(const GpuProduct::Matrix& x, std::int64_t i, double v) {
  auto* p = reinterpret_cast<std::byte*>(x.at);
  const auto f = static_cast<float>(v);
  if (x.dtype == DType::BF16)
    reinterpret_cast<gpu::bf16*>(p)[i] = gpu::round_to_bf16(f);
  else if (x.dtype == DType::F16)
    reinterpret_cast<gpu::f16*>(p)[i] = gpu::round_to_f16(f);
  else
    reinterpret_cast<float*>(p)[i] = f;
}

namespace {

/// With 10 bits behind the point of its mantissa, as tensor cores take it.
double as_tf32(double x) {
  auto bits = gpu::reinterpret_bits<std::uint32_t>(static_cast<float>(x));
  bits = (bits + 0x1000u) & ~0x1fffu;
  return gpu::reinterpret_bits<float>(bits);
}

double scale_of(const GpuProduct::Matrix& x) { return x.scale == 0 ? 1.0 : *reinterpret_cast<const float*>(x.scale); }

/// Matrix b of a batch, of rows × cols numbers as it is stored.
std::vector<double> numbers(const GpuProduct& p, const GpuProduct::Matrix& x, std::int64_t b, std::int64_t rows,
                            std::int64_t cols) {
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      const double v = number(x, b * x.batch + r * x.row + c);
      out.push_back(p.fast_f32 && x.dtype == DType::F32 ? as_tf32(v) : v);
    }
  return out;
}

void multiply_now(const GpuProduct& p) {
  const double alpha = p.alpha * scale_of(p.a) * scale_of(p.b);
  const GpuProduct::Matrix bias{p.bias, p.c.dtype, 0, 0};
  const std::int64_t a_cols = p.transpose_a ? p.m : p.k, b_cols = p.transpose_b ? p.k : p.n;
  const kernels::GemmDims dims{p.m, p.n, p.k};
  std::vector<std::byte> workspace(kernels::gemm_workspace(dims, sizeof(double)));
  std::vector<double> sums(static_cast<std::size_t>(p.m * p.n));
  for (std::int64_t b = 0; b < p.count; ++b) {
    const std::vector<double> left = numbers(p, p.a, b, p.transpose_a ? p.k : p.m, a_cols);
    const std::vector<double> right = numbers(p, p.b, b, p.transpose_b ? p.n : p.k, b_cols);
    kernels::gemm<double>({.dims = dims,
                           .transpose_a = kernels::Transpose{p.transpose_a},
                           .transpose_b = kernels::Transpose{p.transpose_b},
                           .a = left.data(),
                           .lda = a_cols,
                           .b = right.data(),
                           .ldb = b_cols,
                           .c = sums.data(),
                           .ldc = p.n,
                           .alpha = alpha,
                           .workspace = workspace.data()});
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) {
        const std::int64_t at = b * p.c.batch + i * p.c.row + j;
        set_number(p.c, at,
                   sums[static_cast<std::size_t>(i * p.n + j)] + (p.accumulate ? number(p.c, at) : 0.0) +
                       (p.bias != 0 ? number(bias, j) : 0.0));
      }
  }
}

}  // namespace

/// Poisoned when new: nothing is zero that was not cleared.
class EmulatedGpu::Memory final : public HostReachedMemory {
 public:
  Memory(EmulatedGpu& gpu, std::int64_t* used, std::int64_t capacity)
      : gpu_{gpu},
        used_{used},
        capacity_{capacity},
        space_{std::make_unique_for_overwrite<gpu::Quad[]>(static_cast<std::size_t>(capacity / 16 + 16))} {}
  ~Memory() override { *used_ -= grown_; }
  std::uintptr_t base() const override { return (reinterpret_cast<std::uintptr_t>(space_.get()) + 255) / 256 * 256; }
  std::int64_t capacity() const override { return capacity_; }
  bool grow(std::int64_t bytes) override {
    if (bytes <= grown_) return true;
    if (*used_ + bytes - grown_ > gpu_.options_.memory_bytes) return false;
    std::memset(reinterpret_cast<void*>(base() + static_cast<std::uintptr_t>(grown_)), 0xff,
                static_cast<std::size_t>(bytes - grown_));
    *used_ += bytes - grown_;
    gpu_.ran_.push_back({gpu_.mark_, gpu_.clock_ns_, gpu_.clock_ns_, Activity::Kind::Allocation, bytes - grown_});
    grown_ = bytes;
    return true;
  }

 private:
  EmulatedGpu& gpu_;
  std::int64_t* used_;
  std::int64_t capacity_, grown_ = 0;
  std::unique_ptr<gpu::Quad[]> space_;
};

/// Blocks of their own, poisoned; to give one back all streams are run to their end, as cudaFree does.
class EmulatedGpu::PlainMemory final : public HostReachedMemory {
 public:
  PlainMemory(EmulatedGpu& gpu, int device) : gpu_{gpu}, used_{&gpu.used_[static_cast<std::size_t>(device)]} {}
  ~PlainMemory() override {
    for (const auto& [place, block] : blocks_) *used_ -= block.bytes;
  }
  bool is_plain() const override { return true; }
  std::optional<std::uintptr_t> allocate(std::int64_t bytes) override {
    gpu_.maybe_fail("allocate");
    if (*used_ + bytes > gpu_.options_.memory_bytes) return std::nullopt;
    *used_ += bytes;
    Block block{bytes, std::make_unique_for_overwrite<gpu::Quad[]>(static_cast<std::size_t>(bytes / 16 + 16))};
    const std::uintptr_t place = (reinterpret_cast<std::uintptr_t>(block.space.get()) + 255) / 256 * 256;
    std::memset(reinterpret_cast<void*>(place), 0xff, static_cast<std::size_t>(bytes));
    blocks_[place] = std::move(block);
    return place;
  }
  void release(std::uintptr_t place) override {
    while (gpu_.run_any()) continue;
    *used_ -= blocks_.at(place).bytes;
    blocks_.erase(place);
  }
  std::uintptr_t base() const override { return 0; }
  std::int64_t capacity() const override { return gpu_.options_.memory_bytes; }
  bool grow(std::int64_t) override { return true; }

 private:
  struct Block {
    std::int64_t bytes = 0;
    std::unique_ptr<gpu::Quad[]> space;
  };
  EmulatedGpu& gpu_;
  std::int64_t* used_;
  std::map<std::uintptr_t, Block> blocks_;
};

EmulatedGpu::EmulatedGpu(const EmulationOptions& options)
    : options_{options},
      runners_{all_runners()},
      random_{options.seed},
      used_(static_cast<std::size_t>(options.devices) + 1) {}
EmulatedGpu::~EmulatedGpu() = default;

void EmulatedGpu::maybe_fail(const char* call) {
  if (options_.fails_at == call && calls_[call]++ == options_.fails_after)
    throw DeviceError{fmt::format("{}: an error that the test asked for", call)};
}

GpuInfo EmulatedGpu::info(int) const {
  return {.name = "emulated GPU",
          .capability = options_.capability,
          .processors = 1,
          .memory_bytes = options_.told_bytes > 0 ? options_.told_bytes : options_.memory_bytes,
          .driver = "0"};
}

GpuStream EmulatedGpu::make_stream(int device) {
  auto stream = std::make_unique<Stream>(Stream{device, {}});
  const auto handle = reinterpret_cast<GpuStream>(stream.get());
  streams_[handle] = std::move(stream);
  return handle;
}
void EmulatedGpu::destroy(GpuStream stream) noexcept { streams_.erase(stream); }

GpuEvent EmulatedGpu::make_event(int) {
  auto event = std::make_unique<Event>();
  const auto handle = reinterpret_cast<GpuEvent>(event.get());
  events_[handle] = std::move(event);
  return handle;
}
void EmulatedGpu::destroy(GpuEvent event) noexcept { events_.erase(event); }

void EmulatedGpu::enqueue(GpuStream stream, const std::string& call, std::function<void()> work) {
  push(stream, {std::move(work), nullptr, nullptr, 0, mark_, call});
}
void EmulatedGpu::push(GpuStream stream, Task task) {
  if (updated_) return update(std::move(task));
  if (capture_) return capture_->add(stream, std::move(task), slot_);
  streams_.at(stream)->tasks.push_back(std::move(task));
}
void EmulatedGpu::record(GpuEvent event, GpuStream stream, bool stamps) {
  Task task{nullptr, nullptr, event, 0, 0, "record", stamps};
  if (capture_) return capture_->add(stream, std::move(task), -1);
  task.turn = ++events_.at(event)->asked;
  streams_.at(stream)->tasks.push_back(std::move(task));
}
/// As with CUDA, an event that was never recorded holds nobody up.
void EmulatedGpu::wait(GpuStream stream, GpuEvent event) {
  Task task{nullptr, event, nullptr, 0, 0, "wait"};
  if (capture_) return capture_->add(stream, std::move(task), -1);
  task.turn = events_.at(event)->asked;
  streams_.at(stream)->tasks.push_back(std::move(task));
}

bool EmulatedGpu::can_run(const Task& task) const {
  if (task.ready && !task.ready()) return false;
  return !task.waits || reinterpret_cast<const Event*>(task.waits)->passed >= task.turn;
}

void EmulatedGpu::run_one(Stream& stream) {
  const Task task = std::move(stream.tasks.front());
  stream.tasks.pop_front();
  const std::int64_t start = clock_ns_;
  if (task.work) {
    task.work();
    clock_ns_ += 1000;
    ran_.push_back({task.mark, start, clock_ns_, task.call == "copy" ? Activity::Kind::Copy : Activity::Kind::Kernel});
  }
  if (task.records) {
    auto& event = *reinterpret_cast<Event*>(task.records);
    event.passed = task.turn;
    event.at_ns = clock_ns_;
  }
}

void EmulatedGpu::synchronize(GpuStream stream) {
  maybe_fail("synchronize");
  if (capture_) throw std::logic_error{"the host waits for a stream that is being captured"};
  const Stream& awaited = *streams_.at(stream);
  while (!awaited.tasks.empty())
    if (!run_any() && !wait_for_others()) throw std::logic_error{"streams wait for one another"};
  ran_.push_back({mark_, clock_ns_, clock_ns_, Activity::Kind::HostWait});
}

bool EmulatedGpu::run_any() {
  std::vector<Stream*> able;
  const auto add = [&](Stream& s) {
    if (!s.tasks.empty() && can_run(s.tasks.front())) able.push_back(&s);
  };
  for (const auto& [handle, s] : streams_) add(*s);
  for (const auto& s : graph_streams_) add(*s);
  if (able.empty()) return false;
  run_one(*able[random_() % able.size()]);
  return true;
}

std::int64_t EmulatedGpu::nanoseconds(GpuEvent from, GpuEvent to) {
  return events_.at(to)->at_ns - events_.at(from)->at_ns;
}

std::unique_ptr<DeviceMemory> EmulatedGpu::device_memory(int device) {
  return std::make_unique<Memory>(*this, &used_[static_cast<std::size_t>(device)], options_.memory_bytes);
}
std::unique_ptr<DeviceMemory> EmulatedGpu::plain_memory(int device) {
  return std::make_unique<PlainMemory>(*this, device);
}
std::unique_ptr<DeviceMemory> EmulatedGpu::pinned_memory() {
  return std::make_unique<Memory>(*this, &used_.back(), options_.memory_bytes);
}

void EmulatedGpu::copy(std::uintptr_t to, std::uintptr_t from, std::int64_t bytes, GpuStream stream) {
  maybe_fail("copy");
  copied_ += bytes;
  enqueue(stream, "copy", [=] {
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), static_cast<std::size_t>(bytes));
  });
}

void EmulatedGpu::launch(const gpu::Launch& launch, GpuStream stream) {
  maybe_fail("launch");
  const auto runner = runners_.find(launch.tag);
  if (runner == runners_.end()) throw std::logic_error{fmt::format("no kernel {}", launch.tag->name)};
  if (!options_.skips.empty() && std::string_view{launch.tag->name}.find(options_.skips) != std::string_view::npos)
    return;
  auto arguments = std::make_shared<std::vector<gpu::Quad>>(launch.tag->bytes / sizeof(gpu::Quad) + 1);
  std::memcpy(arguments->data(), launch.arguments, launch.tag->bytes);
  enqueue(stream, launch.tag->name, [=, run = runner->second] {
    gpu::Launch later = launch;
    later.arguments = arguments->data();
    run(later);
  });
}

void EmulatedGpu::multiply(const GpuProduct& product, GpuStream stream) {
  maybe_fail("multiply");
  if (product.workspace % 256 != 0) throw DeviceError{"the workspace of a product is not at a multiple of 256 bytes"};
  enqueue(stream, "multiply", [=] { multiply_now(product); });
}

void EmulatedGpu::call(void (*function)(void*), void* argument, GpuStream stream) {
  enqueue(stream, "call", [=] { function(argument); });
}

std::shared_ptr<ActivitySource> EmulatedGpu::activities() {
  maybe_fail("activities");
  class Source final : public ActivitySource {
   public:
    explicit Source(EmulatedGpu& gpu) : gpu_{gpu} {}
    ActivityLog take() override {
      ActivityLog log;
      const auto device = [](std::int64_t ns) { return 5'000'000 + ns + ns / 1000; };
      for (const Ran& r : gpu_.ran_)
        log.activities.push_back({r.mark, device(r.start_ns), device(r.end_ns), r.kind, r.bytes});
      log.first = {device(0), 0};
      log.last = {device(gpu_.clock_ns_ + 1'000'000), gpu_.clock_ns_ + 1'000'000};
      gpu_.ran_.clear();
      log.dropped = gpu_.options_.drops;
      return log;
    }

   private:
    EmulatedGpu& gpu_;
  };
  return std::make_shared<Source>(*this);
}

std::unique_ptr<CounterSource> EmulatedGpu::counters(int, const std::vector<std::string>& names) {
  maybe_fail("counters");
  class Source final : public CounterSource {
   public:
    Source(EmulatedGpu& gpu, std::vector<std::string> names) : gpu_{gpu}, names_{std::move(names)} {}
    std::vector<double> measure(const std::function<void()>& work) override {
      gpu_.maybe_fail("counting");
      work();
      const std::int64_t before = gpu_.copied_;
      work();
      const auto copied = static_cast<double>(gpu_.copied_ - before);
      std::vector<double> values;
      for (const std::string& name : names_) values.push_back(name == kTensorShare ? 50 : copied);
      return values;
    }

   private:
    EmulatedGpu& gpu_;
    std::vector<std::string> names_;
  };
  return std::make_unique<Source>(*this, names);
}

/// All-reduce only, in float: enough to see that the library is asked.
bool EmulatedGpu::collective(std::span<const GpuCollective> members) {
  if (!options_.has_library || members.front().kind != CollectiveKind::AllReduce || members.front().dtype != DType::F32)
    return false;
  maybe_fail("collective");
  ++collectives_;
  const std::vector<GpuCollective> all{members.begin(), members.end()};
  std::vector<GpuEvent> came;
  for (const GpuCollective& m : all) record(came.emplace_back(lent_.emplace_back(make_event(m.device))), m.stream);
  for (const GpuEvent e : came) wait(all.front().stream, e);
  enqueue(all.front().stream, "collective", [all] {
    for (std::int64_t i = 0; i < all.front().elements; ++i) {
      float sum = 0;
      for (const GpuCollective& m : all) sum += reinterpret_cast<const float*>(m.in)[i];
      for (const GpuCollective& m : all) reinterpret_cast<float*>(m.out)[i] = sum;
    }
  });
  const GpuEvent done = came.front();
  record(done, all.front().stream);
  for (const GpuCollective& m : all) wait(m.stream, done);
  return true;
}

}  // namespace orrery::testing
