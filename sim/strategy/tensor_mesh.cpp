// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/tensor_mesh.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/option_error.hpp"
#include "sim/strategy/layers.hpp"

namespace orrery {
namespace {

std::int64_t ranks_of(const std::vector<Split>& axes) {
  std::int64_t n = 1;
  for (const Split& s : axes) n *= s.ranks;
  return n;
}

/// Sides that a mesh of this kind may have: those whose `power`-th power divides n.
std::string legal_sides(std::int64_t n, int power) {
  std::string out;
  for (std::int64_t q = 1; q <= n; ++q)
    if (const std::int64_t of = power == 2 ? q * q : q; n % of == 0)
      out += (out.empty() ? "" : ", ") + std::to_string(q);
  return out;
}

class MeshLocaliser {
 public:
  using Use = TensorMesh::Use;

  MeshLocaliser(const TensorMesh& scheme, const Model& model, const Roles& roles)
      : scheme_{scheme},
        model_{model},
        roles_{roles},
        columns_{scheme.columns(roles)},
        side_{columns_.ranks},
        names_{roles.row ? "row and col" : "x, y and z"} {
    out_.network.name = model.name;
    out_.network.family = model.family;
    out_.network.dtype = model.dtype;
    out_.network.network = model.network;
    for (const Parameter& p : model.parameters) {
      Cut& c = out_.cuts.emplace_back();
      c.shard.global = storage_shape(p);
    }
  }

  LocalModel run() {
    auto* t = std::get_if<Transformer>(&out_.network.network);
    const bool language = t && (t->head == Head::LanguageModel || t->head == Head::MaskedLanguageModel);
    if (!language || !t->tokens || (!t->encoder.empty() && !t->decoder.empty()))
      throw OptionError{{"mesh"},
                        fmt::format("{} cannot be split over {}", model_.name, names_),
                        "they split language models of one stack of blocks"};
    localise(*t);
    for (Cut& c : out_.cuts) c.partial = others(c.shard);
    return std::move(out_);
  }

 private:
  Shard& shard(ParameterId id) { return out_.cuts[id.index()].shard; }

  /// The axes of the mesh along which all ranks hold the same of a parameter.
  std::vector<std::int8_t> others(const Shard& s) const {
    std::vector<std::int8_t> out;
    for (const Split& a : scheme_.axes(roles_)) {
      if (!a) continue;
      const auto splits = [&](const auto& dim) {
        return std::find(dim.begin(), dim.end(), a.axes.front()) != dim.end();
      };
      if (std::none_of(s.axes.begin(), s.axes.end(), splits)) out.push_back(a.axes.front());
    }
    return out;
  }

  void require_sides(std::int64_t n, std::int64_t ranks, std::string_view what) const {
    const int power = ranks == side_ ? 1 : 2;
    if (n % ranks != 0)
      throw OptionError{
          {"mesh"},
          fmt::format("{} of {} do not divide {} {}{}", names_, side_, n, what, power == 2 ? " twice" : ""),
          fmt::format("each of {} can be {}", names_, legal_sides(n, power))};
  }

  void split(ParameterId id, std::size_t dim, const std::vector<Split>& axes,
             std::initializer_list<std::int64_t> parts = {}) {
    if (id.is_none()) return;
    Shard& s = shard(id);
    for (std::size_t i = 0; i < axes.size(); ++i) s.axes[dim][i] = axes[i].axes.front();
    std::copy(parts.begin(), parts.end(), s.parts[dim].begin());
  }

  void cut(Linear& l, Use use, std::string_view in, std::string_view out,
           std::initializer_list<std::int64_t> parts = {}) {
    const TensorMesh::MatrixCut c = scheme_.cut(roles_, use, l.layout);
    const std::size_t out_dim = l.layout == WeightLayout::OutIn ? 0 : 1;
    require_sides(l.in, ranks_of(c.dims[1 - out_dim]), in);
    require_sides(l.out, ranks_of(c.dims[out_dim]), out);
    split(l.weight, 1 - out_dim, c.dims[1 - out_dim]);
    split(l.weight, out_dim, c.dims[out_dim], parts);
    split(l.bias, 0, c.bias, parts);
    l.in /= side_;
    l.out /= side_;
  }
  void cut_columns(ParameterId id, std::size_t dim) { split(id, dim, {columns_}); }
  void cut(Norm& n) {
    cut_columns(n.weight, 0);
    cut_columns(n.bias, 0);
    n.dim /= side_;
  }

  void localise(Attention& a) {
    require_sides(a.heads, side_, "attention heads");
    require_sides(a.kv_heads, side_, "key and value heads");
    auto* s = std::get_if<StandardAttention>(&a.projections);
    if (!s || a.relative_bias)
      throw OptionError{{"mesh"},
                        fmt::format("attention of {} cannot be split over {}", model_.name, names_),
                        "they split plain attention; tp splits others"};
    if (s->fused) {
      cut(s->qkv, Use::In, "hidden columns", "columns of q, k and v",
          {a.heads * a.qk_dim, a.kv_heads * a.qk_dim, a.kv_heads * a.v_dim});
    } else {
      cut(s->q, Use::In, "hidden columns", "columns of q");
      cut(s->k, Use::In, "hidden columns", "columns of k");
      cut(s->v, Use::In, "hidden columns", "columns of v");
    }
    cut(a.out, Use::Back, "columns of attention", "hidden columns");
    a.heads /= side_;
    a.kv_heads /= side_;
  }

  void localise(Block& b) {
    auto* m = std::get_if<Mlp>(&b.ffn);
    if (!m)
      throw OptionError{{"mesh"},
                        fmt::format("experts of {} cannot be split over {}", model_.name, names_),
                        "ep and tp split experts"};
    cut(b.attention_norm);
    cut(b.ffn_norm);
    for (auto* n : {&b.attention_out_norm, &b.ffn_out_norm})
      if (*n) cut(**n);
    localise(b.attention);
    if (m->gate) cut(*m->gate, Use::In, "hidden columns", "inner columns");
    cut(m->up, Use::In, "hidden columns", "inner columns");
    cut(m->down, Use::Back, "inner columns", "hidden columns");
  }

  /// The table of tokens and the projection to logits lie alike: they may be one. The vocabulary is padded.
  void localise_vocabulary(Transformer& t) {
    const TensorMesh::MatrixCut c = scheme_.cut(roles_, Use::Table, WeightLayout::OutIn);
    if (t.output.layout != WeightLayout::OutIn) bug("logits of a matrix [in, out]");
    require_sides(t.tokens->dim, side_, "columns of the table of tokens");
    const std::int64_t padded = share(t.tokens->vocab, ranks_of(c.dims[0]));
    for (const ParameterId id : {t.tokens->table, t.output.weight})
      for (const std::size_t d : {0u, 1u}) split(id, d, c.dims[d]);
    split(t.output.bias, 0, c.bias);
    t.output.in /= side_;
    t.output.out = padded * ranks_of(c.dims[0]) / side_;
    t.tokens->vocab = padded;
    t.tokens->dim /= side_;
  }

  void localise(Transformer& t) {
    require_sides(t.hidden, side_, "hidden columns");
    t.hidden /= side_;
    localise_vocabulary(t);
    for (const ParameterId id : {t.positions, t.token_types}) cut_columns(id, 1);
    for (auto* n : {&t.embedding_norm, &t.encoder_norm, &t.decoder_norm, &t.transform_norm})
      if (*n) cut(**n);
    for (auto* l : {&t.project_in, &t.project_out, &t.transform})
      if (*l) cut(**l, Use::Outside, "columns", "columns");
    for (auto* stack : {&t.encoder, &t.decoder})
      for (Block& b : *stack) localise(b);
  }

  const TensorMesh& scheme_;
  const Model& model_;
  const Roles& roles_;
  Split columns_;
  std::int64_t side_;
  std::string_view names_;
  LocalModel out_;
};

/// Operands of the ops of a norm, which differ in what the kind has.
std::vector<Operand> norm_operands(std::initializer_list<TensorId> before, bool layer, TensorId mean,
                                   std::initializer_list<TensorId> behind) {
  std::vector<Operand> out;
  for (const TensorId t : before) out.push_back(reads(t));
  if (layer) out.push_back(reads(mean));
  for (const TensorId t : behind) out.push_back(reads(t));
  return out;
}

/// A norm whose columns lie on several ranks.
struct SplitNorm {
  Tape& tape;
  NormKind kind;
  std::int64_t rows, cols, dim;
  DType dtype;
  Collective sum;
  TensorId x, weight, bias, y, mean, rstd;

  bool layer() const { return kind == NormKind::Layer; }
  TensorId sums(const std::string& name) const { return tape.builder().tensor(name, Shape{2, rows}, {.dtype = dtype}); }
  void forward(const std::string& name, double epsilon) const;
  void backward(const std::string& name) const;
};

void SplitNorm::forward(const std::string& name, double epsilon) const {
  const TensorId all = sums(name + ".sums");
  tape.add_plain(name + ".sums", NormSums{kind, rows, cols, dtype}, {reads(x), writes(all)});
  tape.add_plain(name + ".sums.all", sum, {updates(all)});
  std::vector<Operand> operands{reads(x), reads(all), reads(weight)};
  if (layer()) operands.insert(operands.end(), {reads(bias), writes(y), writes(mean), writes(rstd)});
  if (!layer()) operands.insert(operands.end(), {writes(y), writes(rstd)});
  tape.add_plain(name, NormApply{kind, rows, cols, dim, epsilon, dtype}, operands);
}

void SplitNorm::backward(const std::string& name) const {
  const TensorId dy = tape.gradient(y);
  if (dy.is_none()) return;
  const TensorId input = tape.saved(x), w = tape.saved(weight), s = tape.saved(rstd),
                 m = layer() ? tape.saved(mean) : TensorId{}, all = sums(name + ".sums");
  const auto dw = tape.parameter_target(weight);
  const auto target = [&](TensorId t) { return dw.accumulate ? updates(t) : writes(t); };
  std::vector<Operand> operands = norm_operands({input, w}, layer(), m, {s, dy});
  operands.insert(operands.end(), {writes(all), target(dw.tensor)});
  if (layer()) operands.push_back(target(tape.parameter_target(bias).tensor));
  tape.emit(name + ".sums", NormBackwardSums{kind, rows, cols, dw.accumulate, dtype}, operands);
  tape.emit(name + ".sums.all", sum, {updates(all)});
  const TensorId dx = tape.contribution(x);
  operands = norm_operands({input, w}, layer(), m, {s, dy, all});
  operands.push_back(writes(dx));
  tape.emit(name, NormBackwardApply{kind, rows, cols, dim, dtype}, operands);
  tape.contribute(x, dx);
}

}  // namespace

LocalModel TensorMesh::localise(const Model& model, const Roles& roles) const {
  return MeshLocaliser{*this, model, roles}.run();
}

/// Two sums per row cross the ranks, in each direction.
TensorId TensorMesh::norm(Layers& l, std::string_view name, TensorId x, std::int64_t rows, const Norm& n) const {
  const Split over = columns(l.roles());
  const DType dtype = l.sizes().dtype;
  SplitNorm s{.tape = l.tape(),
              .kind = n.kind,
              .rows = rows,
              .cols = n.dim,
              .dim = n.dim * over.ranks,
              .dtype = dtype,
              .sum = {.group = over.group, .bytes = size_of(dtype, 2 * rows), .dtype = dtype},
              .x = x,
              .weight = l.weight(n.weight),
              .bias = {},
              .y = l.activation_tensor(name, Shape{rows, n.dim}),
              .mean = {},
              .rstd = l.activation_tensor(fmt::format("{}.rstd", name), Shape{rows})};
  if (s.layer()) {
    s.bias = l.weight(n.bias);
    s.mean = l.activation_tensor(fmt::format("{}.mean", name), Shape{rows});
  }
  s.forward(std::string{name}, n.epsilon);
  s.tape.on_backward([s, name = fmt::format("{}.backward", name)] { s.backward(name); });
  return s.y;
}

void add_to_gradient(Tape& tape, const std::string& name, TensorId parameter,
                     const std::function<void(TensorId)>& product) {
  const auto target = tape.parameter_target(parameter);
  if (!target.accumulate) return product(target.tensor);
  const TensorId more = tape.like(parameter, name);
  product(more);
  const std::int64_t n = tape.plan().shape(parameter).elements();
  tape.emit(name + ".add", Add{1, n, tape.plan().tensors[parameter.index()].dtype},
            {updates(target.tensor), reads(more)});
}

void add_bias_gradient(Tape& tape, const std::string& name, TensorId bias, TensorId dy) {
  const auto target = tape.parameter_target(bias);
  const Shape shape = tape.plan().shape(dy);
  tape.emit(name,
            SumRows{.rows = shape[0],
                    .cols = shape[1],
                    .accumulate = target.accumulate,
                    .dtype = tape.plan().tensors[dy.index()].dtype},
            {reads(dy), target.accumulate ? updates(target.tensor) : writes(target.tensor)});
}

}  // namespace orrery
