// SPDX-License-Identifier: Apache-2.0
#include "sim/app/split_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>

#include "sim/app/layer_search.hpp"
#include "sim/app/stage_balance.hpp"
#include "sim/base/parallel.hpp"
#include "sim/strategy/model_parts.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostSamples = 64;    // of a microbatch
constexpr std::size_t kMostRefined = 6;      // meshes around which all else is tried
constexpr std::size_t kMostBeyond = 4;       // meshes at a time whose tensors move to other tiers
constexpr double kNear = 1.25;               // of the time of the fastest: how slow they may be
constexpr double kNearly = 1.05;             // the same where blocks get ways of their own,
constexpr double kMostOfRecomputing = 0.25;  // less this part if all of them run again
constexpr int kMostPasses = 2;               // over all else
constexpr int kMostSlower = 2;  // sizes of a microbatch: what is shared per microbatch may outweigh recomputation
constexpr std::int64_t kFewStages = 2;  // microbatches per stage until all are busy
constexpr double kFaster = 0.999;       // what counts as faster

using SplitChange = std::function<void(StepSplit&)>;

/// What a split may have beside its mesh.
std::vector<SplitChange> changes_of(const SplitMesh& mesh) {
  std::vector<SplitChange> all;
  const auto add = [&](SplitChange change) { all.push_back(std::move(change)); };
  if (mesh.pp > 1) {
    for (const char* name : {"1f1b", "zb-h1", "zb-v"}) add([=](StepSplit& s) { s.schedule = name, s.chunks = 0; });
    for (const std::int64_t n : {2, 4}) add([=](StepSplit& s) { s.schedule = "interleaved", s.chunks = n; });
  }
  if (mesh.replicas() * mesh.cp > 1) {
    for (const char* kind : {"ddp", "zero1", "zero2", "zero3"}) add([=](StepSplit& s) { s.data = kind; });
    for (const std::int64_t bytes : {25'000'000, 100'000'000, 400'000'000})
      add([=](StepSplit& s) { s.bucket = bytes; });
  }
  if (mesh.tp > 1) {
    add([](StepSplit& s) { s.tensor_overlap = !s.tensor_overlap; });
    add([](StepSplit& s) { s.tp_comm_overlap = !s.tp_comm_overlap; });
  }
  if (mesh.cp > 1)
    for (const char* way : {"ring", "ulysses"}) add([=](StepSplit& s) { s.context = way; });
  add([](StepSplit& s) { s.samples *= 2; });
  add([](StepSplit& s) { s.samples /= 2; });
  for (const char* what : kRecomputations) add([=](StepSplit& s) { s.recompute = what; });
  return all;
}

class MeshSearch {
 public:
  MeshSearch(const Reproducer& r, const TrainingRequest& q, std::int64_t blocks) : r_{r}, q_{q}, blocks_{blocks} {}

  /// Of one mesh: sizes of a microbatch from 1 on, until they make it slower again.
  std::vector<SplitTrial> sizes(const SplitMesh& mesh) const {
    StepSplit s;
    s.mesh = mesh;
    std::vector<SplitTrial> out = sizes_from(s);
    const bool fits = std::any_of(out.begin(), out.end(), [](const SplitTrial& t) {
      return t.trial.fits() && t.split.recompute == kRecomputations[0];
    });
    if (!fits && mesh.replicas() * mesh.cp > 1) {
      s.data = "zero3";
      std::vector<SplitTrial> sharded = sizes_from(s);
      std::move(sharded.begin(), sharded.end(), std::back_inserter(out));
    }
    return out;
  }

  /// Microbatches of that many samples and more, each with the least recomputation that fits, until that is slower.
  std::vector<SplitTrial> sizes_from(StepSplit s) const {
    std::vector<SplitTrial> out;
    const std::size_t levels = s.tiers && s.tiers->recomputes ? 1 : std::size(kRecomputations);
    std::size_t level = 0;
    double best = std::numeric_limits<double>::infinity();
    int slower = 0;
    for (; is_possible(s); s.samples *= 2) {
      std::optional<double> step;
      for (; level < levels; ++level) {
        s.recompute = kRecomputations[level];
        Answer a = one(s);
        s.sequence_parallel = a.trial.split.sequence_parallel, s.tp_comm_overlap = a.trial.split.tp_comm_overlap;
        out.push_back(std::move(a.trial));
        const TrainingTrial& t = out.back().trial;
        if (!t.is_open() || a.is_hopeless) return out;
        if (!t.fits()) continue;
        step = t.step;
        break;
      }
      if (!step || (*step > best && ++slower > kMostSlower)) return out;
      best = std::min(best, *step);
    }
    return out;
  }

  /// One change after another that makes it faster, until none does.
  std::vector<SplitTrial> refined(SplitTrial from) const {
    std::vector<SplitTrial> tried;
    const std::vector<SplitChange> changes = changes_of(from.split.mesh);
    bool is_faster = true;
    for (int pass = 0; pass < kMostPasses && is_faster; ++pass) {
      is_faster = false;
      for (const SplitChange& change : changes) {
        StepSplit next = from.split;
        change(next);
        if (next == from.split || !is_possible(next)) continue;
        tried.push_back(one(next).trial);
        const SplitTrial& t = tried.back();
        if (!t.trial.fits() || t.trial.step >= kFaster * from.trial.step) continue;
        from = t;
        is_faster = true;
      }
    }
    std::vector<SplitTrial> balanced = in_balance(from);
    std::move(balanced.begin(), balanced.end(), std::back_inserter(tried));
    return tried;
  }

  /// With other numbers of blocks for stages.
  std::vector<SplitTrial> in_balance(const SplitTrial& from) const {
    return balance_stages({blocks_, q_.batch, [this](const StepSplit& s) { return one(s).trial; }}, from);
  }

  /// With some of its microbatches, where it has many.
  SplitTrial part(const StepSplit& s) const { return screened(s).trial; }
  /// With all of them.
  SplitTrial whole(const StepSplit& s) const { return predict(s, s.microbatches(q_.batch)).trial; }

 private:
  struct Answer {
    SplitTrial trial;
    bool is_hopeless = false;  // too large without any activations
  };

  bool is_possible(const StepSplit& s) const {
    const std::int64_t each = q_.batch / s.mesh.replicas();
    if (s.samples < 1 || s.samples > kMostSamples || each % s.samples != 0) return false;
    const std::int64_t microbatches = each / s.samples;
    if (s.schedule == "interleaved" && microbatches % s.mesh.pp != 0) return false;
    return s.samples == 1 || microbatches >= s.mesh.pp;  // else stages wait most of the time
  }

  /// A step of so many microbatches.
  Answer predict(const StepSplit& s, std::int64_t microbatches) const {
    TrainingRequest q = q_;
    q.batch = s.mesh.replicas() * s.samples * microbatches;
    Answer a;
    Report report;
    a.trial.split = s;
    a.trial.trial = predict_training(r_, q, s.strategy(), s.recomputation(microbatches), &report);
    a.trial.bubble = report.bubble, a.trial.stages = report.stages;
    for (StageReport& stage : a.trial.stages) stage.room *= 1 - q.reserved;
    if (a.trial.trial.fits() || !report.memory.capacity) return a;
    double beside = 0;
    for (const MemoryReport::Owner& o : report.memory.by_role)
      if (o.role != "activation" && o.role != "workspace") beside += double(o.bytes);
    a.is_hopeless = beside > (1 - q.reserved) * *report.memory.capacity / double(report.memory.sharers);
    return a;
  }

  /// The same of all microbatches: from two steps of fewer where there are many, as each takes as long as the one
  /// before it once all stages are busy.
  Answer screened(const StepSplit& s) const {
    const std::int64_t all = s.microbatches(q_.batch), some = kFewStages * s.mesh.pp, more = some + s.mesh.pp;
    if (all < some + more) return predict(s, all);
    const SplitTrial a = predict(s, some).trial;
    Answer b = predict(s, more);
    TrainingTrial& t = b.trial.trial;
    if (!a.trial.is_open() || !t.is_open()) return b;
    const auto grown = [&](double of_some, double of_more) {
      return of_more + double(all - more) * (of_more - of_some) / double(more - some);
    };
    const double step = grown(a.trial.step, t.step), factor = step / t.step, rate = double(all) / double(more) / factor;
    b.trial.bubble = grown(a.bubble * a.trial.step, b.trial.bubble * t.step) / step;
    for (std::size_t i = 0; i < b.trial.stages.size(); ++i)
      b.trial.stages[i].busy = grown(a.stages[i].busy, b.trial.stages[i].busy);
    t.step = step, t.low *= factor, t.high *= factor, t.tokens_per_second *= rate, t.mfu *= rate;
    return b;
  }

  Answer one(StepSplit s) const {
    Answer a = screened(s);
    const auto without = [&](bool StepSplit::*option) {
      if (a.trial.trial.is_open() || s.mesh.tp == 1 || !(s.*option)) return;
      s.*option = false;
      a = screened(s);
    };
    without(&StepSplit::tp_comm_overlap);    // rows that are not as many on each rank
    without(&StepSplit::sequence_parallel);  // rows between blocks that are not to be split
    return a;
  }

  const Reproducer& r_;
  const TrainingRequest& q_;
  std::int64_t blocks_;
};

void sort(std::vector<SplitTrial>& trials) {
  std::stable_sort(trials.begin(), trials.end(),
                   [](const SplitTrial& a, const SplitTrial& b) { return a.trial.is_better_than(b.trial); });
}

void sort_by_step(std::vector<SplitTrial>& trials) {
  std::stable_sort(trials.begin(), trials.end(),
                   [](const SplitTrial& a, const SplitTrial& b) { return a.trial.step < b.trial.step; });
}

/// The best of each mesh, in an order that threads do not change.
std::vector<SplitTrial> best_of_meshes(const std::vector<SplitTrial>& all) {
  std::map<std::string, const SplitTrial*> best;
  for (const SplitTrial& t : all) {
    const SplitTrial*& known = best[t.split.mesh.text()];
    if (known == nullptr || t.trial.is_better_than(known->trial)) known = &t;
  }
  std::vector<SplitTrial> out;
  for (const auto& [mesh, t] : best) out.push_back(*t);
  sort(out);
  return out;
}

/// The phases of a search over splits, and all that they predicted.
class Phases {
 public:
  Phases(const MeshSearch& search, const std::function<void(std::string_view, double)>& progress)
      : search_{search}, progress_{progress} {}

  /// Adds what is predicted of each.
  template <class T>
  void add(std::string_view name, const std::vector<T>& of, const auto& predict) {
    std::vector<std::vector<SplitTrial>> found(of.size());
    in_parallel(
        of.size(), [&](std::size_t i) { found[i] = predict(of[i]); }, [&](double done) { progress_(name, done); });
    for (std::vector<SplitTrial>& some : found) std::move(some.begin(), some.end(), std::back_inserter(all_));
  }
  /// Those that may become the fastest: the best of each mesh that fits, if it is not `slower` times as slow as the
  /// fastest once `what_it_may_gain` is taken off.
  std::vector<SplitTrial> near(double slower, const auto& what_it_may_gain) const {
    std::vector<SplitTrial> from = best_of_meshes(all_);
    const double most = from.empty() ? 0 : slower * from.front().trial.step;
    std::erase_if(from, [&](const SplitTrial& t) {
      return !t.trial.fits() || t.trial.step * (1 - what_it_may_gain(t.split)) > most;
    });
    if (from.size() > kMostRefined) from.resize(kMostRefined);
    return from;
  }
  /// Meshes that may be faster than what fits if memory were no matter, fastest first, each as it was then. Where what
  /// fits recomputes, also those that are near: with larger microbatches they may be.
  std::vector<SplitTrial> held_up_by_memory() const {
    std::map<std::string, const SplitTrial*> fastest;
    double most = std::numeric_limits<double>::infinity();
    for (const SplitTrial& t : all_) {
      const double limit = (t.split.recompute == kRecomputations[0] ? kFaster : kNear) * t.trial.step;
      if (t.trial.fits()) most = std::min(most, limit);
      const SplitTrial*& known = fastest[t.split.mesh.text()];
      if (t.trial.is_open() && (known == nullptr || t.trial.step < known->trial.step)) known = &t;
    }
    std::vector<SplitTrial> out;
    for (const auto& [mesh, t] : fastest)
      if (t != nullptr && !t->trial.fits() && t->trial.step < most) out.push_back(*t);
    sort_by_step(out);
    return out;
  }
  bool is_any_fitting() const {
    return std::any_of(all_.begin(), all_.end(), [](const SplitTrial& t) { return t.trial.fits(); });
  }
  /// Each of these, and the fastest of the same mesh that is faster and does not fit.
  std::vector<SplitTrial> with_larger(const std::vector<SplitTrial>& splits) const {
    std::vector<SplitTrial> out;
    for (const SplitTrial& fits : splits) {
      out.push_back(fits);
      const SplitTrial* fastest = &fits;
      for (const SplitTrial& t : all_)
        if (t.split.mesh == fits.split.mesh && t.trial.is_open() && t.trial.step < fastest->trial.step) fastest = &t;
      if (fastest != &fits) out.push_back(*fastest);
    }
    return out;
  }
  /// Splits into stages that may become the fastest and would be that of their mesh, if the memory of stages were one:
  /// the fastest first.
  std::vector<SplitTrial> crowded(double slower) const {
    std::map<std::string, double> fits;
    double most = std::numeric_limits<double>::infinity();
    for (const SplitTrial& t : best_of_meshes(all_))
      if (t.trial.fits()) fits[t.split.mesh.text()] = t.trial.step, most = std::min(most, slower * t.trial.step);
    std::vector<SplitTrial> out;
    for (const SplitTrial& t : all_) {
      if (t.split.mesh.pp == 1 || !t.trial.is_open() || t.trial.fits() || t.trial.step > most) continue;
      if (const auto own = fits.find(t.split.mesh.text()); own != fits.end() && t.trial.step >= own->second) continue;
      double bytes = 0, room = 0;
      for (const StageReport& s : t.stages) bytes += double(s.bytes), room += s.room;
      if (bytes < room) out.push_back(t);
    }
    sort_by_step(out);
    if (out.size() > kMostRefined) out.resize(kMostRefined);
    return out;
  }
  SplitSearch result(std::size_t rows) {
    SplitSearch out;
    for (const SplitTrial& t : all_) {
      out.tried += t.trial.is_open();
      out.fitting += t.trial.fits();
      if (!t.trial.is_open() && out.refusal.empty()) out.refusal = t.trial.limit;
    }
    for (SplitTrial& t : best_of_meshes(all_))
      if (t.trial.fits())
        out.best.push_back(std::move(t));
      else if (t.trial.is_open())
        out.small.push_back(std::move(t));
    out.fit_meshes = static_cast<std::int64_t>(out.best.size());
    for (auto* some : {&out.best, &out.small})
      if (some->size() > rows) some->resize(rows);
    in_parallel(
        out.best.size(), [&](std::size_t i) { out.best[i] = search_.whole(out.best[i].split); },
        [&](double done) { progress_("the best as a whole", done); });
    sort(out.best);
    return out;
  }

 private:
  const MeshSearch& search_;
  const std::function<void(std::string_view, double)>& progress_;
  std::vector<SplitTrial> all_;
};

/// With tensors on other tiers: the fastest of those that memory holds up, more of them while nothing fits.
void search_tiers(Phases& phases, const MeshSearch& search, const std::vector<TierWay>& ways) {
  const std::vector<SplitTrial> held_up = phases.held_up_by_memory();
  for (std::size_t i = 0; i < held_up.size() && (i == 0 || !phases.is_any_fitting()); i += kMostBeyond) {
    std::vector<StepSplit> from;
    for (std::size_t j = i; j < std::min(held_up.size(), i + kMostBeyond); ++j)
      for (const TierWay& way : ways) {
        StepSplit& s = from.emplace_back(held_up[j].split);
        s.samples = 1, s.recompute = kRecomputations[0], s.data = way.data, s.tiers = way;
      }
    phases.add("other tiers", from, [&](const StepSplit& s) { return search.sizes_from(s); });
  }
}

}  // namespace

SplitSearch search_splits(const Reproducer& reproducer, const TrainingRequest& request, const Model& model,
                          const SplitBounds& bounds, const std::vector<TierWay>& tiers, std::size_t rows,
                          const std::function<void(std::string_view, double)>& progress) {
  const MeshSearch search{reproducer, request, bounds.layers};
  const LayerSearch by_layers{model, request.batch, bounds.devices_per_node,
                              [&](const StepSplit& s) { return search.part(s); }};
  const std::vector<SplitMesh> meshes = split_meshes(request.ranks, request.batch, request.sequence, bounds);
  Phases phases{search, progress};
  phases.add("meshes", meshes, [&](const SplitMesh& m) { return search.sizes(m); });
  search_tiers(phases, search, tiers);
  const auto nothing = [](const StepSplit&) { return 0.0; };
  phases.add("what else they have", phases.near(kNear, nothing),
             [&](const SplitTrial& t) { return search.refined(t); });
  phases.add("stages in balance", phases.crowded(kNear), [&](const SplitTrial& t) { return search.in_balance(t); });
  const auto recomputation = [](const StepSplit& s) { return s.recompute == "full" ? kMostOfRecomputing : 0.0; };
  phases.add("layer by layer", phases.with_larger(phases.near(kNearly, recomputation)),
             [&](const SplitTrial& t) { return search_layers(by_layers, t); });
  SplitSearch out = phases.result(rows);
  out.meshes = static_cast<std::int64_t>(meshes.size());
  return out;
}

}  // namespace orrery
