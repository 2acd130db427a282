// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/kinds/common.hpp"
#include "sim/plan/tensor.hpp"

namespace orrery {

/// Moves a tensor between tiers: `rows` rows of `bytes`, where `used` is bound the first of them only (see used_of).
/// Operands: from → to.
struct Copy {
  Bytes bytes;
  Tier from = Tier::Device;
  Tier to = Tier::Device;
  std::int64_t rows = 1;
  Extent used;

  Bytes moved(const Bindings& b) const { return double(used_of(rows, used, b)) * bytes; }

  static constexpr std::string_view kName = "copy";
  static constexpr OpClass kClass = OpClass::Copy;
  template <class V>
  void visit(V&& v) const {
    v("bytes", bytes);
    v("from", from);
    v("to", to);
    v("rows", rows);
    v("used", used);
  }
  Amount amount(const Bindings& b) const { return {{}, moved(b), moved(b), moved(b)}; }
  bool operator==(const Copy&) const = default;
};

/// Copies rows of a strided view.  Operands: x → y.
struct CopyRows {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "copy_rows";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("rows", rows);
    v("cols", cols);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const { return {{}, size_of(dtype, rows * cols), size_of(dtype, rows * cols), {}}; }
  bool operator==(const CopyRows&) const = default;
};

/// Takes storage for its operand, which no op before may use.  Operands: → t.
struct Alloc {
  Bytes bytes;

  static constexpr std::string_view kName = "alloc";
  static constexpr OpClass kClass = OpClass::Other;
  template <class V>
  void visit(V&& v) const {
    v("bytes", bytes);
  }
  Amount amount(const Bindings&) const { return {}; }
  bool operator==(const Alloc&) const = default;
};

/// Gives the storage of its operand back.  Operands: t.
struct Free {
  Bytes bytes;

  static constexpr std::string_view kName = "free";
  static constexpr OpClass kClass = OpClass::Other;
  template <class V>
  void visit(V&& v) const {
    v("bytes", bytes);
  }
  Amount amount(const Bindings&) const { return {}; }
  bool operator==(const Free&) const = default;
};

/// Work of the host thread of a rank, and then a pause: the way of a call, an interval of polling. With `waits` the
/// host first waits until the device has made what it reads (a token, counts of rows), or without operands until all is
/// done that is enqueued before it, and enqueues nothing meanwhile.  Operands: read and written as listed.
struct HostWork {
  Flops flops;
  Bytes bytes;
  bool waits = true;
  Seconds pause;
  bool experts = false;  // of a layer of experts, for which programs do more than ops say: see hw_models

  static constexpr std::string_view kName = "host_work";
  static constexpr OpClass kClass = OpClass::Host;
  template <class V>
  void visit(V&& v) const {
    v("flops", flops);
    v("bytes", bytes);
    v("waits", waits);
    v("pause", pause);
    v("experts", experts);
  }
  Amount amount(const Bindings&) const { return {flops, bytes, {}, {}}; }
  bool operator==(const HostWork&) const = default;
};

/// y[o,j,i,:] = x[o,i,j,:]; its own gradient with a and b exchanged.  Operands: x[outer, a, b, inner] → y[outer, b, a,
/// inner].
struct SwapAxes {
  std::int64_t outer = 1;
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t inner = 1;
  DType dtype = DType::F32;

  static constexpr std::string_view kName = "swap_axes";
  static constexpr OpClass kClass = OpClass::Elementwise;
  template <class V>
  void visit(V&& v) const {
    v("outer", outer);
    v("a", a);
    v("b", b);
    v("inner", inner);
    v("dtype", dtype);
  }
  Amount amount(const Bindings&) const {
    return {{}, size_of(dtype, outer * a * b * inner), size_of(dtype, outer * a * b * inner), {}};
  }
  bool operator==(const SwapAxes&) const = default;
};

}  // namespace orrery
