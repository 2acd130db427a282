// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/piecewise.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/strategy/backward.hpp"
#include "sim/strategy/layers.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kChunks = 4;  // num_splits of Transformer Engine's pipelines

const Layout& layout_of(const Plan& plan, TensorId t) { return plan.layouts[plan.tensors[t.index()].layout.index()]; }

/// Ops that a program starts in the call of the product before.
class Joined {
 public:
  explicit Joined(PlanBuilder& b) : b_{b} { b.set_joins(true); }
  ~Joined() { b_.set_joins(false); }
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;

 private:
  PlanBuilder& b_;
};

/// Rows that lie on the ranks of tp, going round: piece k is that of the rank k places before.
class RowRing {
 public:
  RowRing(PlanBuilder& builder, const Split& tp) : builder_{builder}, tp_{tp} {}

  std::int64_t size() const { return tp_.ranks; }
  /// Sends `own` round; the pieces that a rank gets one after another, its own first.
  std::vector<TensorId> pieces(const std::string& name, TensorId own) const;
  /// The rows of piece k in a tensor of all rows.
  TensorId rows_of(TensorId all, std::int64_t k) const;
  /// Copies pieces to their places among all rows, behind the messages.
  void assemble(const std::string& name, std::span<const TensorId> pieces, TensorId all) const;

 private:
  PlanBuilder& builder_;
  Split tp_;
};

std::vector<TensorId> RowRing::pieces(const std::string& name, TensorId own) const {
  const Joined joined{builder_};
  const Shape shape = builder_.plan().shape(own);
  const DType dtype = builder_.plan().tensors[own.index()].dtype;
  Collective hop = over(tp_, CollectiveKind::Shift, shape.elements(), dtype);
  hop.root = 1;
  std::vector<TensorId> all{own};
  while (std::ssize(all) < tp_.ranks) {
    const TensorId next = builder_.tensor(name, shape, {.dtype = dtype, .role = TensorRole::Communication});
    builder_.add(name, hop, {reads(all.back()), writes(next)}, Stream::Ring);
    all.push_back(next);
  }
  return all;
}

TensorId RowRing::rows_of(TensorId all, std::int64_t k) const {
  const Plan& plan = builder_.plan();
  const Layout& whole = layout_of(plan, all);
  if (!whole.is_contiguous()) bug("rows that lie apart are multiplied in pieces");
  const Shape piece{whole.shape[0] / tp_.ranks, whole.shape[1]};
  RankView where;
  std::copy(tp_.axes.begin(), tp_.axes.end(), where.axes.begin());
  for (std::int64_t r = 0; r < tp_.ranks; ++r)
    where.places.push_back({plan.owner(all), whole.offset + (r - k + tp_.ranks) % tp_.ranks * piece.elements()});
  return builder_.rank_view(all, std::string{plan.name_of(all)}, piece, where);
}

void RowRing::assemble(const std::string& name, std::span<const TensorId> pieces, TensorId all) const {
  const Joined joined{builder_};
  const Shape shape = builder_.plan().shape(pieces.front());
  const DType dtype = builder_.plan().tensors[all.index()].dtype;
  for (std::size_t k = 0; k < pieces.size(); ++k)
    builder_.add(name, CopyRows{shape[0], shape[1], dtype},
                 {reads(pieces[k]), writes(rows_of(all, static_cast<std::int64_t>(k)))}, Stream::Ring);
}

/// Projections that read the same rows, piece by piece.
struct Gathered {
  struct Product {
    std::string name;
    Gemm work;  // of one piece
  };
  RowRing ring;
  PlanBuilder* builder;
  std::string name;
  std::vector<Product> products;
  bool keeps_cast = false;

  /// x, weight [bias] and result of each product, [numbers and scale of the cast of x].
  void operator()(std::span<const TensorId> t) const;
};

void Gathered::operator()(std::span<const TensorId> t) const {
  const std::vector<TensorId> pieces = ring.pieces(name, t[0]);
  for (std::int64_t k = 0; k < ring.size(); ++k) {
    builder->set_joins(k > 0);
    std::size_t next = 1;
    for (const Product& p : products) {
      Gemm work = p.work;
      std::vector<Operand> operands{reads(pieces[static_cast<std::size_t>(k)]), reads(t[next++])};
      if (work.bias) operands.push_back(reads(t[next++]));
      operands.push_back(writes(ring.rows_of(t[next++], k)));
      if (keeps_cast && k == 0 && &p == &products.front()) {
        work.input = InputCast::Written;
        work.cast_rows = work.m;
        operands.insert(operands.end(), {writes(t[t.size() - 2]), writes(t[t.size() - 1])});
      }
      builder->add(p.name, work, operands);
    }
  }
  builder->set_joins(false);
}

/// Part c of the outputs of a weight.
TensorId outputs_of(PlanBuilder& b, TensorId weight, bool out_in, std::int64_t c, std::int64_t chunks) {
  Layout part = layout_of(b.plan(), weight);
  const std::size_t side = out_in ? 0 : 1;
  part.shape.sizes[side] /= chunks;
  part.offset += c * part.shape.sizes[side] * part.strides[side];
  return b.view(weight, std::string{b.plan().name_of(weight)}, part);
}

/// A product whose rows are summed over tp and scattered, a part of its columns at a time.
struct Scattered {
  PlanBuilder* builder;
  Split tp;
  std::string name;
  Gemm work;  // of all columns
  std::int64_t chunks = 1;
  bool keeps_cast = false;

  /// x, weight, result of the rank's rows, [numbers and scale of the cast of x].
  void operator()(std::span<const TensorId> t) const;

 private:
  struct Cast {
    TensorId numbers, scale;
  };
  TensorId multiply(std::int64_t c, std::span<const TensorId> t, const Cast& cast) const;
  Cast cast_of(std::span<const TensorId> t) const;
};

/// Where products have 8 bits, parts behind the first one read what it has cast.
Scattered::Cast Scattered::cast_of(std::span<const TensorId> t) const {
  if (keeps_cast) return {t[3], t[4]};
  if (work.narrow != Narrow::EightBits || work.k % kWholeRow != 0 || chunks == 1) return {};
  return {builder->tensor(name + ".input", Shape{work.m, work.k}, {.dtype = DType::F8E4M3}),
          builder->tensor(name + ".input_scale", Shape{1}, {.dtype = DType::F32})};
}

TensorId Scattered::multiply(std::int64_t c, std::span<const TensorId> t, const Cast& cast) const {
  Gemm part = work;
  part.n /= chunks;
  const TensorId sum =
      builder->tensor(name + ".part", Shape{part.m, part.n}, {.dtype = part.dtype, .role = TensorRole::Communication});
  std::vector<Operand> operands{reads(t[0]), reads(outputs_of(*builder, t[1], part.transpose_b, c, chunks))};
  if (!cast.numbers.is_none()) {
    part.input = c == 0 ? InputCast::Written : InputCast::Read;
    if (c == 0) part.cast_rows = part.m;
    if (c > 0) operands.front() = reads(cast.numbers), operands.push_back(reads(cast.scale));
  }
  operands.push_back(writes(sum));
  if (part.input == InputCast::Written) operands.insert(operands.end(), {writes(cast.numbers), writes(cast.scale)});
  builder->set_joins(c > 0);
  builder->add(name, part, operands);
  builder->set_joins(false);
  return sum;
}

void Scattered::operator()(std::span<const TensorId> t) const {
  const Layout whole = layout_of(builder->plan(), t[2]);
  const Shape mine{whole.shape[0], whole.shape[1] / chunks};
  const Cast cast = cast_of(t);
  for (std::int64_t c = 0; c < chunks; ++c) {
    const TensorId sum = multiply(c, t, cast);
    const Joined joined{*builder};
    const Collective scatter = over(tp, CollectiveKind::ReduceScatter, work.m * mine[1], work.dtype);
    const TensorId columns =
        builder->tensor(name + ".columns", mine, {.dtype = work.dtype, .role = TensorRole::Communication});
    builder->add(name + ".leave", scatter, {reads(sum), writes(columns)}, Stream::Ring);
    Layout at = whole;
    at.shape = mine;
    at.offset += c * mine[1];
    builder->add(name + ".leave.columns", CopyRows{mine[0], mine[1], work.dtype},
                 {reads(columns), writes(builder->view(t[2], name + ".scattered", at))}, Stream::Ring);
  }
}

/// The product of the input's gradient: pieces of dy by the weight, to the rows of dx that they are for.
void multiply_back(PlanBuilder& b, const RowRing& ring, const std::string& name, const Gemm& work,
                   std::span<const TensorId> pieces, TensorId weight, TensorId dx) {
  const Gemm back{.m = work.m / ring.size(),
                  .n = work.k,
                  .k = work.n,
                  .transpose_b = !work.transpose_b,
                  .narrow = work.narrow,
                  .gradient = work.narrow == Narrow::EightBits ? GradientOperand::A : GradientOperand::None,
                  .dtype = work.dtype};
  for (std::int64_t k = 0; k < ring.size(); ++k) {
    b.set_joins(k > 0);
    b.add(name, back, {reads(pieces[static_cast<std::size_t>(k)]), reads(weight), writes(ring.rows_of(dx, k))});
  }
  b.set_joins(false);
}

}  // namespace

void enter_in_pieces(Layers& l, std::string_view name, TensorId x, TensorId all, std::span<const Reader> readers) {
  Tape& tape = l.tape();
  PlanBuilder& b = tape.builder();
  const Shape own = tape.plan().shape(x);
  const Split& tp = l.roles().tp;
  const std::int64_t rows = own[0] * tp.ranks;
  Gathered gathered{RowRing{b, tp}, &b, fmt::format("{}.enter", name), {}, false};
  std::vector<Operand> operands{reads(x)};
  std::vector<TapeNode> rules;
  for (const Reader& r : readers) {
    const TensorId y = l.activation_tensor(r.name, Shape{rows, r.weights->out}), weight = l.weight(r.weights->weight);
    const Gemm work = l.product_of(rows, *r.weights);
    TapeNode rule{
        .name = b.plan().names.intern(r.name), .work = work, .operands = {reads(all), reads(weight)}, .backward = {}};
    if (work.bias) rule.operands.push_back(reads(l.weight(r.weights->bias)));
    rule.operands.push_back(writes(y));
    operands.insert(operands.end(), rule.operands.begin() + 1, rule.operands.end());
    rules.push_back(std::move(rule));
    gathered.products.push_back({r.name, l.product_of(own[0], *r.weights)});
    l.set_made(r.name, y);
  }
  if (gathered.products.front().work.narrow == Narrow::EightBits)
    if (const auto cast = l.keep_own_cast(readers.front().name, all, x, operands[1].tensor()); !cast.is_none()) {
      gathered.keeps_cast = true;
      operands.insert(operands.end(), {writes(cast.numbers), writes(cast.scale)});
    }
  tape.add_steps(operands, gathered);
  tape.on_backward([&tape, rules = std::move(rules)] {
    for (auto r = rules.rbegin(); r != rules.rend(); ++r) backward_of_input(*r, tape);
    for (auto r = rules.rbegin(); r != rules.rend(); ++r) backward_of_weight(*r, tape);
  });
}

TensorId project_back_in_pieces(Layers& l, std::string_view name, TensorId x, const Linear& w) {
  Tape& tape = l.tape();
  PlanBuilder& b = tape.builder();
  const Split& tp = l.roles().tp;
  const std::int64_t rows = tape.plan().shape(x)[0];
  Linear plain = w;
  plain.bias = {};
  const Gemm work = l.product_of(rows, plain);
  std::int64_t chunks = kChunks;
  while (work.n % chunks != 0) chunks /= 2;
  Scattered scattered{&b, tp, std::string{name}, work, chunks, false};
  const TensorId weight = l.weight(w.weight),
                 y = l.activation_tensor(fmt::format("{}.scattered", name), Shape{rows / tp.ranks, work.n}),
                 partial = l.activation_tensor(name, Shape{rows, work.n});  // stands for gradients alone
  std::vector<Operand> operands{reads(x), reads(weight), writes(y)};
  if (work.narrow == Narrow::EightBits)
    if (const auto cast = l.keep_cast(name, x, rows, work.k, weight); !cast.is_none()) {
      scattered.keeps_cast = true;
      operands.insert(operands.end(), {writes(cast.numbers), writes(cast.scale)});
    }
  tape.add_steps(operands, scattered);
  TapeNode rule{.name = b.plan().names.intern(name),
                .work = work,
                .operands = {reads(x), reads(weight), writes(partial)},
                .backward = {}};
  tape.on_backward([&tape, &b, ring = RowRing{b, tp}, rule = std::move(rule), x, weight, y, partial, work,
                    name = std::string{name}] {
    const TensorId dy = tape.gradient(y);
    if (dy.is_none()) return;
    const std::vector<TensorId> pieces = ring.pieces(name + ".leave.gather", dy);
    const TensorId all = tape.contribution(partial);
    if (tape.wants(x)) {
      const TensorId dx = tape.contribution(x);
      multiply_back(b, ring, name + ".dx", work, pieces, tape.saved(weight), dx);
      tape.contribute(x, dx);
    }
    ring.assemble(name + ".leave.gather.rows", pieces, all);
    tape.contribute(partial, all);
    backward_of_weight(rule, tape);
  });
  return y;
}

}  // namespace orrery
