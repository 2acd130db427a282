// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace orrery {

/// How a text is cut into words before their pairs are merged. Each rule is the regular expression of a published
/// tokenizer, written by hand: it needs Unicode classes and one look ahead, and must take linear time on any input.
enum class SplitRule : std::uint8_t {
  Whole,   // one word
  Gpt2,    // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  Llama3,  // (?i:'s|…)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  Qwen2    // Llama3's with single numbers
};

/// The words of a text, in order; together they are the text.
std::vector<std::string_view> split_words(SplitRule rule, std::string_view text);

/// The rule whose regular expression this is.
std::optional<SplitRule> rule_of_regex(std::string_view regex);

}  // namespace orrery
