// SPDX-License-Identifier: Apache-2.0
#include "tests/cpp_functions.hpp"

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>
#include <string_view>

namespace orrery::testing {
namespace {

/// Overwrites text[from, to) with blanks, newlines kept.
void blank(std::string& text, std::size_t from, std::size_t to) {
  for (std::size_t i = from; i < std::min(to, text.size()); ++i)
    if (text[i] != '\n') text[i] = ' ';
}

/// End of the literal whose opening quote stands at `begin`.
std::size_t end_of_literal(const std::string& text, std::size_t begin) {
  std::size_t i = begin + 1;
  while (i < text.size() && text[i] != text[begin]) i += text[i] == '\\' ? 2 : 1;
  return i + 1;
}

/// End of the raw string whose opening quote stands at `begin`.
std::size_t end_of_raw_string(const std::string& text, std::size_t begin) {
  const std::size_t open = text.find('(', begin);
  std::string close = ")";
  close.append(text, begin + 1, open - begin - 1).push_back('"');
  const std::size_t end = text.find(close, open);
  return end == std::string::npos ? text.size() : end + close.size();
}

/// End of a directive with its continued lines.
std::size_t end_of_directive(const std::string& text, std::size_t begin) {
  std::size_t end = text.find('\n', begin);
  while (end != std::string::npos && end > 0 && text[end - 1] == '\\') end = text.find('\n', end + 1);
  return std::min(end, text.size());
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// End of the comment, literal or directive that begins at `i`, or `i` when none does.
std::size_t end_of_no_code(const std::string& text, std::size_t i, bool at_line_start) {
  const std::string_view rest = std::string_view{text}.substr(i);
  const char before = i > 0 ? text[i - 1] : ' ';
  if (rest.starts_with("//")) return std::min(text.find('\n', i), text.size());
  if (rest.starts_with("/*")) return std::min(text.find("*/", i), text.size() - 2) + 2;
  if (rest[0] == '"') return before == 'R' ? end_of_raw_string(text, i) : end_of_literal(text, i);
  if (rest[0] == '\'' && !is_word(before)) return end_of_literal(text, i);  // after a digit it separates thousands
  if (rest[0] == '#' && at_line_start) return end_of_directive(text, i);
  return i;
}

/// The source with comments, literals and directives blanked.
std::string code_of(std::string text) {
  bool at_line_start = true;
  for (std::size_t i = 0; i < text.size();) {
    if (const std::size_t end = end_of_no_code(text, i, at_line_start); end > i) {
      blank(text, i, end);
      i = end;
      continue;
    }
    if (text[i] == '\n') at_line_start = true;
    if (text[i] != ' ' && text[i] != '\n') at_line_start = false;
    ++i;
  }
  return text;
}

enum class Brace { Scope, Function, Other };

/// `head` is the code between the end of the statement before and the brace.
Brace classify(std::string head) {
  static const std::regex operators{R"(operator\s*[^\s\w(]+|alignas\([^)]*\))"}, nested{R"(\([^()]*\)|<[^<>()]*>)"};
  static const std::regex scope{R"(\b(namespace|class|struct|union|enum)\b)"};
  if (head.empty() || !std::isspace(static_cast<unsigned char>(head.back()))) return Brace::Other;
  head = std::regex_replace(head, operators, " ");
  const bool has_parameters = head.find('(') != std::string::npos;
  for (std::string before; before != head;) {
    before = head;
    head = std::regex_replace(head, nested, " ");
  }
  if (head.find('=') != std::string::npos) return Brace::Other;
  if (has_parameters) return Brace::Function;
  return std::regex_search(head, scope) ||
                 std::all_of(head.begin(), head.end(), [](char c) { return std::isspace(c) || is_word(c); })
             ? Brace::Scope
             : Brace::Other;
}

bool ends_access_specifier(const std::string& code, std::size_t colon) {
  const std::string_view before = std::string_view{code}.substr(0, colon);
  return code[colon] == ':' &&
         (before.ends_with("public") || before.ends_with("protected") || before.ends_with("private"));
}

std::size_t line_of(const std::string& text, std::size_t at) {
  return 1 + static_cast<std::size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

/// Index of the brace that closes the one at `open`.
std::size_t closing(const std::string& code, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < code.size(); ++i) {
    if (code[i] == '{') ++depth;
    if (code[i] == '}' && --depth == 0) return i;
  }
  return code.size() - 1;
}

}  // namespace

std::vector<Function> functions_of(const std::string& source) {
  const std::string code = code_of(source);
  std::vector<Function> found;
  int parentheses = 0;
  std::size_t head = 0;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    parentheses += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (parentheses == 0 && (c == ';' || c == '}' || ends_access_specifier(code, i))) head = i + 1;
    if (c != '{' || parentheses > 0) continue;
    const Brace kind = classify(code.substr(head, i - head));
    if (kind == Brace::Scope) {
      head = i + 1;
      continue;
    }
    const std::size_t end = closing(code, i);
    if (kind == Brace::Function) {
      const std::size_t begin = code.find_first_not_of(" \n", head);
      found.push_back({line_of(code, begin), line_of(code, end) - line_of(code, begin) + 1});
      head = end + 1;
    }
    i = end;
  }
  return found;
}

std::vector<std::string> shared_types_of(const std::string& source) {
  static const std::regex space{R"re(^(?:inline )?namespace ?([\w:]*) \{$)re"},
      type{R"re(^(?:struct|class|enum class|enum|union)(?: alignas\([^)]*\))? (\w+)(?: final)?(?: :.*)? \{.*$)re"};
  std::vector<std::string> spaces, found;
  std::istringstream in{source};
  for (std::string line; std::getline(in, line);) {
    if (std::smatch match; std::regex_match(line, match, space))
      spaces.push_back(match[1]);
    else if (line.starts_with("}  // ") && line.find("namespace") != std::string::npos && !spaces.empty())
      spaces.pop_back();
    else if (std::regex_match(line, match, type) && std::find(spaces.begin(), spaces.end(), "") == spaces.end()) {
      std::string name;
      for (const std::string& s : spaces) name += s + "::";
      found.push_back(name + match[1].str());
    }
  }
  return found;
}

}  // namespace orrery::testing
