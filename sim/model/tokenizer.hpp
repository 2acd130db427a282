// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/yaml.hpp"
#include "sim/model/bpe.hpp"

namespace orrery {

/// Text to tokens and back. Encoding adds no begin or end tokens; special tokens that stand in the text become their
/// ids.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::vector<TokenId> encode(std::string_view text) const = 0;
  /// Throws UserError for an id that is not in the vocabulary.
  virtual std::string decode(std::span<const TokenId> ids) const = 0;
  /// One more than the largest id.
  virtual std::int64_t vocab_size() const = 0;
  /// The id of a token by the text that it stands for, special tokens included.
  virtual std::optional<TokenId> id_of(std::string_view token) const = 0;
  /// What the file asks for and is not done, one sentence each: Unicode normalisation, for one.
  virtual std::vector<std::string> notes() const { return {}; }
};

/// Every byte is a token, its value the id. Needs no file.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// Reads a Hugging Face `tokenizer.json`, or the one in a folder: byte-pair encodings of the kinds of GPT-2, Llama 3
/// and Qwen (byte-level) and of Llama 2 and Mistral (SentencePiece with byte fallback). Throws UserError for others.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);
std::unique_ptr<Tokenizer> tokenizer_from_document(const Node& document);

}  // namespace orrery
