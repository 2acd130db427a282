// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/model/model.hpp"
#include "sim/program/embedding/id_stream.hpp"
#include "sim/program/program.hpp"
#include "sim/strategy/packing/packed_training.hpp"

namespace orrery {

struct GenerateOptions;

/// Whether a step is given what its outputs ought to be.
enum class Targets : bool { Without, With };

/// The numbers that train or feed a network: from a token stream, or drawn from a seed. Deterministic: step i of equal
/// options is equal on every machine.
class DataSource {
 public:
  /// Tokens of a text in order; empty: uniform random tokens. Throws UserError when a token is outside of the model's
  /// vocabulary or there are fewer than a sample needs.
  DataSource(const Model& model, std::vector<std::int32_t> tokens, std::uint64_t seed,
             const std::vector<double>& id_skew = {});

  /// From now on batches of causal models are these windows, and from the first one again: the k-th of a step is sample
  /// `samples[k]`. A document is a stretch of the text from a random place on, over its end to its beginning. Tokens
  /// learn the next one in their part of it; padding, and the last token of a part, learn nothing. `first_keys` and
  /// `positions` say where rows stand (DocumentRows).
  void pack(PackedSamples windows, std::vector<std::int64_t> samples);

  struct Sizes {
    std::int64_t samples = 1, sequence = 1, target_sequence = 1;
  };

  /// Inputs and, if asked for, the targets of one step. Causal models learn the next token; masked ones 15 % of the
  /// tokens, hidden by the last id of the vocabulary; encoder-decoders continue the encoder's text; classifiers random
  /// labels.
  std::vector<PortValues> batch(const Sizes& sizes, Targets targets);

 private:
  std::vector<std::int32_t> window(std::int64_t length);
  std::vector<double> noise(std::int64_t count);
  std::vector<std::int32_t> labels(std::int64_t count, std::int64_t classes);
  void bags(const Dlrm& d, std::int64_t samples, std::vector<PortValues>& out);
  std::vector<std::int32_t> part_of(const DocumentPart& part) const;
  void packed(const Sizes& sizes, std::vector<PortValues>& out);
  void causal(const Sizes& sizes, Targets targets, std::vector<PortValues>& out);
  void masked(const Sizes& sizes, Targets targets, std::vector<PortValues>& out);
  void paired(const Sizes& sizes, Targets targets, std::vector<PortValues>& out);

  const Model& model_;
  std::vector<std::int32_t> tokens_;
  std::int64_t vocabulary_ = 0;
  std::uint64_t seed_ = 0;
  Random random_;
  std::vector<PackedWindow> windows_;
  std::vector<std::int64_t> order_;
  std::size_t next_window_ = 0;  // of whole steps
  std::optional<IdStream> ids_;  // of skewed look-ups
  std::int64_t samples_ = 0;     // drawn so far
};

/// The rows of the tables of a recommendation model, as look-ups ask for them: by exponents, one for each table or one
/// for all; none: all rows alike. Throws UserError when there are others.
IdStream id_stream(const Dlrm& model, const std::vector<double>& id_skew, std::uint64_t seed);

/// The prompts of a batch, one behind the other: random ones where none are given. Throws UserError when there are not
/// as many tokens as the options say.
std::vector<std::int32_t> prompts_of(const Model& model, const GenerateOptions& options,
                                     std::vector<std::int32_t> given = {});

/// The size of the vocabulary, 0 for models that read no tokens.
std::int64_t vocabulary_of(const Model& model);

}  // namespace orrery
