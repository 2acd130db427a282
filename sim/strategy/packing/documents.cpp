// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/packing/documents.hpp"

#include <fmt/format.h>

#include <sstream>

#include "sim/base/error.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos; }

void add_text_of_line(const std::string& line, const std::string& place, std::vector<std::string>& out) {
  const Node object = parse_json(line, place);
  for (const char* key : {"text", "content"}) {
    const Node* text = object.kind == Node::Kind::Map ? object.find(key) : nullptr;
    if (text == nullptr) continue;
    if (text->kind != Node::Kind::Scalar) throw UserError{at(*text, fmt::format("`{}` is no text", key))};
    if (!is_blank(text->scalar)) out.push_back(text->scalar);
    return;
  }
  throw UserError{at(object, "a line without `text` or `content`", "give one object a line, with the text in `text`")};
}

}  // namespace

std::vector<std::string> documents_of(std::string_view text, DocumentUnit unit) {
  if (unit == DocumentUnit::File)
    return is_blank(text) ? std::vector<std::string>{} : std::vector<std::string>{std::string{text}};
  std::vector<std::string> out;
  std::string paragraph;
  std::istringstream lines{std::string{text}};
  const auto end = [&] {
    if (!paragraph.empty()) out.push_back(std::move(paragraph));
    paragraph.clear();
  };
  for (std::string line; std::getline(lines, line);)
    if (is_blank(line))
      end();
    else
      paragraph += line + "\n";
  end();
  return out;
}

std::vector<std::string> read_documents(const std::string& path, DocumentUnit unit) {
  const std::string text = read_file(path);
  if (!path.ends_with(".jsonl")) return documents_of(text, unit);
  std::vector<std::string> out;
  std::istringstream lines{text};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!is_blank(line)) add_text_of_line(line, fmt::format("{}, line {}", path, number), out);
  }
  return out;
}

}  // namespace orrery
