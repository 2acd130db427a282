// SPDX-License-Identifier: Apache-2.0
#include "sim/base/source_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace orrery {
namespace {

constexpr std::size_t kKeptText = 8u << 20;  // bytes of line texts in all origins of a document
constexpr std::size_t kKeptLine = 400;

std::vector<std::size_t> line_starts(std::string_view text) {
  std::vector<std::size_t> starts{0};
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', end + 1))
    starts.push_back(end + 1);
  return starts;
}

/// The length of the well-formed UTF-8 sequence at the start of a text (Unicode table 3-7); 0 when there is none.
std::size_t utf8_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const auto in = [&](std::size_t i, unsigned low, unsigned high) { return byte(i) >= low && byte(i) <= high; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return in(1, 0x80, 0xBF) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : 0xBF;
    return in(1, low, high) && in(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xF4 ? 0x8F : 0xBF;
    return in(1, low, high) && in(2, 0x80, 0xBF) && in(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

bool is_plain(char c) { return (c >= 0x20 && c < 0x7F) || c == '\n' || c == '\t' || c == '\r'; }

/// The first byte that no text file holds: bad UTF-8 or a control character.
std::optional<std::size_t> first_bad_byte(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    if (is_plain(text[i])) {
      ++i;
      continue;
    }
    const std::size_t length = utf8_length(text.substr(i, 4));
    if (length < 2) return i;
    i += length;
  }
  return {};
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i, 4));
    if (length == 0) return false;
    i += length;
  }
  return true;
}

SourceText::SourceText(std::string_view text, std::string_view file, const ReadLimits& limits)
    : text_{text}, file_{file}, allowance_{kKeptText} {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.size() > limits.bytes)
    throw error(0, 0, fmt::format("the text is {} bytes long, the limit is {}", text.size(), limits.bytes));
  if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  starts_ = line_starts(text_);
  if (const auto bad = first_bad_byte(text_)) {
    const Place at = place(*bad);
    const unsigned byte = static_cast<unsigned char>(text_[*bad]);
    throw error(at.line, at.column, fmt::format("byte 0x{:02x} is not text", byte),
                "files are UTF-8 without control characters");
  }
}

std::string_view SourceText::line(int number) const {
  if (number < 1 || static_cast<std::size_t>(number) > starts_.size()) return {};
  const std::size_t begin = starts_[number - 1];
  const bool last = static_cast<std::size_t>(number) == starts_.size();
  std::string_view line = text_.substr(begin, (last ? text_.size() : starts_[number] - 1) - begin);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string SourceText::kept_line(int number) {
  if (allowance_ == 0) return {};
  const std::string_view kept = line(number);
  if (kept.size() > kKeptLine) return {};
  allowance_ -= std::min(allowance_, kept.size() + 1);
  return std::string{kept};
}

Origin SourceText::origin(int line, int column) { return {file_, line, column, kept_line(line)}; }

SourceText::Place SourceText::place(std::size_t offset) const {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), offset);
  return {static_cast<int>(next - starts_.begin()), static_cast<int>(offset - *(next - 1)) + 1};
}

UserError SourceText::error(int line, int column, std::string message, std::string hint) const {
  return UserError{Diagnostic{std::move(message), std::move(hint), file_, line, column, std::string{this->line(line)}}};
}

}  // namespace orrery
