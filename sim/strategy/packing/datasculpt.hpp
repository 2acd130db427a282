// SPDX-License-Identifier: Apache-2.0
// DataSculpt, Lu and others, arXiv 2409.00997: windows of documents that are alike.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sim/strategy/packing/packing.hpp"

namespace orrery {

/// Clusters, then in each as many windows as its tokens would fill. Pieces, longest first, go into the window with the
/// largest
///   cosine(mean of the vectors in the window, piece) · room,        an empty window has a cosine of 1;
/// what overflows is lost, as are clusters that do not fill a window. Without vectors all cosines are 1.
std::vector<PackedWindow> datasculpt(const PackRequest& request, std::span<const DocumentPart> pieces);

/// The cluster of each vector, by steps like ISODATA's: from floor(n · mean likeness) of them as centroids, each vector
/// joins the nearest centroid if it is at least as like as `likeness`, else it begins a cluster; centroids become
/// means, and those that are more alike than that are merged. Ends when centroids move less than `movement` in the
/// mean, or after `rounds`. Not from the paper: the nearest are found by comparing with all, the mean likeness is that
/// of at most 256 drawn vectors with one another, and what is merged. Clusters are numbered by their first vector.
std::vector<std::size_t> clusters_of(std::span<const std::vector<double>> vectors, const PackRequest& request);

/// A vector of a text where no network gives one: counts of its words, hashed to places (FNV-1a), of length 1. Like
/// texts share words; order and meaning are not seen.
std::vector<double> hashed_words(std::string_view text, std::size_t places = 256);

double dot(std::span<const double> a, std::span<const double> b);

}  // namespace orrery
