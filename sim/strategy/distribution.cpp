// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/distribution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>

#include "sim/base/option_error.hpp"
#include "sim/strategy/tensor_scheme.hpp"

namespace orrery {
namespace {

/// "1, 2, 4": the divisors of n.
std::string divisors(std::int64_t n) {
  std::string out;
  for (std::int64_t d = 1; d <= n; ++d)
    if (n % d == 0) out += (out.empty() ? "" : ", ") + std::to_string(d);
  return out;
}

void require_divides(std::string_view axis, std::int64_t ranks, std::int64_t n, std::string_view what) {
  if (n % ranks != 0)
    throw OptionError{{"mesh"},
                      fmt::format("{} {} does not divide {} {}", axis, ranks, n, what),
                      fmt::format("{} can be {}", axis, divisors(n))};
}

class Localiser {
 public:
  Localiser(const Model& model, const Roles& roles) : model_{model}, roles_{roles}, t_{roles.tp.ranks} {
    out_.network.name = model.name;
    out_.network.family = model.family;
    out_.network.dtype = model.dtype;
    out_.network.network = model.network;
    for (const Parameter& p : model.parameters) out_.cuts.push_back({.shard = {.global = storage_shape(p)}});
  }

  LocalModel run() {
    if (auto* t = std::get_if<Transformer>(&out_.network.network))
      localise(*t);
    else if (roles_.tp || roles_.cp || roles_.ep || roles_.pp)
      throw OptionError{{"mesh"},
                        fmt::format("{} models are split over replicas only", model_.family),
                        "the axes can be dp and fsdp"};
    return std::move(out_);
  }

 private:
  Cut& cut(ParameterId id) { return out_.cuts[id.index()]; }
  std::int64_t share(std::int64_t n) const { return orrery::share(n, t_); }

  void split(ParameterId id, int dim, std::initializer_list<std::int64_t> parts = {}) {
    if (id.is_none() || t_ == 1) return;
    Shard& s = cut(id).shard;
    std::copy(roles_.tp.axes.begin(), roles_.tp.axes.end(), s.axes[static_cast<std::size_t>(dim)].begin());
    std::copy(parts.begin(), parts.end(), s.parts[static_cast<std::size_t>(dim)].begin());
  }
  /// Equal on all ranks of tp; `partial`: but each rank sees only part of what feeds the gradient.
  void whole(ParameterId id, bool partial) {
    if (!id.is_none() && t_ > 1 && partial) cut(id).partial = roles_.tp.axes;
  }
  void whole(Linear& l, bool partial) {
    whole(l.weight, partial);
    whole(l.bias, partial);
  }
  void whole(Norm& n, bool partial) {
    whole(n.weight, partial);
    whole(n.bias, partial);
  }
  void columns(Linear& l, std::initializer_list<std::int64_t> parts = {}) {
    split(l.weight, l.layout == WeightLayout::OutIn ? 0 : 1, parts);
    split(l.bias, 0, parts);
    l.out = parts.size() == 0 ? share(l.out)
                              : std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                                                [&](std::int64_t sum, std::int64_t n) { return sum + share(n); });
  }
  void rows(Linear& l) {
    split(l.weight, l.layout == WeightLayout::OutIn ? 1 : 0);
    whole(l.bias, roles_.sequence_parallel);
    l.in = share(l.in);
  }

  void localise(Attention& a) {
    require_divides("tp", t_, a.heads, "attention heads");
    require_divides("tp", t_, a.kv_heads, "key and value heads");
    if (roles_.cp && roles_.context == ContextKind::Ulysses) {
      require_divides("cp (ulysses)", roles_.cp.ranks, a.heads / t_, "attention heads of a rank");
      require_divides("cp (ulysses)", roles_.cp.ranks, a.kv_heads / t_, "key and value heads of a rank");
    }
    if (auto* s = std::get_if<StandardAttention>(&a.projections)) {
      if (s->fused)
        columns(s->qkv, {a.heads * a.qk_dim, a.kv_heads * a.qk_dim, a.kv_heads * a.v_dim});
      else
        for (Linear* l : {&s->q, &s->k, &s->v}) columns(*l);
      for (auto* n : {&s->q_norm, &s->k_norm})
        if (*n) whole(**n, true);
    } else {
      auto& l = std::get<LatentAttention>(a.projections);
      if (l.q_down) whole(*l.q_down, roles_.sequence_parallel);
      if (l.q_norm) whole(*l.q_norm, true);
      whole(l.kv_down, roles_.sequence_parallel);
      whole(l.kv_norm, true);
      columns(l.q_up);
      columns(l.kv_up);
    }
    rows(a.out);
    if (a.relative_bias) split(a.relative_bias->table, 1);
    a.heads /= t_;
    a.kv_heads /= t_;
  }

  void localise(Mlp& m) {
    if (m.gate) columns(*m.gate);
    columns(m.up);
    rows(m.down);
  }

  void localise(MoE& m) {
    whole(m.router, true);
    const auto n = static_cast<std::int64_t>(m.experts.size()), each = n / roles_.experts.ranks;
    if (!roles_.placed_experts)
      require_divides(roles_.fold_experts() ? "ep and tp together" : "ep", roles_.experts.ranks, n, "experts");
    for (std::int64_t e = 0; e < n; ++e) {
      Mlp& x = m.experts[static_cast<std::size_t>(e)];
      if (!roles_.fold_experts()) localise(x);
      for (const Linear* l : {x.gate ? &*x.gate : nullptr, &x.up, &x.down})
        for (const ParameterId id : {l ? l->weight : ParameterId{}, l ? l->bias : ParameterId{}}) {
          if (id.is_none()) continue;
          cut(id).expert = true;
          if (roles_.experts && !roles_.placed_experts) cut(id).held_at = static_cast<std::int32_t>(e / each);
        }
    }
    if (m.shared) localise(*m.shared);
    if (m.shared_gate) whole(*m.shared_gate, true);
  }

  void localise(Block& b) {
    whole(b.attention_norm, roles_.sequence_parallel);
    whole(b.ffn_norm, roles_.sequence_parallel);
    for (auto* n : {&b.attention_out_norm, &b.ffn_out_norm})
      if (*n) whole(**n, roles_.sequence_parallel);
    if (!roles_.data_attention && !roles_.feed_forward_only) localise(b.attention);
    if (b.cross) {
      whole(*b.cross_norm, roles_.sequence_parallel);
      if (!roles_.data_attention) localise(*b.cross);
    }
    std::visit([&](auto& f) { localise(f); }, b.ffn);
  }

  /// Sub-layers lie one below another in each parameter.
  void localise(Ways& w, const std::vector<Block>& blocks) {
    require_divides("tp", t_, w.count, "sub-layers");
    if (roles_.cp || roles_.ep || roles_.pp || roles_.data_attention || roles_.sequence_parallel)
      throw OptionError{
          {"mesh"}, fmt::format("{} is split by its sub-layers", model_.family), "its axes can be dp, fsdp and tp"};
    const auto below = [&](const Linear& l) {
      split(l.weight, 0);
      split(l.bias, 0);
    };
    for (const Block& b : blocks) {
      for (const Norm* n : {&b.attention_norm, &b.ffn_norm}) {
        split(n->weight, 0);
        split(n->bias, 0);
      }
      below(std::get<StandardAttention>(b.attention.projections).qkv);
      below(b.attention.out);
      below(std::get<Mlp>(b.ffn).up);
      below(std::get<Mlp>(b.ffn).down);
    }
    below(w.merge);
    w.count /= t_;
  }

  void localise(Transformer& t) {
    const bool sp = roles_.sequence_parallel;
    const bool language = t.head == Head::LanguageModel || t.head == Head::MaskedLanguageModel;
    if (sp && (!language || t.patches))
      throw OptionError{{"sequence_parallel"},
                        fmt::format("{} has no rows to split between blocks", model_.family),
                        "sequence_parallel needs a language model"};
    const bool splits_outside = !roles_.data_attention;
    if (t.tokens && splits_outside) {
      split(t.tokens->table, 0);
      t.tokens->vocab = share(t.tokens->vocab);
    }
    for (const ParameterId id : {t.positions, t.token_types, t.class_token}) whole(id, sp);
    for (auto* n : {&t.embedding_norm, &t.encoder_norm, &t.decoder_norm, &t.transform_norm})
      if (*n) whole(**n, sp);
    for (auto* l : {&t.project_in, &t.project_out, &t.transform})
      if (*l) whole(**l, sp);
    for (auto* stack : {&t.encoder, &t.decoder})
      for (Block& b : *stack)
        if (!t.ways) localise(b);
    if (t.ways) localise(*t.ways, t.decoder);
    if (!language || t.output.out == 0 || !splits_outside) return;
    roles_.sums_logits ? rows(t.output) : columns(t.output);
  }

  const Model& model_;
  const Roles& roles_;
  std::int64_t t_;
  LocalModel out_;
};

}  // namespace

namespace {

/// The sides of a square or cube are equal, and nothing else splits its matrices or its sequences.
void check_sides(const Roles& r) {
  const auto any = [](const Split& a, const Split& b, const Split& c) {
    return !a.axes.empty() || !b.axes.empty() || !c.axes.empty();
  };
  const bool square = any(r.row, r.col, r.depth), cube = any(r.x, r.y, r.z);
  if (square && (!r.row || r.row.ranks != r.col.ranks))
    throw OptionError{{"mesh"},
                      fmt::format("row {} and col {} are no square", r.row.ranks, r.col.ranks),
                      "row and col need the same number of ranks, at least 2: `row2 col2` has 4 ranks, `row3 col3` 9"};
  if (cube && (!r.x || r.x.ranks != r.y.ranks || r.x.ranks != r.z.ranks))
    throw OptionError{{"mesh"},
                      fmt::format("x {}, y {} and z {} are no cube", r.x.ranks, r.y.ranks, r.z.ranks),
                      "x, y and z need the same number of ranks, at least 2: `x2 y2 z2` has 8 ranks, `x3 y3 z3` 27"};
  if (square && cube)
    throw OptionError{{"mesh"}, "a mesh cannot be a square and a cube", "leave row and col or x, y and z out"};
  if ((square || cube) && (r.tp || r.cp || r.ep))
    throw OptionError{{"mesh"},
                      fmt::format("tp, cp and ep cannot stand beside {}", square ? "row and col" : "x, y and z"),
                      "other axes can be dp, fsdp and pp"};
}

}  // namespace

Roles roles_of(const Mesh& mesh) {
  Roles r;
  const std::pair<std::string_view, Split*> names[] = {
      {"dp", &r.dp},   {"fsdp", &r.fsdp}, {"pp", &r.pp},       {"tp", &r.tp}, {"cp", &r.cp}, {"ep", &r.ep},
      {"row", &r.row}, {"col", &r.col},   {"depth", &r.depth}, {"x", &r.x},   {"y", &r.y},   {"z", &r.z}};
  for (std::size_t i = 0; i < mesh.axes.size(); ++i) {
    const std::string& name = mesh.axes[i].name;
    const auto* found =
        std::find_if(std::begin(names), std::end(names), [&](const auto& n) { return n.first == name; });
    if (found == std::end(names)) {
      std::vector<std::string> legal;
      for (const auto& n : names) legal.emplace_back(n.first);
      throw OptionError{{"mesh"}, unknown_name("axis", name, legal)};
    }
    if (!found->second->axes.empty())
      throw OptionError{
          {"mesh"}, fmt::format("the mesh has two axes `{}`", name), "give each axis once, with all of its ranks"};
    *found->second = {{static_cast<std::int8_t>(i)}, mesh.axes[i].size, {}};
  }
  r.experts = r.ep;
  check_sides(r);
  return r;
}

void require_multiple(std::int64_t n, std::int64_t of, std::string_view what, std::string_view why) {
  if (n % of == 0) return;
  const std::int64_t below = n / of * of;
  throw OptionError{
      {std::string{what}, "mesh"},
      fmt::format("{} {} is not a multiple of {}, {}", what, n, of, why),
      below == 0 ? fmt::format("{} can be {}", what, of) : fmt::format("{} can be {} or {}", what, below, below + of)};
}

LocalModel cut_in_stripes(const Model& model, const Roles& roles) { return Localiser{model, roles}.run(); }

LocalModel localise(const Model& model, const Roles& roles) { return scheme_of(roles).localise(model, roles); }

Shape storage_shape(const Parameter& p) {
  if (p.shape.size() <= 2) return Shape{std::span<const std::int64_t>{p.shape}};
  if (p.shape.front() == 1) return Shape{p.elements() / p.shape.back(), p.shape.back()};
  return Shape{p.shape.front(), p.elements() / p.shape.front()};
}

}  // namespace orrery
