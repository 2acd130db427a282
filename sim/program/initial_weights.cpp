// SPDX-License-Identifier: Apache-2.0
#include "sim/program/initial_weights.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "sim/base/parallel.hpp"
#include "sim/base/random.hpp"

namespace orrery {
namespace {

constexpr int kLogPiece = 16;
constexpr std::size_t kPiece = std::size_t{1} << kLogPiece;  // numbers that one core draws at a time

/// Some of the values of a parameter, and its random numbers from there on.
struct Piece {
  const Parameter* parameter;
  std::span<double> values;
  Random random;
};

void draw(Piece& piece) {
  const Parameter& p = *piece.parameter;
  if (p.init != Init::Normal)
    std::fill(piece.values.begin(), piece.values.end(), p.init == Init::Ones ? 1.0 : 0.0);
  else
    for (double& v : piece.values) v = piece.random.normal(0, p.deviation);
}

/// Those of a parameter, in order.
void add_pieces(const Model& model, ParameterId parameter, std::uint64_t seed, std::span<double> values,
                std::vector<Piece>& pieces) {
  static const RandomLeap past_piece{kLogPiece + 1};  // two uniform numbers for each
  Random random{seed, parameter.index() + 1000};
  for (std::size_t at = 0; at < values.size(); at += kPiece) {
    pieces.push_back({&model[parameter], values.subspan(at, std::min(kPiece, values.size() - at)), random});
    past_piece(random);
  }
}

void draw_all(std::vector<Piece> pieces) {
  in_parallel(pieces.size(), [&](std::size_t i) { draw(pieces[i]); });
}

std::size_t elements(const Parameter& p) { return static_cast<std::size_t>(p.elements()); }

}  // namespace

std::vector<double> initial_values(const Model& model, ParameterId parameter, std::uint64_t seed) {
  std::vector<double> out(elements(model[parameter]));
  std::vector<Piece> pieces;
  add_pieces(model, parameter, seed, out, pieces);
  draw_all(std::move(pieces));
  return out;
}

UnsetVector<double> InitialWeights::take(ParameterId parameter) {
  while (parameter.index() >= first_ + drawn_.size()) {
    first_ = next_.valid() ? first_ + drawn_.size() : parameter.index();
    drawn_ = (next_.valid() ? std::move(next_) : draw_later(first_)).get();
    next_ = draw_later(first_ + drawn_.size());
  }
  return std::move(drawn_[parameter.index() - first_]);
}

std::size_t InitialWeights::end_of_batch(std::size_t first) const {
  constexpr std::size_t kMostTogether = 1 << 24;  // numbers
  std::size_t end = first;
  for (std::size_t numbers = 0; end < model_.parameters.size(); ++end) {
    numbers += elements(model_.parameters[end]);
    if (end > first && numbers > kMostTogether) break;
  }
  return end;
}

std::future<InitialWeights::Drawn> InitialWeights::draw_later(std::size_t first) const {
  const std::size_t end = end_of_batch(first);
  return std::async(std::launch::async, [&model = model_, seed = seed_, first, end] {
    Drawn drawn(end - first);
    std::vector<Piece> pieces;
    for (std::size_t i = first; i < end; ++i) {
      drawn[i - first].resize(elements(model.parameters[i]));
      add_pieces(model, ParameterId{i}, seed, drawn[i - first], pieces);
    }
    draw_all(std::move(pieces));
    return drawn;
  });
}

}  // namespace orrery
