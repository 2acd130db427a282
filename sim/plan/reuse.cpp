// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/reuse.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>

#include "sim/base/allocator.hpp"
#include "sim/plan/stretches.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kLine = 64;                       // bytes
constexpr std::int64_t kLeastPiece = 64;                 // lines
constexpr std::int64_t kMostPieces = 1 << 14;            // of one memory
constexpr double kStepsPerDoubling = 7, kWorkSteps = 3;  // of distances that are told apart
constexpr double kMostOfStrided = 0.75;                  // of the lines between its ends that a strided operand has
constexpr int kRounds = 2;                               // of which the last one counts
constexpr std::size_t kScratch = SIZE_MAX;               // as an operand: what kernels use by themselves

/// When something was touched.
struct Moment {
  double clock = 0;  // FLOP so far
  int round = 0;
  std::int64_t op = -1;
};

/// Which lines of a memory were touched after which. Those of a piece that were touched together are kept as one.
class Recency {
 public:
  /// Touches lines [first, end) of a piece. Before, for those that were touched together: calls `found` with how many
  /// they are, how many different lines have been touched since, and when that was; where they never were, all lines,
  /// and 0. `strided`: what the op at hand has touched between them before is another operand's, as where queries, keys
  /// and values are columns of one tensor, and tells nothing of these.
  template <class F>
  void touch(std::size_t piece, std::uint32_t first, std::uint32_t end, Moment now, bool strided, F found) {
    if (piece >= runs_.size()) runs_.resize(2 * piece + 1);
    if (next_ >= tree_.size()) renumber();
    std::vector<Run>& runs = runs_[piece];
    std::uint32_t fresh = end - first;
    Last last;
    std::uint32_t most = 0;
    const auto tell = [&](std::uint32_t lines, const Last& of) {
      found(lines, of.since, of.touched);
      if (lines > most) most = lines, last = of;
    };
    for (const Run& r : runs)
      if (const std::uint32_t lines = shared(r, first, end); lines > 0) {
        tell(lines, strided && r.touched.op == now.op ? r.last : Last{live_ - before(r.time), r.touched});
        fresh -= lines;
      }
    if (fresh > 0) tell(fresh, {live_, {}});
    left_.clear();
    for (const Run& r : runs) {
      const std::uint32_t lines = shared(r, first, end);
      if (lines > 0) add(r.time, -std::int64_t{lines});
      if (r.first < std::min(r.end, first))
        left_.push_back({r.first, std::min(r.end, first), r.time, r.touched, r.last});
      if (std::max(r.first, end) < r.end) left_.push_back({std::max(r.first, end), r.end, r.time, r.touched, r.last});
    }
    live_ += fresh;
    left_.push_back({first, end, next_, now, last});
    add(next_++, end - first);
    runs.assign(left_.begin(), left_.end());
  }

 private:
  /// How many lines have been touched since lines were touched, and when that was.
  struct Last {
    std::int64_t since = 0;
    Moment touched;
  };
  struct Run {
    std::uint32_t first = 0, end = 0;  // lines of the piece
    std::size_t time = 0;              // of the last touch
    Moment touched;
    Last last;  // what was found then of most of them
  };

  static std::uint32_t shared(const Run& r, std::uint32_t first, std::uint32_t end) {
    const std::uint32_t low = std::max(r.first, first), high = std::min(r.end, end);
    return low < high ? high - low : 0;
  }
  /// Lines whose last touch is at `time` or before: a sum of a binary indexed tree.
  std::int64_t before(std::size_t time) const {
    std::int64_t sum = 0;
    for (std::size_t i = time; i > 0; i &= i - 1) sum += tree_[i];
    return sum;
  }
  void add(std::size_t time, std::int64_t by) {
    for (std::size_t i = time; i < tree_.size(); i += i & (~i + 1)) tree_[i] += by;
  }
  /// Gives the touches that count the times 1, 2, 3 … and makes room for as many more, and some.
  void renumber() {
    std::vector<Run*> order;
    for (std::vector<Run>& runs : runs_)
      for (Run& r : runs) order.push_back(&r);
    std::sort(order.begin(), order.end(), [](const Run* a, const Run* b) { return a->time < b->time; });
    tree_.assign(4 * order.size() + 1024, 0);
    next_ = 1;
    for (Run* const r : order) {
      r->time = next_++;
      add(r->time, r->end - r->first);
    }
  }

  std::vector<std::vector<Run>> runs_;  // per piece, apart from each other
  std::vector<Run> left_;               // scratch
  std::vector<std::int64_t> tree_;      // at each of these times, the lines that were touched last then
  std::size_t next_ = 1;                // time
  std::int64_t live_ = 0;               // lines touched so far
};

/// Addresses of what an op reaches of a tensor.
struct Range {
  std::int64_t first = 0, end = 0;
};

/// The pieces of an operand that an op touches one after the other.
struct Pieces {
  std::size_t operand = 0;
  Access access = Access::Read;
  std::int64_t first = 0, count = 0;
  Range lines;
  double bytes_each = 0;  // line
  bool strided = false;
};

/// Gathers what ops of a work touch, by operand and step of distance.
class Tally {
 public:
  void add(std::size_t operand, Access access, bool carried, double bytes, double distance, double work) {
    const auto step = [](double value, double steps) {
      return static_cast<int>(std::lround(steps * std::log2(std::max(value, 1.0))));
    };
    sums_[{operand, access, step(distance, kStepsPerDoubling), step(work, kWorkSteps), carried}] += bytes;
  }
  void count(double ops) { ops_ += ops; }

  Reuse mean() const {
    Reuse out;
    for (const auto& [key, bytes] : sums_) {
      const auto [operand, access, step, work, carried] = key;
      out.touches.push_back({.operand = static_cast<std::uint8_t>(std::min<std::size_t>(operand, UINT8_MAX)),
                             .writes = access != Access::Read,
                             .reads = access != Access::Write,
                             .carried = carried,
                             .bytes = Bytes{bytes / ops_},
                             .distance = Bytes{std::exp2(step / kStepsPerDoubling)},
                             .work = Flops{std::exp2(work / kWorkSteps)}});
    }
    return out;
  }

 private:
  std::map<std::tuple<std::size_t, Access, int, int, bool>, double> sums_;
  double ops_ = 0;
};

/// One rank of a class that executes its ops again and again.
class Walk {
 public:
  Walk(const Plan& plan, const std::vector<Reach>& reach, const std::vector<Flops>& flops, double ranks,
       std::vector<Tally>& tallies)
      : plan_{plan},
        reach_{reach},
        flops_{flops},
        ranks_{ranks},
        tallies_{tallies},
        allocator_{make_allocator({})},
        places_(plan.tensors.size(), -1) {}

  void run(const RankClass& c) {
    class_ = static_cast<std::size_t>(&c - plan_.classes.data());
    piece_ = std::max<std::int64_t>(kLeastPiece, held_by(c) / kLine / kMostPieces);
    for (now_.round = 0; now_.round < kRounds; ++now_.round)
      for (const Op& op : plan_.ops_of(c)) {
        execute(op, now_.round + 1 == kRounds);
        ++now_.op;
      }
  }

 private:
  /// Bytes of all storage together that the ops of a class use.
  std::int64_t held_by(const RankClass& c) const {
    std::vector<bool> seen(plan_.tensors.size(), false);
    double bytes = 0;
    for (const Op& op : plan_.ops_of(c))
      for (const Operand& o : plan_.operands_of(op)) {
        const TensorId owner = plan_.owner(o.tensor());
        if (!seen[owner.index()]) bytes += plan_.size(owner).base();
        seen[owner.index()] = true;
      }
    return static_cast<std::int64_t>(bytes);
  }

  bool in_memory(TensorId owner) const { return plan_.tensors[owner.index()].tier != Tier::Disk; }

  void execute(const Op& op, bool counts) {
    for (const Operand& o : plan_.operands_of(op)) take(plan_.owner(o.tensor()));
    touch_operands(op, counts ? &tallies_[op.work.index()] : nullptr);
    for (const Operand& o : plan_.operands_of(op))
      if (o.frees()) give_back(plan_.owner(o.tensor()));
  }

  /// An op passes over its operands and its scratch side by side: each has its next part touched in turn.
  void touch_operands(const Op& op, Tally* tally) {
    const Reach& reach = reach_[op.work.index()];
    pieces_.clear();
    const auto operands = plan_.operands_of(op);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const TensorId t = operands[i].tensor();
      if (in_memory(plan_.owner(t)))
        add_pieces(i, operands[i].access(), range_of(t, reach.of(i)), std::min(plan_.size(t), reach.of(i)));
    }
    add_scratch(op);
    std::int64_t most = 0;
    for (const Pieces& p : pieces_) most = std::max(most, p.count);
    if (tally) tally->count(ranks_);
    for (std::int64_t step = 0; step < most; ++step)
      for (const Pieces& p : pieces_)
        for (std::int64_t k = step * p.count / most; k < (step + 1) * p.count / most; ++k)
          touch(p, p.first + k, p.operand == kScratch ? nullptr : tally);
    now_.clock += flops_[op.work.index()].base();
  }

  /// So many bytes of what lies at these addresses.
  void add_pieces(std::size_t operand, Access access, Range at, Bytes bytes) {
    const Range lines{at.first / kLine, (at.end + kLine - 1) / kLine};
    if (lines.first >= lines.end) return;
    const std::int64_t first = lines.first / piece_, count = (lines.end + piece_ - 1) / piece_ - first;
    const double each = bytes.base() / double(lines.end - lines.first);
    pieces_.push_back({operand, access, first, count, lines, ranks_ * each, each < kMostOfStrided * kLine});
  }

  void add_scratch(const Op& op) {
    const Bytes bytes = plan_.scratch_of(op);
    if (!(bytes > Bytes{0})) return;
    const TensorId scratch = plan_.workspaces[class_][static_cast<std::size_t>(op.stream)];
    take(scratch);
    const std::int64_t place = places_[scratch.index()];
    add_pieces(kScratch, Access::ReadWrite, {place, place + static_cast<std::int64_t>(bytes.base())}, bytes);
  }

  void touch(const Pieces& p, std::int64_t piece, Tally* tally) {
    const std::int64_t begin = piece * piece_;
    const auto first = static_cast<std::uint32_t>(std::max(p.lines.first - begin, std::int64_t{0})),
               end = static_cast<std::uint32_t>(std::min(p.lines.end - begin, piece_));
    recency_.touch(static_cast<std::size_t>(piece), first, end, now_, p.strided,
                   [&](std::uint32_t lines, std::int64_t since, const Moment& last) {
                     if (tally)
                       tally->add(p.operand, p.access, last.round < now_.round, lines * p.bytes_each,
                                  double(since * kLine), now_.clock - last.clock);
                   });
  }

  /// What is touched of a tensor: the first bytes of it, if an op does not reach all.
  Range range_of(TensorId t, Bytes reach) const {
    const Tensor& tensor = plan_.tensors[t.index()];
    const Layout& layout = plan_.layouts[tensor.layout.index()];
    double last = double(layout.offset);
    for (std::int32_t i = 0; i < layout.shape.rank; ++i)
      last +=
          double(layout.strides[static_cast<std::size_t>(i)]) * double(std::max<std::int64_t>(1, layout.shape[i]) - 1);
    const double item = bits(tensor.dtype) / 8.0, size = plan_.size(t).base();
    const double part = size > 0 ? std::min(1.0, reach.base() / size) : 0;
    const std::int64_t place = places_[plan_.owner(t).index()];
    const std::int64_t first = place + static_cast<std::int64_t>(double(layout.offset) * item);
    return {first, first + static_cast<std::int64_t>(std::ceil(part * (last + 1 - double(layout.offset)) * item))};
  }

  void take(TensorId owner) {
    if (places_[owner.index()] < 0 && in_memory(owner))
      places_[owner.index()] = *allocator_->allocate(static_cast<std::int64_t>(plan_.size(owner).base()));
  }
  void give_back(TensorId owner) {
    if (plan_.tensors[owner.index()].persistent || places_[owner.index()] < 0) return;
    allocator_->release(places_[owner.index()]);
    places_[owner.index()] = -1;
  }

  const Plan& plan_;
  const std::vector<Reach>& reach_;
  const std::vector<Flops>& flops_;
  double ranks_;
  std::vector<Tally>& tallies_;
  std::unique_ptr<Allocator> allocator_;
  std::vector<std::int64_t> places_;  // of owners; −1: not there
  Recency recency_;
  std::size_t class_ = 0;
  std::int64_t piece_ = kLeastPiece;  // lines
  Moment now_;
  std::vector<Pieces> pieces_;  // of the op at hand
};

}  // namespace

std::vector<Reuse> reuse_of_works(const Plan& plan, const Bindings& bindings) {
  const std::vector<Reach> reach = reach_of_works(plan, bindings);
  std::vector<Flops> flops;
  for (const Work& work : plan.works) flops.push_back(amount(work, bindings).flops);
  std::vector<Tally> tallies(plan.works.size());
  for (const RankClass& c : plan.classes) Walk{plan, reach, flops, double(c.size()), tallies}.run(c);
  std::vector<Reuse> out;
  for (const Tally& t : tallies) out.push_back(t.mean());
  return out;
}

}  // namespace orrery
