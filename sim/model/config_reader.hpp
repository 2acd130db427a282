// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/dtype.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {

/// What a configuration may ask for before it is refused: far above anything published, far below what hurts.
struct ModelLimits {
  static constexpr std::int64_t kDimension = std::int64_t{1} << 30;  // a width, a vocabulary, a number of positions
  static constexpr std::int64_t kHeads = 65536;
  static constexpr std::int64_t kHeadDimension = 4096;  // a frequency per pair is stored in every layer
  static constexpr std::int64_t kLayers = 4096;
  static constexpr std::int64_t kExpertLayers = 1 << 18;  // experts summed over the layers; DeepSeek-V3 has 14,848
  static constexpr std::int64_t kParameters = std::int64_t{1} << 53;  // exact in a double
};

/// Reads the keys of one configuration, each with its default and its legal range. A key may be given as several
/// spellings, "num_local_experts|num_experts": the first that is there counts. A null is an absent key. Problems are
/// collected; `finish` throws them all at once, so values are only used behind it.
class ConfigReader {
 public:
  explicit ConfigReader(const Node& config) : config_{config} {}

  std::int64_t integer(std::string_view keys, std::int64_t fallback, std::int64_t low = 1,
                       std::int64_t high = ModelLimits::kDimension);
  std::optional<std::int64_t> maybe_integer(std::string_view keys, std::int64_t low = 1,
                                            std::int64_t high = ModelLimits::kDimension);
  /// For a key whose null means something else than its absence: absent gives `fallback`, null gives nothing.
  std::optional<std::int64_t> nullable_integer(std::string_view key, std::optional<std::int64_t> fallback,
                                               std::int64_t low = 1, std::int64_t high = ModelLimits::kDimension);
  std::optional<double> nullable_real(std::string_view key, std::optional<double> fallback, double low, double high);
  std::vector<std::int64_t> integers(std::string_view keys, std::vector<std::int64_t> fallback, std::size_t max_size,
                                     std::int64_t low = 1, std::int64_t high = ModelLimits::kDimension);
  double real(std::string_view keys, double fallback, double low, double high);
  bool boolean(std::string_view keys, bool fallback);
  std::string text(std::string_view keys, std::string_view fallback);
  std::int64_t layers(std::string_view keys, std::int64_t fallback);

  /// "dtype" or, before transformers v5, "torch_dtype"; float32 when neither is there.
  DType dtype();

  /// The value of the first spelling that is there and not null.
  const Node* find(std::string_view keys) const;
  const Node& config() const { return config_; }

  /// A problem at the value of a key, or at the head of the document when the key is absent.
  void problem(std::string_view keys, std::string message, std::string hint = {});
  /// A problem at any place.
  void report(Diagnostic problem) { problems_.push_back(std::move(problem)); }
  /// Reports when `part` does not divide `whole`; true when it does.
  bool check_divides(std::string_view part_key, std::int64_t part, std::string_view whole_key, std::int64_t whole);

  bool has_problems() const { return !problems_.empty(); }
  /// Adds the problems found so far to those of the reader of the enclosing map.
  void hand_over(ConfigReader& outer) const {
    outer.problems_.insert(outer.problems_.end(), problems_.begin(), problems_.end());
  }
  /// Throws what was found wrong so far.
  void finish() const;

 private:
  std::optional<std::int64_t> whole_number(const Node& node, std::string_view keys, std::int64_t low,
                                           std::int64_t high);

  const Node& config_;
  std::vector<Diagnostic> problems_;
};

/// The first of several spellings: the name used in messages.
std::string_view first_spelling(std::string_view keys);

}  // namespace orrery
