// SPDX-License-Identifier: Apache-2.0
// Plans with one thing wrong about communication or order: each is caught, by check_plan or by wrong numbers.
//
// A mutant is made only where it can be told that it is one:
//   a dependency is dropped only if two ops that touch a tensor, one of them writing, are left without an order
//   neighbours are swapped only if they touch a tensor and one writes, or if partners on other ranks pair them by order
//   groups are exchanged only where the members differ; of a maximum only for one that lacks members, since the shift
//   of a log-sum-exp may be any number that all ranks use
// What check_plan accepts runs in a process of its own, so that a mutant that hangs or crashes harms nothing; hanging
// counts as not caught.
#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <random>

#include "tests/parallel_testing.hpp"
#include "tests/plan_editing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

struct Case {
  const char* strategy;
  std::int64_t microbatches = 2;
};

constexpr Case kCases[] = {
    {"{mesh: dp2 fsdp2, data: {kind: zero1}}"},
    {"{mesh: dp2, data: {kind: zero1, owners: true}}"},
    {"{mesh: fsdp2 dp2, data: {kind: zero2, bucket: 0}}"},
    {"{mesh: dp3, data: {kind: zero3, bucket: 0}}"},
    {"{mesh: dp3, data: {kind: zero3, owners: true, bucket: 0}}"},
    {"{mesh: dp2 tp2}"},
    {"{mesh: tp2 dp2, sequence_parallel: true, data: {kind: zero3}}"},
    {"{mesh: tp2, sequence_parallel: true, tp_comm_overlap: true}"},
    {"{mesh: pp2 dp2}", 3},
    {"{mesh: pp4, schedule: chimera}", 4},
    {"{mesh: pp2, schedule: interleaved, chunks: 2}", 3},
    {"{mesh: dp2 pp2 tp2, sequence_parallel: true, schedule: zb-h1, data: {kind: zero1}}", 3},
    {"{mesh: pp3 tp2, schedule: gpipe}", 3},
    {"{mesh: dp2 tp2, layers: [{blocks: 0, mesh: dp4, data: zero3}, {blocks: 2, mesh: tp2 dp2}]}"},
    {"{mesh: pp2 dp2, layers: [{blocks: 1-2, mesh: tp2, recompute: full}]}", 3},
    {"{mesh: row2 col2}"},
    {"{mesh: x2 y2 z2}"},
    {"{mesh: cp2 dp2}"},
    {"{mesh: cp4, context: rsa}"},
};

Model tiny_model() { return gpt2_of({.hidden = 8, .vocab = 13, .positions = 8}); }

/// The norm is clipped in every step, so that it matters.
TrainOptions options_of(const Case& c) {
  TrainOptions o;
  o.batch = 12 * c.microbatches;
  o.microbatches = c.microbatches;
  o.sequence = 4;
  o.steps = 2;
  o.dtype = Precision::F64;
  o.optimizer = {.kind = OptimizerKind::AdamW, .rate = 0.01, .epsilon = 1e-3, .decay = 0.1, .clip = 0.05};
  return o;
}

bool is_communication(const Work& w) {
  return std::holds_alternative<Collective>(w) || std::holds_alternative<Send>(w) || std::holds_alternative<Recv>(w);
}

bool conflict(const Plan& p, const Op& a, const Op& b) {
  for (const Operand& x : p.operands_of(a))
    for (const Operand& y : p.operands_of(b))
      if (p.owner(x.tensor()) == p.owner(y.tensor()) && (x.writes() || y.writes())) return true;
  return false;
}

/// Pairs of ops of a class that conflict and have no order, found by the closure of all orders: `check_plan` has to
/// find the same with clocks.
bool has_unordered_pair(const Plan& p, const RankClass& c) {
  const std::size_t n = c.num_ops;
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));
  std::array<std::size_t, kNumStreams> latest;
  latest.fill(n);
  for (std::size_t i = 0; i < n; ++i) {
    const Op& op = p.ops[c.first_op + i];
    const auto join = [&](std::size_t d) {
      for (std::size_t k = 0; k < d; ++k) before[i][k] = before[i][k] || before[d][k];
      before[i][d] = true;
    };
    for (const OpId d : p.deps_of(op)) join(d.index() - c.first_op);
    std::size_t& on_stream = latest[static_cast<std::size_t>(op.stream)];
    if (on_stream < n) join(on_stream);
    on_stream = i;
    for (std::size_t k = 0; k < i; ++k)
      if (!before[i][k] && conflict(p, op, p.ops[c.first_op + k])) return true;
  }
  return false;
}

struct Mutant {
  std::string kind, what;
  Plan plan;
};

/// All mutants of a plan that are told to be wrong.
class Mutations {
 public:
  explicit Mutations(const Plan& plan) : plan_{plan} {}

  /// Up to `most` of each kind, at random.
  std::vector<Mutant> sample(std::mt19937& random, std::size_t most) {
    for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
      if (is_communication(work(i))) of_communication(i);
      of_dependencies(i);
    }
    std::vector<Mutant> out;
    for (auto& [kind, makers] : makers_) {
      std::shuffle(makers.begin(), makers.end(), random);
      std::size_t made = 0;
      for (std::size_t k = 0; k < makers.size() && made < most; ++k)
        if (auto plan = makers[k].second()) {
          out.push_back({kind, makers[k].first, std::move(*plan)});
          ++made;
        }
    }
    return out;
  }

 private:
  using Maker = std::function<std::optional<Plan>()>;
  const Work& work(std::size_t i) const { return plan_.work(plan_.ops[i]); }
  const RankClass& class_of(std::size_t i) const { return plan_.classes[plan_.class_of(OpId{i}).index()]; }
  bool same_class(std::size_t i, std::size_t j) const {
    return j < plan_.ops.size() && plan_.class_of(OpId{i}) == plan_.class_of(OpId{j});
  }
  void add(std::string kind, std::size_t i, Maker maker) {
    makers_[std::move(kind)].emplace_back("op " + std::to_string(i) + " " + std::string{plan_.name_of(plan_.ops[i])},
                                          std::move(maker));
  }
  void change(const std::string& kind, std::size_t i, const Work& changed) {
    add(kind, i, [this, i, changed] {
      Editable e{plan_};
      e.set_work(i, changed);
      return std::optional{e.build()};
    });
  }
  void exchange(const std::string& kind, std::size_t i, std::size_t j) {
    add(kind, i, [this, i, j] {
      Editable e{plan_};
      e.swap(i, j);
      return std::optional{e.build()};
    });
  }

  void of_communication(std::size_t i) {
    const Work& w = work(i);
    add("remove " + std::string{kind_name(w)}, i, [this, i] {
      Editable e{plan_};
      e.remove(i);
      return std::optional{e.build()};
    });
    if (same_class(i, i + 1) && conflict(plan_, plan_.ops[i], plan_.ops[i + 1]))
      exchange("swap with the op behind", i, i + 1);
    if (i > class_of(i).first_op && conflict(plan_, plan_.ops[i], plan_.ops[i - 1]))
      exchange("swap with the op before", i - 1, i);
    of_pairing(i);
    if (const auto* c = std::get_if<Collective>(&w)) of_collective(i, *c);
    if (const auto* s = std::get_if<Send>(&w)) of_message(i, *s);
    if (const auto* r = std::get_if<Recv>(&w)) of_message(i, *r);
  }

  /// The next communication of the same stream, where partners of another class pair both with their own order: the
  /// same group of several classes, or messages with one rank that come on one stream there.
  void of_pairing(std::size_t i) {
    const Op& op = plan_.ops[i];
    for (std::size_t j = i + 1; same_class(i, j); ++j) {
      if (plan_.ops[j].stream != op.stream || !is_communication(work(j))) continue;
      if (paired_by_order(i, j)) exchange("swap with the next on the stream", i, j);
      return;
    }
  }
  bool paired_by_order(std::size_t i, std::size_t j) const {
    const auto *a = std::get_if<Collective>(&work(i)), *b = std::get_if<Collective>(&work(j));
    if (a && b) return a->group == b->group && spans_classes(a->group, i);
    const auto *s = std::get_if<Send>(&work(i)), *t = std::get_if<Send>(&work(j));
    if (s && t) return s->peer == t->peer && receiving_stream(i, s->tag) == receiving_stream(j, t->tag);
    return false;
  }
  bool spans_classes(GroupId group, std::size_t i) const {
    const auto class_of_rank = plan_.class_of_ranks();
    for (std::size_t r = 0; r < class_of_rank.size(); ++r)
      for (const RankId m : members(plan_.mesh, plan_.groups[group.index()], RankId{r}))
        if (class_of_rank[r] == plan_.class_of(OpId{i}) && class_of_rank[m.index()] != class_of_rank[r]) return true;
    return false;
  }
  Stream receiving_stream(std::size_t sender, std::int64_t tag) const {
    for (std::size_t k = 0; k < plan_.ops.size(); ++k)
      if (const auto* r = std::get_if<Recv>(&work(k)); r && r->tag == tag && !same_class(sender, k))
        return plan_.ops[k].stream;
    return Stream::Host;
  }

  void of_collective(std::size_t i, const Collective& c) {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g)
      if (differs(i, c, GroupId{g})) {
        Collective changed = c;
        changed.group = GroupId{g};
        change("change the group", i, changed);
      }
    if (c.reduce == ReduceOp::Sum && (c.kind == CollectiveKind::AllReduce || c.kind == CollectiveKind::ReduceScatter)) {
      Collective changed = c;
      changed.reduce = ReduceOp::Max;
      change("change the reduction", i, changed);
    }
    for (const double factor : {0.5, 2.0}) {
      Collective changed = c;
      changed.bytes = c.bytes * factor;
      change(factor < 1 ? "halve the message" : "double the message", i, changed);
    }
    if (c.kind == CollectiveKind::Broadcast || c.kind == CollectiveKind::Reduce || c.kind == CollectiveKind::Shift) {
      Collective changed = c;
      ++changed.root;
      change("change the root", i, changed);
    }
  }
  bool differs(std::size_t i, const Collective& c, GroupId other) const {
    const auto class_of_rank = plan_.class_of_ranks();
    for (std::size_t r = 0; r < class_of_rank.size(); ++r) {
      if (class_of_rank[r] != plan_.class_of(OpId{i})) continue;
      const auto mine = members(plan_.mesh, plan_.groups[c.group.index()], RankId{r});
      const auto others = members(plan_.mesh, plan_.groups[other.index()], RankId{r});
      if (mine == others) return false;
      if (c.reduce == ReduceOp::Max && std::includes(others.begin(), others.end(), mine.begin(), mine.end()))
        return false;
    }
    return true;
  }

  template <class Message>
  void of_message(std::size_t i, const Message& m) {
    Message changed = m;
    ++changed.peer.offset;
    change("change the peer", i, changed);
    for (std::size_t j = i + 1; same_class(i, j); ++j)
      if (const auto* other = std::get_if<Message>(&work(j)); other && other->tag != m.tag) {
        changed = m;
        changed.tag = other->tag;
        return change("change the tag", i, changed);
      }
  }

  void of_dependencies(std::size_t i) {
    for (std::size_t k = 0; k < plan_.ops[i].num_deps; ++k)
      add("remove a dependency", i, [this, i, k]() -> std::optional<Plan> {
        Editable e{plan_};
        e.items[i].deps.erase(e.items[i].deps.begin() + static_cast<std::ptrdiff_t>(k));
        Plan p = e.build();
        if (!has_unordered_pair(p, p.classes[plan_.class_of(OpId{i}).index()])) return {};
        return p;
      });
  }

  const Plan& plan_;
  std::map<std::string, std::vector<std::pair<std::string, Maker>>> makers_;
};

enum class Fate { Survived, WrongNumbers, Refused, Crashed, Hung };  // refused: by the runtime

/// What becomes of a plan that check_plan has accepted.
Fate run(const Model& model, const TrainOptions& o, const Plan& plan, const Trained& right) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    Fate fate = Fate::Refused;
    try {
      const double difference = worst_difference(train(model, o, plan), right);
      fate = difference < 1e-9 ? Fate::Survived : Fate::WrongNumbers;
    } catch (const std::exception&) {
    }
    _exit(static_cast<int>(fate));
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return static_cast<Fate>(WEXITSTATUS(status));
  return WTERMSIG(status) == SIGALRM ? Fate::Hung : Fate::Crashed;
}

}  // namespace

TEST_CASE("a plan with one thing wrong is caught", "[parallel]") {
  const Model model = tiny_model();
  std::mt19937 random{20260729};
  struct Tally {
    int made = 0, checked = 0, wrong = 0, refused = 0;
  };
  std::map<std::string, Tally> tallies;
  Tally all;
  std::string survivors;
  for (const Case& c : kCases) {
    const TrainOptions o = options_of(c);
    const Trained right = train(model, o, *single());
    const Plan plan = parallel(c.strategy)->train_step(model, o, &host_workspaces());
    REQUIRE(run(model, o, Editable{plan}.build(), right) == Fate::Survived);
    for (const Mutant& m : Mutations{plan}.sample(random, 12)) {
      const bool checked = !check_plan(m.plan).empty();
      const Fate fate = checked ? Fate::Refused : run(model, o, m.plan, right);
      for (Tally* t : {&tallies[m.kind], &all}) {
        ++t->made;
        t->checked += checked ? 1 : 0;
        t->wrong += fate == Fate::WrongNumbers ? 1 : 0;
        t->refused += !checked && fate == Fate::Refused ? 1 : 0;
      }
      if (fate == Fate::Survived || fate == Fate::Hung || fate == Fate::Crashed)
        survivors += std::string{fate == Fate::Survived ? "survived: "
                                 : fate == Fate::Hung   ? "hung: "
                                                        : "crashed: "} +
                     m.kind + ", " + m.what + " of " + c.strategy + "\n";
    }
  }
  std::string table;
  for (const auto& [kind, t] : tallies)
    table += kind + ": " + std::to_string(t.made) + " made, " + std::to_string(t.checked) + " by check_plan, " +
             std::to_string(t.wrong) + " by numbers, " + std::to_string(t.refused) + " by the runtime\n";
  WARN(table << survivors << all.made << " mutants, " << all.checked << " by check_plan, " << all.wrong
             << " by numbers, " << all.refused << " by the runtime");
  CHECK(all.made >= 200);
  CHECK(double(all.checked + all.wrong + all.refused) >= 0.95 * double(all.made));
}
