// SPDX-License-Identifier: Apache-2.0
#include "sim/app/split_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "sim/base/parallel.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kFewestTokens = 4096;  // of a part of a sequence that is split
constexpr std::int64_t kMostSamples = 64;     // of a microbatch
constexpr std::size_t kMostRefined = 6;       // meshes around which all else is tried
constexpr double kNear = 1.25;                // of the time of the fastest: how slow they may be
constexpr int kMostPasses = 2;                // over all else
constexpr std::int64_t kFewStages = 2;        // microbatches per stage until all are busy
constexpr double kFaster = 0.999;             // what counts as faster
constexpr const char* kRecomputed[] = {"none", "selective", "full"};  // each needs less memory than the one before it

using Change = std::function<void(StepSplit&)>;

/// What a split may have beside its mesh.
std::vector<Change> changes_of(const SplitMesh& mesh) {
  std::vector<Change> all;
  const auto add = [&](Change change) { all.push_back(std::move(change)); };
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
  for (const char* what : kRecomputed) add([=](StepSplit& s) { s.recompute = what; });
  return all;
}

class Search {
 public:
  Search(const Reproducer& r, const TrainingRequest& q) : r_{r}, q_{q} {}

  /// Of one mesh: sizes of a microbatch from 1 on, as long as they make it faster.
  std::vector<SplitTrial> sizes(const SplitMesh& mesh) const {
    std::vector<SplitTrial> out = sizes_with(mesh, "zero1");
    const bool fits = std::any_of(out.begin(), out.end(), [](const SplitTrial& t) {
      return t.trial.fits() && t.split.recompute == kRecomputed[0];
    });
    if (!fits && mesh.replicas() * mesh.cp > 1) {
      std::vector<SplitTrial> sharded = sizes_with(mesh, "zero3");
      std::move(sharded.begin(), sharded.end(), std::back_inserter(out));
    }
    return out;
  }

  /// One change after another that makes it faster, until none does.
  std::vector<SplitTrial> refined(SplitTrial from) const {
    std::vector<SplitTrial> tried;
    const std::vector<Change> changes = changes_of(from.split.mesh);
    bool is_faster = true;
    for (int pass = 0; pass < kMostPasses && is_faster; ++pass) {
      is_faster = false;
      for (const Change& change : changes) {
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
    return tried;
  }

  /// With all of its microbatches.
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
    a.trial.bubble = report.bubble;
    if (a.trial.trial.fits() || !report.memory.capacity) return a;
    double beside = 0;
    for (const MemoryReport::Owner& o : report.memory.by_role)
      if (o.role != "activation" && o.role != "workspace") beside += double(o.bytes);
    a.is_hopeless = beside * double(report.memory.sharers) > *report.memory.capacity;
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

  std::vector<SplitTrial> sizes_with(const SplitMesh& mesh, const char* data) const {
    std::vector<SplitTrial> out;
    StepSplit s;
    s.mesh = mesh, s.data = data;
    std::size_t level = 0;
    std::optional<double> best;
    for (; is_possible(s); s.samples *= 2) {
      std::optional<double> step;
      for (; level < std::size(kRecomputed); ++level) {
        s.recompute = kRecomputed[level];
        Answer a = one(s);
        s.sequence_parallel = a.trial.split.sequence_parallel, s.tp_comm_overlap = a.trial.split.tp_comm_overlap;
        out.push_back(std::move(a.trial));
        const TrainingTrial& t = out.back().trial;
        if (!t.is_open() || a.is_hopeless) return out;
        if (!t.fits()) continue;
        step = t.step;
        break;
      }
      if (!step || (best && *step > *best)) return out;
      best = step;
    }
    return out;
  }

  const Reproducer& r_;
  const TrainingRequest& q_;
};

std::vector<std::int64_t> divisors_of(std::int64_t n) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 1; i <= n; ++i)
    if (n % i == 0) all.push_back(i);
  return all;
}

void sort(std::vector<SplitTrial>& trials) {
  std::stable_sort(trials.begin(), trials.end(),
                   [](const SplitTrial& a, const SplitTrial& b) { return a.trial.is_better_than(b.trial); });
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

}  // namespace

std::string SplitMesh::text() const {
  std::string out;
  const auto axis = [&](const char* name, std::int64_t n) {
    if (n > 1) out += fmt::format("{}{}{}", out.empty() ? "" : " ", name, n);
  };
  axis("pp", pp), axis("dp", dp), axis("ep", ep), axis("cp", cp), axis("tp", tp);
  return out;
}

std::string StepSplit::strategy() const {
  if (mesh == SplitMesh{}) return "single: {}";
  std::string out = fmt::format("parallel: {{mesh: {}", mesh.text());
  if (mesh.pp > 1) out += fmt::format(", schedule: {}", schedule);
  if (mesh.pp > 1 && chunks > 0) out += fmt::format(", chunks: {}", chunks);
  if (mesh.tp > 1 && sequence_parallel) out += ", sequence_parallel: true";
  if (mesh.tp > 1 && tensor_overlap) out += ", tensor_overlap: true";
  if (mesh.tp > 1 && tp_comm_overlap) out += ", tp_comm_overlap: true";
  if (mesh.cp > 1) out += fmt::format(", context: {}", context);
  if (mesh.replicas() * mesh.cp > 1) out += fmt::format(", data: {{kind: {}, bucket: {}}}", data, bucket);
  return out + "}";
}

std::string StepSplit::recomputation(std::int64_t microbatches) const {
  return fmt::format("{}, microbatches: {}", recompute, microbatches);
}

std::string StepSplit::rest() const {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (mesh.pp > 1) add(chunks > 0 ? fmt::format("{} {}", schedule, chunks) : schedule);
  if (mesh.replicas() * mesh.cp > 1) add(data);
  if (mesh.cp > 1) add(context);
  if (mesh.tp > 1 && !sequence_parallel) add("rows not split");
  if (mesh.tp > 1 && tensor_overlap) add("tensor_overlap");
  if (mesh.tp > 1 && tp_comm_overlap) add("tp_comm_overlap");
  return out;
}

SplitBounds split_bounds(const Model& model, std::int64_t devices_per_node) {
  SplitBounds b;
  b.devices_per_node = devices_per_node;
  const auto* network = std::get_if<Transformer>(&model.network);
  if (network == nullptr) return b;
  b.layers = static_cast<std::int64_t>(network->encoder.size() + network->decoder.size());
  for (const auto* blocks : {&network->encoder, &network->decoder})
    for (const Block& block : *blocks)
      if (const auto* moe = std::get_if<MoE>(&block.ffn))
        b.experts = std::max(b.experts, static_cast<std::int64_t>(moe->experts.size()));
  return b;
}

std::vector<SplitMesh> split_meshes(std::int64_t ranks, std::int64_t batch, std::int64_t sequence,
                                    const SplitBounds& bounds) {
  std::vector<SplitMesh> all;
  for (const std::int64_t tp : divisors_of(ranks)) {
    if (tp > bounds.devices_per_node) continue;
    for (const std::int64_t pp : divisors_of(ranks / tp)) {
      if (pp > bounds.layers) continue;
      for (const std::int64_t cp : divisors_of(ranks / tp / pp)) {
        if (cp > 1 && sequence / cp < kFewestTokens) continue;
        const std::int64_t replicas = ranks / tp / pp / cp;
        if (batch % replicas != 0) continue;
        for (const std::int64_t ep : divisors_of(replicas))
          if (bounds.experts % ep == 0) all.push_back({pp, replicas / ep, ep, cp, tp});
      }
    }
  }
  return all;
}

SplitSearch search_splits(const Reproducer& reproducer, const TrainingRequest& request, const SplitBounds& bounds,
                          std::size_t rows, const std::function<void(std::string_view, double)>& progress) {
  const Search search{reproducer, request};
  const std::vector<SplitMesh> meshes = split_meshes(request.ranks, request.batch, request.sequence, bounds);
  std::vector<std::vector<SplitTrial>> found(meshes.size());
  in_parallel(
      meshes.size(), [&](std::size_t i) { found[i] = search.sizes(meshes[i]); },
      [&](double done) { progress("meshes", done); });
  std::vector<SplitTrial> all;
  const auto collect = [&] {
    for (std::vector<SplitTrial>& some : found) std::move(some.begin(), some.end(), std::back_inserter(all));
  };
  collect();
  std::vector<SplitTrial> from = best_of_meshes(all);
  const double most = from.empty() ? 0 : kNear * from.front().trial.step;
  std::erase_if(from, [&](const SplitTrial& t) { return !t.trial.fits() || t.trial.step > most; });
  if (from.size() > kMostRefined) from.resize(kMostRefined);
  found.assign(from.size(), {});
  in_parallel(
      from.size(), [&](std::size_t i) { found[i] = search.refined(from[i]); },
      [&](double done) { progress("what else they have", done); });
  collect();
  SplitSearch out;
  out.meshes = static_cast<std::int64_t>(meshes.size());
  for (const SplitTrial& t : all) {
    out.tried += t.trial.is_open();
    out.fitting += t.trial.fits();
    if (!t.trial.is_open() && out.refusal.empty()) out.refusal = t.trial.limit;
  }
  for (SplitTrial& t : best_of_meshes(all))
    if (t.trial.fits())
      out.best.push_back(std::move(t));
    else if (t.trial.is_open())
      out.small.push_back(std::move(t));
  out.fit_meshes = static_cast<std::int64_t>(out.best.size());
  for (auto* some : {&out.best, &out.small})
    if (some->size() > rows) some->resize(rows);
  in_parallel(
      out.best.size(), [&](std::size_t i) { out.best[i] = search.whole(out.best[i].split); },
      [&](double done) { progress("the best as a whole", done); });
  sort(out.best);
  return out;
}

}  // namespace orrery
