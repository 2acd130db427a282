// SPDX-License-Identifier: Apache-2.0
#include "sim/model/pretokenize.hpp"

#include "sim/model/unicode.hpp"

namespace orrery {
namespace {

constexpr std::string_view kGpt2Regex = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::size_t kNoLimit = ~std::size_t{0};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Finds the end of the word that starts at a place. Each function is one alternative of the expressions above and
/// returns the place itself when it does not match.
class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_{text} {}

  std::size_t end_gpt2(std::size_t at) const {
    if (const std::size_t end = contraction(at, false); end > at) return end;
    const std::size_t body = text_[at] == ' ' ? at + 1 : at;
    if (body < text_.size() && kind(body) != CharClass::Space) return run(body, kind(body), kNoLimit);
    return spaces(at);
  }

  std::size_t end_llama3(std::size_t at, std::size_t digits) const {
    if (const std::size_t end = contraction(at, true); end > at) return end;
    if (const std::size_t end = letters(at); end > at) return end;
    if (kind(at) == CharClass::Number) return run(at, CharClass::Number, digits);
    const std::size_t body = text_[at] == ' ' ? at + 1 : at;
    if (body < text_.size() && kind(body) == CharClass::Other) return newlines(run(body, CharClass::Other, kNoLimit));
    if (const std::size_t end = lines(at); end > at) return end;
    return spaces(at);
  }

 private:
  CharClass kind(std::size_t at) const {
    const DecodedChar c = decode_utf8(text_, at);
    return c.valid ? class_of(c.code) : CharClass::Other;
  }
  bool is_newline(std::size_t at) const { return text_[at] == '\n' || text_[at] == '\r'; }

  std::size_t run(std::size_t at, CharClass wanted, std::size_t limit) const {
    for (; limit > 0 && at < text_.size() && kind(at) == wanted; --limit) at += decode_utf8(text_, at).length;
    return at;
  }

  std::size_t newlines(std::size_t at) const {
    while (at < text_.size() && is_newline(at)) ++at;
    return at;
  }

  std::size_t contraction(std::size_t at, bool any_case) const {
    if (text_[at] != '\'') return at;
    for (const std::string_view ending : {"s", "t", "re", "ve", "m", "ll", "d"}) {
      const std::string_view there = text_.substr(at + 1, ending.size());
      bool same = there.size() == ending.size();
      for (std::size_t i = 0; same && i < ending.size(); ++i)
        same = (any_case ? lower(there[i]) : there[i]) == ending[i];
      if (same) return at + 1 + ending.size();
    }
    return at;
  }

  /// [^\r\n\p{L}\p{N}]?\p{L}+
  std::size_t letters(std::size_t at) const {
    const CharClass first = kind(at);
    if (first == CharClass::Letter) return run(at, CharClass::Letter, kNoLimit);
    if (first == CharClass::Number || is_newline(at)) return at;
    const std::size_t next = at + decode_utf8(text_, at).length;
    const std::size_t end = run(next, CharClass::Letter, kNoLimit);
    return end > next ? end : at;
  }

  /// \s*[\r\n]+ : up to the last line break of the run of spaces.
  std::size_t lines(std::size_t at) const {
    const std::size_t end = run(at, CharClass::Space, kNoLimit);
    for (std::size_t i = end; i > at; --i)
      if (is_newline(i - 1)) return i;
    return at;
  }

  /// \s+(?!\S)|\s+ : a run of spaces, but its last one belongs to the word behind it.
  std::size_t spaces(std::size_t at) const {
    std::size_t last = at, end = at;
    while (end < text_.size() && kind(end) == CharClass::Space) {
      last = end;
      end += decode_utf8(text_, end).length;
    }
    return end == text_.size() || last == at ? end : last;
  }

  std::string_view text_;
};

std::size_t word_end(SplitRule rule, const Splitter& splitter, std::size_t at, std::size_t size) {
  switch (rule) {
    case SplitRule::Gpt2:
      return splitter.end_gpt2(at);
    case SplitRule::Llama3:
      return splitter.end_llama3(at, 3);
    case SplitRule::Qwen2:
      return splitter.end_llama3(at, 1);
    case SplitRule::Whole:
      break;
  }
  return size;
}

}  // namespace

std::vector<std::string_view> split_words(SplitRule rule, std::string_view text) {
  const Splitter splitter{text};
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = word_end(rule, splitter, at, text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::optional<SplitRule> rule_of_regex(std::string_view regex) {
  if (regex == kGpt2Regex) return SplitRule::Gpt2;
  if (regex == kLlama3Regex) return SplitRule::Llama3;
  if (regex == kQwen2Regex) return SplitRule::Qwen2;
  return std::nullopt;
}

}  // namespace orrery
