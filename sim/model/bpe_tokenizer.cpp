// SPDX-License-Identifier: Apache-2.0
#include "sim/model/bpe_tokenizer.hpp"

#include <fmt/format.h>

#include "sim/model/unicode.hpp"

namespace orrery {
namespace {

std::string marked(std::string_view text) {
  std::string out;
  for (const char c : text) (c == ' ') ? out += kSpaceMark : out += c;
  return out;
}

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

/// A piece of the input: plain text, or an added token.
struct Piece {
  std::string_view text;
  std::optional<std::size_t> token;
};

std::string_view trim_right(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

std::size_t skip_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r')) ++at;
  return at;
}

std::vector<std::string_view> split_before_marks(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(kSpaceMark, 1), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeSettings settings) : s_{std::move(settings)} {
    for (std::size_t i = 0; i < s_.added.size(); ++i) finder_.add(s_.added[i], i);
    for (unsigned byte = 0; byte < 256; ++byte) {
      const std::string name =
          s_.alphabet == BpeAlphabet::Bytes ? std::string(1, static_cast<char>(byte)) : fmt::format("<0x{:02X}>", byte);
      byte_ids_[byte] = lookup(name);
    }
  }

  std::vector<TokenId> encode(std::string_view text) const override {
    std::vector<TokenId> out;
    for (const Piece& piece : pieces(text)) {
      if (piece.token) {
        out.push_back(s_.added[*piece.token].id);
      } else {
        encode_plain(piece.text, piece.text.data() == text.data(), out);
      }
    }
    return out;
  }

  std::string decode(std::span<const TokenId> ids) const override {
    std::string out;
    for (const TokenId id : ids) {
      const bool is_known =
          id >= 0 && static_cast<std::size_t>(id) < s_.texts.size() && s_.texts[static_cast<std::size_t>(id)];
      if (!is_known) throw UserError{fmt::format("token {} is not in the vocabulary of {}", id, s_.texts.size())};
      out += *s_.texts[static_cast<std::size_t>(id)];
    }
    std::size_t drop = 0;
    while (drop < s_.strip_decoded && drop < out.size() && out[drop] == ' ') ++drop;
    return out.substr(drop);
  }

  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(s_.texts.size()); }

  std::optional<TokenId> id_of(std::string_view token) const override {
    for (const AddedToken& a : s_.added)
      if (a.text == token) return a.id;
    return lookup(s_.mark_spaces ? marked(token) : std::string{token});
  }

  std::vector<std::string> notes() const override { return s_.notes; }

 private:
  std::optional<TokenId> lookup(const std::string& token) const {
    const auto it = s_.ids.find(token);
    return it == s_.ids.end() ? std::nullopt : std::optional{it->second};
  }

  std::vector<Piece> pieces(std::string_view text) const {
    std::vector<Piece> out;
    std::size_t start = 0;
    for (std::size_t at = 0; at < text.size();) {
      const auto token = finder_.match(text, at);
      if (!token) {
        ++at;
        continue;
      }
      const AddedToken& added = s_.added[*token];
      std::string_view before = text.substr(start, at - start);
      if (added.strip_left) before = trim_right(before);
      if (!before.empty()) out.push_back({before, {}});
      out.push_back({text.substr(at, added.text.size()), token});
      at += added.text.size();
      if (added.strip_right) at = skip_spaces(text, at);
      start = at;
    }
    if (start < text.size()) out.push_back({text.substr(start), {}});
    return out;
  }

  void encode_plain(std::string_view piece, bool is_first, std::vector<TokenId>& out) const {
    std::string text = s_.mark_spaces ? marked(piece) : std::string{piece};
    const std::string_view space = s_.mark_spaces ? kSpaceMark : " ";
    if (wants_prefix(text, space, is_first)) text.insert(0, space);
    for (const std::string_view word : s_.split_at_spaces ? split_before_marks(text) : split_words(s_.split, text))
      encode_word(word, out);
  }

  bool wants_prefix(std::string_view text, std::string_view space, bool is_first) const {
    switch (s_.prefix) {
      case PrefixSpace::Never:
        return false;
      case PrefixSpace::Always:
        return true;
      case PrefixSpace::NotDoubled:
        return !starts_with(text, space);
      case PrefixSpace::FirstNotDoubled:
        return is_first && !starts_with(text, space);
    }
    return false;
  }

  void encode_word(std::string_view word, std::vector<TokenId>& out) const {
    if (s_.ignore_merges) {
      if (const auto id = lookup(std::string{word})) return out.push_back(*id);
    }
    std::vector<TokenId> symbols;
    if (s_.alphabet == BpeAlphabet::Bytes) {
      for (const char c : word) push_byte(c, symbols);
    } else {
      for (std::size_t at = 0; at < word.size();) {
        const std::size_t length = decode_utf8(word, at).length;
        push_character(word.substr(at, length), symbols);
        at += length;
      }
    }
    s_.merges.apply(symbols);
    out.insert(out.end(), symbols.begin(), symbols.end());
  }

  void push_byte(char byte, std::vector<TokenId>& symbols) const {
    const auto id = byte_ids_[static_cast<unsigned char>(byte)];
    id ? symbols.push_back(*id) : push_unknown(std::string_view{&byte, 1}, symbols);
  }

  void push_character(std::string_view character, std::vector<TokenId>& symbols) const {
    if (const auto id = lookup(std::string{character})) return symbols.push_back(*id);
    bool has_bytes = s_.byte_fallback;
    for (const char c : character) has_bytes = has_bytes && byte_ids_[static_cast<unsigned char>(c)];
    if (!has_bytes) return push_unknown(character, symbols);
    for (const char c : character) symbols.push_back(*byte_ids_[static_cast<unsigned char>(c)]);
  }

  void push_unknown(std::string_view text, std::vector<TokenId>& symbols) const {
    if (!s_.unknown)
      throw UserError{fmt::format("the vocabulary has no token for byte 0x{:02X}, and none for unknown text",
                                  static_cast<unsigned char>(text.front()))};
    if (s_.fuse_unknown && !symbols.empty() && symbols.back() == *s_.unknown) return;
    symbols.push_back(*s_.unknown);
  }

  BpeSettings s_;
  AddedTokenFinder finder_;
  std::array<std::optional<TokenId>, 256> byte_ids_;
};

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text) const override {
    std::vector<TokenId> out;
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
    return out;
  }

  std::string decode(std::span<const TokenId> ids) const override {
    std::string out;
    for (const TokenId id : ids) {
      if (id < 0 || id > 255) throw UserError{fmt::format("token {} is not in the vocabulary of 256", id)};
      out += static_cast<char>(id);
    }
    return out;
  }

  std::int64_t vocab_size() const override { return 256; }

  std::optional<TokenId> id_of(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return static_cast<unsigned char>(token.front());
  }
};

}  // namespace

void AddedTokenFinder::add(const AddedToken& token, std::size_t index) {
  std::size_t node = 0;
  for (const char c : token.text) {
    const auto [it, is_new] = nodes_[node].next.try_emplace(static_cast<unsigned char>(c), nodes_.size());
    node = it->second;
    if (is_new) nodes_.emplace_back();
  }
  if (!nodes_[node].token) nodes_[node].token = index;
}

std::optional<std::size_t> AddedTokenFinder::match(std::string_view text, std::size_t at) const {
  std::optional<std::size_t> longest;
  for (std::size_t node = 0; at < text.size(); ++at) {
    const auto it = nodes_[node].next.find(static_cast<unsigned char>(text[at]));
    if (it == nodes_[node].next.end()) break;
    node = it->second;
    if (nodes_[node].token) longest = nodes_[node].token;
  }
  return longest;
}

ByteAlphabet::ByteAlphabet() {
  char32_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    bytes_[prints ? byte : next++] = static_cast<char>(byte);
  }
}

std::optional<std::string> ByteAlphabet::bytes_of(std::string_view token) const {
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    const DecodedChar c = decode_utf8(token, at);
    const auto it = bytes_.find(c.code);
    if (!c.valid || it == bytes_.end()) return std::nullopt;
    out += it->second;
    at += c.length;
  }
  return out;
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeSettings settings) {
  return std::make_unique<BpeTokenizer>(std::move(settings));
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace orrery
