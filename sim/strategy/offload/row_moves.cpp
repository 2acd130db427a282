// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/row_moves.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/strategy/offload/cached_embedding.hpp"

namespace orrery {

TensorId RowMoves::list_down(TensorId numbers, Symbol symbol) const {
  const std::string name = std::string{b_.plan().name_of(numbers)} + ".down";
  const TensorId here =
      b_.tensor(name, Shape{p_.slots}, {.dtype = DType::I32, .role = TensorRole::Communication, .tier = Tier::Pinned});
  b_.add(name, Copy{.bytes = size_of(DType::I32), .to = Tier::Pinned, .rows = p_.slots, .used = Extent{0, symbol}},
         {reads(numbers), writes(here)}, p_.overlap ? Stream::CopyOut : Stream::Compute);
  return here;
}

void RowMoves::down(TensorId slots, TensorId rows) const {
  for (std::int64_t first = 0; first < p_.slots; first += piece(first)) {
    const Part p = part("evict", Symbol::CacheVictims, first);
    b_.add(p.name + ".gather", gather(p, p_.slots, false), {reads(p_.cache), reads(view(slots, p)), writes(p.device)});
    copy(p, p.device, p.host, p_.overlap ? Stream::CopyOut : Stream::Compute);
    b_.add(p.name + ".scatter", scatter(p, p_.rows, true), {reads(p.host), reads(view(rows, p)), updates(p_.table)},
           Stream::Host);
  }
}

void RowMoves::up(TensorId rows, TensorId slots) const {
  for (std::int64_t first = 0; first < p_.slots; first += piece(first)) {
    const Part p = part("admit", Symbol::CacheMisses, first);
    b_.add(p.name + ".gather", gather(p, p_.rows, true), {reads(p_.table), reads(view(rows, p)), writes(p.host)},
           Stream::Host);
    copy(p, p.host, p.device, p_.overlap ? Stream::CopyIn : Stream::Compute);
    b_.add(p.name + ".scatter", scatter(p, p_.slots, false),
           {reads(p.device), reads(view(slots, p)), updates(p_.cache)});
  }
}

std::int64_t RowMoves::piece(std::int64_t first) const {
  return p_.buffer > 0 ? std::min(p_.buffer, p_.slots - first) : p_.slots;
}

RowMoves::Part RowMoves::part(std::string_view what, Symbol symbol, std::int64_t first) const {
  Part p{.name = fmt::format("cache.{}", what), .first = first, .rows = piece(first), .used = Extent{-first, symbol}};
  const Shape shape{p.rows, p_.cols};
  p.device = b_.tensor(p.name + ".device", shape, {.dtype = p_.dtype, .role = TensorRole::Communication});
  p.host = b_.tensor(p.name + ".host", shape, {.dtype = p_.dtype, .role = TensorRole::Communication, .tier = p_.host});
  return p;
}

TensorId RowMoves::view(TensorId index, const Part& p) const {
  return b_.view(index, p.name + ".index", Layout{.shape = Shape{p.rows}, .strides = {1}, .offset = p.first});
}

Gather RowMoves::gather(const Part& p, std::int64_t table_rows, bool on_host) const {
  return {.rows = p.rows,
          .cols = p_.cols,
          .table_rows = table_rows,
          .first = 0,
          .last = table_rows,
          .dtype = p_.dtype,
          .used = p.used,
          .on_host = on_host};
}

ScatterRows RowMoves::scatter(const Part& p, std::int64_t table_rows, bool on_host) const {
  return {
      .rows = p.rows, .cols = p_.cols, .table_rows = table_rows, .dtype = p_.dtype, .used = p.used, .on_host = on_host};
}

void RowMoves::copy(const Part& p, TensorId from, TensorId to, Stream stream) const {
  const Plan& plan = b_.plan();
  b_.add(p.name + ".copy",
         Copy{.bytes = size_of(p_.dtype, p_.cols),
              .from = plan.tensors[from.index()].tier,
              .to = plan.tensors[to.index()].tier,
              .rows = p.rows,
              .used = p.used},
         {reads(from), writes(to)}, stream);
}

namespace {

TensorId owner_named(const Plan& plan, std::string_view name) {
  for (std::size_t i = 0; i < plan.tensors.size(); ++i)
    if (plan.names[plan.tensors[i].name] == name && plan.owner(TensorId{i}) == TensorId{i}) return TensorId{i};
  bug("a plan without a cache was to be written back");
}

}  // namespace

Plan lower_write_back(const Plan& step) {
  PlanBuilder b{step.name + ".write_back", step.mesh};
  b.rank_class();
  const auto again = [&](TensorId t) {
    const Tensor& of = step.tensors[t.index()];
    return b.tensor(step.names[of.name], step.shape(t),
                    {.dtype = of.dtype, .role = of.role, .tier = of.tier, .persistent = true});
  };
  const auto port = [&](std::string_view name) {
    const TensorId t = again(step.find_port(name));
    b.port(std::string{name}, t);
    return t;
  };
  const TensorId table = owner_named(step, kCachedTable), cache = owner_named(step, kCacheOfTable);
  const RowMoves rows{b,
                      {.table = again(table),
                       .cache = again(cache),
                       .rows = step.shape(table)[0],
                       .slots = step.shape(cache)[0],
                       .cols = step.shape(cache)[1],
                       .dtype = step.tensors[cache.index()].dtype,
                       .host = step.tensors[table.index()].tier}};
  const TensorId victims = port(kVictimsPort);
  rows.down(port(kVictimSlotsPort), rows.list_down(victims, Symbol::CacheVictims));
  return b.take(nullptr);
}

}  // namespace orrery
