// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/interleave.hpp"

#include <algorithm>
#include <vector>

namespace orrery {
namespace {

/// Ops of one pass, one behind another in the plan.
struct PassRun {
  std::size_t first = 0, last = 0;
  bool is_pass = false, is_forward = false, exchanges = false;
  std::uint16_t microbatch = 0;

  /// A backward pass and the forward pass behind it. The other way round stages of a pipeline would wait for each other:
  /// a forward pass for the backward pass that it shares its turns with, that one for the stage behind, which waits for
  /// the forward pass.
  bool goes_with(const PassRun& next) const {
    return is_pass && next.is_pass && exchanges && next.exchanges && !is_forward && next.is_forward &&
           microbatch != next.microbatch;
  }
};

bool is_exchange(const Plan& plan, const Op& op) {
  const auto* c = std::get_if<Collective>(&plan.work(op));
  return c && c->kind == CollectiveKind::AllToAll && op.stream == Stream::Ring;
}

bool is_pass(const Op& op) {
  return op.phase == Phase::Forward || op.phase == Phase::Backward || op.phase == Phase::Recompute;
}

/// The passes of a class, and what stands between them.
std::vector<PassRun> runs_of(const Plan& plan, const RankClass& c) {
  std::vector<PassRun> runs;
  for (std::size_t i = c.first_op; i < std::size_t{c.first_op} + c.num_ops; ++i) {
    const Op& op = plan.ops[i];
    const bool pass = is_pass(op), forward = op.phase == Phase::Forward;
    const bool same = !runs.empty() && runs.back().is_pass == pass && runs.back().is_forward == forward &&
                      runs.back().microbatch == op.microbatch;
    if (!same) runs.push_back({i, i, pass, forward, false, op.microbatch});
    runs.back().last = i + 1;
    runs.back().exchanges = runs.back().exchanges || is_exchange(plan, op);
  }
  return runs;
}

/// A new order of the ops of a plan.
class Order {
 public:
  explicit Order(const Plan& plan) : plan_{plan}, placed_(plan.ops.size(), false) {}

  void add(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) place(i);
  }

  /// A piece of one pass and a piece of the other in turn, `a` the earlier one in the plan. Where an op comes after one
  /// of the other pass it waits.
  void interleave(const PassRun& a, const PassRun& b) {
    std::size_t i = a.first, j = b.first;
    while (i < a.last || j < b.last) {
      add_piece(i, a.last);
      add_piece(j, b.last);
    }
  }

  std::vector<std::size_t> take() { return std::move(order_); }

 private:
  void place(std::size_t i) {
    placed_[i] = true;
    order_.push_back(i);
  }
  bool is_ready(std::size_t i) const {
    const auto deps = plan_.deps_of(plan_.ops[i]);
    return std::all_of(deps.begin(), deps.end(), [&](OpId d) { return placed_[d.index()]; });
  }
  /// Up to and with the next exchange.
  void add_piece(std::size_t& i, std::size_t last) {
    while (i < last && is_ready(i)) {
      place(i);
      if (is_exchange(plan_, plan_.ops[i++])) return;
    }
  }

  const Plan& plan_;
  std::vector<bool> placed_;
  std::vector<std::size_t> order_;
};

std::vector<std::size_t> interleaved(const Plan& plan) {
  Order order{plan};
  for (const RankClass& c : plan.classes) {
    const std::vector<PassRun> runs = runs_of(plan, c);
    for (std::size_t r = 0; r < runs.size(); ++r) {
      if (r + 1 < runs.size() && runs[r].goes_with(runs[r + 1])) {
        order.interleave(runs[r], runs[r + 1]);
        ++r;
      } else {
        order.add(runs[r].first, runs[r].last);
      }
    }
  }
  return order.take();
}

}  // namespace

Plan interleave_passes(const Plan& plan) {
  const std::vector<std::size_t> order = interleaved(plan);
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  Plan out = plan;
  out.deps.clear(), out.repetitions.clear();
  for (std::size_t i = 0; i < order.size(); ++i) {
    Op op = plan.ops[order[i]];
    op.first_dep = static_cast<std::uint32_t>(out.deps.size());
    for (const OpId d : plan.deps_of(plan.ops[order[i]])) out.deps.push_back(OpId{place[d.index()]});
    out.ops[i] = op;
  }
  verify(out);
  return out;
}

}  // namespace orrery
