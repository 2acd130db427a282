// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/model/pretokenize.hpp"
#include "sim/model/tokenizer.hpp"

namespace orrery {

/// What stands for a space in the vocabularies of SentencePiece: ▁.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

/// What a vocabulary is made of.
enum class BpeAlphabet : std::uint8_t {
  Bytes,      // GPT-2, Llama 3: every byte has a token
  Characters  // SentencePiece: characters, those without a token fall back to their bytes
};

/// When a space is put in front of a text. NotDoubled: unless one stands there.
enum class PrefixSpace : std::uint8_t { Never, Always, NotDoubled, FirstNotDoubled };

/// A token that is looked for in the text itself, before anything else.
struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool strip_left = false, strip_right = false;  // takes the spaces beside it
};

/// Everything that a `tokenizer.json` says about a byte-pair encoding.
struct BpeSettings {
  BpeAlphabet alphabet = BpeAlphabet::Bytes;
  std::unordered_map<std::string, TokenId> ids;   // by bytes, or by characters with '▁' for a space
  std::vector<std::optional<std::string>> texts;  // what each id decodes to
  BpeMerges merges;
  bool ignore_merges = false;  // a word that is a token is not merged from parts
  bool byte_fallback = false;
  bool fuse_unknown = false;
  std::optional<TokenId> unknown;
  std::vector<AddedToken> added;
  SplitRule split = SplitRule::Whole;
  bool split_at_spaces = false;  // Characters: words begin at '▁'
  bool mark_spaces = false;      // Characters: ' ' becomes '▁'
  PrefixSpace prefix = PrefixSpace::Never;
  std::size_t strip_decoded = 0;  // spaces that decoding drops at the start
  std::vector<std::string> notes;
};

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeSettings settings);

/// Finds added tokens in a text, the longest at the earliest place.
class AddedTokenFinder {
 public:
  AddedTokenFinder() : nodes_(1) {}
  void add(const AddedToken& token, std::size_t index);
  /// The index of the longest token that starts here.
  std::optional<std::size_t> match(std::string_view text, std::size_t at) const;

 private:
  struct Step {
    std::unordered_map<unsigned char, std::size_t> next;
    std::optional<std::size_t> token;
  };
  std::vector<Step> nodes_;
};

/// GPT-2's alphabet: the bytes that print stand for themselves, the others for characters from U+0100 on.
class ByteAlphabet {
 public:
  ByteAlphabet();
  /// The bytes that a token of a byte-level vocabulary stands for; nothing when it has a foreign character.
  std::optional<std::string> bytes_of(std::string_view token) const;

 private:
  std::unordered_map<char32_t, char> bytes_;
};

}  // namespace orrery
