// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sim/base/options.hpp"

namespace orrery {

/// Tokens [from, to) of a document.
struct DocumentPart {
  std::int64_t document = 0, from = 0, to = 0;

  std::int64_t length() const { return to - from; }
  bool operator==(const DocumentPart&) const = default;
};

/// What a network trains on at once: parts of documents, one behind another, and padding behind the last.
using PackedWindow = std::vector<DocumentPart>;

/// How documents come into windows. All but `concatenate` cut documents that are longer than a window into pieces of
/// its length and what is left first.
///   concatenate   one behind another in their order, cut wherever a window ends
///   shuffle       the same, with the pieces in random order
///   alone         each piece in a window of its own
///   largest_fit   longest first, each into the window with the most room, of as many windows as the tokens would fill:
///                 what overflows is lost
///   best_fit      longest first, each into the fullest window that has room for it, else into a new one
///   datasculpt    largest_fit in each cluster of documents, by room times likeness (datasculpt.hpp)
///   balanced      best_fit, with windows that cost attention alike in one step (PackRequest::balances)
enum class PackerKind : std::uint8_t { Concatenate, Shuffle, Alone, LargestFit, BestFit, DataSculpt, Balanced };
inline std::span<const EnumName<PackerKind>> enum_names(PackerKind) {
  static constexpr EnumName<PackerKind> names[] = {{PackerKind::Concatenate, "concatenate"},
                                                   {PackerKind::Shuffle, "shuffle"},
                                                   {PackerKind::Alone, "alone"},
                                                   {PackerKind::LargestFit, "largest_fit"},
                                                   {PackerKind::BestFit, "best_fit"},
                                                   {PackerKind::DataSculpt, "datasculpt"},
                                                   {PackerKind::Balanced, "balanced"}};
  return names;
}

/// What packers are asked for. Window j of rank r in step s is the one at (s·ranks + r)·windows + j of what they give.
struct PackRequest {
  PackerKind packer = PackerKind::BestFit;
  std::int64_t window = 4096;                     // tokens
  std::int64_t ranks = 1, per_rank = 1;           // of the data; windows of each in a step
  std::uint64_t seed = 1;                         // of the order of windows, and of `shuffle`
  bool fills = false;                             // room of windows is filled with parts of the emptiest ones
  bool balances = false;                          // windows that cost attention alike in one step
  std::vector<std::vector<double>> vectors = {};  // datasculpt: one for each document; none: all are alike
  double likeness = 0.5;                          // datasculpt: cosine from which on documents are of one cluster
  double movement = 0.5;                          // datasculpt: clusters that move less in a round, in the mean, stay
  std::int64_t rounds = 5;                        // datasculpt: at most, of clustering
};

/// Windows in the order of training. Throws UserError for a window or a document without tokens.
std::vector<PackedWindow> pack(const PackRequest& request, std::span<const std::int64_t> lengths);

/// Pieces of documents of at most a window, in order.
std::vector<DocumentPart> pieces_of(std::span<const std::int64_t> lengths, std::int64_t window);

/// Each piece into the window with the most room, longest first; the first of equals.
std::vector<PackedWindow> largest_fit(std::vector<DocumentPart> pieces, std::int64_t window);

/// Pieces in order of their lengths, longest first; equals stay in their order.
void sort_longest_first(std::vector<DocumentPart>& pieces);

/// Adds what of a piece finds room in a window that has `room` tokens left; gives what is left then.
std::int64_t put(const DocumentPart& piece, PackedWindow& window, std::int64_t room);

/// Pairs of tokens of one document: Σ L² over the parts of a window. Attention with a document mask costs in
/// proportion.
double squares_of(const PackedWindow& window);

/// What a packing comes to.
struct PackingStatistics {
  std::int64_t documents = 0, windows = 0, tokens = 0;  // that were given; windows; tokens in them
  std::int64_t lost = 0;                                // tokens in none
  double parts_per_window = 0;
  double truncations_per_window = 0;  // ends of parts that are neither of documents nor of pieces
  double padding = 0;                 // share of all places
  double squares = 0;                 // Σ L² over those of one document per window
  double window_spread = 0;           // 95th percentile of Σ L² of windows over their mean
  double rank_spread = 0;             // the same of what a rank has in a step
  double slowest_rank = 0;            // Σ L² of the rank with the most in each step over that of all, in the mean
};
PackingStatistics statistics_of(std::span<const PackedWindow> windows, std::span<const std::int64_t> lengths,
                                const PackRequest& request);

}  // namespace orrery
