// SPDX-License-Identifier: Apache-2.0
// Attention whose tokens lie where lists of positions say, and attention over parts of the keys that is merged.
#include <algorithm>
#include <numeric>

#include "kernels/host/attention.hpp"
#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;
using Ids = std::vector<std::int32_t>;

namespace {

constexpr std::int64_t kHeads = 4, kKvHeads = 2, kDim = 6, kValueDim = 5;
constexpr double kScale = 0.4;

/// Tensors [tokens, heads, dim] of one or more sequences, with room for gradients.
template <class T>
struct Tensors {
  std::int64_t batch, queries, keys;
  std::vector<T> q, k, v, d_o, o = poison<T>(batch * queries * kHeads * kValueDim),
                               lse = poison<T>(batch * kHeads * queries);
  std::vector<T> dq = std::vector<T>(q.size(), T(0)), dk = std::vector<T>(k.size(), T(0)),
                 dv = std::vector<T>(v.size(), T(0));

  AttentionDims dims() const { return {batch, queries, keys, kHeads, kKvHeads, kDim, kValueDim}; }
  AttentionArgs<T> args(const AttentionMask<T>& mask, void* workspace) {
    return {.dims = dims(),
            .scale = T(kScale),
            .q = q.data(),
            .q_strides = contiguous(queries, kHeads, kDim),
            .k = k.data(),
            .k_strides = contiguous(keys, kKvHeads, kDim),
            .v = v.data(),
            .v_strides = contiguous(keys, kKvHeads, kValueDim),
            .o = o.data(),
            .o_strides = contiguous(queries, kHeads, kValueDim),
            .lse = lse.data(),
            .mask = mask,
            .workspace = workspace};
  }
  void forward(const AttentionMask<T>& mask) {
    Workspace workspace{attention_workspace(dims(), sizeof(T))};
    run([&] { attention<T>(args(mask, workspace.data())); });
    CHECK(workspace.intact());
  }
  /// All gradients are added to what is there.
  void backward(const AttentionMask<T>& mask) {
    Workspace workspace{attention_backward_workspace(dims(), sizeof(T))};
    run([&] {
      attention_backward<T>({.forward = args(mask, nullptr),
                             .d_o = d_o.data(),
                             .d_o_strides = contiguous(queries, kHeads, kValueDim),
                             .dq = dq.data(),
                             .dq_strides = contiguous(queries, kHeads, kDim),
                             .dk = dk.data(),
                             .dk_strides = contiguous(keys, kKvHeads, kDim),
                             .dv = dv.data(),
                             .dv_strides = contiguous(keys, kKvHeads, kValueDim),
                             .write_dq = Write::Accumulate,
                             .write_dk = Write::Accumulate,
                             .write_dv = Write::Accumulate,
                             .workspace = workspace.data()});
    });
    CHECK(workspace.intact());
  }
};

Tensors<double> draw(std::int64_t batch, std::int64_t queries, std::int64_t keys, unsigned seed) {
  return {.batch = batch,
          .queries = queries,
          .keys = keys,
          .q = random_values(batch * queries * kHeads * kDim, seed, -2, 2),
          .k = random_values(batch * keys * kKvHeads * kDim, seed + 1, -2, 2),
          .v = random_values(batch * keys * kKvHeads * kValueDim, seed + 2),
          .d_o = random_values(batch * queries * kHeads * kValueDim, seed + 3)};
}

/// o and lse by their formulas.
struct Reference {
  Values o, lse;
};
Reference reference(const Tensors<double>& t, const Ids& q_positions, const Ids& kv_positions, std::int64_t window) {
  Reference r{Values(t.o.size(), 0.0), Values(t.lse.size(), 0.0)};
  for (std::int64_t b = 0; b < t.batch; ++b)
    for (std::int64_t h = 0; h < kHeads; ++h)
      for (std::int64_t i = 0; i < t.queries; ++i) {
        const double* q = &t.q[std::size_t(((b * t.queries + i) * kHeads + h) * kDim)];
        double* o = &r.o[std::size_t(((b * t.queries + i) * kHeads + h) * kValueDim)];
        double sum = 0;
        for (std::int64_t j = 0; j < t.keys; ++j) {
          const std::int64_t distance = q_positions[std::size_t(i)] - kv_positions[std::size_t(j)];
          if (distance < 0 || distance >= window) continue;
          const std::int64_t row = (b * t.keys + j) * kKvHeads + h / (kHeads / kKvHeads);
          const double p = std::exp(kScale * std::inner_product(q, q + kDim, &t.k[std::size_t(row * kDim)], 0.0));
          for (std::int64_t d = 0; d < kValueDim; ++d) o[d] += p * t.v[std::size_t(row * kValueDim + d)];
          sum += p;
        }
        for (std::int64_t d = 0; d < kValueDim; ++d) o[d] = sum > 0 ? o[d] / sum : 0.0;
        r.lse[std::size_t((b * kHeads + h) * t.queries + i)] = std::log(sum);
      }
  return r;
}

/// The finite ones; checks that the others are −∞ in both.
Values finite(const Values& x, const Values& other) {
  Values kept;
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(std::isinf(x[i]) == std::isinf(other[i]));
    if (std::isfinite(x[i])) kept.push_back(x[i]);
  }
  return kept;
}

void check_forward(std::int64_t queries, const Ids& q_positions, const Ids& kv_positions, std::int64_t window) {
  Tensors<double> t = draw(2, queries, static_cast<std::int64_t>(kv_positions.size()), 1);
  const Reference want = reference(t, q_positions, kv_positions, window);
  t.forward({.causal = true, .window = window, .q_positions = q_positions.data(), .kv_positions = kv_positions.data()});
  CHECK(distance(t.o, want.o) < 1e-13);
  CHECK(distance(finite(t.lse, want.lse), finite(want.lse, t.lse)) < 1e-13);
  Tensors<float> f{
      .batch = 2, .queries = queries, .keys = t.keys, .q = as<float>(t.q), .k = as<float>(t.k), .v = as<float>(t.v)};
  f.forward({.causal = true, .window = window, .q_positions = q_positions.data(), .kv_positions = kv_positions.data()});
  CHECK(distance(f.o, want.o) < 1e-5);
}

/// count numbers from `first` on, `step` apart.
Ids count_from(std::int32_t first, std::int32_t count, std::int32_t step = 1) {
  Ids x(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) x[static_cast<std::size_t>(i)] = first + step * i;
  return x;
}

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The tokens at `positions` of x[tokens, width].
Values tokens_of(const Values& x, const Ids& positions, std::int64_t width) {
  Values y;
  for (const std::int32_t p : positions) y.insert(y.end(), x.begin() + p * width, x.begin() + (p + 1) * width);
  return y;
}

/// Σ over the parts: the keys of a sequence are those at `positions`.
struct Part {
  Ids positions;
  Tensors<double> t;
};

}  // namespace

TEST_CASE("attention sees the keys that lie at or before its queries, wherever they are stored", "[kernels]") {
  // 300 keys are three tiles. Every third position; descending, so that whole tiles are hidden; and two far pieces.
  check_forward(70, count_from(100, 70), count_from(0, 300, 3), kNoWindow);
  check_forward(70, count_from(20, 70), count_from(299, 300, -1), kNoWindow);
  check_forward(128, joined(count_from(0, 64), count_from(448, 64)), joined(count_from(128, 64), count_from(320, 64)),
                kNoWindow);
}

TEST_CASE("few queries, and windows, go by positions as well", "[kernels]") {
  check_forward(5, {400, 3, 10, 299, -1}, count_from(299, 300, -1), kNoWindow);
  check_forward(70, count_from(200, 70), count_from(299, 300, -1), 33);
  check_forward(3, {40, 60, 250}, count_from(0, 300), 20);
}

TEST_CASE("attention over parts of the keys, merged, equals attention over all, and so do its gradients", "[kernels]") {
  // A rank holds the first and the last eighth of 512 tokens; the keys come in four parts, of which the second is
  // hidden from half of its queries.
  constexpr std::int64_t kTokens = 512;
  const Ids mine = joined(count_from(0, 64), count_from(448, 64));
  Tensors<double> whole = draw(1, kTokens, kTokens, 10);
  const Values d_o = whole.d_o;
  std::fill(whole.d_o.begin(), whole.d_o.end(), 0.0);  // other queries are other ranks'
  for (const std::int32_t p : mine)
    std::copy_n(d_o.begin() + p * kHeads * kValueDim, kHeads * kValueDim, whole.d_o.begin() + p * kHeads * kValueDim);
  whole.forward({.causal = true});
  whole.backward({.causal = true});

  std::vector<Part> parts;
  Values o = poison(128 * kHeads * kValueDim), lse(128 * kHeads, -std::numeric_limits<double>::infinity());
  for (std::int32_t first = 0; first < 256; first += 64) {
    Part part{joined(count_from(first, 64), count_from(448 - first, 64)), draw(1, 128, 128, 0)};
    part.t.q = tokens_of(whole.q, mine, kHeads * kDim);
    part.t.k = tokens_of(whole.k, part.positions, kKvHeads * kDim);
    part.t.v = tokens_of(whole.v, part.positions, kKvHeads * kValueDim);
    part.t.d_o = tokens_of(whole.d_o, mine, kHeads * kValueDim);
    part.t.forward({.causal = true, .q_positions = mine.data(), .kv_positions = part.positions.data()});
    run([&] {
      attention_merge<double>({.dims = part.t.dims(),
                               .part_o = part.t.o.data(),
                               .part_lse = part.t.lse.data(),
                               .o = o.data(),
                               .lse = lse.data()});
    });
    parts.push_back(std::move(part));
  }
  CHECK(distance(o, tokens_of(whole.o, mine, kHeads * kValueDim)) < 1e-13);

  Values dq(parts[0].t.dq.size(), 0.0);
  for (Part& part : parts) {
    part.t.o = o;
    part.t.lse = lse;
    part.t.dq = dq;
    part.t.backward({.causal = true, .q_positions = mine.data(), .kv_positions = part.positions.data()});
    dq = part.t.dq;
    CHECK(distance(part.t.dk, tokens_of(whole.dk, part.positions, kKvHeads * kDim)) < 1e-12);
    CHECK(distance(part.t.dv, tokens_of(whole.dv, part.positions, kKvHeads * kValueDim)) < 1e-12);
  }
  CHECK(distance(dq, tokens_of(whole.dq, mine, kHeads * kDim)) < 1e-12);
}

TEST_CASE("queries that are told their first key see documents as if each were alone", "[kernels]") {
  const std::vector<std::vector<std::int64_t>> documents{{1, 70, 128, 5, 96}, {200, 1, 1, 98}};
  Tensors<double> whole = draw(2, 300, 300, 21);
  Ids first_keys;
  for (const auto& lengths : documents)
    for (std::int64_t begin = 0; const std::int64_t n : lengths) {
      first_keys.insert(first_keys.end(), std::size_t(n), std::int32_t(begin));
      begin += n;
    }
  const AttentionMask<double> mask{.causal = true, .first_keys = first_keys.data()};
  whole.forward(mask);
  whole.backward(mask);
  for (std::size_t b = 0; b < documents.size(); ++b)
    for (std::int64_t begin = std::int64_t(b) * 300; const std::int64_t n : documents[b]) {
      Ids rows(static_cast<std::size_t>(n));
      std::iota(rows.begin(), rows.end(), std::int32_t(begin));
      begin += n;
      Tensors<double> one{.batch = 1,
                          .queries = n,
                          .keys = n,
                          .q = tokens_of(whole.q, rows, kHeads * kDim),
                          .k = tokens_of(whole.k, rows, kKvHeads * kDim),
                          .v = tokens_of(whole.v, rows, kKvHeads * kValueDim),
                          .d_o = tokens_of(whole.d_o, rows, kHeads * kValueDim)};
      one.forward({.causal = true});
      one.backward({.causal = true});
      CHECK(distance(tokens_of(whole.o, rows, kHeads * kValueDim), one.o) < 1e-13);
      CHECK(distance(tokens_of(whole.dq, rows, kHeads * kDim), one.dq) < 1e-12);
      CHECK(distance(tokens_of(whole.dk, rows, kKvHeads * kDim), one.dk) < 1e-12);
      CHECK(distance(tokens_of(whole.dv, rows, kKvHeads * kValueDim), one.dv) < 1e-12);
    }
}
