// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/base/options.hpp"
#include "sim/base/random.hpp"

namespace orrery {

/// Distributions of lengths. The last two: DataSculpt's corpus, its histogram read either way (packing/corpus.hpp).
enum class LengthKind : std::uint8_t { Fixed, Uniform, Lognormal, Empirical, DataSculptTokens, DataSculptDocuments };
inline std::span<const EnumName<LengthKind>> enum_names(LengthKind) {
  static constexpr EnumName<LengthKind> names[] = {{LengthKind::Fixed, "fixed"},
                                                   {LengthKind::Uniform, "uniform"},
                                                   {LengthKind::Lognormal, "lognormal"},
                                                   {LengthKind::Empirical, "empirical"},
                                                   {LengthKind::DataSculptTokens, "datasculpt_tokens"},
                                                   {LengthKind::DataSculptDocuments, "datasculpt_documents"}};
  return names;
}

struct LengthOptions {
  LengthKind kind = LengthKind::Fixed;
  double mean = 512;
  double deviation = 0;
  std::int64_t least = 1, most = 0;
  std::string file;

  template <class V>
  void visit(V& v) {
    v.field("kind", kind, "the distribution");
    v.field("mean", mean, "fixed: the length; lognormal: its mean", at_least(1));
    v.field("deviation", deviation, "lognormal: standard deviation of the length", at_least(0));
    v.field("least", least, "uniform: the least; others: shorter ones are drawn as this", at_least(1));
    v.field("most", most, "uniform: the most; others: longer ones are drawn as this; 0: no limit", at_least(0));
    v.field("file", file, "empirical: a file with one length a line, drawn with equal chance");
  }
};

/// A file with one length a line; `#` begins a comment. Throws UserError with the line.
std::vector<std::int64_t> read_lengths(const std::string& path);

/// Draws lengths of one distribution.
class LengthSampler {
 public:
  explicit LengthSampler(const LengthOptions& options);
  std::int64_t draw(Random& random) const;
  /// Mean of the distribution, for planning; of bounded ones before they are cut.
  double mean() const;

 private:
  LengthOptions options_;
  std::vector<std::int64_t> values_;
};

}  // namespace orrery
