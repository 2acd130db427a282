// SPDX-License-Identifier: Apache-2.0
// Counters by CUPTI's range profiler: a range around the whole work, which is repeated for each pass.
#include "runtime/cuda/native/counters.hpp"

#include <cuda.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/library.hpp"

namespace orrery {
namespace {

/// The library and its error texts.
class Cupti {
 public:
  Cupti() : library_{"CUPTI", {"libcupti.so.13", "libcupti.so"}} { library_.find("cuptiGetResultString", text_); }

  /// Calls a function of CUPTI's profiling interface, whose one argument is a structure that knows its size.
  template <class P>
  void call(const char* name, P& parameters) const {
    CUptiResult (*function)(P*) = nullptr;
    library_.find(name, function);
    const CUptiResult result = function(&parameters);
    if (result == CUPTI_SUCCESS) return;
    if (result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ||
        result == CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES)
      throw DeviceError{"CUPTI may not count here: ask the administrator to set NVreg_RestrictProfilingToAdminUsers=0"};
    const char* text = nullptr;
    text_(result, &text);
    throw DeviceError{fmt::format("{}: {}", name, text ? text : "unknown CUPTI error")};
  }

 private:
  Library library_;
  decltype(cuptiGetResultString)* text_ = nullptr;
};

/// What can be counted of a chip; needs no device.
class Host {
 public:
  Host(const Cupti& cupti, const std::string& chip) : cupti_{cupti} {
    CUpti_Profiler_Host_Initialize_Params p{CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE};
    p.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    p.pChipName = chip.c_str();
    cupti_.call("cuptiProfilerHostInitialize", p);
    object_ = p.pHostObject;
  }
  ~Host() {
    CUpti_Profiler_Host_Deinitialize_Params p{CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE};
    p.pHostObject = object_;
    try {
      cupti_.call("cuptiProfilerHostDeinitialize", p);
    } catch (const DeviceError&) {
    }
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  CounterPlan plan(std::vector<const char*> names) {
    CUpti_Profiler_Host_ConfigAddMetrics_Params add{CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE};
    add.pHostObject = object_;
    add.ppMetricNames = names.data();
    add.numMetrics = names.size();
    cupti_.call("cuptiProfilerHostConfigAddMetrics", add);
    CUpti_Profiler_Host_GetConfigImageSize_Params size{CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE};
    size.pHostObject = object_;
    cupti_.call("cuptiProfilerHostGetConfigImageSize", size);
    CounterPlan plan{std::vector<std::uint8_t>(size.configImageSize)};
    CUpti_Profiler_Host_GetConfigImage_Params image{CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE};
    image.pHostObject = object_;
    image.configImageSize = plan.image.size();
    image.pConfigImage = plan.image.data();
    cupti_.call("cuptiProfilerHostGetConfigImage", image);
    CUpti_Profiler_Host_GetNumOfPasses_Params passes{CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE};
    passes.configImageSize = plan.image.size();
    passes.pConfigImage = plan.image.data();
    cupti_.call("cuptiProfilerHostGetNumOfPasses", passes);
    plan.passes = passes.numOfPasses;
    return plan;
  }
  /// The values of the first range of a counter image.
  std::vector<double> values(const std::vector<std::uint8_t>& image, std::vector<const char*> names) {
    std::vector<double> values(names.size());
    CUpti_Profiler_Host_EvaluateToGpuValues_Params p{CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE};
    p.pHostObject = object_;
    p.pCounterDataImage = image.data();
    p.counterDataImageSize = image.size();
    p.rangeIndex = 0;
    p.ppMetricNames = names.data();
    p.numMetrics = names.size();
    p.pMetricValues = values.data();
    cupti_.call("cuptiProfilerHostEvaluateToGpuValues", p);
    return values;
  }

 private:
  const Cupti& cupti_;
  CUpti_Profiler_Host_Object* object_ = nullptr;
};

std::vector<const char*> pointers(const std::vector<std::string>& names) {
  std::vector<const char*> out;
  for (const std::string& name : names) out.push_back(name.c_str());
  return out;
}

std::string chip_of(const Cupti& cupti, int device) {
  CUpti_Device_GetChipName_Params p{CUpti_Device_GetChipName_Params_STRUCT_SIZE};
  p.deviceIndex = static_cast<std::size_t>(device);
  cupti.call("cuptiDeviceGetChipName", p);
  return p.pChipName;
}

CUcontext current_context() {
  const Library driver{"the NVIDIA driver", {"libcuda.so.1"}};
  CUresult (*current)(CUcontext*) = nullptr;
  driver.find("cuCtxGetCurrent", current);
  CUcontext context = nullptr;
  if (current(&context) != CUDA_SUCCESS || !context) throw DeviceError{"no context of a device to count in"};
  return context;
}

class RangeCounters final : public CounterSource {
 public:
  RangeCounters(int device, std::vector<std::string> names) : names_{std::move(names)} {
    CUpti_Profiler_Initialize_Params start{CUpti_Profiler_Initialize_Params_STRUCT_SIZE};
    cupti_.call("cuptiProfilerInitialize", start);
    host_.emplace(cupti_, chip_of(cupti_, device));
    plan_ = host_->plan(pointers(names_));
  }

  std::vector<double> measure(const std::function<void()>& work) override {
    const Enabled range{cupti_};
    std::vector<std::uint8_t> image = counter_image(range.object());
    configure(range.object(), image);
    for (bool all = false; !all;) all = pass(range.object(), work);
    CUpti_RangeProfiler_DecodeData_Params decode{CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE};
    decode.pRangeProfilerObject = range.object();
    cupti_.call("cuptiRangeProfilerDecodeData", decode);
    if (decode.numOfRangeDropped > 0)
      throw DeviceError{fmt::format("{} ranges of counters were dropped", decode.numOfRangeDropped)};
    return host_->values(image, pointers(names_));
  }

 private:
  using Object = CUpti_RangeProfiler_Object*;
  /// While it lives the context is profiled, and runs slower.
  class Enabled {
   public:
    explicit Enabled(const Cupti& cupti) : cupti_{cupti} {
      CUpti_RangeProfiler_Enable_Params p{CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE};
      p.ctx = current_context();
      cupti_.call("cuptiRangeProfilerEnable", p);
      object_ = p.pRangeProfilerObject;
    }
    ~Enabled() {
      CUpti_RangeProfiler_Disable_Params p{CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE};
      p.pRangeProfilerObject = object_;
      try {
        cupti_.call("cuptiRangeProfilerDisable", p);
      } catch (const DeviceError&) {
      }
    }
    Enabled(const Enabled&) = delete;
    Enabled& operator=(const Enabled&) = delete;
    Object object() const { return object_; }

   private:
    const Cupti& cupti_;
    Object object_ = nullptr;
  };

  std::vector<std::uint8_t> counter_image(Object object) const {
    std::vector<const char*> names = pointers(names_);
    CUpti_RangeProfiler_GetCounterDataSize_Params size{CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE};
    size.pRangeProfilerObject = object;
    size.pMetricNames = names.data();
    size.numMetrics = names.size();
    size.maxNumOfRanges = 1;
    size.maxNumRangeTreeNodes = 1;
    cupti_.call("cuptiRangeProfilerGetCounterDataSize", size);
    std::vector<std::uint8_t> image(size.counterDataSize);
    CUpti_RangeProfiler_CounterDataImage_Initialize_Params clear{
        CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE};
    clear.pRangeProfilerObject = object;
    clear.counterDataSize = image.size();
    clear.pCounterData = image.data();
    cupti_.call("cuptiRangeProfilerCounterDataImageInitialize", clear);
    return image;
  }
  void configure(Object object, std::vector<std::uint8_t>& image) const {
    CUpti_RangeProfiler_SetConfig_Params p{CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE};
    p.pRangeProfilerObject = object;
    p.configSize = plan_.image.size();
    p.pConfig = plan_.image.data();
    p.counterDataImageSize = image.size();
    p.pCounterDataImage = image.data();
    p.range = CUPTI_UserRange;
    p.replayMode = CUPTI_UserReplay;
    p.maxRangesPerPass = 1;
    p.numNestingLevels = 1;
    p.minNestingLevel = 1;
    p.passIndex = 0;
    p.targetNestingLevel = 1;
    cupti_.call("cuptiRangeProfilerSetConfig", p);
  }
  /// One pass; whether it was the last.
  bool pass(Object object, const std::function<void()>& work) const {
    CUpti_RangeProfiler_Start_Params start{CUpti_RangeProfiler_Start_Params_STRUCT_SIZE};
    start.pRangeProfilerObject = object;
    cupti_.call("cuptiRangeProfilerStart", start);
    CUpti_RangeProfiler_PushRange_Params push{CUpti_RangeProfiler_PushRange_Params_STRUCT_SIZE};
    push.pRangeProfilerObject = object;
    push.pRangeName = "work";
    cupti_.call("cuptiRangeProfilerPushRange", push);
    work();
    CUpti_RangeProfiler_PopRange_Params pop{CUpti_RangeProfiler_PopRange_Params_STRUCT_SIZE};
    pop.pRangeProfilerObject = object;
    cupti_.call("cuptiRangeProfilerPopRange", pop);
    CUpti_RangeProfiler_Stop_Params stop{CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE};
    stop.pRangeProfilerObject = object;
    cupti_.call("cuptiRangeProfilerStop", stop);
    return stop.isAllPassSubmitted != 0;
  }

  Cupti cupti_;
  std::vector<std::string> names_;
  std::optional<Host> host_;
  CounterPlan plan_;
};

}  // namespace

CounterPlan plan_counters(const std::string& chip, const std::vector<std::string>& names) {
  const Cupti cupti;
  return Host{cupti, chip}.plan(pointers(names));
}

std::unique_ptr<CounterSource> open_counters(int device, std::vector<std::string> names) {
  return std::make_unique<RangeCounters>(device, std::move(names));
}

}  // namespace orrery
