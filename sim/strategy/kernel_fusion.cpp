// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/kernel_fusion.hpp"

#include <algorithm>
#include <optional>

namespace orrery {
namespace {

/// One work for two ops, where they are of the same kind and alike but in what adds up.
std::optional<Work> joined(const Work& first, const Work& second) {
  if (first.index() != second.index()) return {};
  const auto add = [&](auto one, const auto& other, auto member) -> std::optional<Work> {
    const auto sum = one.*member + other.*member;
    one.*member = other.*member;
    if (!(one == other)) return {};
    one.*member = sum;
    return Work{one};
  };
  if (const auto* g = std::get_if<Gemm>(&first)) return add(*g, std::get<Gemm>(second), &Gemm::n);
  if (const auto* g = std::get_if<GroupedGemm>(&first)) return add(*g, std::get<GroupedGemm>(second), &GroupedGemm::n);
  if (const auto* r = std::get_if<RotaryEmbedding>(&first))
    return add(*r, std::get<RotaryEmbedding>(second), &RotaryEmbedding::heads);
  if (const auto* s = std::get_if<ScatterRows>(&first))
    return add(*s, std::get<ScatterRows>(second), &ScatterRows::cols);
  if (const auto* a = std::get_if<AppendCache>(&first))
    return add(*a, std::get<AppendCache>(second), &AppendCache::cols);
  if (const auto* n = std::get_if<NormForward>(&first))
    return add(*n, std::get<NormForward>(second), &NormForward::rows);
  return {};
}

/// Whether the law of a product over experts has the later op in it: it was fitted to whole layers of experts, from
/// rows that come in to sums that go out.
bool is_within_experts(const Work& earlier, const Work& later) {
  if (std::holds_alternative<Permute>(later)) return std::holds_alternative<RouteMap>(earlier);
  return std::holds_alternative<GroupedGemm>(earlier) &&
         (std::holds_alternative<GatedForward>(later) || std::holds_alternative<Unpermute>(later));
}

bool is_product(const Work& w) { return std::holds_alternative<Gemm>(w) || std::holds_alternative<GroupedGemm>(w); }

/// The ops of a class, the later ones of which join earlier ones.
class ClassFusion {
 public:
  ClassFusion(const Plan& plan, const RankClass& c, std::vector<Work>& works, std::vector<std::size_t>& into)
      : plan_{plan}, works_{works}, into_{into} {
    for (std::size_t i = c.first_op; i < c.first_op + c.num_ops; ++i)
      if (plan_.ops[i].stream == Stream::Compute) visit(i);
  }

 private:
  static constexpr std::size_t kNear = 4;  // kernels back: from a product to its sister behind a norm and its own

  void visit(std::size_t at) {
    for (std::size_t back = 0; back < std::min(kNear, kept_.size()); ++back) {
      const std::size_t earlier = kept_[kept_.size() - 1 - back];
      if (!may_join(earlier, at, back)) continue;
      if (const auto work = joined_work(earlier, at)) {
        works_[earlier] = *work;
        into_[at] = earlier;
        return;
      }
    }
    kept_.push_back(at);
  }

  std::optional<Work> joined_work(std::size_t earlier, std::size_t later) const {
    if (is_within_experts(works_[earlier], works_[later])) return works_[earlier];
    const auto* sum = std::get_if<Add>(&works_[earlier]);
    const auto* norm = std::get_if<NormForward>(&works_[later]);
    if (!sum || !norm) return joined(works_[earlier], works_[later]);
    if (sum->rows != norm->rows || sum->cols != norm->dim) return {};
    Add both = *sum;
    both.rows += (both.rows + 2) / 3;
    return Work{both};
  }

  /// Products read the same rows; a norm reads the sum right in front of it; of others neither reads what the other
  /// writes.
  bool may_join(std::size_t earlier, std::size_t later, std::size_t back) const {
    const Op &a = plan_.ops[earlier], &b = plan_.ops[later];
    if (a.num_operands == 0 || b.num_operands == 0) return false;
    if (is_within_experts(works_[earlier], works_[later])) return reads_of_written(a, b);
    if (is_product(works_[later]))
      return a.layer == b.layer && is_product(works_[earlier]) && first_read(a) == first_read(b);
    if (std::holds_alternative<Add>(works_[earlier])) return back == 0 && reads_of_written(a, b);
    return a.layer == b.layer && !reads_of_written(a, b);
  }

  TensorId first_read(const Op& op) const { return plan_.owner(plan_.operands_of(op).front().tensor()); }

  bool reads_of_written(const Op& writer, const Op& reader) const {
    for (const Operand& w : plan_.operands_of(writer))
      for (const Operand& r : plan_.operands_of(reader))
        if (w.writes() && r.reads() && plan_.owner(w.tensor()) == plan_.owner(r.tensor())) return true;
    return false;
  }

  const Plan& plan_;
  std::vector<Work>& works_;        // by op
  std::vector<std::size_t>& into_;  // by op: itself, or the op that it joined
  std::vector<std::size_t> kept_;
};

/// Gives works of ops ids in a plan, equal ones the same.
class WorkTable {
 public:
  explicit WorkTable(Plan& plan) : plan_{plan} {}
  WorkId id(const Work& work) {
    const auto known = std::find(plan_.works.begin(), plan_.works.end(), work);
    if (known == plan_.works.end()) return plan_.works.push_back(work), WorkId{plan_.works.size() - 1};
    return WorkId{static_cast<std::size_t>(known - plan_.works.begin())};
  }

 private:
  Plan& plan_;
};

/// The plan with these works in place of each op: none where it joined an earlier one, of several each waits for the
/// one before.
Plan with_works(const Plan& plan, const std::vector<std::vector<Work>>& works, const std::vector<std::size_t>& into) {
  Plan out = plan;
  out.ops.clear(), out.deps.clear(), out.repetitions.clear();
  std::vector<std::size_t> place(plan.ops.size());
  WorkTable table{out};
  for (RankClass& c : out.classes) {
    const std::size_t first = out.ops.size();
    for (std::size_t i = c.first_op; i < std::size_t{c.first_op} + c.num_ops; ++i) {
      for (const Work& work : works[i]) {
        Op op = plan.ops[i];
        const bool is_first = &work == works[i].data();
        op.work = table.id(work);
        op.first_dep = static_cast<std::uint32_t>(out.deps.size());
        if (is_first)
          for (const OpId d : plan.deps_of(plan.ops[i])) out.deps.push_back(OpId{place[into[d.index()]]});
        else
          op.num_deps = 0;  // on the same stream
        place[i] = out.ops.size();
        out.ops.push_back(op);
      }
    }
    c.first_op = static_cast<std::uint32_t>(first);
    c.num_ops = static_cast<std::uint32_t>(out.ops.size() - first);
  }
  return out;
}

/// The plan with several works in place of each op: `kernels` of its work.
template <class Kernels>
Plan with_kernels(const Plan& plan, const Kernels& kernels) {
  std::vector<std::vector<Work>> works;
  std::vector<std::size_t> into;
  for (const Op& op : plan.ops) {
    works.push_back(kernels(plan.work(op)));
    into.push_back(into.size());
  }
  return with_works(plan, works, into);
}

/// What a program without a fused kernel launches for attention over keys of this pass: see stored_attention.cpp.
std::vector<Work> stored_kernels(AttentionShape s, std::int64_t padded) {
  if (padded > 0) s.q = padded, s.kv = Extent{padded};
  const std::int64_t groups = s.batch * s.kv_heads, rows = s.heads / s.kv_heads * s.q, kv = s.kv.base;
  std::vector<Work> out{
      CopyRows{.rows = s.batch * (s.q * s.heads + 2 * kv * s.kv_heads), .cols = s.qk_dim, .dtype = s.dtype},
      Gemm{.m = rows, .n = kv, .k = s.qk_dim, .batch = groups, .transpose_b = true, .dtype = s.dtype}};
  if (s.cap > 0)
    out.insert(out.end(),
               {ScaleRows{.rows = groups * rows, .cols = kv, .factor = s.scale / s.cap, .dtype = s.dtype},
                ActivationForward{.kind = ActivationKind::Tanh, .rows = groups * rows, .cols = kv, .dtype = s.dtype}});
  const double scale = s.cap > 0 ? s.cap : s.scale;
  out.insert(
      out.end(),
      {SoftmaxForward{
           .rows = groups * rows, .cols = kv, .scale = scale, .period = s.q, .causal = s.causal, .dtype = s.dtype},
       Gemm{.m = rows, .n = s.v_dim, .k = kv, .batch = groups, .dtype = s.dtype},
       SwapAxes{.outer = s.batch, .a = s.heads, .b = s.q, .inner = s.v_dim, .dtype = s.dtype}});
  return out;
}

/// Kernels of so many reads and as many writes of a matrix, or of two reads and a write.
struct Passes {
  std::int64_t rows, cols;
  DType dtype;
  void add(std::vector<Work>& to, int one_read, int two_reads) const {
    to.insert(to.end(), static_cast<std::size_t>(one_read),
              ActivationForward{.kind = ActivationKind::Relu, .rows = rows, .cols = cols, .dtype = dtype});
    to.insert(to.end(), static_cast<std::size_t>(two_reads), Add{rows, cols, dtype});
  }
};

/// What PyTorch launches for an op that one kernel does here. `trains`: scores are dropped too.
std::vector<Work> split_work(const Work& work, bool trains) {
  std::vector<Work> out;
  if (const auto* s = std::get_if<SoftmaxForward>(&work)) {
    Passes{s->rows, s->cols, s->dtype}.add(out, trains ? 3 : 2, 0);  // scale, mask, dropout
  } else if (const auto* b = std::get_if<SoftmaxBackward>(&work)) {
    Passes{b->rows, b->cols, b->dtype}.add(out, 2, 0);  // scale, dropout
  } else if (const auto* a = std::get_if<ActivationForward>(&work); a && a->kind == ActivationKind::GeluTanh) {
    // pow, three factors, tanh, 1 + …; the cube onto x, the product of both halves.
    Passes{a->rows, a->cols, a->dtype}.add(out, 6, 2);
    return out;
  } else if (const auto* d = std::get_if<ActivationBackward>(&work); d && d->kind == ActivationKind::GeluTanh) {
    // Three factors; both halves of the product, tanh, x² times 3·dy, and the sums of three ways back to x.
    Passes{d->rows, d->cols, d->dtype}.add(out, 5, 6);
    return out;
  }
  out.push_back(work);
  return out;
}

}  // namespace

Plan fuse_kernels(const Plan& plan) {
  std::vector<Work> works;
  std::vector<std::size_t> into(plan.ops.size());
  for (std::size_t i = 0; i < plan.ops.size(); ++i) works.push_back(plan.work(plan.ops[i])), into[i] = i;
  for (const RankClass& c : plan.classes) ClassFusion{plan, c, works, into};
  std::vector<std::vector<Work>> kept(plan.ops.size());
  for (std::size_t i = 0; i < plan.ops.size(); ++i)
    if (into[i] == i) kept[i] = {works[i]};
  return with_works(plan, kept, into);
}

Plan store_scores(const Plan& plan, std::int64_t padded) {
  return with_kernels(plan, [padded](const Work& work) {
    const auto* a = std::get_if<AttentionForward>(&work);
    const bool stored = a && !a->shape.kv.is_bound() && !a->shape.bias;
    return stored ? stored_kernels(a->shape, padded) : std::vector<Work>{work};
  });
}

Plan split_kernels(const Plan& plan) {
  const bool trains = std::any_of(plan.works.begin(), plan.works.end(),
                                  [](const Work& w) { return std::holds_alternative<SoftmaxBackward>(w); });
  return with_kernels(plan, [trains](const Work& work) { return split_work(work, trains); });
}

}  // namespace orrery
