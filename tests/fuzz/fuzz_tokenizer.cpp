// SPDX-License-Identifier: Apache-2.0
// The input up to its first zero byte as a tokenizer.json, the rest as a text for it; and the whole input as a text for
// the splitting rules and for the byte tokenizer, which must give it back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "sim/model/pretokenize.hpp"
#include "sim/model/tokenizer.hpp"

using namespace orrery;

namespace {

void check_split(SplitRule rule, std::string_view text) {
  const char* at = text.data();
  for (const std::string_view word : split_words(rule, text)) {
    if (word.empty() || word.data() != at) std::abort();
    at += word.size();
  }
  if (at != text.data() + text.size()) std::abort();
}

void check_document(std::string_view json, std::string_view text) {
  try {
    const auto tokenizer =
        tokenizer_from_document(parse_json(json, "tokenizer.json", {.bytes = 1u << 16, .nodes = 10'000}));
    for (const TokenId id : tokenizer->encode(text))
      if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
    tokenizer->decode(tokenizer->encode(text));
  } catch (const UserError& e) {
    if (e.diagnostics().empty()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  for (const SplitRule rule : {SplitRule::Whole, SplitRule::Gpt2, SplitRule::Llama3, SplitRule::Qwen2})
    check_split(rule, input);
  const auto bytes = make_byte_tokenizer();
  if (bytes->decode(bytes->encode(input)) != input) std::abort();
  const std::size_t zero = std::min(input.find('\0'), size);
  check_document(input.substr(0, zero), input.substr(std::min(zero + 1, size)));
  return 0;
}
