// SPDX-License-Identifier: Apache-2.0
#include "calibrate/gpu_indexed_benches.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sim/base/shuffle.hpp"

namespace orrery {
namespace {

/// One plan with one measured op.
class Trial {
 public:
  Trial(DType dtype, Random& random) : dtype_{dtype}, random_{random} {}

  TensorId in(std::string_view name, const Shape& shape) { return tensor(name, shape, dtype_); }
  TensorId tensor(std::string_view name, const Shape& shape, DType t) {
    return b_.tensor(name, shape, {.dtype = t, .persistent = true});
  }
  TensorId indices(std::string_view name, const Shape& shape, std::vector<double> values) {
    const TensorId t = tensor(name, shape, DType::I32);
    constants_.emplace_back(t, std::move(values));
    return t;
  }
  /// Each below `end`, by chance.
  std::vector<double> any(std::int64_t n, std::int64_t end) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < n; ++i)
      values.push_back(static_cast<double>(random_.below(static_cast<std::uint64_t>(end))));
    return values;
  }
  /// Each of 0 … n − 1 once, in an order by chance.
  std::vector<double> shuffled(std::int64_t n) {
    std::vector<double> values(static_cast<std::size_t>(n));
    std::iota(values.begin(), values.end(), 0.0);
    shuffle(values, random_);
    return values;
  }
  template <class... Operands>
  GpuBench measured(std::string group, const Work& work, Operands... operands) {
    const Amount a = amount(work);
    GpuBench bench = measured_as(std::move(group), work, a.flops.base(), (a.read + a.written).base(), operands...);
    bench.work = work;
    return bench;
  }
  /// Of work whose amount is bound.
  template <class... Operands>
  GpuBench measured_as(std::string group, const Work& work, double flops, double bytes, Operands... operands) {
    b_.add("measured", work, {operands...});
    GpuBench bench{to_text(work), std::move(group), b_.take(&gpu_workspaces()), flops, bytes};
    for (auto& [t, values] : constants_)
      bench.plan.constants.push_back(
          {.tensor = t, .rank_class = ClassId{std::size_t{0}}, .values = [v = std::move(values)](auto) { return v; }});
    return bench;
  }

 private:
  DType dtype_;
  Random& random_;
  PlanBuilder b_{"indexed"};
  std::vector<std::pair<TensorId, std::vector<double>>> constants_;
};

class IndexedBenches {
 public:
  IndexedBenches(DType dtype, const IndexedSizes& sizes, Random& random)
      : dtype_{dtype}, sizes_{sizes}, cols_{sizes.cols}, random_{random} {}

  std::vector<GpuBench> take() {
    for (const std::int64_t rows : sizes_.rows) {
      embedding(rows);
      experts(rows);
      gradients(rows);
      choice(std::max<std::int64_t>(1, rows / 16));
      tree(std::max<std::int64_t>(1, rows / 64));
      paged(std::max<std::int64_t>(1, rows / 128));
      groups(rows);
    }
    return std::move(benches_);
  }

 private:
  Trial trial() { return {dtype_, random_}; }

  void embedding(std::int64_t rows) {
    const std::int64_t vocabulary = sizes_.vocabulary;
    const Shape matrix{rows, cols_}, table{vocabulary, cols_};
    {
      Trial t = trial();
      const TensorId from = t.in("table", table), index = t.indices("index", Shape{rows}, t.any(rows, vocabulary));
      benches_.push_back(t.measured("memory", Gather{rows, cols_, vocabulary, 0, vocabulary, dtype_}, reads(from),
                                    reads(index), writes(t.in("y", matrix))));
    }
    {
      Trial t = trial();
      const TensorId x = t.in("x", matrix), slots = t.indices("slots", Shape{rows}, t.any(rows, vocabulary));
      benches_.push_back(t.measured("memory", ScatterRows{rows, cols_, vocabulary, dtype_}, reads(x), reads(slots),
                                    updates(t.in("table", table))));
    }
    Trial t = trial();
    const TensorId x = t.in("x", matrix), index = t.indices("index", Shape{rows}, t.any(rows, vocabulary));
    benches_.push_back(t.measured("memory", ScatterAdd{rows, cols_, vocabulary, 0, vocabulary, dtype_}, reads(x),
                                  reads(index), updates(t.in("table", table))));
  }

  /// Rows to their experts and back, two each.
  void experts(std::int64_t rows) {
    const std::int64_t tokens = std::max<std::int64_t>(1, rows / 2), sorted = 2 * tokens;
    const Shape token{tokens, cols_}, all{sorted, cols_};
    const std::vector<double> row = trial().shuffled(sorted);  // of choice j of token i: row[2·i + j]
    {
      std::vector<double> source(row.size());
      for (std::size_t k = 0; k < row.size(); ++k)
        source[static_cast<std::size_t>(row[k])] = static_cast<double>(k / 2);
      Trial t = trial();
      const TensorId from = t.indices("source", Shape{sorted}, source), to = t.indices("row", Shape{tokens, 2}, row);
      benches_.push_back(t.measured("memory", Permute{tokens, 2, cols_, dtype_}, reads(t.in("x", token)), reads(from),
                                    reads(to), writes(t.in("y", all))));
    }
    Trial t = trial();
    const TensorId to = t.indices("row", Shape{tokens, 2}, row);
    benches_.push_back(t.measured("memory", Unpermute{tokens, 2, cols_, dtype_}, reads(t.in("y", all)), reads(to),
                                  reads(t.in("weights", Shape{tokens, 2})), writes(t.in("x", token))));
  }

  void gradients(std::int64_t rows) {
    const Shape matrix{rows, cols_}, row{cols_}, each{rows};
    {
      Trial t = trial();
      benches_.push_back(t.measured("memory", NormBackward{NormKind::Rms, rows, cols_, 1e-5, false, dtype_},
                                    reads(t.in("x", matrix)), reads(t.in("w", row)), reads(t.in("rstd", each)),
                                    reads(t.in("dy", matrix)), writes(t.in("dx", matrix)), writes(t.in("dw", row))));
    }
    {
      Trial t = trial();
      const TensorId targets = t.indices("targets", each, t.any(rows, cols_));
      benches_.push_back(t.measured("memory", CrossEntropyBackward{rows, cols_, 1, dtype_},
                                    reads(t.in("logits", matrix)), reads(targets), reads(t.in("lse", each)),
                                    writes(t.in("dlogits", matrix))));
    }
    Trial t = trial();
    benches_.push_back(t.measured("memory", GatedBackward{ActivationKind::Silu, rows, cols_, dtype_},
                                  reads(t.in("gate", matrix)), reads(t.in("up", matrix)), reads(t.in("dy", matrix)),
                                  writes(t.in("dgate", matrix)), writes(t.in("dup", matrix))));
  }

  void choice(std::int64_t rows) {
    const std::int64_t vocabulary = sizes_.vocabulary;
    Trial t = trial();
    benches_.push_back(t.measured("memory", Sample{.rows = rows, .vocab = vocabulary, .dtype = dtype_},
                                  reads(t.in("logits", Shape{rows, vocabulary})),
                                  writes(t.tensor("tokens", Shape{rows}, DType::I32))));
  }

  void tree(std::int64_t batch) {
    constexpr std::int64_t kNodes = 64;
    Trial t = trial();
    std::vector<double> parents;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t j = 0; j < kNodes; ++j) parents.push_back(j == 0 ? -1.0 : static_cast<double>((j - 1) / 2));
    const TensorId p = t.indices("parents", Shape{batch, kNodes}, std::move(parents));
    benches_.push_back(t.measured("memory", TreeMask{batch, kNodes, kNodes, dtype_}, reads(p),
                                  writes(t.in("mask", Shape{batch, kNodes, kNodes}))));
  }

  /// Sequences that each choose one more token, of as many keys; their pages lie anywhere in the pool.
  void paged(std::int64_t sequences) {
    constexpr std::int64_t kDim = 128, kPage = 16;
    const std::int64_t heads = std::max<std::int64_t>(1, cols_ / kDim),
                       key_heads = std::max<std::int64_t>(1, heads / 4);
    const std::int64_t each = sizes_.keys / kPage, pages = sequences * each, keys = kPage * each;
    const PagedAttention p{.rows = sequences,
                           .sequences = sequences,
                           .heads = heads,
                           .kv_heads = key_heads,
                           .qk_dim = kDim,
                           .v_dim = kDim,
                           .page = kPage,
                           .max_pages = each,
                           .scale = 1 / std::sqrt(double(kDim)),
                           .dtype = dtype_,
                           .stored = dtype_};
    Trial t = trial();
    const Shape rows{sequences, heads, kDim}, pool{pages * kPage, key_heads, kDim};
    std::vector<double> starts(static_cast<std::size_t>(sequences + 1));
    std::iota(starts.begin(), starts.end(), 0.0);
    const TensorId table = t.indices("table", Shape{sequences, each}, t.shuffled(pages)),
                   first = t.indices("starts", Shape{sequences + 1}, std::move(starts)),
                   lengths = t.indices("lengths", Shape{sequences},
                                       std::vector<double>(static_cast<std::size_t>(sequences), double(keys)));
    const double flops = 4.0 * double(sequences * heads * kDim * keys);
    const double bytes =
        (size_of(dtype_, 2 * pages * kPage * key_heads * kDim) + size_of(dtype_, 2 * sequences * heads * kDim)).base();
    benches_.push_back(t.measured_as("memory", p, flops, bytes, reads(t.in("q", rows)), reads(t.in("k", pool)),
                                     reads(t.in("v", pool)), reads(table), reads(first), reads(lengths),
                                     writes(t.in("o", rows))));
  }

  /// Products of eight groups of unequal size.
  void groups(std::int64_t rows) {
    constexpr std::int64_t kGroups = 8;
    const std::int64_t out = cols_ / 4;
    std::vector<double> offsets{0};
    for (std::int64_t g = 1; g < kGroups; ++g)
      offsets.push_back(static_cast<double>(random_.below(static_cast<std::uint64_t>(rows + 1))));
    offsets.push_back(static_cast<double>(rows));
    std::sort(offsets.begin(), offsets.end());
    Trial t = trial();
    const TensorId at = t.indices("offsets", Shape{kGroups + 1}, offsets);
    benches_.push_back(t.measured("grouped",
                                  GroupedGemm{.rows = rows, .n = out, .k = cols_, .groups = kGroups, .dtype = dtype_},
                                  reads(t.in("x", Shape{rows, cols_})), reads(t.in("w", Shape{kGroups, cols_, out})),
                                  reads(at), writes(t.in("y", Shape{rows, out}))));
  }

  DType dtype_;
  const IndexedSizes& sizes_;
  std::int64_t cols_;
  Random& random_;
  std::vector<GpuBench> benches_;
};

}  // namespace

std::vector<GpuBench> gpu_indexed_benches(DType dtype, const IndexedSizes& sizes, Random& random) {
  return IndexedBenches{dtype, sizes, random}.take();
}

}  // namespace orrery
