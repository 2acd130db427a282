// SPDX-License-Identifier: Apache-2.0
// A software cache of embedding rows that goes by how frequent ids are (Fang et al., arXiv 2208.05321; its code is
// hpcaitech/CachedEmbedding): the tables, one behind the other, lie on the host, the rows of the ids at hand on the
// device.
//   device  `slots` rows; of every row its rank (8 bytes) and its slot (8), of every slot the rank of its row (8) and,
//           with lfu, how often it was used (8); all that is no table
//   moved   per step the rows that leave down and those that are missed up, in pieces of `buffer` rows: gathered on
//           one side, copied, scattered on the other. All that leave are written back
// Look-ups, gradients and update are the device's, on slots: w −= rate·Σ gradients of the look-ups of a row. Which rows
// come and leave is the Program's (sim/program/embedding), who binds how many they are. Left out: tables split over
// several ranks, and transfers of the next batches beside the passes of these.
#include "sim/strategy/offload/cached_embedding.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/option_error.hpp"
#include "sim/strategy/offload/row_moves.hpp"
#include "sim/strategy/offload/strategies.hpp"
#include "sim/strategy/offload/tier_strategy.hpp"
#include "sim/strategy/offload/updates.hpp"

namespace orrery {

inline std::span<const EnumName<EvictionPolicy>> enum_names(EvictionPolicy) {
  static constexpr EnumName<EvictionPolicy> names[] = {{EvictionPolicy::Dataset, "dataset"},
                                                       {EvictionPolicy::Lfu, "lfu"}};
  return names;
}

namespace {

constexpr std::string_view kSlotOfRank = "cache.slot_of_rank", kRankOfSlot = "cache.rank_of_slot";

struct CachedEmbeddingOptions {
  double ratio = 0.01;
  std::int64_t rows = 0;
  EvictionPolicy policy = EvictionPolicy::Dataset;
  double warm_up = 0.7;
  std::int64_t buffer = 0, prefetch = 1;
  bool overlap = false;
  HostMemory memory = HostMemory::Pinned;

  template <class V>
  void visit(V& v) {
    v.field("ratio", ratio, "part of the rows of all tables that the device has room for",
            {.min = 0, .max = 1, .above_min = true});
    v.field("rows", rows, "the same as a number; 0: by `ratio`", at_least(0));
    v.field("policy", policy,
            "which rows leave: dataset, the least frequent ones of the data; lfu, those with the fewest look-ups since "
            "they came; never those of the batch at hand");
    v.field("warm_up", warm_up, "part of the room that the first step fills with the most frequent rows",
            between(0, 1));
    v.field("buffer", buffer, "rows that move in one piece; 0: all at once", at_least(0));
    v.field("prefetch", prefetch, "steps whose rows come together, ahead of the first of them", between(1, 1024));
    v.field("overlap", overlap, "copy beside what the device computes; else it waits for each copy");
    v.field("memory", memory, "host memory that the tables lie in");
  }
};

/// A training step of one rank with its tables on the host.
class CachedTables {
 public:
  CachedTables(const Plan& plan, const CachedEmbeddingOptions& options, double rate)
      : plan_{plan}, o_{options}, rate_{rate}, r_{plan} {}

  Plan run(const WorkspaceModel* workspaces);

 private:
  struct Table {
    TensorId weight, gradient, ids;  // owners
    std::int64_t first = 0;          // of its rows, in the one table
  };

  void find_tables();
  void choose_slots();
  void make_storage();
  TensorId persistent(std::string_view name, const Shape& shape, DType dtype, TensorRole role,
                      Tier tier = Tier::Device);
  TensorId input(std::string_view port, std::int64_t count, DType dtype = DType::I32);
  void begin_step();
  void rows_come();
  void rewrite(OpId id);
  void update_rows(OpId id, EmbeddingBagBackward work);
  const Table& table_with(TensorId owner, TensorId Table::*part) const;
  TensorId slots_of(const Table& t);
  RowMoves moves() {
    return {r_.builder(),
            {.table = table_,
             .cache = cache_,
             .rows = admit_.rows,
             .slots = admit_.slots,
             .cols = bag_.cols,
             .buffer = o_.buffer,
             .dtype = bag_.dtype,
             .host = tier_of(o_.memory),
             .overlap = o_.overlap}};
  }

  const Plan& plan_;
  const CachedEmbeddingOptions& o_;
  double rate_;
  PlanRewriter r_;
  std::vector<Table> tables_;
  EmbeddingBagForward bag_;  // of the first table: what all have in common
  AdmitRows admit_;
  TensorId table_, cache_, ids_, slots_;
  TensorId missed_slots_, missed_here_;  // where rows that come go to, and which ones they are, on the host
  bool rows_are_here_ = false;
};

void CachedTables::find_tables() {
  for (const Op& op : plan_.ops) {
    const std::span<const Operand> operands = plan_.operands_of(op);
    if (const auto* bag = std::get_if<EmbeddingBagForward>(&plan_.work(op))) {
      if (tables_.empty()) bag_ = *bag;
      tables_.push_back({plan_.owner(operands[0].tensor()), {}, plan_.owner(operands[1].tensor()), admit_.rows});
      admit_.rows += bag->table_rows;
      admit_.lookups += bag->lookups;
    } else if (std::holds_alternative<EmbeddingBagBackward>(plan_.work(op))) {
      const TensorId ids = plan_.owner(operands[1].tensor());
      for (Table& t : tables_)
        if (t.ids == ids) t.gradient = plan_.owner(operands[3].tensor());
    }
  }
  if (tables_.empty())
    throw UserError{
        "the strategy `cached-embedding` is for models with embedding tables whose rows are summed, and this "
        "one has none",
        "use a model with `model_type: dlrm`"};
}

void CachedTables::choose_slots() {
  const auto by_ratio = static_cast<std::int64_t>(o_.ratio * double(admit_.rows));
  if (o_.rows > admit_.rows)
    throw OptionError{{"rows"},
                      fmt::format("a cache of {} rows for tables of {} rows", o_.rows, admit_.rows),
                      "at most as many as the tables have"};
  admit_.slots = o_.rows > 0 ? o_.rows : std::max<std::int64_t>(1, by_ratio);
  admit_.policy = o_.policy;
  admit_.warm = static_cast<std::int64_t>(o_.warm_up * double(admit_.slots));
  admit_.batches = o_.prefetch;
}

TensorId CachedTables::persistent(std::string_view name, const Shape& shape, DType dtype, TensorRole role, Tier tier) {
  return r_.builder().tensor(name, shape, {.dtype = dtype, .role = role, .tier = tier, .persistent = true});
}

TensorId CachedTables::input(std::string_view port, std::int64_t count, DType dtype) {
  const TensorRole role = port == kRanksPort ? TensorRole::Constant : TensorRole::Input;
  const TensorId t = persistent(port, Shape{count}, dtype, role);
  r_.builder().port(std::string{port}, t);
  return t;
}

void CachedTables::make_storage() {
  table_ =
      persistent(kCachedTable, Shape{admit_.rows, bag_.cols}, bag_.dtype, TensorRole::Parameter, tier_of(o_.memory));
  cache_ = persistent(kCacheOfTable, Shape{admit_.slots, bag_.cols}, bag_.dtype, TensorRole::Parameter);
  ids_ = persistent("cache.ids", Shape{admit_.lookups}, DType::I32, TensorRole::Input);
  slots_ = r_.builder().tensor("cache.slots", Shape{admit_.lookups}, {.dtype = DType::I32});
  std::int64_t lookups = 0;
  for (const Table& t : tables_) {
    r_.put(t.weight, table_, t.first * bag_.cols);
    r_.put(t.ids, ids_, lookups);
    lookups += plan_.shape(t.ids).elements();
  }
}

/// Ids become slots; what leaves goes down; what comes is gathered, and with `overlap` waited for at the first look-up.
void CachedTables::begin_step() {
  PlanBuilder& b = r_.builder();
  const TensorId ranks = input(kRanksPort, admit_.rows, DType::I64);
  const TensorId missed = input(kMissedPort, admit_.slots), victims = input(kVictimsPort, admit_.slots),
                 victim_slots = input(kVictimSlotsPort, admit_.slots);
  missed_slots_ = input(kMissedSlotsPort, admit_.slots);
  const auto map = [&](std::string_view name, std::int64_t count) {
    return persistent(name, Shape{count}, DType::I64, TensorRole::Constant);
  };
  std::vector<Operand> operands{reads(ids_),
                                reads(ranks),
                                reads(missed),
                                reads(missed_slots_),
                                reads(victim_slots),
                                updates(map(kSlotOfRank, admit_.rows)),
                                updates(map(kRankOfSlot, admit_.slots))};
  if (admit_.policy == EvictionPolicy::Lfu) operands.push_back(updates(map("cache.uses", admit_.slots)));
  operands.push_back(writes(slots_));
  b.set_phase(Phase::Forward);
  b.add("cache.admit_rows", admit_, operands);
  const RowMoves rows = moves();
  const TensorId victims_here = rows.list_down(victims, Symbol::CacheVictims);
  missed_here_ = rows.list_down(missed, Symbol::CacheMisses);
  b.add("cache.wait", HostWork{}, {reads(victims_here), reads(missed_here_)}, Stream::Host);
  rows.down(victim_slots, victims_here);
  if (!o_.overlap) rows_come();
}

void CachedTables::rows_come() {
  moves().up(missed_here_, missed_slots_);
  rows_are_here_ = true;
}

const CachedTables::Table& CachedTables::table_with(TensorId owner, TensorId Table::*part) const {
  const auto it = std::find_if(tables_.begin(), tables_.end(), [&](const Table& t) { return t.*part == owner; });
  if (it == tables_.end()) bug("a look-up in a table that is not cached");
  return *it;
}

TensorId CachedTables::slots_of(const Table& t) {
  std::int64_t first = 0;
  for (const Table& before : tables_) {
    if (&before == &t) break;
    first += plan_.shape(before.ids).elements();
  }
  Layout part = Layout::contiguous(Shape{plan_.shape(t.ids).elements()});
  part.offset = first;
  return r_.builder().view(slots_, "cache.slots", part);
}

/// Each look-up takes its gradient off the row that it found, times the rate.
void CachedTables::update_rows(OpId id, EmbeddingBagBackward work) {
  const std::span<const Operand> operands = plan_.operands_of(plan_[id]);
  const TensorId gradient = operands[0].tensor(), ids = operands[1].tensor(), sum = operands[3].tensor();
  PlanBuilder& b = r_.builder();
  b.set_phase(plan_[id].phase);
  const std::string name = std::string{plan_.name_of(plan_[id])} + ".step";
  const TensorId step =
      b.tensor(name, Shape{work.bags, work.cols}, {.dtype = work.dtype, .role = TensorRole::Gradient});
  b.add(name, ScaleRows{.rows = work.bags, .cols = work.cols, .factor = -rate_, .dtype = work.dtype},
        {reads(r_[gradient]), writes(step)});
  work.table_rows = admit_.slots;
  r_.emit(id,
          {.work = work,
           .instead = {{gradient, step}, {ids, slots_of(table_with(plan_.owner(ids), &Table::ids))}, {sum, cache_}}});
}

void CachedTables::rewrite(OpId id) {
  const std::span<const Operand> operands = plan_.operands_of(plan_[id]);
  if (const auto* bag = std::get_if<EmbeddingBagForward>(&plan_.work(id))) {
    if (!rows_are_here_) rows_come();
    EmbeddingBagForward cached = *bag;
    cached.table_rows = admit_.slots;
    const TensorId weight = operands[0].tensor(), ids = operands[1].tensor();
    const TensorId slots = slots_of(table_with(plan_.owner(ids), &Table::ids));
    r_.emit(id, {.work = cached, .instead = {{weight, cache_}, {ids, slots}}});
    return;
  }
  if (const auto* backward = std::get_if<EmbeddingBagBackward>(&plan_.work(id))) return update_rows(id, *backward);
  const bool is_of_table = std::any_of(operands.begin(), operands.end(), [&](const Operand& o) {
    const TensorId owner = plan_.owner(o.tensor());
    return std::any_of(tables_.begin(), tables_.end(),
                       [&](const Table& t) { return owner == t.weight || owner == t.gradient; });
  });
  if (is_of_table)
    r_.skip(id);  // whole gradients and whole updates
  else
    r_.emit(id);
}

Plan CachedTables::run(const WorkspaceModel* workspaces) {
  find_tables();
  choose_slots();
  r_.begin_class(ClassId{0});
  make_storage();
  begin_step();
  for (std::size_t i = 0; i < plan_.ops.size(); ++i) rewrite(OpId{i});
  r_.end_class();
  return r_.take(workspaces);
}

class CachedEmbedding final : public TierStrategy {
 public:
  explicit CachedEmbedding(CachedEmbeddingOptions o) : TierStrategy{"cached-embedding", {}}, options_{o} {}
  bool steps_repeat() const override { return false; }

 protected:
  void check(const TrainOptions& o) const override {
    const OptimizerOptions& u = o.optimizer;
    if (u.kind != OptimizerKind::Sgd || u.momentum != 0 || u.decay != 0 || u.clip != 0)
      throw OptionError{{"train.optimizer"},
                        "rows of a cache are updated where they are looked up, by their gradient alone",
                        "use `optimizer: {kind: sgd, momentum: 0, decay: 0, clip: 0}`"};
    if (o.microbatches != 1)
      throw OptionError{
          {"train.microbatches"},
          fmt::format("cached rows are updated behind the pass that reads them, not behind {} of them", o.microbatches),
          "use one microbatch"};
  }
  Plan move_tensors(const Plan& plan, const TrainOptions& o, const WorkspaceModel* workspaces) const override {
    return CachedTables{plan, options_, o.optimizer.rate}.run(workspaces);
  }

 private:
  CachedEmbeddingOptions options_;
};

}  // namespace

const AdmitRows* cache_of(const Plan& plan) {
  for (const Work& work : plan.works)
    if (const auto* admit = std::get_if<AdmitRows>(&work)) return admit;
  return nullptr;
}

std::unique_ptr<Strategy> make_cached_embedding(const Node& node) {
  CachedEmbeddingOptions o;
  read_options(node, o);
  return std::make_unique<CachedEmbedding>(o);
}

std::vector<OptionInfo> cached_embedding_options() { return describe_options<CachedEmbeddingOptions>(); }

}  // namespace orrery
