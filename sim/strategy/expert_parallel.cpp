// SPDX-License-Identifier: Apache-2.0
// Experts on the ranks of the axis ep. A rank's rows are sorted by expert, so what goes to one rank lies together. Each
// direction is one all-to-all, and its gradient the same all-to-all the other way.
#include "sim/strategy/expert_parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery {

ExpertExchange::ExpertExchange(Layers& layers, std::string_view name, const ExpertTraffic& traffic)
    : l_{layers},
      name_{name},
      traffic_{traffic},
      ep_{layers.roles().experts},
      place_{place_of_class(layers.tape().plan(), layers.roles().experts)} {
  const std::int64_t worst = ep_.ranks * traffic_.tokens * std::min(traffic_.top_k, here());
  const double factor = l_.sizes().room.buffer;
  buffer_ = factor > 0 ? std::min(worst, static_cast<std::int64_t>(std::ceil(factor * double(expected())))) : worst;
}

std::string ExpertExchange::part(std::string_view suffix) const { return fmt::format("{}.{}", name_, suffix); }

/// Rows that come to this rank.
std::int64_t ExpertExchange::expected() const {
  if (traffic_.capacity > 0 || traffic_.layout->is_even()) return sent();
  return std::llround(double(ep_.ranks * sent()) * traffic_.layout->load(place_));
}

/// Of rows that are counted where there is no capacity.
Collective ExpertExchange::all_to_all(std::int64_t cols) const {
  const DType dtype = l_.sizes().dtype;
  const double busiest = traffic_.capacity > 0 ? 1 : traffic_.layout->busiest();
  return {.kind = CollectiveKind::AllToAll,
          .group = ep_.group,
          .bytes = size_of(dtype, std::llround(double(sent()) * busiest) * cols),
          .dtype = dtype,
          .row = traffic_.capacity > 0 ? 0 : cols};
}

ExpertRows ExpertExchange::dispatch(const ExpertRows& home) {
  const std::int64_t cols = traffic_.cols;
  if (traffic_.capacity == 0) {
    agree(home.offsets);
    const TensorId x = exchange_rows("dispatch", home.x, Shape{buffer_, cols}, home_, away_);
    return {.x = x,
            .offsets = offsets_,
            .experts = here(),
            .rows = expected(),
            .skew = traffic_.layout->skew(place_),
            .buffer = buffer_,
            .counted = true};
  }
  const TensorId x = arrange("arrived", exchange_equal("dispatch", home.x, cols), cols);
  const std::int64_t each = ep_.ranks * traffic_.capacity, n = held();
  const TensorId offsets =
      l_.constant(fmt::format("{}_experts_of_{}_rows", n, each), Shape{n + 1}, DType::I32, [each, n] {
        std::vector<double> first(static_cast<std::size_t>(n) + 1);
        for (std::size_t e = 0; e < first.size(); ++e) first[e] = double(e) * double(each);
        return first;
      });
  return {.x = x, .offsets = offsets, .experts = n, .rows = sent(), .buffer = sent(), .counted = false};
}

TensorId ExpertExchange::dispatch_weights(TensorId weights) {
  if (traffic_.capacity == 0) return exchange_rows("dispatch_weights", weights, Shape{buffer_, 1}, home_, away_);
  return arrange("arrived_weights", exchange_equal("dispatch_weights", weights, 1), 1);
}

/// What has arrived in order of the ranks, in order of the experts.
TensorId ExpertExchange::arrange(std::string_view suffix, TensorId arrived, std::int64_t cols) {
  const TensorId x = l_.activation_tensor(part(suffix), {sent(), cols});
  l_.tape().add(part(suffix), SwapAxes{1, ep_.ranks, held(), traffic_.capacity * cols, l_.sizes().dtype},
                {reads(arrived), writes(x)});
  return x;
}

TensorId ExpertExchange::combine(TensorId y) {
  if (traffic_.capacity == 0) return exchange_rows("combine", y, Shape{traffic_.room, traffic_.cols}, away_, home_);
  const TensorId leaving = l_.activation_tensor(part("leaving"), {sent(), traffic_.cols});
  l_.tape().add(part("leaving"), SwapAxes{1, held(), ep_.ranks, traffic_.capacity * traffic_.cols, l_.sizes().dtype},
                {reads(y), writes(leaving)});
  return exchange_equal("combine", leaving, traffic_.cols);
}

/// The ranks tell one another which rows each sends to each expert. The first row of an expert and the next one's are
/// neighbours among the offsets: a span each.
void ExpertExchange::agree(TensorId offsets) {
  const std::int64_t n = ep_.ranks * held();
  home_ = l_.index_tensor(part("home"), Shape{n, 2});
  if (l_.roles().placed_experts) {
    l_.tape().add_plain(part("home"), SplitRoutes{.experts = traffic_.experts, .parts = n},
                        {reads(offsets), reads(parts()), writes(home_)});
  } else {
    const Layout pairs{.shape = Shape{n, 2}, .strides = {1, 1}, .offset = 0};
    l_.tape().add_plain(part("home"), CopyRows{n, 2, DType::I32},
                        {reads(l_.tape().view(offsets, part("pairs"), pairs)), writes(home_)});
  }
  const TensorId sent = l_.index_tensor(part("sent"), Shape{n, 2});
  l_.tape().add_plain(part("agree"), over(ep_, CollectiveKind::AllToAll, 2 * n, DType::I32),
                      {reads(home_), writes(sent)});
  away_ = l_.index_tensor(part("away"), Shape{n, 2});
  offsets_ = l_.index_tensor(part("local_offsets"), Shape{held() + 1});
  l_.tape().add_plain(part("merge"), MergeRoutes{.ranks = ep_.ranks, .experts = held(), .max_rows = buffer_},
                      {reads(sent), writes(away_), writes(offsets_)});
  l_.wait_for_rows(name_, offsets_);
  if (here() < held())  // the others are empty
    offsets_ = l_.tape().view(offsets_, part("held_offsets"), Layout::contiguous(Shape{here() + 1}));
}

/// Which part of which expert's rows goes to each slot of each rank: see SplitRoutes. Ranks of ep round in different
/// ways, so that the odd rows of an expert do not all go to the same replica.
TensorId ExpertExchange::parts() {
  const std::int64_t n = ep_.ranks * held();
  const auto values = [layout = *traffic_.layout, slots = held(), home = place_] {
    std::vector<std::int64_t> taken(layout.shares().size(), 0);
    std::vector<double> out;
    for (std::int64_t r = 0; r < layout.ranks(); ++r) {
      for (const HeldExpert& h : layout.held(r)) {
        const std::int64_t first = taken[static_cast<std::size_t>(h.expert)], of = layout.replicas(h.expert);
        taken[static_cast<std::size_t>(h.expert)] += h.replicas;
        for (const std::int64_t x : {h.expert, first, first + h.replicas, of, home % of}) out.push_back(double(x));
      }
      for (std::int64_t k = std::ssize(layout.held(r)); k < slots; ++k)
        out.insert(out.end(), {0, 0, 0, 1, 0});  // nothing comes there
    }
    return out;
  };
  return l_.constant(part("parts"), Shape{n, SplitRoutes::kColumns}, DType::I32, values);
}

TensorId ExpertExchange::exchange_rows(std::string_view suffix, TensorId x, const Shape& out, TensorId from,
                                       TensorId to) {
  Tape& tape = l_.tape();
  const TensorId y = l_.activation_tensor(part(suffix), out);
  const Collective exchange = all_to_all(out[1]);
  tape.add_plain(part(suffix), exchange, {reads(x), reads(from), reads(to), writes(y)}, stream());
  tape.on_backward([&tape, stream = stream(), x, y, from, to, exchange, name = part(suffix) + ".back"] {
    const TensorId dy = tape.gradient(y);
    if (dy.is_none()) return;
    const TensorId here = tape.saved(to), there = tape.saved(from), dx = tape.contribution(x);
    tape.builder().add(name, exchange, {reads(dy), reads(here), reads(there), writes(dx)}, stream);
    tape.contribute(x, dx);
  });
  return y;
}

TensorId ExpertExchange::exchange_equal(std::string_view suffix, TensorId x, std::int64_t cols) {
  Tape& tape = l_.tape();
  const TensorId y = l_.activation_tensor(part(suffix), Shape{sent(), cols});
  const Collective exchange = all_to_all(cols);
  tape.add_plain(part(suffix), exchange, {reads(x), writes(y)}, stream());
  tape.on_backward([&tape, stream = stream(), x, y, exchange, name = part(suffix) + ".back"] {
    const TensorId dy = tape.gradient(y);
    if (dy.is_none()) return;
    const TensorId dx = tape.contribution(x);
    tape.builder().add(name, exchange, {reads(dy), writes(dx)}, stream);
    tape.contribute(x, dx);
  });
  return y;
}

}  // namespace orrery
