// SPDX-License-Identifier: Apache-2.0
#include "sim/base/table.hpp"

#include <catch2/catch.hpp>

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

TEST_CASE("lines are wrapped between words", "[base][table]") {
  // "über" takes four columns although it has five bytes; a word that is too long stands alone.
  CHECK(wrapped("\u00FCber all", 8) == std::vector<std::string>{"\u00FCber all"});
  CHECK(wrapped("one two three", 7) == std::vector<std::string>{"one two", "three"});
  CHECK(wrapped("a incomprehensible b", 6) == std::vector<std::string>{"a", "incomprehensible", "b"});
}
