// SPDX-License-Identifier: Apache-2.0
// Reading Hugging Face's tokenizer.json.
#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "sim/base/whole_number.hpp"
#include "sim/model/bpe_tokenizer.hpp"

namespace orrery {
namespace {

constexpr TokenId kMaxId = 1 << 24;
constexpr std::size_t kMaxAddedLength = 256;  // keeps the search for added tokens linear in the text
constexpr ReadLimits kLimits{.bytes = 256u << 20, .depth = 32, .nodes = 8'000'000};

[[noreturn]] void fail(const Node& node, std::string message, std::string hint = {}) {
  throw UserError{at(node, std::move(message), std::move(hint))};
}

/// A member that is there and not null.
const Node* member(const Node& map, std::string_view key) {
  const Node* node = map.find(key);
  return node && node->kind != Node::Kind::Null ? node : nullptr;
}

const Node& required(const Node& map, std::string_view key) {
  if (const Node* node = member(map, key)) return *node;
  fail(map, fmt::format("'{}' is missing", key));
}

std::string text_of(const Node& map, std::string_view key, std::string_view fallback = {}) {
  const Node* node = member(map, key);
  return node ? node->scalar : std::string{fallback};
}

bool flag_of(const Node& map, std::string_view key, bool fallback) {
  const Node* node = member(map, key);
  return node ? node->scalar == "true" : fallback;
}

TokenId id_at(const Node& node) {
  const auto id = whole_number<TokenId>(node.scalar);
  if (node.kind != Node::Kind::Scalar || node.quoted || !id || *id < 0 || *id > kMaxId)
    fail(node, fmt::format("a token id must be a whole number from 0 to {}, not '{}'", kMaxId, node.scalar));
  return *id;
}

/// The parts of a `Sequence`, or the one part itself.
std::vector<const Node*> parts_of(const Node& document, std::string_view key, std::string_view list_key) {
  const Node* node = member(document, key);
  if (!node) return {};
  if (text_of(*node, "type") != "Sequence") return {node};
  std::vector<const Node*> parts;
  for (const Node& part : required(*node, list_key).items) parts.push_back(&part);
  return parts;
}

class DocumentReader {
 public:
  explicit DocumentReader(const Node& document) : document_{document}, model_{required(document, "model")} {}

  BpeSettings read() {
    if (const std::string type = text_of(model_, "type", "BPE"); type != "BPE")
      fail(model_, fmt::format("a tokenizer model of type '{}' is not supported", type), "BPE");
    read_normalizer();
    read_pre_tokenizer();
    read_decoder();
    read_vocabulary();
    read_merges();
    read_model_flags();
    read_added_tokens();
    return std::move(s_);
  }

 private:
  void read_normalizer() {
    for (const Node* part : parts_of(document_, "normalizer", "normalizers")) {
      const std::string type = text_of(*part, "type");
      if (type == "Prepend") {
        s_.prefix = PrefixSpace::Always;
        expect(*part, "prepend", kSpaceMark);
      } else if (type == "Replace") {
        s_.mark_spaces = true;
        expect(*part, "content", kSpaceMark);
        expect(required(*part, "pattern"), "String", " ");
      } else if (type == "NFC") {
        s_.notes.push_back("text is taken as it is: the normalisation NFC of this tokenizer is not applied");
      } else {
        fail(*part, fmt::format("the normalizer '{}' is not supported", type), "Prepend, Replace or NFC");
      }
    }
  }

  void expect(const Node& map, std::string_view key, std::string_view value) const {
    const Node& node = required(map, key);
    if (node.scalar != value) fail(node, fmt::format("'{}' must be '{}', not '{}'", key, value, node.scalar));
  }

  void read_pre_tokenizer() {
    s_.alphabet = BpeAlphabet::Characters;
    for (const Node* part : parts_of(document_, "pre_tokenizer", "pretokenizers")) {
      const std::string type = text_of(*part, "type");
      if (type == "ByteLevel") {
        s_.alphabet = BpeAlphabet::Bytes;
        if (flag_of(*part, "add_prefix_space", true)) s_.prefix = PrefixSpace::NotDoubled;
        if (flag_of(*part, "use_regex", true)) s_.split = SplitRule::Gpt2;
      } else if (type == "Split") {
        read_split(*part);
      } else if (type == "Metaspace") {
        read_metaspace(*part);
      } else {
        fail(*part, fmt::format("the pre-tokenizer '{}' is not supported", type), "ByteLevel, Split or Metaspace");
      }
    }
  }

  void read_split(const Node& part) {
    const Node& regex = required(required(part, "pattern"), "Regex");
    const auto rule = rule_of_regex(regex.scalar);
    if (!rule) fail(regex, "this regular expression is not supported", "those of GPT-2, Llama 3 and Qwen 2");
    const bool keeps_words = (text_of(part, "behavior") == "Isolated" && !flag_of(part, "invert", false)) ||
                             (text_of(part, "behavior") == "Removed" && flag_of(part, "invert", false));
    if (!keeps_words) fail(part, "the split must be isolated", "behavior: Isolated");
    s_.split = *rule;
  }

  void read_metaspace(const Node& part) {
    expect(part, "replacement", kSpaceMark);
    const bool old_flag = flag_of(part, "add_prefix_space", true);
    const std::string scheme = text_of(part, "prepend_scheme", old_flag ? "always" : "never");
    s_.mark_spaces = true;
    s_.split_at_spaces = flag_of(part, "split", true);
    s_.prefix = scheme == "always"  ? PrefixSpace::NotDoubled
                : scheme == "first" ? PrefixSpace::FirstNotDoubled
                                    : PrefixSpace::Never;
  }

  void read_decoder() {
    for (const Node* part : parts_of(document_, "decoder", "decoders")) {
      const std::string type = text_of(*part, "type");
      if (type == "Strip") s_.strip_decoded = static_cast<std::size_t>(id_at(required(*part, "start")));
      if (type == "Metaspace") s_.strip_decoded = s_.prefix == PrefixSpace::Never ? 0 : 1;
    }
  }

  bool is_bytes() const { return s_.alphabet == BpeAlphabet::Bytes; }

  /// The key of a token in `ids`: its bytes, or its characters.
  std::string key_of(const std::string& token) const {
    return is_bytes() ? alphabet_.bytes_of(token).value_or(token) : token;
  }

  /// What a token of a SentencePiece vocabulary decodes to.
  std::string plain_text(std::string token) const {
    unsigned byte = 0;
    const bool is_byte = token.size() == 6 && token.compare(0, 3, "<0x") == 0 && token.back() == '>' &&
                         std::from_chars(token.data() + 3, token.data() + 5, byte, 16).ptr == token.data() + 5;
    if (is_byte) return std::string(1, static_cast<char>(byte));
    for (std::size_t i = token.find(kSpaceMark); i != std::string::npos; i = token.find(kSpaceMark, i + 1))
      token.replace(i, kSpaceMark.size(), " ");
    return token;
  }

  void set_text(TokenId id, std::string text, const Node& node) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= s_.texts.size()) s_.texts.resize(index + 1);
    if (s_.texts[index]) fail(node, fmt::format("token id {} is given twice", id));
    s_.texts[index] = std::move(text);
  }

  void read_vocabulary() {
    const Node& vocab = required(model_, "vocab");
    if (vocab.kind != Node::Kind::Map) fail(vocab, "the vocabulary must be a map from token to id");
    s_.ids.reserve(vocab.fields.size());
    for (const auto& [token, id] : vocab.fields) {
      const std::string key = key_of(token);
      s_.ids.try_emplace(key, id_at(id));
      set_text(id_at(id), is_bytes() ? key : plain_text(token), id);
    }
  }

  void read_merges() {
    const Node& merges = required(model_, "merges");
    if (merges.kind != Node::Kind::List) fail(merges, "the merges must be a list");
    s_.merges.reserve(merges.items.size());
    for (const Node& merge : merges.items) {
      const auto [left, right] = pair_of(merge);
      s_.merges.add(merged_id(left, merge), merged_id(right, merge), merged_id(left + right, merge));
    }
  }

  /// A merge is "left right" or, in newer files, ["left", "right"].
  std::pair<std::string, std::string> pair_of(const Node& merge) const {
    if (merge.kind == Node::Kind::List && merge.items.size() == 2)
      return {key_of(merge.items[0].scalar), key_of(merge.items[1].scalar)};
    const std::size_t space = merge.scalar.find(' ');
    if (merge.kind != Node::Kind::Scalar || space == std::string::npos || space != merge.scalar.rfind(' '))
      fail(merge, "a merge must be two tokens");
    return {key_of(merge.scalar.substr(0, space)), key_of(merge.scalar.substr(space + 1))};
  }

  TokenId merged_id(const std::string& key, const Node& merge) const {
    const auto it = s_.ids.find(key);
    if (it == s_.ids.end()) fail(merge, fmt::format("the merge uses '{}', which is not in the vocabulary", key));
    return it->second;
  }

  void read_model_flags() {
    s_.ignore_merges = flag_of(model_, "ignore_merges", false);
    s_.byte_fallback = flag_of(model_, "byte_fallback", false);
    s_.fuse_unknown = flag_of(model_, "fuse_unk", false);
    for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!text_of(model_, key).empty()) fail(required(model_, key), fmt::format("'{}' is not supported", key));
    if (const Node* unknown = member(model_, "unk_token")) {
      const auto it = s_.ids.find(key_of(unknown->scalar));
      if (it == s_.ids.end()) fail(*unknown, fmt::format("unk_token '{}' is not in the vocabulary", unknown->scalar));
      s_.unknown = it->second;
    }
  }

  void read_added_tokens() {
    const Node* list = member(document_, "added_tokens");
    if (!list) return;
    if (list->kind != Node::Kind::List) fail(*list, "added_tokens must be a list");
    for (const Node& node : list->items) {
      AddedToken token{.text = required(node, "content").scalar, .id = id_at(required(node, "id"))};
      token.strip_left = flag_of(node, "lstrip", false);
      token.strip_right = flag_of(node, "rstrip", false);
      if (token.text.empty() || token.text.size() > kMaxAddedLength)
        fail(node, fmt::format("an added token must have 1 to {} bytes, not {}", kMaxAddedLength, token.text.size()));
      if (flag_of(node, "single_word", false)) fail(node, "added tokens that match whole words only are not supported");
      place_added(token, node);
      s_.added.push_back(std::move(token));
    }
  }

  /// An added token may also stand in the vocabulary, then under the same id.
  void place_added(const AddedToken& token, const Node& node) {
    const auto it = s_.ids.find(key_of(token.text));
    if (it != s_.ids.end() && it->second == token.id) {
      s_.texts[static_cast<std::size_t>(token.id)] = token.text;
    } else {
      set_text(token.id, token.text, node);
    }
  }

  const Node& document_;
  const Node& model_;
  ByteAlphabet alphabet_;
  BpeSettings s_;
};

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_document(const Node& document) {
  return make_bpe_tokenizer(DocumentReader{document}.read());
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  std::filesystem::path file{path};
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) file /= "tokenizer.json";
  return tokenizer_from_document(read_json(file.string(), kLimits));
}

}  // namespace orrery
