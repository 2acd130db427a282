// SPDX-License-Identifier: Apache-2.0
// What one execution of a plan touches. Blocks that repeat others are walked once.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

#include "sim/plan/reuse.hpp"
#include "sim/plan/stretches.hpp"

namespace orrery {

std::vector<Stretch> stretches_of(const Plan& plan, const RankClass& c) {
  std::vector<Stretch> out;
  const std::size_t end = c.first_op + std::size_t{c.num_ops};
  std::size_t op = c.first_op;
  auto r = std::lower_bound(plan.repetitions.begin(), plan.repetitions.end(), OpId{op},
                            [](const Repetition& x, OpId first) { return x.first < first; });
  for (; r != plan.repetitions.end() && r->first.index() < end; ++r) {
    if (op < r->first.index()) out.push_back({op, r->first.index() - op, {}});
    out.push_back({r->first.index(), r->num_ops, r->like, r->moved, r->first_operand});
    op = r->first.index() + r->num_ops;
  }
  if (op < end) out.push_back({op, end - op, {}});
  return out;
}

std::span<const WaitingOp> OpOrder::waits_of(const RankClass& c) const {
  const auto before = [](const WaitingOp& w, std::uint32_t op) { return w.op < op; };
  const auto first = std::lower_bound(waits.begin(), waits.end(), c.first_op, before),
             end = std::lower_bound(first, waits.end(), c.first_op + c.num_ops, before);
  return {first, end};
}

std::vector<DoingOp> ops_that_do(const Plan& plan, const RankClass& c, const std::vector<bool>& works) {
  const auto add = [&](std::size_t first, std::size_t num_ops, std::vector<DoingOp>& out) {
    for (std::size_t i = first; i < first + num_ops; ++i)
      if (const Op& op = plan.ops[i]; works[op.work.index()]) out.push_back({static_cast<std::uint32_t>(i), op.work});
  };
  std::vector<DoingOp> out;
  std::map<OpId, std::vector<DoingOp>> blocks;  // that others repeat
  for (const Stretch& s : stretches_of(plan, c)) {
    if (s.like.is_none()) {
      add(s.first, s.num_ops, out);
      continue;
    }
    const auto [known, is_new] = blocks.try_emplace(s.like);
    if (is_new) add(s.like.index(), s.num_ops, known->second);
    const auto later = static_cast<std::uint32_t>(s.first - s.like.index());
    for (const DoingOp& d : known->second) out.push_back({d.op + later, d.work});
  }
  return out;
}

namespace {

struct Picks {
  std::size_t table = SIZE_MAX;  // which operand
  std::int64_t picks = 0, table_rows = 0, cols = 0;
  DType dtype = DType::F32;
};

Picks picks_of(const Work& work, const Bindings& b) {
  if (const auto* g = std::get_if<Gather>(&work)) return {0, g->used_rows(b), g->table_rows, g->cols, g->dtype};
  if (const auto* s = std::get_if<ScatterAdd>(&work)) return {2, s->rows, s->table_rows, s->cols, s->dtype};
  if (const auto* e = std::get_if<EmbeddingBagForward>(&work)) return {0, e->lookups, e->table_rows, e->cols, e->dtype};
  if (const auto* e = std::get_if<EmbeddingBagBackward>(&work))
    return {3, e->lookups, e->table_rows, e->cols, e->dtype};
  return {};
}

}  // namespace

Reach::Reach(const Work& work, const Bindings& bindings) {
  const Amount a = amount(work, bindings);
  each_ = a.message > Bytes{0} ? Bytes{std::numeric_limits<double>::infinity()} : a.read + a.written;
  const Picks p = picks_of(work, bindings);
  if (p.table_rows < 1) return;
  table_ = p.table;
  row_ = size_of(p.dtype, p.cols);
  const double rows = double(p.table_rows);
  rows_ = -rows * std::expm1(double(p.picks) * std::log1p(-1 / std::max(rows, 1.0 + 1e-9))) * row_;
}

void Reach::know_rows(std::int64_t rows) { rows_ = double(rows) * row_; }

namespace {

constexpr std::size_t kIndex = 1;  // which operand of a lookup names the rows

/// The different rows that an op picks by indices which the plan holds, if it does.
std::optional<std::int64_t> rows_named(const Plan& plan, const RankClass& c, ClassId id, const Op& op) {
  const TensorId index = plan.operands_of(op)[kIndex].tensor();
  for (const Constant& k : plan.constants) {
    if (k.tensor != index || k.rank_class != id) continue;
    std::vector<std::int64_t> first_rank;
    for (const CoordRange& r : c.ranges) first_rank.push_back(r.first);
    std::vector<double> rows = k.values(first_rank);
    std::sort(rows.begin(), rows.end());
    return std::unique(rows.begin(), rows.end()) - std::lower_bound(rows.begin(), rows.end(), 0.0);
  }
  return std::nullopt;
}

}  // namespace

std::vector<Reach> reach_of_works(const Plan& plan, const Bindings& bindings) {
  std::vector<Reach> out;
  for (const Work& work : plan.works) out.emplace_back(work, bindings);
  std::vector<bool> open;  // lookups none of whose ops has been seen
  for (const Reach& r : out) open.push_back(r.is_lookup());
  auto left = plan.constants.empty() ? 0 : std::count(open.begin(), open.end(), true);
  for (std::size_t c = 0; c < plan.classes.size(); ++c)
    for (const Op& op : plan.ops_of(plan.classes[c])) {
      if (left == 0) return out;
      if (!open[op.work.index()]) continue;
      open[op.work.index()] = false;
      --left;
      if (const auto rows = rows_named(plan, plan.classes[c], ClassId{c}, op)) out[op.work.index()].know_rows(*rows);
    }
  return out;
}

namespace {

/// What the ops of one class after another touch.
class TouchedBytes {
 public:
  TouchedBytes(const Plan& plan, const Bindings& bindings) : plan_{plan}, reach_{reach_of_works(plan, bindings)} {
    for (const Layout& l : plan.layouts) elements_.push_back(l.shape.elements());
  }

  void walk(const RankClass& c) {
    touched_.clear();
    persistent_ = live_ = peak_ = Bytes{};
    std::map<OpId, Block> blocks;
    for (const Stretch& s : stretches_of(plan_, c)) {
      if (s.like.is_none()) {
        Block once = block(s.first, s.num_ops);
        add(once, s.first);
        continue;
      }
      const auto [known, is_new] = blocks.try_emplace(s.like);
      if (is_new) known->second = block(s.like.index(), s.num_ops);
      add(known->second, s.first);
    }
  }
  /// By the class that was walked last: all bytes, and persistent owners with what was reached of them, in no order.
  Bytes all() const { return persistent_ + peak_; }
  const std::unordered_map<TensorId, Bytes>& persistent() const { return touched_; }

 private:
  struct Touch {
    std::uint32_t op = 0, operand = 0;  // in the block; of the op
    Bytes bytes, size;                  // reached; of the owner
  };
  /// What a block does, wherever it stands.
  struct Block {
    Bytes peak, live;            // beyond what was live before: the most, and behind it
    std::vector<Touch> touches;  // of persistent tensors
    std::vector<TensorId> full;  // per touch: what it touched when all of it had been touched; else empty
  };

  Bytes size(TensorId t) const {
    const Tensor& tensor = plan_.tensors[t.index()];
    return size_of(tensor.dtype, elements_[tensor.layout.index()]);
  }

  Block block(std::size_t first, std::size_t num_ops) const {
    Block out;
    for (std::uint32_t i = 0; i < num_ops; ++i) {
      const Op& op = plan_.ops[first + i];
      const std::span<const Operand> operands = plan_.operands_of(op);
      Bytes freed;
      for (std::uint32_t k = 0; k < operands.size(); ++k) {
        const TensorId t = operands[k].tensor(), owner = plan_.owner(t);
        if (plan_.tensors[owner.index()].persistent)
          out.touches.push_back({i, k, std::min(size(t), reach_[op.work.index()].of(k)), size(owner)});
        if (operands[k].allocates()) out.live += size(owner);
        if (operands[k].frees()) freed += size(owner);
      }
      out.peak = std::max(out.peak, out.live);
      out.live -= freed;
    }
    return out;
  }

  TensorId tensor_of(const Touch& t, std::size_t first) const {
    return plan_.operands[plan_.ops[first + t.op].first_operand + t.operand].tensor();
  }

  /// What touches the same tensors as an earlier block, of which nothing was left, adds nothing.
  void add(Block& b, std::size_t first) {
    peak_ = std::max(peak_, live_ + b.peak);
    live_ += b.live;
    std::size_t same = 0;
    while (same < b.full.size() && tensor_of(b.touches[same], first) == b.full[same]) ++same;
    if (!b.full.empty() && same == b.full.size()) return;
    b.full.clear();
    bool is_full = true;
    for (const Touch& t : b.touches) {
      const TensorId owner = plan_.owner(tensor_of(t, first));
      Bytes& touched = touched_[owner];
      const Bytes before = touched;
      touched = std::min(t.size, before + t.bytes);
      persistent_ += touched - before;
      is_full = is_full && touched == t.size;
    }
    for (std::size_t k = 0; is_full && k < b.touches.size(); ++k) b.full.push_back(tensor_of(b.touches[k], first));
  }

  const Plan& plan_;
  std::vector<Reach> reach_;                     // per work
  std::vector<std::int64_t> elements_;           // per layout
  std::unordered_map<TensorId, Bytes> touched_;  // of persistent owners, by the class at hand
  Bytes persistent_, live_, peak_;
};

}  // namespace

namespace {

/// Calls `walked` behind the walk over each class.
template <class F>
Bytes mean_over_ranks(const Plan& plan, TouchedBytes& touched, F walked) {
  Bytes all;
  double ranks = 0;
  for (const RankClass& c : plan.classes) {
    touched.walk(c);
    walked(c);
    all += double(c.size()) * touched.all();
    ranks += double(c.size());
  }
  return ranks > 0 ? all / ranks : all;
}

}  // namespace

Touched touched_by(const Plan& plan, const Bindings& bindings) {
  TouchedBytes touched{plan, bindings};
  Touched out;
  out.working_set = mean_over_ranks(plan, touched, [&](const RankClass& c) {
    if (&c != &plan.classes.front()) return;
    for (const auto& [owner, bytes] : touched.persistent())
      out.tensors.push_back({std::string{plan.name_of(owner)}, bytes});
  });
  std::sort(out.tensors.begin(), out.tensors.end(),
            [](const TouchedTensor& a, const TouchedTensor& b) { return a.name < b.name; });
  return out;
}

Bytes working_set(const Plan& plan, const Bindings& bindings) {
  TouchedBytes touched{plan, bindings};
  return mean_over_ranks(plan, touched, [](const RankClass&) {});
}

}  // namespace orrery
