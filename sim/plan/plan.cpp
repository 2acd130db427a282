// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/plan.hpp"

#include <algorithm>
#include <limits>

#include "sim/base/error.hpp"

namespace orrery {

std::string_view name_of(Tier t) {
  constexpr std::string_view names[] = {"device", "pinned", "host", "disk", "peer"};
  return names[static_cast<int>(t)];
}

std::string_view name_of(TensorRole r) {
  constexpr std::string_view names[] = {"parameter", "gradient", "optimizer_state", "activation",    "kv_cache",
                                        "input",     "constant", "workspace",       "communication", "result"};
  return names[static_cast<int>(r)];
}

std::string_view name_of(Stream s) {
  constexpr std::string_view names[] = {"compute", "comm",      "copy_in",   "copy_out",  "disk",     "host",
                                        "ring",    "send_next", "recv_prev", "send_prev", "recv_next"};
  return names[static_cast<int>(s)];
}

std::string_view name_of(Phase p) {
  constexpr std::string_view names[] = {"forward", "backward", "recompute", "optimizer", "prefill", "decode"};
  return names[static_cast<int>(p)];
}

Shape::Shape(std::initializer_list<std::int64_t> s) : Shape{std::span<const std::int64_t>{s.begin(), s.size()}} {}

Shape::Shape(std::span<const std::int64_t> s) {
  if (s.size() > sizes.size()) bug("a shape has at most five dimensions");
  std::copy(s.begin(), s.end(), sizes.begin());
  rank = static_cast<std::int32_t>(s.size());
}

std::int64_t Shape::elements() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= (*this)[i];
  return n;
}

Layout Layout::contiguous(const Shape& shape) {
  Layout out{.shape = shape};
  std::int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    out.strides[static_cast<std::size_t>(i)] = stride;
    stride *= shape[i];
  }
  return out;
}

bool Layout::is_contiguous() const {
  std::int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[static_cast<std::size_t>(i)] != stride) return false;
    stride *= shape[i];
  }
  return true;
}

Bytes Plan::size(TensorId t) const {
  const Tensor& tensor = tensors[t.index()];
  return size_of(tensor.dtype, layouts[tensor.layout.index()].shape.elements());
}

bool Plan::has_port(std::string_view name) const {
  return std::any_of(ports.begin(), ports.end(), [&](const Port& p) { return p.name == name; });
}

TensorId Plan::find_port(std::string_view name) const {
  std::vector<std::string> known;
  for (const Port& port : ports) {
    if (port.name == name) return port.tensor;
    known.push_back(port.name);
  }
  throw unknown_name("port", name, known);
}

const ParameterPlacement* Plan::find_placement(ParameterId parameter) const {
  for (const ParameterPlacement& p : placements)
    if (p.parameter == parameter) return &p;
  return nullptr;
}

std::vector<ClassId> Plan::class_of_ranks() const {
  std::vector<ClassId> out(static_cast<std::size_t>(mesh.size()));
  for (std::size_t r = 0; r < out.size(); ++r) {
    const auto c = mesh.coordinates(RankId{r});
    for (std::size_t k = 0; k < classes.size(); ++k)
      if (classes[k].contains(c)) out[r] = ClassId{k};
  }
  return out;
}

ClassId Plan::class_of(OpId id) const {
  const auto it = std::upper_bound(classes.begin(), classes.end(), id.value,
                                   [](std::uint32_t op, const RankClass& c) { return op < c.first_op; });
  return ClassId{static_cast<std::size_t>(it - classes.begin() - 1)};
}

}  // namespace orrery
