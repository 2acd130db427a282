// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor_io.hpp"

#include "kernels/cuda/scalar.hpp"
#include "runtime/arena.hpp"
#include "runtime/disk_file.hpp"
#include "runtime/strided.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// The bytes of an owner: in memory where they lie, of a file or a device a copy that is written back when it has
/// changed.
class Contents {
 public:
  Contents(const Plan& plan, TensorId owner, std::uintptr_t place, const RankMemory& memory)
      : memory_{memory}, tier_{plan.tensors[owner.index()].tier}, place_{place} {
    if (tier_ != Tier::Disk && !memory.device(tier_)) {
      bytes_ = reinterpret_cast<std::byte*>(place);
      return;
    }
    copy_.resize(static_cast<std::size_t>(plan.size(owner).base()));
    if (tier_ == Tier::Disk)
      memory.file()->read(static_cast<std::int64_t>(place), copy_.data(), size());
    else
      memory.device(tier_)->read(place, copy_.data(), size());
    bytes_ = copy_.data();
  }
  std::byte* bytes() const { return bytes_; }
  void write_back() const {
    if (copy_.empty()) return;
    if (tier_ == Tier::Disk)
      memory_.file()->write(static_cast<std::int64_t>(place_), copy_.data(), size());
    else
      memory_.device(tier_)->write(place_, copy_.data(), size());
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(copy_.size()); }

  const RankMemory& memory_;
  Tier tier_;
  std::uintptr_t place_;
  std::vector<std::byte> copy_;
  std::byte* bytes_ = nullptr;
};

/// A number of a type that the language does not have.
template <class T>
struct Stored16 {
  T bits;
  Stored16() = default;
  template <class V>
  explicit Stored16(V v) : bits{kernels::cuda::from_float<T>(static_cast<float>(v))} {}
  explicit operator double() const { return static_cast<double>(kernels::cuda::to_float(bits)); }
};

/// Calls visit(pointer to the first element, as its type).
template <class V>
void with_elements(DType t, std::byte* bytes, std::int64_t offset, V&& visit) {
  switch (t) {
    case DType::F64:
      return visit(reinterpret_cast<double*>(bytes) + offset);
    case DType::F32:
      return visit(reinterpret_cast<float*>(bytes) + offset);
    case DType::I32:
      return visit(reinterpret_cast<std::int32_t*>(bytes) + offset);
    case DType::I64:
      return visit(reinterpret_cast<std::int64_t*>(bytes) + offset);
    case DType::BF16:
      return visit(reinterpret_cast<Stored16<kernels::cuda::bf16>*>(bytes) + offset);
    case DType::F16:
      return visit(reinterpret_cast<Stored16<kernels::cuda::f16>*>(bytes) + offset);
    case DType::U8:
      return visit(reinterpret_cast<std::uint8_t*>(bytes) + offset);
    default:
      bug("an executor holds a type that it cannot");
  }
}

template <class From>
void write_values(const Plan& plan, TensorId tensor, std::uintptr_t place, const RankMemory& memory,
                  std::span<const From> values) {
  const Tensor& t = plan.tensors[tensor.index()];
  const Layout& layout = plan.layouts[t.layout.index()];
  const StridedDims dims{layout};
  const Contents contents{plan, plan.owner(tensor), place, memory};
  with_elements(t.dtype, contents.bytes(), layout.offset, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    if (layout.is_contiguous()) {
      std::transform(values.begin(), values.end(), p, [](From v) { return static_cast<T>(v); });
      return;
    }
    for (std::size_t i = 0; i < values.size(); ++i)
      p[dims.offset(static_cast<std::int64_t>(i))] = static_cast<T>(values[i]);
  });
  contents.write_back();
}

}  // namespace

void write_tensor(const Plan& plan, TensorId tensor, std::uintptr_t place, const RankMemory& memory,
                  std::span<const double> values) {
  write_values(plan, tensor, place, memory, values);
}

void write_tensor(const Plan& plan, TensorId tensor, std::uintptr_t place, const RankMemory& memory,
                  std::span<const std::int32_t> values) {
  write_values(plan, tensor, place, memory, values);
}

std::vector<double> read_tensor(const Plan& plan, TensorId tensor, std::uintptr_t place, const RankMemory& memory) {
  const Tensor& t = plan.tensors[tensor.index()];
  const Layout& layout = plan.layouts[t.layout.index()];
  const StridedDims dims{layout};
  const Contents contents{plan, plan.owner(tensor), place, memory};
  std::vector<double> values(static_cast<std::size_t>(layout.shape.elements()));
  with_elements(t.dtype, contents.bytes(), layout.offset, [&](const auto* p) {
    if (layout.is_contiguous()) {
      std::transform(p, p + values.size(), values.begin(), [](auto v) { return static_cast<double>(v); });
      return;
    }
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(p[dims.offset(static_cast<std::int64_t>(i))]);
  });
  return values;
}

}  // namespace orrery
