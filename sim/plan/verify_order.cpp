// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/verify_order.hpp"

#include <algorithm>
#include <bit>

#include "sim/plan/latest_ops.hpp"

namespace orrery {
namespace {

constexpr std::uint32_t kUnwanted = UINT32_MAX, kWanted = UINT32_MAX - 1;

}  // namespace

/// As no op of the class has touched it when it is asked for first.
OrderChecker::Storage& OrderChecker::storage(TensorId owner) {
  Storage& s = known_storage(owner);
  if (s.epoch == epoch_) return s;
  s = {.epoch = epoch_};
  uses_.forget(place_of(owner));
  owners_.push_back(owner);
  return s;
}

void OrderChecker::check(const RankClass& c, TensorRange touched) {
  ++epoch_;
  first_tensor_ = touched.first;
  if (touched.size() > storage_.size()) {
    uses_.resize(touched.size());
    storage_.resize(touched.size());
  }
  owners_.clear();
  const std::vector<Part> parts = parts_of(c);
  find_wanted(c);
  for (const Part& part : parts) walk(part);
  check_released(c, parts);
}

/// Marks are counted on the way: patterns go by those of the ops that they are learnt from, which repeat nothing.
std::vector<OrderChecker::Part> OrderChecker::parts_of(const RankClass& c) {
  patterns_.clear();
  const std::vector<Stretch> stretches = stretches_of(plan_, c);
  for (const Stretch& s : stretches)
    for (std::size_t i = s.first; s.moved == kNotMoved && i < s.first + s.num_ops; ++i)
      count_marks(plan_.operands_of(plan_.ops[i]));
  std::vector<Part> parts;
  for (const Stretch& s : stretches) {
    Part& part = parts.emplace_back(Part{s});
    if (s.moved == kNotMoved) continue;
    const auto [known, is_new] = patterns_.try_emplace(s.like);
    if (is_new) known->second = learn(s.like, s.num_ops);
    part.pattern = &known->second;
    part.is_same = is_same(part, s.like);
    gather_stored(part);
    count_marks(stored_);
  }
  find_calm(parts);
  return parts;
}

bool OrderChecker::is_same(const Part& part, OpId like) const {
  const Operand* const mine = plan_.operands.data() + part.first_operand;
  const Operand* const others = plan_.operands.data() + plan_[like].first_operand;
  std::uint32_t unlike = 0;
  for (const std::uint32_t k : part.pattern->persistent.operands)
    unlike |= std::bit_cast<std::uint32_t>(mine[k]) ^ std::bit_cast<std::uint32_t>(others[k]);
  return unlike == 0;
}

/// A pattern is calm if only one stream of all copies together touches each owner that it touches.
void OrderChecker::find_calm(const std::vector<Part>& parts) {
  calm_.clear();
  for (auto& [like, pattern] : patterns_)
    if (std::any_of(parts.begin(), parts.end(),
                    [mine = &pattern](const Part& p) { return p.pattern == mine && p.is_same; }))
      add_calm(pattern, like);
  for (const auto& [owner, uses] : calm_)
    if (std::any_of(uses.begin(), uses.end(),
                    [stream = uses.front().stream](const CalmUse& u) { return u.stream != stream; }))
      for (const CalmUse& u : uses) u.pattern->is_calm = false;
  std::erase_if(calm_, [](const auto& entry) {
    return std::none_of(entry.second.begin(), entry.second.end(), [](const CalmUse& u) { return u.pattern->is_calm; });
  });
}

void OrderChecker::add_calm(Pattern& pattern, OpId like) {
  pattern.is_calm = true;
  const Choice& choice = pattern.persistent;
  const std::uint32_t first_operand = plan_[like].first_operand;
  for (std::size_t n = 0; n < choice.ops.size(); ++n) {
    const Stream stream = order_.streams[like.index() + choice.ops[n]];
    for (std::uint32_t k = choice.first[n]; k < choice.first[n + 1]; ++k) {
      const Operand o = plan_.operands[first_operand + choice.operands[k]];
      std::vector<CalmUse>& uses = calm_[plan_.owner(o.tensor())];
      if (uses.empty() || uses.back().pattern != &pattern || uses.back().stream != stream)
        uses.push_back({&pattern, stream});
      (o.writes() ? uses.back().writer : uses.back().reader) = choice.ops[n];
      if (o.writes()) uses.back().reader = kNone;
    }
  }
}

/// Other ops touch an owner: who has used it last is noted as if it had been all the while, and copies that come behind
/// are to be checked.
void OrderChecker::disturb(TensorId owner) {
  const auto calm = calm_.find(owner);
  if (calm == calm_.end()) return;
  OpId writer, reader;
  Stream stream = Stream::Compute;
  for (const CalmUse& u : calm->second) {
    u.pattern->is_due = true;
    if (u.pattern->latest == kNone) continue;
    stream = u.stream;
    if (u.writer != kNone) writer = later(writer, OpId{std::size_t{u.pattern->latest} + u.writer});
    if (u.reader != kNone) reader = later(reader, OpId{std::size_t{u.pattern->latest} + u.reader});
  }
  note_latest(plan_, uses_, place_of(owner), stream, writer, reader);
}

void OrderChecker::count_marks(std::span<const Operand> operands) {
  for (const Operand& o : operands) {
    Storage& s = storage(plan_.owner(o.tensor()));
    s.marks = static_cast<std::uint8_t>(s.marks + o.frees());
  }
}

/// An owner lives inside of a block if the block takes its storage, and gives it back wherever it is given back.
OrderChecker::Pattern OrderChecker::learn(OpId first, std::size_t num_ops) const {
  struct Uses {
    std::uint8_t marks = 0;
    bool is_taken = false;
  };
  std::map<TensorId, Uses> owners;
  const RepeatedBlock& block = blocks_.at(first);
  const std::span<const Operand> operands{plan_.operands.data() + block.first_operand, block.num_operands};
  for (const Operand& o : operands) {
    Uses& uses = owners[plan_.owner(o.tensor())];
    uses.marks = static_cast<std::uint8_t>(uses.marks + o.frees());
    uses.is_taken = uses.is_taken || o.allocates();
  }
  Pattern pattern;
  std::erase_if(owners, [&](const auto& owner) {
    const auto& [id, uses] = owner;
    const bool is_inside = uses.is_taken && uses.marks > 0 && uses.marks == storage_[place_of(id).index()].marks &&
                           block.owns(id) && !plan_.tensors[id.index()].persistent;
    if (is_inside) pattern.inside.push_back(id);
    return !is_inside;
  });
  std::uint32_t operand = 0;
  const auto end_op = [](Choice& c, std::uint32_t op) {
    if (c.first.empty()) c.first.push_back(0);
    if (c.operands.size() == c.first.back()) return;
    c.ops.push_back(op);
    c.first.push_back(static_cast<std::uint32_t>(c.operands.size()));
  };
  for (std::uint32_t i = 0; i < num_ops; ++i) {
    for (std::uint32_t k = 0; k < plan_.ops[first.index() + i].num_operands; ++k, ++operand) {
      const Operand o = operands[operand];
      if (owners.contains(plan_.owner(o.tensor()))) continue;
      const bool lasts = plan_.tensors[plan_.owner(o.tensor()).index()].persistent && !o.allocates() && !o.frees();
      (lasts ? pattern.persistent : pattern.stored).operands.push_back(operand);
    }
    end_op(pattern.stored, i);
    end_op(pattern.persistent, i);
  }
  return pattern;
}

void OrderChecker::gather(const Choice& choice, const Operand* operands, std::vector<Operand>& out) {
  out.resize(choice.operands.size());
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = operands[choice.operands[k]];
}

void OrderChecker::gather_stored(const Part& part) {
  gather(part.pattern->stored, plan_.operands.data() + part.first_operand, stored_);
}

/// Those of the n-th op that has any, of the part whose are gathered.
std::span<const Operand> OrderChecker::chosen(const Choice& choice, const std::vector<Operand>& gathered,
                                              std::size_t n) {
  return {gathered.data() + choice.first[n], choice.first[n + 1] - choice.first[n]};
}

void OrderChecker::find_wanted(const RankClass& c) {
  first_op_ = c.first_op;
  clock_of_.assign(c.num_ops, kUnwanted);
  is_seen_.assign(c.num_ops, 0);
  ended_.clear();
  streams_ = {};
  to_wait_ = order_.waits_of(c);
  for (const WaitingOp& w : to_wait_) {
    is_seen_[w.op - first_op_] = 1;
    for (const OpId d : w.deps(plan_))
      if (d.index() >= first_op_ && d.index() < w.op) {
        clock_of_[d.index() - first_op_] = kWanted;
        is_seen_[d.index() - first_op_] = 1;
      }
  }
}

void OrderChecker::walk(const Part& part) {
  if (part.pattern == nullptr) {
    for (std::size_t i = part.first; i < part.first + part.num_ops; ++i)
      check_op(i, plan_.operands_of(plan_.ops[i]), {}, false);
    return;
  }
  check_inside(part);
  Pattern& pattern = *part.pattern;
  const bool is_calm = pattern.is_calm && part.is_same, skips = is_calm && !pattern.is_due;
  if (is_calm) pattern.latest = skips ? static_cast<std::uint32_t>(part.first) : kNone;
  if (is_calm) pattern.is_due = false;
  gather_stored(part);
  if (!skips) gather(pattern.persistent, plan_.operands.data() + part.first_operand, lasting_);
  const Choice &stored = pattern.stored, &lasting = pattern.persistent;
  const std::uint8_t* const is_seen = is_seen_.data() + (part.first - first_op_);
  std::size_t s = 0, l = skips ? lasting.ops.size() : 0;
  for (std::uint32_t i = 0; i < part.num_ops; ++i) {
    const bool stores = s < stored.ops.size() && stored.ops[s] == i,
               lasts = l < lasting.ops.size() && lasting.ops[l] == i;
    if (is_seen[i] == 0 && !stores && !lasts) continue;
    check_op(part.first + i, stores ? chosen(stored, stored_, s) : std::span<const Operand>{},
             lasts ? chosen(lasting, lasting_, l) : std::span<const Operand>{}, is_calm);
    s += stores;
    l += lasts;
  }
}

/// Nothing has touched the owners that live inside of a copy; whatever else touches them later finds their storage
/// gone.
void OrderChecker::check_inside(const Part& part) {
  for (const TensorId t : part.pattern->inside) {
    const TensorId owner{std::size_t{t.value + part.moved}};
    Storage& s = known_storage(owner);
    if (s.epoch == epoch_)
      problems_.add("{} is touched outside of the block at {}, which alone takes and gives back its storage",
                    problems_.tensor(owner), problems_.op(part.first));
    s = {.epoch = epoch_};
    s.taken = true;
  }
}

/// `persistent`: operands whose storage is always there; `stored`: the others, or all. Ops of a stream that are not
/// looked at have ended before its next one all the same. `is_calm`: the persistent ones are those of a calm pattern.
void OrderChecker::check_op(std::size_t i, std::span<const Operand> stored, std::span<const Operand> persistent,
                            bool is_calm) {
  const Stream stream = order_.streams[i];
  Clock& known = streams_[static_cast<std::size_t>(stream)];
  known[static_cast<std::size_t>(stream)] = static_cast<std::uint32_t>(i);
  if (!to_wait_.empty() && to_wait_.front().op == i) {
    join_dependencies(to_wait_.front(), known);
    to_wait_ = to_wait_.subspan(1);
  }
  for (const Operand& o : persistent) {
    const TensorId owner = plan_.owner(o.tensor());
    if (!is_calm) disturb(owner);
    check_hazard(i, o, known);
    note_use(uses_, place_of(owner), o.writes(), OpId{i}, stream);
  }
  for (const Operand& o : stored) {
    if (const TensorId owner = plan_.owner(o.tensor()); plan_.tensors[owner.index()].persistent) disturb(owner);
    check_hazard(i, o, known);
  }
  for (const Operand& o : stored) note_use(uses_, place_of(plan_.owner(o.tensor())), o.writes(), OpId{i}, stream);
  if (!stored.empty()) check_storage(i, stored);
  std::uint32_t& mine = clock_of_[i - first_op_];
  if (mine == kUnwanted) return;
  mine = static_cast<std::uint32_t>(ended_.size());
  ended_.push_back(known);
  ended_.back()[static_cast<std::size_t>(stream)] = static_cast<std::uint32_t>(i) + 1;
}

void OrderChecker::join_dependencies(const WaitingOp& wait, Clock& known) {
  const std::size_t i = wait.op;
  for (const OpId d : wait.deps(plan_)) {
    if (d.index() >= i || d.index() < first_op_) {
      problems_.add("{} comes after op {}, which is not an earlier op of its class", problems_.op(i), d.index());
      continue;
    }
    const Clock& other = ended_[clock_of_[d.index() - first_op_]];
    for (std::size_t s = 0; s < known.size(); ++s) known[s] = std::max(known[s], other[s]);
  }
}

/// An op that touches an owner twice is in order with itself.
void OrderChecker::check_hazard(std::size_t i, Operand o, const Clock& known) {
  const TensorId owner = plan_.owner(o.tensor());
  (void)storage(owner);  // as nobody has touched it yet, where this is the first op of the class that does
  const auto ordered = [&](OpId before) {
    return before.is_none() || before.index() == i ||
           known[static_cast<std::size_t>(order_.stream_of(before))] > before.index();
  };
  const OpId writer = uses_.writer(place_of(owner));
  if (!ordered(writer))
    problems_.add("{} touches {} while {} may still write it", problems_.op(i), problems_.tensor(owner),
                  problems_.op(writer.index()));
  if (o.reads() && writer.is_none() && !plan_.tensors[owner.index()].persistent)
    problems_.add("{} reads {}, which nothing has written", problems_.op(i), problems_.tensor(owner));
  if (!o.writes()) return;
  uses_.for_each_reader(place_of(owner), [&](OpId r) {
    if (!ordered(r))
      problems_.add("{} writes {} while {} may still read it", problems_.op(i), problems_.tensor(owner),
                    problems_.op(r.index()));
  });
}

void OrderChecker::check_storage(std::size_t i, std::span<const Operand> operands) {
  for (const Operand& o : operands) {
    const TensorId owner = plan_.owner(o.tensor());
    Storage& use = storage(owner);
    const bool persistent = plan_.tensors[owner.index()].persistent;
    if (persistent && (o.allocates() || o.frees()))
      problems_.add("{} takes or frees the storage of {}, which is persistent", problems_.op(i),
                    problems_.tensor(owner));
    if (o.allocates()) {
      if (use.taken) problems_.add("{} takes storage for {} a second time", problems_.op(i), problems_.tensor(owner));
      use.live = use.taken = true;
    }
    if (!persistent && !use.live)
      problems_.add("{} uses {} {}", problems_.op(i), problems_.tensor(owner),
                    use.taken ? "after its storage was given back" : "before its storage is taken");
  }
  for (const Operand& o : operands) {
    if (!o.frees()) continue;
    Storage& use = known_storage(plan_.owner(o.tensor()));
    if (++use.released == use.marks) use.live = false;
  }
}

void OrderChecker::check_released(const RankClass& c, const std::vector<Part>& parts) {
  for (const TensorId owner : owners_)
    if (known_storage(owner).live)
      problems_.add("{} is never given back in class '{}'", problems_.tensor(owner), c.name);
  // Right after the last use: from the end, no op of its stream has touched the tensor before a mark comes.
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->pattern != nullptr) gather_stored(*part);
    if (part->pattern == nullptr)
      for (std::size_t i = part->num_ops; i-- > 0;)
        walk_back(part->first + i, plan_.operands_of(plan_.ops[part->first + i]));
    else
      for (std::size_t n = part->pattern->stored.ops.size(); n-- > 0;)
        walk_back(part->first + part->pattern->stored.ops[n], chosen(part->pattern->stored, stored_, n));
  }
}

void OrderChecker::walk_back(std::size_t i, std::span<const Operand> operands) {
  const auto stream = static_cast<std::uint16_t>(1u << static_cast<unsigned>(order_.streams[i]));
  for (const Operand& o : operands)
    if (o.frees() && (known_storage(plan_.owner(o.tensor())).later & stream))
      problems_.add("{} gives back {} before its last use", problems_.op(i), problems_.tensor(o.tensor()));
  for (const Operand& o : operands) known_storage(plan_.owner(o.tensor())).later |= stream;
}

}  // namespace orrery
