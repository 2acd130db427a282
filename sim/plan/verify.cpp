// SPDX-License-Identifier: Apache-2.0
// Proves a plan legal. Everything is checked per class; what crosses ranks is checked over the whole mesh.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "sim/base/error.hpp"
#include "sim/plan/operand_sizes.hpp"
#include "sim/plan/plan.hpp"
#include "sim/plan/progress.hpp"
#include "sim/plan/repeated_block.hpp"
#include "sim/plan/verify_collectives.hpp"
#include "sim/plan/verify_order.hpp"
#include "sim/plan/verify_places.hpp"

namespace orrery {
namespace {

bool is_message(const Work& w) { return std::holds_alternative<Send>(w) || std::holds_alternative<Recv>(w); }

class Checker {
 public:
  explicit Checker(const Plan& plan) : plan_{plan}, problems_{plan} {}

  std::vector<std::string> run() {
    check_classes();
    sizes_.resize(plan_.works.size());
    order_.streams.reserve(plan_.ops.size());
    order_.waits.reserve(std::min(plan_.ops.size(), plan_.deps.size()));
    for (const Layout& l : plan_.layouts) elements_.push_back(l.shape.elements());
    const BlockComparison comparison{plan_};
    OrderChecker order{plan_, blocks_, order_, problems_};
    std::size_t repetitions = 0;
    for (const RankClass& c : plan_.classes) {  // one after the other, as caches like it
      if (problems_.none()) repetitions += check_ops(c, comparison);
      if (problems_.none()) order.check(c, touched_);
    }
    if (problems_.none() && repetitions != plan_.repetitions.size())
      problem("the classes hold {} repetitions of {}", repetitions, plan_.repetitions.size());
    check_communication();
    if (problems_.none())
      for (const std::string& p : problems_of_places(plan_)) problem("{}", p);
    return problems_.take();
  }

 private:
  template <class... A>
  void problem(fmt::format_string<A...> text, A&&... args) {
    problems_.add(text, std::forward<A>(args)...);
  }
  std::string op_text(std::size_t i) const { return problems_.op(i); }
  std::string tensor_text(TensorId t) const { return problems_.tensor(t); }

  void check_classes();
  std::size_t check_ops(const RankClass& c, const BlockComparison& comparison);
  void check_plain(std::size_t first, std::size_t end);
  void note_order(std::size_t first, std::size_t end);
  bool has_ids(std::size_t i);
  void check_operand_sizes(std::size_t i);
  bool begins_repetition(const Repetition& r, const RankClass& c, std::size_t end) const;
  void check_repetition(const Repetition& r, const BlockComparison& comparison);
  bool does_alike(const Repetition& r);
  bool comes_after_the_same(const Repetition& r, std::uint32_t i) const;
  void check_uses(const Repetition& r, const BlockComparison& comparison);
  void check_blocks(const std::map<OpId, std::uint32_t>& lengths);
  void check_communication();
  bool has_communications() const;
  std::vector<std::vector<DoingOp>> ops_that(const std::function<bool(const Work&)>& is_wanted) const;
  const Work& work_of(const DoingOp& op) const { return plan_.works[op.work.index()]; }
  void check_group_order(const ReducedMesh& ranks, std::size_t group);
  void check_messages(const ReducedMesh& ranks);
  void check_progress(const ReducedMesh& ranks);
  const std::vector<std::int64_t>& sizes_of(WorkId work);

  const Plan& plan_;
  Problems problems_;
  std::vector<std::optional<std::vector<std::int64_t>>> sizes_;  // per work: elements of its operands
  std::vector<std::int64_t> elements_;                           // per layout
  OpOrder order_;                                                // of the ops that have been looked at
  std::map<OpId, RepeatedBlock> blocks_;                         // what repetitions are like
  TensorRange touched_;                                          // owners, by the class that is being checked
};

void Checker::check_classes() {
  std::size_t next = 0;
  for (const RankClass& c : plan_.classes) {
    if (c.first_op != next) problem("class '{}' does not start where the one before it ends", c.name);
    if (c.ranges.size() != plan_.mesh.axes.size())
      problem("class '{}' has {} ranges on a mesh of {} axes", c.name, c.ranges.size(), plan_.mesh.axes.size());
    next = c.first_op + c.num_ops;
  }
  if (next != plan_.ops.size()) problem("the classes hold {} ops of {}", next, plan_.ops.size());
  if (!problems_.none()) return;
  std::int64_t covered = 0;
  for (const RankClass& c : plan_.classes) covered += c.size();
  if (covered != plan_.mesh.size()) problem("the classes hold {} ranks, the mesh has {}", covered, plan_.mesh.size());
  for (std::size_t a = 0; a < plan_.classes.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      bool overlap = true;
      for (std::size_t x = 0; x < plan_.mesh.axes.size(); ++x) {
        const auto &p = plan_.classes[a].ranges[x], &q = plan_.classes[b].ranges[x];
        overlap = overlap && std::max(p.first, q.first) < std::min(p.last, q.last);
      }
      if (overlap) problem("classes '{}' and '{}' share ranks", plan_.classes[b].name, plan_.classes[a].name);
    }
}

const std::vector<std::int64_t>& Checker::sizes_of(WorkId work) {
  std::optional<std::vector<std::int64_t>>& sizes = sizes_[work.index()];
  if (!sizes) sizes = operand_sizes(plan_.works[work.index()]);
  return *sizes;
}

/// Whether all that an op names is there. Notes what it touches.
bool Checker::has_ids(std::size_t i) {
  const Op& op = plan_.ops[i];
  const bool has_work = op.work.index() < plan_.works.size() && op.name.index() < plan_.names.size();
  const bool has_operands = op.first_operand + std::size_t{op.num_operands} <= plan_.operands.size();
  const bool has_deps = op.first_dep + std::size_t{op.num_deps} <= plan_.deps.size();
  if (!has_work) problem("op {} has no work or no name", i);
  if (!has_operands) problem("op {} has operands that do not exist", i);
  if (!has_deps) problem("op {} has dependencies that do not exist", i);
  if (!has_work || !has_operands || !has_deps) return false;
  for (const Operand& o : plan_.operands_of(op)) {
    if (o.tensor().index() >= plan_.tensors.size()) {
      problem("{} has an operand that does not exist", op_text(i));
      return false;
    }
    touched_.widen(plan_.owner(o.tensor()));
  }
  return true;
}

/// What repetitions hold is compared with what they repeat: later checks trust in what is said of them, and so does the
/// engine. Returns how many the class has.
std::size_t Checker::check_ops(const RankClass& c, const BlockComparison& comparison) {
  touched_ = {};
  std::size_t next = c.first_op, repetitions = 0;
  std::map<OpId, std::uint32_t> lengths;  // of what is repeated
  const auto behind = [](const Repetition& r, OpId op) { return r.first < op; };
  for (auto r = std::lower_bound(plan_.repetitions.begin(), plan_.repetitions.end(), OpId{next}, behind);
       problems_.none() && r != plan_.repetitions.end() && r->first.index() < c.first_op + std::size_t{c.num_ops};
       ++r, ++repetitions) {
    const bool begins = begins_repetition(*r, c, next);
    if (!begins || lengths.try_emplace(r->like, r->num_ops).first->second != r->num_ops) {
      problem("op {} begins no repetition of {} ops from op {} on", r->first.index(), r->num_ops, r->like.index());
      return repetitions;
    }
    check_plain(next, r->first.index());
    if (problems_.none()) check_repetition(*r, comparison);
    next = r->first.index() + r->num_ops;
  }
  if (problems_.none()) check_plain(next, c.first_op + std::size_t{c.num_ops});
  check_blocks(lengths);
  return repetitions;
}

/// Ops that repeat no others.
void Checker::check_plain(std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) {
    if (!has_ids(i)) return;
    check_operand_sizes(i);
  }
  note_order(first, end);
}

void Checker::note_order(std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) {
    const Op& op = plan_.ops[i];
    order_.streams.push_back(op.stream);
    if (op.num_deps > 0) order_.waits.push_back({static_cast<std::uint32_t>(i), op.first_dep, op.num_deps});
  }
}

/// What a block is like is no copy itself.
void Checker::check_blocks(const std::map<OpId, std::uint32_t>& lengths) {
  for (const auto& [like, num_ops] : lengths) {
    const auto next =
        std::lower_bound(plan_.repetitions.begin(), plan_.repetitions.end(), like,
                         [](const Repetition& r, OpId op) { return r.first.index() + r.num_ops <= op.index(); });
    if (next != plan_.repetitions.end() && next->first.index() < like.index() + num_ops)
      problem("{} is repeated but repeats another op itself", op_text(like.index()));
  }
}

/// Mostly tensors of a copy are those of its block, all moved by as much: then they are compared range by range.
void Checker::check_repetition(const Repetition& r, const BlockComparison& comparison) {
  if (!does_alike(r)) return;
  note_order(r.first.index(), r.first.index() + r.num_ops);
  const auto [known, is_new] = blocks_.try_emplace(r.like);
  if (is_new) known->second = repeated_block(plan_, r.like, r.num_ops);
  if (r.moved == kNotMoved) return check_uses(r, comparison);
  if (!comparison.is_moved(r, known->second, touched_))
    problem("{} does not begin a copy of the block from {} on with tensors moved by {}", op_text(r.first.index()),
            op_text(r.like.index()), r.moved);
}

/// Whether its ops do what those of its block do, with operands that follow upon each other where it says so.
bool Checker::does_alike(const Repetition& r) {
  const Op* const mine = plan_.ops.data() + r.first.index();
  const Op* const like = plan_.ops.data() + r.like.index();
  const std::size_t names = plan_.names.size(), deps = plan_.deps.size();
  std::uint32_t next = r.first_operand, misplaced = 0;
  for (std::uint32_t i = 0; i < r.num_ops; ++i) {
    const Op &a = mine[i], &b = like[i];
    const std::uint32_t unlike =
        (a.work.value ^ b.work.value) | static_cast<std::uint32_t>(a.num_operands ^ b.num_operands) |
        static_cast<std::uint32_t>(a.stream != b.stream) | static_cast<std::uint32_t>(a.phase != b.phase);
    misplaced |= a.first_operand ^ next;
    next += a.num_operands;
    const bool has_ids = a.name.index() < names && a.first_dep + std::size_t{a.num_deps} <= deps;
    if (unlike == 0 && has_ids && ((a.num_deps | b.num_deps) == 0 || comes_after_the_same(r, i))) continue;
    problem("{} is said to repeat {} but does something else", op_text(r.first.index() + i),
            op_text(r.like.index() + i));
    return false;
  }
  if (r.moved == kNotMoved || (misplaced == 0 && next <= plan_.operands.size())) return true;
  problem("{} begins a repetition whose operands do not follow upon each other", op_text(r.first.index()));
  return false;
}

/// Behind the op that the one before it ends with, and wholly in a class.
bool Checker::begins_repetition(const Repetition& r, const RankClass& c, std::size_t end) const {
  const std::size_t first = r.first.index(), like = r.like.index();
  return r.num_ops > 0 && first >= end && like >= c.first_op && like + r.num_ops <= first &&
         first + r.num_ops <= c.first_op + std::size_t{c.num_ops};
}

/// Whether an op comes after the same ops of the block; those outside may differ.
bool Checker::comes_after_the_same(const Repetition& r, std::uint32_t i) const {
  const OpId first = r.first, first_like = r.like;
  const auto deps = plan_.deps_of(plan_.ops[first.index() + i]),
             deps_like = plan_.deps_of(plan_.ops[first_like.index() + i]);
  std::size_t k = 0;
  for (const OpId d : deps_like) {
    if (d < first_like) continue;
    while (k < deps.size() && deps[k] < first) ++k;
    if (k == deps.size() || deps[k++].index() - first.index() != d.index() - first_like.index()) return false;
  }
  return true;
}

void Checker::check_uses(const Repetition& r, const BlockComparison& comparison) {
  for (std::size_t i = 0; i < r.num_ops; ++i) {
    if (!has_ids(r.first.index() + i)) return;
    const Op &a = plan_.ops[r.first.index() + i], &b = plan_.ops[r.like.index() + i];
    const auto operands = plan_.operands_of(a), operands_like = plan_.operands_of(b);
    if (!std::equal(operands.begin(), operands.end(), operands_like.begin(),
                    [&](Operand x, Operand y) { return comparison.same_use(x, y); }))
      problem("{} is said to repeat {} but does something else", op_text(r.first.index() + i),
              op_text(r.like.index() + i));
  }
}

/// An op in place names its last operand once, where it is read.
void Checker::check_operand_sizes(std::size_t i) {
  const Op& op = plan_.ops[i];
  const std::vector<std::int64_t>& sizes = sizes_of(op.work);
  if (sizes.empty()) {
    if (const std::string wrong = collective_problem(plan_, op); !wrong.empty()) problem("{} {}", op_text(i), wrong);
    return;
  }
  const auto operands = plan_.operands_of(op);
  const bool in_place =
      std::any_of(operands.begin(), operands.end(), [](Operand o) { return o.reads() && o.writes(); });
  if (operands.size() != sizes.size() && !(in_place && operands.size() + 1 == sizes.size()))
    return problem("{} has {} operands, its kind has {}", op_text(i), operands.size(), sizes.size());
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const std::int64_t elements = elements_[plan_.tensors[operands[k].tensor().index()].layout.index()];
    if (sizes[k] != kAnySize && sizes[k] != elements)
      problem("{} has {} elements of {} as operand {}, its kind has {}", op_text(i), elements,
              tensor_text(operands[k].tensor()), k, sizes[k]);
  }
}

void Checker::check_communication() {
  if (!problems_.none() || !has_communications()) return;
  const ReducedMesh ranks = reduce(plan_.mesh, plan_.classes, plan_.groups);
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) check_group_order(ranks, g);
  check_messages(ranks);
  if (problems_.none()) check_progress(ranks);
}

bool Checker::has_communications() const {
  return std::any_of(plan_.works.begin(), plan_.works.end(),
                     [](const Work& w) { return std::holds_alternative<Collective>(w) || is_message(w); });
}

/// Of each class, in order: those whose work is wanted.
std::vector<std::vector<DoingOp>> Checker::ops_that(const std::function<bool(const Work&)>& is_wanted) const {
  std::vector<bool> wanted;
  for (const Work& w : plan_.works) wanted.push_back(is_wanted(w));
  std::vector<std::vector<DoingOp>> out;
  for (const RankClass& c : plan_.classes) out.push_back(ops_that_do(plan_, c, wanted));
  return out;
}

/// All ranks of a communicator issue its collectives in the same order, with the same kind and size.
void Checker::check_group_order(const ReducedMesh& reduced, std::size_t g) {
  const auto meets_others = [&](std::size_t r) {  // ranks of one class issue the same
    const auto all = members(reduced.mesh, reduced.groups[g], RankId{r});
    return all.empty() || std::any_of(all.begin(), all.end(), [&](RankId other) {
             return reduced.class_of_rank[other.index()] != reduced.class_of_rank[r];
           });
  };
  bool any = false;
  for (std::size_t r = 0; r < reduced.class_of_rank.size(); ++r) any = any || meets_others(r);
  if (!any) return;
  const auto calls = ops_that([&](const Work& w) {
    const auto* call = std::get_if<Collective>(&w);
    return call != nullptr && call->group == GroupId{g};
  });
  for (std::size_t r = 0; r < reduced.class_of_rank.size(); ++r) {
    const auto all = members(reduced.mesh, reduced.groups[g], RankId{r});
    const auto& first = calls[reduced.class_of_rank[r].index()];
    const std::size_t name = reduced.original[r].index();
    if (all.empty() && !first.empty())
      problem("rank {} issues {} of group '{}', to which it does not belong", name, op_text(first.front().op),
              plan_.groups[g].name);
    if (all.empty() || all.front() != RankId{r}) continue;
    for (RankId other : all) {
      if (reduced.class_of_rank[other.index()] == reduced.class_of_rank[r]) continue;
      const auto& mine = calls[reduced.class_of_rank[other.index()].index()];
      const std::size_t other_name = reduced.original[other.index()].index();
      if (mine.size() != first.size())
        problem("ranks {} and {} issue {} and {} collectives of group '{}'", name, other_name, first.size(),
                mine.size(), plan_.groups[g].name);
      for (std::size_t k = 0; k < std::min(mine.size(), first.size()); ++k)
        if (mine[k].work != first[k].work && !(work_of(mine[k]) == work_of(first[k])))
          problem("collective #{} of group '{}': rank {} issues {} as {}, rank {} issues {} as {}", k,
                  plan_.groups[g].name, name, to_text(work_of(first[k])), op_text(first[k].op), other_name,
                  to_text(work_of(mine[k])), op_text(mine[k].op));
    }
  }
}

/// Each send has its receive: same pair of ranks, same tag, same order, same size.
void Checker::check_messages(const ReducedMesh& reduced) {
  using Key = std::tuple<std::size_t, std::size_t, std::int64_t>;  // from, to, tag
  using Messages = std::vector<std::pair<std::size_t, Bytes>>;     // op, size
  std::map<Key, std::pair<Messages, Messages>> messages;
  const auto ops = ops_that(is_message);
  for (std::size_t r = 0; r < reduced.class_of_rank.size(); ++r) {
    std::vector<Messages*> by_work(plan_.works.size());
    const auto list_of = [&](const Work& w) -> Messages* {
      if (const auto* s = std::get_if<Send>(&w))
        return &messages[{r, peer_of(reduced.mesh, RankId{r}, s->peer).index(), s->tag}].first;
      const auto& v = std::get<Recv>(w);
      return &messages[{peer_of(reduced.mesh, RankId{r}, v.peer).index(), r, v.tag}].second;
    };
    for (const DoingOp& op : ops[reduced.class_of_rank[r].index()]) {
      const Work& w = work_of(op);
      Messages*& list = by_work[op.work.index()];
      if (list == nullptr) list = list_of(w);
      const auto* s = std::get_if<Send>(&w);
      list->emplace_back(op.op, s != nullptr ? s->bytes : std::get<Recv>(w).bytes);
    }
  }
  for (const auto& [key, both] : messages) {
    const std::size_t from = reduced.original[std::get<0>(key)].index(),
                      to = reduced.original[std::get<1>(key)].index();
    const std::int64_t tag = std::get<2>(key);
    if (both.first.size() != both.second.size())
      problem("rank {} sends {} messages with tag {} to rank {}, which receives {}", from, both.first.size(), tag, to,
              both.second.size());
    for (std::size_t k = 0; k < std::min(both.first.size(), both.second.size()); ++k)
      if (both.first[k].second != both.second[k].second)
        problem("{} of rank {} sends {} B, {} of rank {} receives {} B", op_text(both.first[k].first), from,
                both.first[k].second.base(), op_text(both.second[k].first), to, both.second[k].second.base());
  }
}

void Checker::check_progress(const ReducedMesh& reduced) {
  for (const Standstill& stop : find_standstills(plan_, order_, reduced))
    problem("rank {} waits for ever at {}", stop.rank.index(), op_text(stop.op.index()));
}

}  // namespace

std::vector<std::string> check_plan(const Plan& plan) { return Checker{plan}.run(); }

void verify(const Plan& plan) {
  const auto problems = check_plan(plan);
  if (!problems.empty()) bug(fmt::format("plan '{}' is illegal: {}", plan.name, problems.front()));
}

}  // namespace orrery
