// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism on a cube of p³ ranks (arXiv 2105.14450). Rank (x, y, z) holds the samples (x, y) and the columns
// z of an activation, and of a matrix the block (inputs z, outputs y), whose first stored dimension is cut over x too.
// A product gathers rows over y and the block over x, multiplies, and scatters the sum over z: the result has the
// samples (x, z) and the columns y. So the inside of a block has y and z in each other's place, attention is local
// there, and the projection back restores the order. Backward: gather over z, scatter over y (dX) and over x (dW).
// Nothing of a matrix lies on two ranks; biases, norms and positions are split by columns and equal along the other
// axes.
#include <fmt/format.h>

#include "sim/strategy/layers.hpp"
#include "sim/strategy/tensor_mesh.hpp"

namespace orrery {
namespace {

/// Collectives on whole matrices of a cube.
struct Cube {
  PlanBuilder& builder;
  Split x, y, z;
  bool keeps = false, overlap = false;
  DType dtype = DType::F32;

  /// What the inside of a block sees.
  Cube turned() const { return {builder, x, z, y, keeps, overlap, dtype}; }
  TensorId buffer(const std::string& name, const Shape& shape, DType type) const {
    return builder.tensor(name, shape, {.dtype = type, .role = TensorRole::Communication});
  }
  Shape gathered(TensorId t, const Split& s) const {
    Shape out = builder.plan().shape(t);
    out.sizes[0] *= s.ranks;
    return out;
  }
  Collective gather_work(TensorId t, const Split& s) const {
    return over(s, CollectiveKind::AllGather, gathered(t, s).elements(), builder.plan().tensors[t.index()].dtype);
  }
  TensorId gather(const std::string& name, TensorId t, const Split& s) const {
    const TensorId out = buffer(name, gathered(t, s), builder.plan().tensors[t.index()].dtype);
    builder.add(name, gather_work(t, s), {reads(t), writes(out)});
    return out;
  }
  void scatter(const std::string& name, TensorId part, const Split& s, TensorId out, Stream stream) const {
    const Collective work = over(s, CollectiveKind::ReduceScatter, builder.plan().shape(part).elements(), dtype);
    builder.add(name, work, {reads(part), writes(out)}, stream);
  }
  /// Multiplies whole blocks and scatters the sum.
  void multiply(const std::string& name, const Gemm& g, TensorId a, TensorId b, const Split& s, TensorId out,
                Stream stream = Stream::Compute) const {
    const TensorId part = buffer(name + ".part", Shape{g.m, g.n}, dtype);
    builder.add(name, g, {reads(a), reads(b), writes(part)});
    scatter(name + ".scatter", part, s, out, stream);
  }
  void turn(const std::string& name, TensorId in, TensorId out) const;
};

/// From samples (x, z) and columns y to samples (x, y) and columns z. Ranks (y, z) and (z, y) exchange their blocks, in
/// three all-to-alls of p pieces each: over y, over z, over y.
void Cube::turn(const std::string& name, TensorId in, TensorId out) const {
  const Shape shape = builder.plan().shape(in);
  const TensorId once = buffer(name, shape, dtype), twice = buffer(name, shape, dtype);
  const auto exchange = [&](const Split& s, TensorId from, TensorId to) {
    builder.add(name, over(s, CollectiveKind::AllToAll, shape.elements(), dtype), {reads(from), writes(to)});
  };
  exchange(y, in, once);
  exchange(z, once, twice);
  exchange(y, twice, out);
}

Cube cube_of(Layers& l) {
  const Roles& r = l.roles();
  return {l.tape().builder(), r.x, r.y, r.z, r.keep_gathered, r.tensor_overlap, l.sizes().dtype};
}

/// Y = X·W from samples (x, y), columns z to samples (x, z), columns y; without the bias.
struct Product {
  Tape& tape;
  Cube cube;
  Gemm g;  // of whole blocks
  TensorId x, w, y;
  TensorId all_x, all_w;  // kept for the backward pass, or none

  void forward(const std::string& name);
  void backward(const std::string& name) const;
  void weight_gradient(const std::string& name, TensorId all_dy) const;
};

void Product::forward(const std::string& name) {
  if (!cube.keeps) {
    tape.add_steps({reads(x), reads(w), writes(y)}, [c = cube, g = g, n = name](std::span<const TensorId> t) {
      const TensorId rows = c.gather(n + ".rows", t[0], c.y), block = c.gather(n + ".block", t[1], c.x);
      c.multiply(n, g, rows, block, c.z, t[2]);
    });
    return;
  }
  all_x = cube.builder.tensor(name + ".rows", cube.gathered(x, cube.y), {.dtype = cube.dtype});
  all_w = cube.builder.tensor(name + ".block", cube.gathered(w, cube.x), {.dtype = cube.dtype});
  tape.add_plain(name + ".rows", cube.gather_work(x, cube.y), {reads(x), writes(all_x)});
  tape.add_plain(name + ".block", cube.gather_work(w, cube.x), {reads(w), writes(all_w)});
  tape.add_steps({reads(all_x), reads(all_w), writes(y)},
                 [c = cube, g = g, n = name](std::span<const TensorId> t) { c.multiply(n, g, t[0], t[1], c.z, t[2]); });
}

void Product::backward(const std::string& name) const {
  const TensorId dy = tape.gradient(y);
  if (dy.is_none()) return;
  const TensorId all_dy = cube.gather(name + ".dy", dy, cube.z);
  if (tape.wants(x)) {
    const TensorId dx = tape.contribution(x);
    const TensorId block = cube.keeps ? tape.saved(all_w) : cube.gather(name + ".block", tape.saved(w), cube.x);
    const Gemm back{.m = g.m, .n = g.k, .k = g.n, .transpose_b = !g.transpose_b, .dtype = g.dtype};
    cube.multiply(name + ".dx", back, all_dy, block, cube.y, dx, cube.overlap ? Stream::Ring : Stream::Compute);
    tape.contribute(x, dx);
  }
  tape.defer([p = *this, name, all_dy] { p.weight_gradient(name, all_dy); });
}

void Product::weight_gradient(const std::string& name, TensorId all_dy) const {
  const TensorId rows = cube.keeps ? tape.saved(all_x) : cube.gather(name + ".rows", tape.saved(x), cube.y);
  Gemm back{.m = g.k, .n = g.n, .k = g.m, .transpose_a = true, .dtype = g.dtype};
  if (g.transpose_b) std::swap(back.m, back.n);
  add_to_gradient(tape, name + ".dw", w, [&](TensorId dw) {
    cube.multiply(name + ".dw", back, g.transpose_b ? all_dy : rows, g.transpose_b ? rows : all_dy, cube.x, dw);
  });
}

class Tensor3d final : public TensorMesh {
 public:
  Split columns(const Roles& roles) const override { return roles.z; }
  Split classes(const Roles& roles) const override { return roles.y; }
  std::vector<Split> axes(const Roles& roles) const override { return {roles.x, roles.y, roles.z}; }
  MatrixCut cut(const Roles& roles, Use use, WeightLayout layout) const override {
    const bool back = use == Use::Back;
    const Split &in = back ? roles.y : roles.z, &out = back ? roles.z : roles.y;
    if (use == Use::Table) return {{{out, roles.x}, {in}}, {out, roles.x}};
    if (layout == WeightLayout::OutIn) return {{{out, roles.x}, {in}}, {out}};
    return {{{in, roles.x}, {out}}, {out}};
  }

  TensorId linear(Layers& l, std::string_view name, TensorId x, std::int64_t, const Linear& w) const override {
    return product(l, cube_of(l), name, x, w);
  }
  TensorId project_back(Layers& l, std::string_view name, TensorId x, const Linear& w) const override {
    return product(l, cube_of(l).turned(), name, x, w);
  }
  TensorId project_outside(Layers& l, std::string_view name, TensorId x, const Linear& w) const override;
  TensorId embed(Layers& l, std::string_view name, TensorId table, TensorId index) const override;
  TensorId logits(Layers& l, std::string_view name, TensorId x, const Linear& w) const override;

 private:
  static TensorId product(Layers& l, const Cube& cube, std::string_view name, TensorId x, const Linear& w);
};

TensorId Tensor3d::product(Layers& l, const Cube& cube, std::string_view name, TensorId x, const Linear& w) {
  const std::int64_t rows = l.tape().plan().shape(x)[0];
  const TensorId y = l.activation_tensor(name, Shape{rows, w.out});
  const Gemm g{.m = rows * cube.y.ranks,
               .n = w.out,
               .k = w.in,
               .transpose_b = w.layout == WeightLayout::OutIn,
               .dtype = cube.dtype};
  Product p{.tape = l.tape(), .cube = cube, .g = g, .x = x, .w = l.weight(w.weight), .y = y, .all_x = {}, .all_w = {}};
  p.forward(std::string{name});
  l.tape().on_backward([p, n = std::string{name}] { p.backward(n); });
  return l.add_bias(name, y, w.bias);
}

/// The vocabulary is padded to a multiple of p², so that its bias is cut as often as its table, and gathered over x.
TensorId Tensor3d::logits(Layers& l, std::string_view name, TensorId x, const Linear& w) const {
  Linear plain = w;
  plain.bias = {};
  Tape& tape = l.tape();
  const Cube c = cube_of(l);
  const std::string n = fmt::format("{}.bias", name);
  const TensorId sum = product(l, c, name, x, plain);
  if (w.bias.is_none()) return sum;
  const Shape shape = tape.plan().shape(sum);
  const TensorId y = l.activation_tensor(n, shape), bias = l.weight(w.bias);
  tape.add_steps({reads(sum), reads(bias), writes(y)}, [c, shape, name = n](std::span<const TensorId> t) {
    const TensorId all = c.gather(name + ".all", t[1], c.x);
    c.builder.add(name, AddRows{shape[0], shape[1], 1, c.dtype}, {reads(t[0]), reads(all), writes(t[2])});
  });
  tape.on_backward([&tape, c, shape, sum, bias, y, n = n + ".db"] {
    const TensorId dy = tape.gradient(y);
    if (dy.is_none()) return;
    const TensorId all = c.buffer(n + ".part", Shape{shape[1]}, c.dtype);
    tape.emit(n, SumRows{.rows = shape[0], .cols = shape[1], .dtype = c.dtype}, {reads(dy), writes(all)});
    add_to_gradient(tape, n, bias, [&](TensorId db) { c.scatter(n + ".scatter", all, c.x, db, Stream::Compute); });
    tape.pass_through(sum, dy);
  });
  return y;
}

/// The result is turned, so that it lies as its input.
TensorId Tensor3d::project_outside(Layers& l, std::string_view name, TensorId x, const Linear& w) const {
  Tape& tape = l.tape();
  const Cube cube = cube_of(l);
  const TensorId turned = product(l, cube, name, x, w);
  const std::string turn = fmt::format("{}.turn", name);
  const TensorId y = l.activation_tensor(turn, tape.plan().shape(turned));
  tape.add_steps({reads(turned), writes(y)},
                 [cube, turn](std::span<const TensorId> t) { cube.turn(turn, t[0], t[1]); });
  tape.on_backward([&tape, cube, turned, y, n = turn + ".dx"] {
    const TensorId dy = tape.gradient(y);
    if (dy.is_none()) return;
    const TensorId dx = tape.contribution(turned);
    cube.turn(n, dy, dx);
    tape.contribute(turned, dx);
  });
  return y;
}

/// The table has its rows over (y, x), its columns over z. Rank (x, y, z) gathers rows of part y, looks up the tokens
/// of all samples x, and the sum over y is scattered. Backward the other way round.
TensorId Tensor3d::embed(Layers& l, std::string_view name, TensorId table, TensorId index) const {
  Tape& tape = l.tape();
  const Cube c = cube_of(l);
  const std::string n{name};
  const std::int64_t each = tape.plan().shape(table)[0] * c.x.ranks, cols = tape.plan().shape(table)[1],
                     rows = tape.plan().shape(index).elements() * c.y.ranks;
  const TensorId tokens = l.index_tensor(n + ".tokens", Shape{rows});
  tape.add_plain(n + ".tokens", over(c.y, CollectiveKind::AllGather, rows, DType::I32), {reads(index), writes(tokens)});
  const TensorId local = l.local_indices(name, tokens, each, c.y),
                 out = l.activation_tensor(name, Shape{rows / c.y.ranks, cols});
  tape.add_steps({reads(table), reads(local), writes(out)}, [=, name = n](std::span<const TensorId> t) {
    const TensorId part = c.gather(name + ".block", t[0], c.x),
                   found = c.buffer(name + ".part", Shape{rows, cols}, c.dtype);
    c.builder.add(name, Gather{rows, cols, each, 0, each, c.dtype}, {reads(part), reads(t[1]), writes(found)});
    c.scatter(name + ".scatter", found, c.y, t[2], Stream::Compute);
  });
  tape.on_backward([&tape, c, each, cols, rows, table, local, out, n = n + ".dw"] {
    const TensorId dy = tape.gradient(out);
    if (dy.is_none()) return;
    const TensorId all = c.gather(n + ".dy", dy, c.y), sum = c.buffer(n + ".part", Shape{each, cols}, c.dtype);
    tape.emit(n + ".zero", Fill{.elements = each * cols, .dtype = c.dtype}, {writes(sum)});
    tape.emit(n, ScatterAdd{rows, cols, each, 0, each, c.dtype}, {reads(all), reads(local), updates(sum)});
    add_to_gradient(tape, n, table, [&](TensorId dw) { c.scatter(n + ".scatter", sum, c.x, dw, Stream::Compute); });
  });
  return out;
}

}  // namespace

const TensorScheme& tensor_3d() {
  static const Tensor3d scheme;
  return scheme;
}

}  // namespace orrery
