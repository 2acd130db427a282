// SPDX-License-Identifier: Apache-2.0
// A strict reader of JSON (RFC 8259) that knows the line and column of each value. nlohmann's reader drops both, and
// the first of two equal keys; hence our own.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "sim/base/source_text.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

void append_utf8(std::string& out, unsigned code) {
  const auto tail = [&](unsigned shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

/// Ends a run of characters of a string that stand for themselves; control characters were refused before.
bool ends_plain_run(char c) { return c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t'; }

class JsonReader {
 public:
  JsonReader(SourceText& source, const ReadLimits& limits) : source_{source}, text_{source.text()}, limits_{limits} {}

  Node document() {
    Node root = value();
    skip_space();
    if (position_ < text_.size()) fail(position_, "something follows the end of the document");
    return root;
  }

 private:
  [[noreturn]] void fail(std::size_t offset, std::string message, std::string hint = {}) const {
    const auto place = source_.place(offset);
    throw source_.error(place.line, place.column, std::move(message), std::move(hint));
  }

  [[noreturn]] void fail_expected(std::string_view what) const {
    if (position_ >= text_.size()) fail(position_, fmt::format("the text ends where {} should stand", what));
    fail(position_, fmt::format("expected {}, got {}", what, in_quotes(word_at(position_))));
  }

  /// The characters at a place that belong together, for messages.
  std::string_view word_at(std::size_t offset) const {
    const std::size_t end = text_.find_first_of(" \t\r\n,:[]{}\"", offset);
    const std::size_t length = end == offset ? 1 : std::min(end, text_.size()) - offset;
    return text_.substr(offset, length);
  }

  char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }

  void skip_space() {
    for (; position_ < text_.size(); ++position_) {
      const char c = text_[position_];
      if (c == '\n') {
        ++line_;
        line_start_ = position_ + 1;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        return;
      }
    }
  }

  bool skip(char c) {
    skip_space();
    if (peek() != c) return false;
    ++position_;
    return true;
  }

  int column() const { return static_cast<int>(position_ - line_start_) + 1; }

  Node make(Node::Kind kind) {
    if (++nodes_ > limits_.nodes) fail(position_, fmt::format("the document has more than {} values", limits_.nodes));
    Node node;
    node.kind = kind;
    node.origin = source_.origin(line_, column());
    return node;
  }

  Node value() {
    skip_space();
    switch (peek()) {
      case '{':
        return map();
      case '[':
        return list();
      case '"': {
        Node node = make(Node::Kind::Scalar);
        node.quoted = true;
        node.scalar = string();
        return node;
      }
      case 't':
        return word("true", Node::Kind::Scalar);
      case 'f':
        return word("false", Node::Kind::Scalar);
      case 'n':
        return word("null", Node::Kind::Null);
      default:
        return number();
    }
  }

  Node word(std::string_view expected, Node::Kind kind) {
    if (word_at(position_) != expected) fail_expected("a value");
    Node node = make(kind);
    if (kind == Node::Kind::Scalar) node.scalar = expected;
    position_ += expected.size();
    return node;
  }

  std::size_t skip_digits() {
    const std::size_t begin = position_;
    while (peek() >= '0' && peek() <= '9') ++position_;
    return position_ - begin;
  }

  /// -? (0 | [1-9][0-9]*) (.[0-9]+)? ([eE][+-]?[0-9]+)?, kept as text.
  Node number() {
    Node node = make(Node::Kind::Scalar);
    const std::size_t begin = position_;
    const auto refuse = [&] {
      position_ = begin;
      fail_expected("a value");
    };
    if (peek() == '-') ++position_;
    const bool zero = peek() == '0';
    const std::size_t digits = skip_digits();
    if (digits == 0 || (zero && digits > 1)) refuse();
    if (peek() == '.') {
      ++position_;
      if (skip_digits() == 0) refuse();
    }
    if (peek() == 'e' || peek() == 'E') {
      ++position_;
      if (peek() == '+' || peek() == '-') ++position_;
      if (skip_digits() == 0) refuse();
    }
    node.scalar = text_.substr(begin, position_ - begin);
    if (word_at(begin) != node.scalar) refuse();
    return node;
  }

  std::string string() {
    const std::size_t begin = position_++;
    std::string out;
    while (true) {
      std::size_t stop = position_;
      while (stop < text_.size() && !ends_plain_run(text_[stop])) ++stop;
      out.append(text_, position_, stop - position_);
      position_ = stop;
      if (stop == text_.size()) fail(begin, "a string without its closing quote");
      if (text_[stop] == '"') break;
      if (text_[stop] != '\\') fail(stop, "a line break or tab inside of a string", "write \\n, \\r or \\t");
      escape(out);
    }
    ++position_;
    return out;
  }

  void escape(std::string& out) {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t begin = position_++;
    const char letter = peek();
    ++position_;
    if (const std::size_t i = kLetters.find(letter); letter != '\0' && i != std::string_view::npos) {
      out += kMeanings[i];
      return;
    }
    if (letter != 'u') fail(begin, "unknown escape in a string", "known are \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
    unsigned code = four_hex_digits(begin);
    if (code >= 0xD800 && code <= 0xDBFF) {
      if (text_.substr(position_, 2) != "\\u") fail(begin, "half of a surrogate pair in a string");
      position_ += 2;
      const unsigned low = four_hex_digits(begin);
      if (low < 0xDC00 || low > 0xDFFF) fail(begin, "half of a surrogate pair in a string");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      fail(begin, "half of a surrogate pair in a string");
    }
    append_utf8(out, code);
  }

  unsigned four_hex_digits(std::size_t begin) {
    unsigned code = 0;
    for (int i = 0; i < 4; ++i, ++position_) {
      const char c = peek();
      const unsigned digit = c >= '0' && c <= '9'   ? c - '0'
                             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                    : 16;
      if (digit == 16) fail(begin, "\\u needs four hexadecimal digits");
      code = code * 16 + digit;
    }
    return code;
  }

  void enter() {
    if (++depth_ > limits_.depth) fail(position_, fmt::format("nested deeper than {} levels", limits_.depth));
    ++position_;
  }

  Node list() {
    Node node = make(Node::Kind::List);
    enter();
    if (!skip(']')) {
      do node.items.push_back(value());
      while (skip(','));
      if (!skip(']')) fail_expected("',' or ']'");
    }
    --depth_;
    return node;
  }

  Node map() {
    Node node = make(Node::Kind::Map);
    enter();
    if (!skip('}')) {
      do field(node);
      while (skip(','));
      if (!skip('}')) fail_expected("',' or '}'");
    }
    refuse_duplicate_keys(node);
    --depth_;
    return node;
  }

  void field(Node& map) {
    skip_space();
    if (peek() != '"') fail_expected("a key between quotes");
    KeyPlace place{line_, column(), {}};
    std::string key = string();
    if (!skip(':')) fail_expected("':'");
    Node& field = map.fields.emplace_back(std::move(key), value()).second;
    if (place.line != field.origin.line) place.text = source_.kept_line(place.line);
    field.key = std::move(place);
  }

  void refuse_duplicate_keys(const Node& map) const {
    std::vector<std::size_t> order(map.fields.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto key = [&](std::size_t i) -> const std::string& { return map.fields[i].first; };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
    const auto twice =
        std::adjacent_find(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) == key(b); });
    if (twice == order.end()) return;
    const KeyPlace& first = map.fields[*twice].second.key;
    const KeyPlace& second = map.fields[*(twice + 1)].second.key;
    throw source_.error(second.line, second.column, fmt::format("duplicate key {}", in_quotes(key(*twice))),
                        fmt::format("it stands on line {} too", first.line));
  }

  SourceText& source_;
  std::string_view text_;
  const ReadLimits& limits_;
  std::size_t position_ = 0, line_start_ = 0, nodes_ = 0, depth_ = 0;
  int line_ = 1;
};

}  // namespace

Node parse_json(std::string_view text, std::string_view file_name, const ReadLimits& limits) {
  SourceText source{text, file_name, limits};
  return JsonReader{source, limits}.document();
}

}  // namespace orrery
