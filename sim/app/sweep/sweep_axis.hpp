// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// Numbers between two bounds that stand in one text: "x0.5", "50 GB/s".
struct SweptRange {
  std::string before, after;  // "x", " GB/s"
  double from = 0, to = 0;
  bool logarithmic = false;
  bool whole = false;  // both bounds are written as integers without a unit: so is what is drawn between them

  std::string text(double value) const;
  /// The value at a part of the way, from 0 to 1.
  std::string at(double part) const;
};
/// Throws UserError, which begins with `what`, for bounds that are no numbers or have different units.
SweptRange range_between(const std::string& what, const std::string& first, const std::string& last);

/// One `--sweep`: a key, or several that change together, and what they take in turn.
struct SweptAxis {
  std::vector<std::string> keys;
  std::vector<std::vector<std::string>> rows;  // a value for each key; none for a range that can only be sampled
  std::optional<SweptRange> range;             // where the values were written as one
};

/// "a.b=1,2,4", "a.b=log2(1,64)", "a.b=lin(1 GB/s,8 GB/s,8)", "a,b=1:x,2:y". Commas and colons within brackets or
/// quotes are of the values. Throws UserError.
SweptAxis parse_axis(const std::string& text);

/// Values of all keys of all axes, in order.
using SweptValues = std::vector<std::string>;

/// Every combination; the last axis varies fastest. Throws UserError for more than a million.
std::vector<SweptValues> product_of(const std::vector<SweptAxis>& axes);
/// `n` points of a Latin hypercube: of each axis each n-th part once, in a random order. Within its part a range takes
/// any value, a list the one that stands there.
std::vector<SweptValues> sample_of(const std::vector<SweptAxis>& axes, std::int64_t n, std::uint64_t seed);

/// Without the spaces around it.
std::string_view trimmed(std::string_view text);
/// Parts of a text between separators that stand outside of brackets and quotes, without spaces around them.
std::vector<std::string> split_outside(std::string_view text, char separator);

}  // namespace orrery
