// SPDX-License-Identifier: Apache-2.0
#include "sim/base/table.hpp"

#include <catch2/catch.hpp>
#include <sstream>

using namespace orrery;

namespace {

Table example() {
  Table table{{{"op"}, {"time", Align::Right}, {"note"}}};
  table.add({"mlp.up", "61.4 ms", "a|b"});
  table.add({"sum", "2 \u00B5s", ""});
  return table;
}

}  // namespace

TEST_CASE("columns are as wide as their widest cell and lines have no trailing spaces", "[base][table]") {
  // "2 µs" takes four columns although it has five bytes.
  CHECK(example().text("  ") ==
        "  op         time  note\n"
        "  ------  -------  ----\n"
        "  mlp.up  61.4 ms  a|b\n"
        "  sum        2 \u00B5s\n");
}

TEST_CASE("a table without rows is its head", "[base][table]") {
  CHECK(Table{{{"a"}, {"b"}}}.text() == "a  b\n-  -\n");
}

namespace {

using Lines = std::vector<std::string>;

/// What a cell becomes in a column that wraps, beside a first column that leaves so much of the width of help to it.
Lines wrapped(const std::string& cell, std::size_t left, std::string_view indent = {}) {
  const std::size_t first = kHelpWidth - 2 - left;
  Table table{{{"a"}, {"b", Align::Left, Wrap::Yes}}};
  table.add({std::string(first, 'x'), cell});
  table.add({"next", "row"});
  std::istringstream text{table.text(indent)};
  Lines lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  REQUIRE(lines.size() > 3);
  CHECK(lines.back() == std::string{indent} + "next" + std::string(first - 2, ' ') + "row");
  CHECK(lines[2].substr(indent.size(), first) == std::string(first, 'x'));
  Lines cells;
  for (std::size_t i = 2; i + 1 < lines.size(); ++i) {
    if (i > 2) CHECK(lines[i].substr(0, indent.size() + first) == std::string(indent.size() + first, ' '));
    cells.push_back(lines[i].substr(indent.size() + first + 2));
  }
  return cells;
}

}  // namespace

TEST_CASE("a column that wraps gets what the others leave, and breaks between words", "[base][table]") {
  // 24 columns, of which "\u00FC" is one although it has two bytes.
  const std::string cell = "\u00FCber all the words of it";
  CHECK(wrapped(cell, 24) == Lines{cell});
  CHECK(wrapped(cell, 23) == Lines{"\u00FCber all the words of", "it"});
  CHECK(wrapped(cell, 25, " ") == Lines{cell});
  CHECK(wrapped(cell, 24, " ") == Lines{"\u00FCber all the words of", "it"});
}

TEST_CASE("a cell that wraps goes on behind as many spaces as it begins with", "[base][table]") {
  CHECK(wrapped("  over all the words of it", 21) == Lines{"  over all the words", "  of it"});
}

TEST_CASE("a column that wraps has twenty columns at least, and no word is broken", "[base][table]") {
  CHECK(wrapped("one two three four five six", 1) == Lines{"one two three four", "five six"});
  CHECK(wrapped("a incomprehensiblenesses b", 1) == Lines{"a", "incomprehensiblenesses", "b"});
}
