// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/row_part.hpp"

namespace orrery {
namespace {

/// Of `num` operands all but the numbered ones have the rows.
std::optional<RowWise> all_but(std::int64_t rows, std::size_t num, std::initializer_list<std::size_t> others,
                               std::int64_t unit = 1) {
  RowWise out{rows, std::vector<bool>(num, true), unit};
  for (const std::size_t i : others) out.split[i] = false;
  return out;
}

struct Find {
  std::size_t num;

  template <class W>
  std::optional<RowWise> operator()(const W&) const {
    return std::nullopt;
  }
  std::optional<RowWise> operator()(const Gemm& g) const {
    if (g.batch != 1 || g.transpose_a || g.accumulate || g.input != InputCast::None) return std::nullopt;
    return g.bias ? all_but(g.m, num, {1, 2}) : all_but(g.m, num, {1});
  }
  std::optional<RowWise> operator()(const NormForward& n) const {
    if (!n.weighted) return all_but(n.rows, num, {});
    return n.kind == NormKind::Layer ? all_but(n.rows, num, {1, 2}) : all_but(n.rows, num, {1});
  }
  std::optional<RowWise> operator()(const ActivationForward& a) const {
    return a.counted ? std::nullopt : all_but(a.rows, num, {});
  }
  std::optional<RowWise> operator()(const GatedForward& g) const {
    return g.counted ? std::nullopt : all_but(g.rows, num, {});
  }
  std::optional<RowWise> operator()(const Add& a) const { return all_but(a.rows, num, {}); }
  std::optional<RowWise> operator()(const Multiply& m) const { return all_but(m.rows, num, {}); }
  std::optional<RowWise> operator()(const ScaleRows& s) const {
    return s.counted ? std::nullopt : all_but(s.rows, num, {});
  }
  std::optional<RowWise> operator()(const Dropout& d) const { return all_but(d.rows, num, {}); }
  std::optional<RowWise> operator()(const AddRows& a) const { return all_but(a.rows, num, {1}, a.period); }
  /// Rows of one sequence turn by the angles that follow on those before them.
  std::optional<RowWise> operator()(const RotaryEmbedding& r) const {
    if (r.positions || r.start.is_bound()) return std::nullopt;
    return all_but(r.rows, num, {0, 1}, r.rows <= r.sequence ? 1 : r.sequence);
  }
};

struct TakeRows {
  std::int64_t first, count;

  template <class W>
  void operator()(W& w) const {
    if constexpr (requires { w.rows; }) w.rows = count;
  }
  void operator()(Gemm& g) const { g.m = count; }
  void operator()(Dropout& d) const {
    d.rows = count;
    if (!d.by_row) d.first_row += first;
  }
  void operator()(RotaryEmbedding& r) const {
    const bool is_one = r.rows <= r.sequence;
    r.rows = count;
    if (is_one) r.start.base += first, r.sequence = r.rows;
  }
};

}  // namespace

std::optional<RowWise> row_wise(const Work& work, std::size_t num_operands) {
  return std::visit(Find{num_operands}, work);
}

Work rows_of(Work work, std::int64_t first, std::int64_t count) {
  std::visit(TakeRows{first, count}, work);
  return work;
}

}  // namespace orrery
