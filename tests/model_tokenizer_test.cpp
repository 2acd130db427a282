// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "sim/model/pretokenize.hpp"
#include "sim/model/tokenizer.hpp"
#include "sim/model/unicode.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using nlohmann::json;
using Words = std::vector<std::string>;
using Ids = std::vector<TokenId>;

namespace {

constexpr const char* kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

Words split(SplitRule rule, std::string_view text) {
  Words out;
  for (const std::string_view w : split_words(rule, text)) out.emplace_back(w);
  return out;
}

/// The character that stands for a byte in GPT-2's vocabulary.
std::string byte_character(unsigned byte) {
  char32_t next = 256;
  for (unsigned b = 0; b < 256; ++b) {
    const bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const char32_t c = prints ? b : next++;
    std::string out;
    append_utf8(out, c);
    if (b == byte) return out;
  }
  return {};
}

/// A byte-level tokenizer: id b for byte b, merges from 256 on, <|endoftext|> at the end.
json byte_level(const std::vector<std::pair<std::string, std::string>>& merges) {
  json vocab = json::object(), list = json::array();
  for (unsigned b = 0; b < 256; ++b) vocab[byte_character(b)] = b;
  for (const auto& [left, right] : merges) {
    vocab.emplace(left + right, vocab.size());
    list.push_back(left + " " + right);
  }
  const std::size_t end = vocab.size();
  return {{"added_tokens", {{{"id", end}, {"content", "<|endoftext|>"}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}}};
}

/// Llama 2's kind: characters, byte fallback, '▁' for a space.
json sentence_piece() {
  json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (unsigned b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    vocab[name] = 3 + b;
  }
  for (const char* piece : {"▁", "h", "e", "l", "o", "w", "r", "d", "he", "ll", "hell", "hello", "▁hello", "▁w"})
    vocab[piece] = vocab.size();
  return {{"added_tokens", {{{"id", 1}, {"content", "<s>"}}, {{"id", 2}, {"content", "</s>"}}}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "▁"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
          {"pre_tokenizer", nullptr},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", {"h e", "l l", "he ll", "hell o", "▁ hello", "▁ w"}}}}};
}

std::unique_ptr<Tokenizer> load(const json& document) {
  return tokenizer_from_document(parse_json(document.dump(), "tokenizer.json"));
}

std::string message(const json& document) {
  try {
    load(document);
  } catch (const UserError& e) {
    return e.diagnostics().front().message;
  }
  return "no error";
}

const std::vector<std::pair<std::string, std::string>> kHelloMerges = {{"l", "l"},    {"h", "e"}, {"he", "ll"},
                                                                       {"hell", "o"}, {"Ġ", "w"}, {"o", "r"},
                                                                       {"Ġw", "or"},  {"l", "d"}, {"Ġwor", "ld"}};

}  // namespace

TEST_CASE("GPT-2 cuts words as its regular expression does", "[model][tokenizer]") {
  CHECK(split(SplitRule::Gpt2, "Hello world's test") == Words{"Hello", " world", "'s", " test"});
  CHECK(split(SplitRule::Gpt2, "I'll we've DON'T") == Words{"I", "'ll", " we", "'ve", " DON", "'", "T"});
  CHECK(split(SplitRule::Gpt2, "a  b") == Words{"a", " ", " b"});
  CHECK(split(SplitRule::Gpt2, "a \n b") == Words{"a", " \n", " b"});
  CHECK(split(SplitRule::Gpt2, "a\nb") == Words{"a", "\n", "b"});
  CHECK(split(SplitRule::Gpt2, "end  \n") == Words{"end", "  \n"});
  CHECK(split(SplitRule::Gpt2, "x=12345, y") == Words{"x", "=", "12345", ",", " y"});
  CHECK(split(SplitRule::Gpt2, " 1a !?") == Words{" 1", "a", " !?"});
  CHECK(split(SplitRule::Gpt2, "naïve Ωmega ½ 東京 😀!") == Words{"naïve", " Ωmega", " ½", " 東京", " 😀!"});
  CHECK(split(SplitRule::Gpt2, "").empty());
}

TEST_CASE("Llama 3 and Qwen 2 cut words as their regular expressions do", "[model][tokenizer]") {
  CHECK(split(SplitRule::Llama3, "Hello world's DON'T") == Words{"Hello", " world", "'s", " DON", "'T"});
  CHECK(split(SplitRule::Llama3, "12345") == Words{"123", "45"});
  CHECK(split(SplitRule::Qwen2, "123") == Words{"1", "2", "3"});
  CHECK(split(SplitRule::Llama3, "(foo) bar;\n\n  baz") == Words{"(foo", ")", " bar", ";\n\n", " ", " baz"});
  CHECK(split(SplitRule::Llama3, "a \n \n b") == Words{"a", " \n \n", " b"});
  CHECK(split(SplitRule::Llama3, "a\tb  12") == Words{"a", "\tb", " ", " ", "12"});
  CHECK(split(SplitRule::Llama3, "x   ") == Words{"x", "   "});
  CHECK(rule_of_regex(kLlama3Regex) == SplitRule::Llama3);
  CHECK_FALSE(rule_of_regex("\\w+"));
}

TEST_CASE("characters are classified as Unicode does", "[model][tokenizer]") {
  for (const char32_t c : {U'a', U'Z', U'é', U'Ω', U'я', U'東', U'ª', U'ʰ', U'𐐀'})
    CHECK(class_of(c) == CharClass::Letter);
  for (const char32_t c : {U'0', U'٣', U'½', U'Ⅷ', U'²'}) CHECK(class_of(c) == CharClass::Number);
  for (const char32_t c : {U' ', U'\n', U'\u00A0', U'\u2003', U'\u3000'}) CHECK(class_of(c) == CharClass::Space);
  for (const char32_t c : {U'!', U'_', U'€', U'😀', U'\u0301', U'\u200B'}) CHECK(class_of(c) == CharClass::Other);
}

TEST_CASE("byte-level encoding merges by rank", "[model][tokenizer]") {
  const auto t = load(byte_level(kHelloMerges));
  // hello: ll first (256), then he (257), hell (258), hello (259); " world": Ġw 260, or 261, Ġwor 262, ld 263, Ġworld
  // 264.
  CHECK(t->encode("hello world") == Ids{259, 264});
  CHECK(t->encode("hell") == Ids{258});
  CHECK(t->encode("hello<|endoftext|>hello") == Ids{259, 265, 259});
  CHECK(t->encode("yo") == Ids{'y', 'o'});
  CHECK(t->vocab_size() == 266);
  CHECK(t->id_of(" world") == 264);
  CHECK(t->id_of("<|endoftext|>") == 265);
  CHECK_FALSE(t->id_of("nothing"));
  CHECK(t->decode(Ids{259, 264, 265}) == "hello world<|endoftext|>");
  CHECK(user_error([&] { t->decode(Ids{266}); }) == "token 266 is not in the vocabulary of 266");
  CHECK(user_error([&] { t->decode(Ids{-1}); }) == "token -1 is not in the vocabulary of 266");
}

TEST_CASE("any bytes go through a byte-level tokenizer unchanged", "[model][tokenizer]") {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  const auto byte_level_tokenizer = load(byte_level(kHelloMerges));
  const auto bytes = make_byte_tokenizer();
  for (const std::string& text : {all, all + all, std::string{"  spaces \t and\r\n東京 😀 naïve"}, std::string{}}) {
    CHECK(byte_level_tokenizer->decode(byte_level_tokenizer->encode(text)) == text);
    CHECK(bytes->decode(bytes->encode(text)) == text);
  }
  CHECK(bytes->encode("A") == Ids{65});
  CHECK(bytes->vocab_size() == 256);
  CHECK(user_error([&] { bytes->decode(Ids{256}); }) == "token 256 is not in the vocabulary of 256");
}

TEST_CASE("Llama 3 takes whole words before it merges", "[model][tokenizer]") {
  json document = byte_level({{"h", "e"}, {"he", "y"}});
  document["model"]["vocab"]["abc"] = 300;
  document["model"]["ignore_merges"] = true;
  document["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", kLlama3Regex}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  CHECK(load(document)->encode("abc hey") == Ids{300, ' ', 257});
  CHECK(load(document)->encode("hey") == Ids{257});
  document["model"]["ignore_merges"] = false;
  CHECK(load(document)->encode("abc") == Ids{'a', 'b', 'c'});
}

TEST_CASE("SentencePiece pieces mark spaces and fall back to bytes", "[model][tokenizer]") {
  const auto t = load(sentence_piece());
  const auto id = [&](const char* piece) { return t->id_of(piece).value(); };
  CHECK(t->encode("hello w") == Ids{id(" hello"), id(" w")});
  CHECK(t->decode(t->encode("hello w")) == "hello w");
  CHECK(t->encode(" hello") == Ids{id(" "), id(" hello")});
  // é is C3 A9: no piece, so its bytes 3 + 0xC3 and 3 + 0xA9
  CHECK(t->encode("é") == Ids{id(" "), 3 + 0xC3, 3 + 0xA9});
  CHECK(t->encode("<s>hello</s>") == Ids{1, id(" hello"), 2});
  for (const std::string text : {"hello  world", "東京 😀\n", "a\tb\x01"}) CHECK(t->decode(t->encode(text)) == text);
}

TEST_CASE("Metaspace prepends at the start and splits at spaces", "[model][tokenizer]") {
  json document = sentence_piece();
  document["normalizer"] = nullptr;
  document["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", true}};
  document["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", true}};
  const auto t = load(document);
  const auto id = [&](const char* piece) { return t->id_of(piece).value(); };
  CHECK(t->encode("hello w</s>hello") == Ids{id(" hello"), id(" w"), 2, id("hello")});
  CHECK(t->decode(t->encode("hello w")) == "hello w");
}

TEST_CASE("text without a token becomes the unknown token", "[model][tokenizer]") {
  json document = sentence_piece();
  document["model"]["byte_fallback"] = false;
  CHECK(load(document)->encode("xyz") == Ids{load(document)->id_of(" ").value(), 0});
  document["model"].erase("unk_token");
  CHECK(user_error([&] { load(document)->encode("x"); }) ==
        "the vocabulary has no token for byte 0x78, and none for unknown text");
}

TEST_CASE("added tokens may take the spaces beside them", "[model][tokenizer]") {
  json document = byte_level({});
  document["added_tokens"].push_back({{"id", 300}, {"content", "<mask>"}, {"lstrip", true}, {"rstrip", true}});
  document["added_tokens"].push_back({{"id", 301}, {"content", "<mask>2"}});
  CHECK(load(document)->encode("a  <mask> \n b") == Ids{'a', 300, 'b'});
  CHECK(load(document)->encode("a <mask>2 b") == Ids{'a', ' ', 301, ' ', 'b'});
}

TEST_CASE("a tokenizer that is not supported or corrupt is refused with its reason", "[model][tokenizer][error]") {
  const auto with = [](const std::string& pointer, const json& value) {
    json document = byte_level({{"h", "e"}});
    document[json::json_pointer{pointer}] = value;
    return message(document);
  };
  CHECK(with("/model/type", "Unigram") == "a tokenizer model of type 'Unigram' is not supported");
  CHECK(with("/model/vocab", json::array()) == "the vocabulary must be a map from token to id");
  CHECK(with("/model/vocab/zz", -1) == "a token id must be a whole number from 0 to 16777216, not '-1'");
  CHECK(with("/model/vocab/zz", 1000000000000) ==
        "a token id must be a whole number from 0 to 16777216, not '1000000000000'");
  CHECK(with("/model/vocab/zz", 7) == "token id 7 is given twice");
  CHECK(with("/model/merges", 1) == "the merges must be a list");
  CHECK(with("/model/merges/0", "he") == "a merge must be two tokens");
  CHECK(with("/model/merges/0", "h e y") == "a merge must be two tokens");
  CHECK(with("/model/merges/0", json{"h", "e"}) == "no error");
  CHECK(with("/model/merges/0", "x y") == "the merge uses 'xy', which is not in the vocabulary");
  CHECK(with("/model/unk_token", "<unk>") == "unk_token '<unk>' is not in the vocabulary");
  CHECK(with("/model/end_of_word_suffix", "</w>") == "'end_of_word_suffix' is not supported");
  CHECK(with("/pre_tokenizer/type", "Whitespace") == "the pre-tokenizer 'Whitespace' is not supported");
  CHECK(with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "\\w"}}}}) ==
        "this regular expression is not supported");
  CHECK(with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", kLlama3Regex}}}, {"behavior", "Removed"}}) ==
        "the split must be isolated");
  CHECK(with("/normalizer", {{"type", "Lowercase"}}) == "the normalizer 'Lowercase' is not supported");
  CHECK(with("/normalizer", {{"type", "Prepend"}, {"prepend", "x"}}) == "'prepend' must be '▁', not 'x'");
  CHECK(with("/added_tokens", 1) == "added_tokens must be a list");
  CHECK(with("/added_tokens/0/content", "") == "an added token must have 1 to 256 bytes, not 0");
  CHECK(with("/added_tokens/0/single_word", true) == "added tokens that match whole words only are not supported");
  CHECK(message(json::object()) == "'model' is missing");
  json nfc = byte_level({});
  nfc["normalizer"] = {{"type", "NFC"}};
  CHECK(load(nfc)->notes() ==
        std::vector<std::string>{"text is taken as it is: the normalisation NFC of this tokenizer is not applied"});
}

TEST_CASE("a long word without spaces takes near-linear time", "[model][tokenizer]") {
  // A quadratic merge would need 10^12 steps for a million letters; a heap needs some 2·10^7.
  const auto t = load(byte_level({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}));
  const std::string text(1'000'000, 'a');
  const auto start = std::chrono::steady_clock::now();
  CHECK(t->encode(text).size() == 125'000);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{20});
}
