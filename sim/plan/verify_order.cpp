// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/verify_order.hpp"

#include <algorithm>

namespace orrery {
namespace {

constexpr std::uint32_t kUnwanted = UINT32_MAX, kWanted = UINT32_MAX - 1;

}  // namespace

OrderChecker::OrderChecker(const Plan& plan, Problems& problems) : plan_{plan}, problems_{problems} {
  uses_.resize(plan.tensors.size());
  storage_.resize(plan.tensors.size());
}

/// As no op of the class has touched it when it is asked for first.
OrderChecker::Storage& OrderChecker::storage(TensorId owner) {
  Storage& s = storage_[owner.index()];
  if (s.epoch == epoch_) return s;
  s = {.epoch = epoch_};
  uses_.forget(owner);
  owners_.push_back(owner);
  return s;
}

void OrderChecker::check(const RankClass& c) {
  ++epoch_;
  owners_.clear();
  patterns_.clear();
  const std::vector<Stretch> stretches = stretches_of(plan_, c);
  for (const Stretch& s : stretches)
    for (std::size_t i = s.first; s.like.is_none() && i < s.first + s.num_ops; ++i)
      count_marks(plan_.operands_of(plan_.ops[i]));
  for (const Stretch& s : stretches) {
    if (s.like.is_none()) continue;
    learn(s);
    const Pattern& pattern = patterns_[s.like];
    std::size_t place = 0;
    for (std::size_t i = s.first; i < s.first + s.num_ops; place += plan_.ops[i++].num_operands)
      count_marks(outside(pattern, place, plan_.ops[i]));
  }
  find_wanted(c);
  for (const Stretch& s : stretches) walk(s);
  check_released(c, stretches);
}

void OrderChecker::count_marks(std::span<const Operand> operands) {
  for (const Operand& o : operands) {
    Storage& s = storage(plan_.owner(o.tensor()));
    s.marks = static_cast<std::uint8_t>(s.marks + o.frees());
  }
}

/// An owner lives inside of a block if the block takes its storage, and gives it back wherever it is given back.
void OrderChecker::learn(const Stretch& copy) {
  const auto [known, is_new] = patterns_.try_emplace(copy.like);
  if (!is_new) return;
  struct Inside {
    std::uint32_t local = Pattern::kOutside;
    std::uint8_t marks = 0;
    bool is_taken = false;
  };
  std::map<TensorId, Inside> owners;
  const auto for_each = [&](auto&& f) {
    for (std::size_t i = copy.like.index(); i < copy.like.index() + copy.num_ops; ++i)
      for (const Operand& o : plan_.operands_of(plan_.ops[i])) f(o, owners[plan_.owner(o.tensor())]);
  };
  for_each([](const Operand& o, Inside& in) {
    in.marks = static_cast<std::uint8_t>(in.marks + o.frees());
    in.is_taken = in.is_taken || o.allocates();
  });
  Pattern& pattern = known->second;
  for_each([&](const Operand& o, Inside& in) {
    const TensorId owner = plan_.owner(o.tensor());
    const bool is_inside = in.is_taken && in.marks > 0 && in.marks == storage_[owner.index()].marks &&
                           !plan_.tensors[owner.index()].persistent;
    const bool is_first = is_inside && in.local == Pattern::kOutside;
    if (is_first) in.local = pattern.num_inside++;
    pattern.places.push_back({in.local, is_first});
  });
}

/// Operands of an op of a block that do not live inside of it alone.
std::span<const Operand> OrderChecker::outside(const Pattern& pattern, std::size_t first_place, const Op& op) {
  outside_.clear();
  const std::span<const Operand> operands = plan_.operands_of(op);
  for (std::size_t k = 0; k < operands.size(); ++k)
    if (pattern.places[first_place + k].local == Pattern::kOutside) outside_.push_back(operands[k]);
  return outside_;
}

void OrderChecker::find_wanted(const RankClass& c) {
  first_op_ = c.first_op;
  clock_of_.assign(c.num_ops, kUnwanted);
  ended_.clear();
  streams_ = {};
  for (std::size_t i = first_op_; i < first_op_ + c.num_ops; ++i)
    for (const OpId d : plan_.deps_of(plan_.ops[i]))
      if (d.index() >= first_op_ && d.index() < i) clock_of_[d.index() - first_op_] = kWanted;
}

void OrderChecker::walk(const Stretch& s) {
  if (s.like.is_none()) {
    for (std::size_t i = s.first; i < s.first + s.num_ops; ++i) check_op(i, plan_.operands_of(plan_.ops[i]));
    return;
  }
  const Pattern& pattern = patterns_[s.like];
  stand_in_.assign(pattern.num_inside, 0);
  std::size_t place = 0;
  for (std::size_t i = s.first; i < s.first + s.num_ops; place += plan_.ops[i++].num_operands) {
    const std::span<const Operand> operands = plan_.operands_of(plan_.ops[i]);
    for (std::size_t k = 0; k < operands.size(); ++k)
      if (const Pattern::Place p = pattern.places[place + k]; p.local != Pattern::kOutside)
        check_stand_in(i, p, plan_.owner(operands[k].tensor()));
    check_op(i, outside(pattern, place, plan_.ops[i]));
  }
}

/// One owner for one of the first block, which nothing has touched before; whatever else touches it later finds its
/// storage gone.
void OrderChecker::check_stand_in(std::size_t i, Pattern::Place place, TensorId owner) {
  if (place.is_first) {
    Storage& s = storage_[owner.index()];
    if (s.epoch == epoch_ || plan_.tensors[owner.index()].persistent)
      return problems_.add("{} touches {} as if it were of its block alone", problems_.op(i), problems_.tensor(owner));
    s = {.epoch = epoch_};
    s.taken = true;
    stand_in_[place.local] = owner.value;
  } else if (stand_in_[place.local] != owner.value) {
    problems_.add("{} touches {} where the block that it repeats touches another", problems_.op(i),
                  problems_.tensor(owner));
  }
}

/// `operands`: those to look at.
void OrderChecker::check_op(std::size_t i, std::span<const Operand> operands) {
  const Op& op = plan_.ops[i];
  Clock& known = streams_[static_cast<std::size_t>(op.stream)];
  if (op.num_deps > 0) join_dependencies(i, known);
  check_hazards(i, operands, known);
  check_storage(i, operands);
  known[static_cast<std::size_t>(op.stream)] = static_cast<std::uint32_t>(i) + 1;
  std::uint32_t& mine = clock_of_[i - first_op_];
  if (mine == kUnwanted) return;
  mine = static_cast<std::uint32_t>(ended_.size());
  ended_.push_back(known);
}

void OrderChecker::join_dependencies(std::size_t i, Clock& known) {
  for (const OpId d : plan_.deps_of(plan_.ops[i])) {
    if (d.index() >= i || d.index() < first_op_) {
      problems_.add("{} comes after op {}, which is not an earlier op of its class", problems_.op(i), d.index());
      continue;
    }
    const Clock& other = ended_[clock_of_[d.index() - first_op_]];
    for (std::size_t s = 0; s < known.size(); ++s) known[s] = std::max(known[s], other[s]);
  }
}

void OrderChecker::check_hazards(std::size_t i, std::span<const Operand> operands, const Clock& known) {
  const Op& op = plan_.ops[i];
  const auto ordered = [&](OpId before) {
    return before.is_none() || before.index() == i ||
           known[static_cast<std::size_t>(plan_.ops[before.index()].stream)] > before.index();
  };
  for (const Operand& o : operands) {
    const TensorId owner = plan_.owner(o.tensor());
    const OpId writer = uses_.writer(owner);
    if (!ordered(writer))
      problems_.add("{} touches {} while {} may still write it", problems_.op(i), problems_.tensor(owner),
                    problems_.op(writer.index()));
    if (o.writes())
      uses_.for_each_reader(owner, [&](OpId r) {
        if (!ordered(r))
          problems_.add("{} writes {} while {} may still read it", problems_.op(i), problems_.tensor(owner),
                        problems_.op(r.index()));
      });
    if (o.reads() && writer.is_none() && !plan_.tensors[owner.index()].persistent)
      problems_.add("{} reads {}, which nothing has written", problems_.op(i), problems_.tensor(owner));
  }
  for (const Operand& o : operands) {
    if (o.writes())
      uses_.write(plan_.owner(o.tensor()), OpId{i});
    else
      uses_.read(plan_.owner(o.tensor()), OpId{i}, op.stream);
  }
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
    Storage& use = storage_[plan_.owner(o.tensor()).index()];
    if (++use.released == use.marks) use.live = false;
  }
}

void OrderChecker::check_released(const RankClass& c, const std::vector<Stretch>& stretches) {
  for (const TensorId owner : owners_)
    if (storage_[owner.index()].live)
      problems_.add("{} is never given back in class '{}'", problems_.tensor(owner), c.name);
  // Right after the last use: from the end, no op of its stream has touched the tensor before a mark comes.
  for (auto s = stretches.rbegin(); s != stretches.rend(); ++s) {
    const Pattern* const pattern = s->like.is_none() ? nullptr : &patterns_[s->like];
    std::size_t place = pattern == nullptr ? 0 : pattern->places.size();
    for (std::size_t i = s->first + s->num_ops; i-- > s->first;) {
      const Op& op = plan_.ops[i];
      if (pattern != nullptr) place -= op.num_operands;
      walk_back(i, pattern == nullptr ? plan_.operands_of(op) : outside(*pattern, place, op));
    }
  }
}

void OrderChecker::walk_back(std::size_t i, std::span<const Operand> operands) {
  const auto stream = static_cast<std::uint16_t>(1u << static_cast<unsigned>(plan_.ops[i].stream));
  for (const Operand& o : operands)
    if (o.frees() && (storage_[plan_.owner(o.tensor()).index()].later & stream))
      problems_.add("{} gives back {} before its last use", problems_.op(i), problems_.tensor(o.tensor()));
  for (const Operand& o : operands) storage_[plan_.owner(o.tensor()).index()].later |= stream;
}

}  // namespace orrery
