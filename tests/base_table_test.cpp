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

TEST_CASE("a Markdown table escapes bars and marks its right columns", "[base][table]") {
  CHECK(example().markdown() ==
        "| op     |    time | note |\n"
        "| ------ | ------: | ---- |\n"
        "| mlp.up | 61.4 ms | a\\|b |\n"
        "| sum    |    2 \u00B5s |      |\n");
}

TEST_CASE("a table without rows is its head", "[base][table]") {
  CHECK(Table{{{"a"}, {"b"}}}.text() == "a  b\n-  -\n");
}
