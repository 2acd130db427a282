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

constexpr std::int64_t kLeastPiece = 4096;               // bytes
constexpr std::int64_t kMostPieces = 1 << 14;            // of one memory
constexpr double kStepsPerDoubling = 7, kWorkSteps = 3;  // of distances that are told apart
constexpr int kRounds = 2;                               // of which the last one counts

/// Which of the pieces of a memory were touched after which: for a piece, how many others since it was touched itself.
class Recency {
 public:
  /// Different pieces touched since this one; all, when it was never touched.
  std::size_t since(std::size_t piece) const {
    return piece >= last_.size() || last_[piece] == 0 ? live_ : live_ - before(last_[piece]);
  }
  /// What the clock said when it was touched; 0: never.
  double clock_at(std::size_t piece) const { return piece < clocks_.size() ? clocks_[piece] : 0; }

  void touch(std::size_t piece, double clock) {
    if (piece >= last_.size()) last_.resize(2 * piece + 1, 0), clocks_.resize(2 * piece + 1, 0);
    clocks_[piece] = clock;
    if (next_ >= tree_.size()) renumber();
    if (last_[piece] != 0)
      add(last_[piece], -1);
    else
      ++live_;
    last_[piece] = next_++;
    add(last_[piece], 1);
  }

 private:
  /// Pieces whose last touch is at `time` or before: a sum of a binary indexed tree.
  std::size_t before(std::size_t time) const {
    std::int64_t sum = 0;
    for (std::size_t i = time; i > 0; i &= i - 1) sum += tree_[i];
    return static_cast<std::size_t>(sum);
  }
  void add(std::size_t time, std::int32_t by) {
    for (std::size_t i = time; i < tree_.size(); i += i & (~i + 1)) tree_[i] += by;
  }
  /// Gives the touches that count the times 1, 2, 3 … and makes room for as many more, and some.
  void renumber() {
    std::vector<std::pair<std::size_t, std::size_t>> order;
    for (std::size_t p = 0; p < last_.size(); ++p)
      if (last_[p] != 0) order.emplace_back(last_[p], p);
    std::sort(order.begin(), order.end());
    tree_.assign(4 * order.size() + 1024, 0);
    next_ = 1;
    for (const auto& [time, piece] : order) {
      last_[piece] = next_++;
      add(last_[piece], 1);
    }
  }

  std::vector<double> clocks_;       // of the last touch of each piece
  std::vector<std::size_t> last_;    // time of the last touch of each piece; 0: never
  std::vector<std::int32_t> tree_;   // 1 at each of these times
  std::size_t next_ = 1, live_ = 0;  // the next time; pieces touched so far
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
  double bytes_each = 0;
};

/// Gathers what ops of a work touch, by operand and step of distance.
class Tally {
 public:
  void add(std::size_t operand, Access access, double bytes, double distance, double work) {
    const auto step = [](double value, double steps) {
      return static_cast<int>(std::lround(steps * std::log2(std::max(value, 1.0))));
    };
    sums_[{operand, access, step(distance, kStepsPerDoubling), step(work, kWorkSteps)}] += bytes;
  }
  void count(double ops) { ops_ += ops; }

  Reuse mean() const {
    Reuse out;
    for (const auto& [key, bytes] : sums_) {
      const auto [operand, access, step, work] = key;
      out.touches.push_back({static_cast<std::uint8_t>(std::min<std::size_t>(operand, UINT8_MAX)),
                             access != Access::Read, access != Access::Write, Bytes{bytes / ops_},
                             Bytes{std::exp2(step / kStepsPerDoubling)}, Flops{std::exp2(work / kWorkSteps)}});
    }
    return out;
  }

 private:
  std::map<std::tuple<std::size_t, Access, int, int>, double> sums_;
  double ops_ = 0;
};

/// One rank of a class that executes its ops again and again.
class Walk {
 public:
  Walk(const Plan& plan, const std::vector<Bytes>& reach, const std::vector<Flops>& flops, double ranks,
       std::vector<Tally>& tallies)
      : plan_{plan},
        reach_{reach},
        flops_{flops},
        ranks_{ranks},
        tallies_{tallies},
        allocator_{make_allocator({})},
        places_(plan.tensors.size(), -1) {}

  void run(const RankClass& c) {
    piece_ = std::max<std::int64_t>(kLeastPiece, held_by(c) / kMostPieces);
    for (int round = 0; round < kRounds; ++round)
      for (const Op& op : plan_.ops_of(c)) execute(op, round + 1 == kRounds);
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

  /// An op passes over its operands side by side: each has its next part touched in turn.
  void touch_operands(const Op& op, Tally* tally) {
    const Bytes reach = reach_[op.work.index()];
    std::vector<Pieces>& all = pieces_;
    all.clear();
    std::int64_t most = 0;
    const auto operands = plan_.operands_of(op);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const TensorId t = operands[i].tensor();
      if (!in_memory(plan_.owner(t))) continue;
      const Range r = range_of(t, reach);
      const std::int64_t first = r.first / piece_, count = (r.end + piece_ - 1) / piece_ - first;
      if (count <= 0) continue;
      const double bytes = std::min(plan_.size(t), reach).base();
      all.push_back({i, operands[i].access(), first, count, ranks_ * bytes / double(count)});
      most = std::max(most, count);
    }
    if (tally) tally->count(ranks_);
    for (std::int64_t step = 0; step < most; ++step)
      for (const Pieces& p : all)
        for (std::int64_t k = step * p.count / most; k < (step + 1) * p.count / most; ++k) {
          const auto piece = static_cast<std::size_t>(p.first + k);
          if (tally)
            tally->add(p.operand, p.access, p.bytes_each, double(recency_.since(piece)) * double(piece_),
                       clock_ - recency_.clock_at(piece));
          recency_.touch(piece, clock_);
        }
    clock_ += flops_[op.work.index()].base();
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
  const std::vector<Bytes>& reach_;
  const std::vector<Flops>& flops_;
  double ranks_;
  std::vector<Tally>& tallies_;
  std::unique_ptr<Allocator> allocator_;
  std::vector<std::int64_t> places_;  // of owners; −1: not there
  Recency recency_;
  std::int64_t piece_ = kLeastPiece;
  double clock_ = 0;            // FLOP so far
  std::vector<Pieces> pieces_;  // of the op at hand
};

}  // namespace

std::vector<Reuse> reuse_of_works(const Plan& plan, const Bindings& bindings) {
  const std::vector<Bytes> reach = reach_of_works(plan, bindings);
  std::vector<Flops> flops;
  for (const Work& work : plan.works) flops.push_back(amount(work, bindings).flops);
  std::vector<Tally> tallies(plan.works.size());
  for (const RankClass& c : plan.classes) Walk{plan, reach, flops, double(c.size()), tallies}.run(c);
  std::vector<Reuse> out;
  for (const Tally& t : tallies) out.push_back(t.mean());
  return out;
}

}  // namespace orrery
