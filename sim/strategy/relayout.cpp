// SPDX-License-Identifier: Apache-2.0
// Activations between layers that split the ranks of a stage in different ways. Rows of a microbatch stand in one order
// for all layers (Arrangements::row_order); a layer gives each rank those rows whose place on the layer's row axes is
// the rank's, the same to all ranks that differ on other axes only. From axes A to axes B
//   a rank picks, of the rows that it has, those whose place on B \ A is its own: no communication;
//   ranks that differ on A \ B gather what they picked: of n ranks each receives (n−1)/n of the rows that it has then.
// Picking before gathering moves the least: what another rank has as well is not sent. A gradient between layers is
// whole on each rank that has its rows, so that it goes back by the same steps from B to A: a gather of activations is
// a pick of gradients, and the other way about. This is what Galvatron (arXiv 2211.13878) calls slice and gather.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/plan/placement.hpp"
#include "sim/strategy/layers.hpp"

namespace orrery {
namespace {

using Axes = std::vector<std::int8_t>;

/// In the order of the first.
Axes without(const Axes& axes, const Axes& some) {
  Axes out;
  for (const std::int8_t a : axes)
    if (!has_axis(some, a)) out.push_back(a);
  return out;
}

/// Calls f with the coordinates of each place on some axes, the first varies slowest.
template <class F>
void for_each_place(const Mesh& mesh, const Axes& axes, std::span<const std::int64_t> at, F f) {
  const std::int64_t n = ranks_over(mesh, axes);
  std::vector<std::int64_t> c{at.begin(), at.end()};
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i;
    for (std::size_t k = axes.size(); k-- > 0;) {
      const auto a = static_cast<std::size_t>(axes[k]);
      c[a] = rest % mesh.axes[a].size;
      rest /= mesh.axes[a].size;
    }
    f(c);
  }
}

/// For each place of `wanted`, runs of `unit` rows in a tensor whose runs lie in the order of `lies`.
std::vector<double> runs(const Mesh& mesh, const Axes& wanted, const Axes& lies, std::int64_t unit,
                         std::span<const std::int64_t> at) {
  std::vector<double> out;
  for_each_place(mesh, wanted, at, [&](const std::vector<std::int64_t>& c) {
    const std::int64_t first = position(mesh, lies, c).at * unit;
    for (std::int64_t i = 0; i < unit; ++i) out.push_back(double(first + i));
  });
  return out;
}

/// One direction of the way from one layout to another: what its ops are, for one width.
struct Move {
  TensorId picked;         // rows of the tensor at hand that go on; none: all
  Collective gather;       // without the bytes
  TensorId order;          // rows of what was gathered, in their order; none: they are in order
  std::int64_t rows = 0;   // that are picked
  std::int64_t ranks = 1;  // that gather
  std::string name;
};

/// Finds the way of rows from axes `from` to axes `to`, of which a rank has `rows` before it.
Move find_move(Layers& l, const Axes& order, const Axes& from, const Axes& to, std::int64_t rows, std::string name) {
  const Mesh& mesh = l.slices().mesh;
  const Axes has = without(order, from), picks = without(to, from), kept = without(has, picks);
  const std::int64_t unit = rows / ranks_over(mesh, has);
  const auto table = [&](std::string_view what, std::int64_t n, const Axes& wanted, const Axes& lies) {
    return l.rank_constant(fmt::format("relayout.{}.{}to{}.{}", what, fmt::join(from, "+"), fmt::join(to, "+"), n),
                           Shape{n}, DType::I32,
                           [=](std::span<const std::int64_t> at) { return runs(mesh, wanted, lies, unit, at); });
  };
  Move m{.picked = {},
         .gather = {},
         .order = {},
         .rows = ranks_over(mesh, kept) * unit,
         .ranks = 1,
         .name = std::move(name)};
  if (!picks.empty()) m.picked = table("pick", m.rows, kept, has);
  Axes gathered = without(from, to);
  std::sort(gathered.begin(), gathered.end());  // members of a group come in the order of their ranks
  m.ranks = ranks_over(mesh, gathered);
  if (m.ranks == 1) return m;
  m.gather.kind = CollectiveKind::AllGather;
  m.gather.group = l.tape().builder().group_over(gathered);
  Axes lies = gathered;
  lies.insert(lies.end(), kept.begin(), kept.end());
  const Axes wanted = without(order, to);
  if (lies != wanted) m.order = table("order", m.rows * m.ranks, wanted, lies);
  return m;
}

/// Emits the ops of a move by `add(name, work, operands)`; where x lies behind them.
template <class Add>
TensorId emit(PlanBuilder& b, Move m, TensorId x, Add add) {
  const std::int64_t cols = b.plan().shape(x)[1];
  const DType dtype = b.plan().tensors[x.index()].dtype;
  const auto rows_of = [&](std::string_view what, TensorId from, TensorId index) {
    const std::string name = m.name + std::string{what};
    const std::int64_t n = b.plan().shape(index)[0], of = b.plan().shape(from)[0];
    const TensorId y = b.tensor(name, Shape{n, cols}, {.dtype = dtype});
    const Gather work{.rows = n, .cols = cols, .table_rows = of, .first = 0, .last = of, .dtype = dtype};
    add(name, work, std::array{reads(from), reads(index), writes(y)});
    return y;
  };
  if (!m.picked.is_none()) x = rows_of(".pick", x, m.picked);
  if (m.ranks == 1) return x;
  const TensorId all = b.tensor(m.name + ".gather", Shape{m.rows * m.ranks, cols}, {.dtype = dtype});
  m.gather.bytes = size_of(dtype, m.rows * m.ranks * cols);
  m.gather.dtype = dtype;
  add(m.name + ".gather", m.gather, std::array{reads(x), writes(all)});
  return m.order.is_none() ? all : rows_of(".order", all, m.order);
}

}  // namespace

TensorId Layers::turn_to(const Arrangement& to, std::string_view name, TensorId x) {
  if (&to == arrangement_) return x;
  const Axes before = slices().row_axes(), after = to.slices.row_axes();
  const Mesh& mesh = slices().mesh;
  start_in(to);
  if (without(before, after).empty() && without(after, before).empty()) return x;
  const std::int64_t rows = tape_.plan().shape(x)[0],
                     rows_after = rows * ranks_over(mesh, before) / ranks_over(mesh, after);
  const Move there = find_move(*this, arrangements_.row_order, before, after, rows, fmt::format("{}.relayout", name));
  const Move back =
      find_move(*this, arrangements_.row_order, after, before, rows_after, fmt::format("{}.relayout.back", name));
  Tape* tape = &tape_;
  using Operands = std::span<const Operand>;
  const auto forward = [tape](const std::string& op, const Work& w, Operands o) { tape->add_plain(op, w, o); };
  const auto backward = [tape](const std::string& op, const Work& w, Operands o) { tape->emit(op, w, o); };
  const TensorId y = emit(tape_.builder(), there, x, forward);
  tape_.on_backward([tape, x, y, back, backward] {
    if (const TensorId dy = tape->gradient(y); !dy.is_none())
      tape->contribute(x, emit(tape->builder(), back, dy, backward));
  });
  return y;
}

}  // namespace orrery
