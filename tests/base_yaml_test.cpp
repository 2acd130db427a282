// SPDX-License-Identifier: Apache-2.0
#include "sim/base/yaml.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/user_error.hpp"

using namespace orrery;

namespace {

std::string yaml_error(std::string_view text, const ReadLimits& limits = {}) {
  return user_error([&] { parse_yaml(text, "f.yaml", limits); });
}

}  // namespace

TEST_CASE("scalars stay text and remember their quotes", "[base][yaml]") {
  const Node root = parse_yaml("a: no\nb: \"12\"\nc: 12\nd: ~\ne:\nf: |\n  two\n  lines\n", "f.yaml");
  CHECK(root.find("a")->scalar == "no");
  CHECK_FALSE(root.find("a")->quoted);
  CHECK(root.find("b")->quoted);
  CHECK_FALSE(root.find("c")->quoted);
  CHECK(root.find("d")->kind == Node::Kind::Null);
  CHECK(root.find("e")->kind == Node::Kind::Null);
  CHECK(root.find("f")->scalar == "two\nlines\n");
  CHECK(root.find("g") == nullptr);
}

TEST_CASE("values and keys know where they stand", "[base][yaml]") {
  const Node root = parse_yaml("a: 1\nlist:\n  - x\n  - {y: z}\n", "f.yaml");
  const Node& list = *root.find("list");
  CHECK(list.key.line == 2);
  CHECK(list.key.text == "list:");
  const Node& z = *list.items[1].find("y");
  CHECK(to_text(at(z, "wrong")) == "f.yaml:4:9: wrong\n  - {y: z}\n        ^");
  CHECK(to_text(at_key(z, "wrong")) == "f.yaml:4:6: wrong\n  - {y: z}\n     ^");
  CHECK(to_text(at_key(list, "wrong")) == "f.yaml:2:1: wrong\n  list:\n  ^");
  CHECK(to_text(at_key(list.items[0], "wrong")) == "f.yaml:3:5: wrong\n  - x\n    ^");  // an item has no key
}

TEST_CASE("an empty file is a null", "[base][yaml]") {
  CHECK(parse_yaml("", "f.yaml").kind == Node::Kind::Null);
  CHECK(parse_yaml("# only a comment\n", "f.yaml").kind == Node::Kind::Null);
  CHECK(to_text(at(parse_yaml("", "f.yaml"), "wrong")) == "f.yaml:1:1: wrong");
}

TEST_CASE("JSON is YAML", "[base][yaml]") {
  CHECK(to_flow_yaml(parse_yaml("{\"a\": [1, 2.5, true, null, \"x\"]}", "f")) == "{a: [1, 2.5, true, null, x]}");
}

TEST_CASE("a byte order mark and Windows line ends are accepted", "[base][yaml]") {
  CHECK(to_flow_yaml(parse_yaml("\xEF\xBB\xBF"
                                "a: 1\r\nb: 2\r\n",
                                "f")) == "{a: 1, b: 2}");
}

TEST_CASE("an alias is a copy", "[base][yaml]") {
  CHECK(to_flow_yaml(parse_yaml("a: &x {b: 1}\nc: *x\n", "f")) == "{a: {b: 1}, c: {b: 1}}");
}

TEST_CASE("duplicate keys are refused", "[base][yaml][error]") {
  CHECK(yaml_error("a: 1\nb: 2\na: 3\n") ==
        "f.yaml:3:1: duplicate key 'a'\n  a: 3\n  ^\n  hint: it stands on line 1 too");
}

TEST_CASE("tags are refused", "[base][yaml][error]") {
  CHECK(yaml_error("a: !!str 3") ==
        "f.yaml:1:4: the tag 'tag:yaml.org,2002:str' is not supported\n  a: !!str 3\n     ^\n"
        "  hint: the place of a value decides its type");
}

TEST_CASE("keys are texts", "[base][yaml][error]") {
  for (const std::string key : {"[x]", "{x: y}", "~"})
    CHECK(yaml_error("? " + key + "\n: b\n") ==
          "f.yaml:1:3: a key must be a text\n  ? " + key +
              "\n    ^\n  hint: put it between quotes; every bracket must be closed");
}

TEST_CASE("a file holds one document", "[base][yaml][error]") {
  CHECK(yaml_error("a: 1\n---\nb: 2\n") ==
        "f.yaml:2:1: a second document starts here\n  ---\n  ^\n  hint: one file holds one document");
}

TEST_CASE("syntax errors carry the words of the parser", "[base][yaml][error]") {
  CHECK(yaml_error("a: [1, 2") == "f.yaml:1:1: end of sequence flow not found\n  a: [1, 2\n  ^");
  CHECK(yaml_error("a: *x") == "f.yaml:1:4: the referenced anchor is not defined\n  a: *x\n     ^");
}

TEST_CASE("cyclic aliases are refused", "[base][yaml][error]") {
  CHECK(yaml_error("a: &x [*x]") ==
        "f.yaml:1:8: an alias stands inside of what it refers to\n  a: &x [*x]\n         ^\n"
        "  hint: a document is a tree");
}

TEST_CASE("aliases count with all that they copy", "[base][yaml][error]") {
  // Each level doubles: 30 of them would be 2^30 values.
  std::string bomb = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 30; ++i) bomb += fmt::format("a{0}: &a{0} [*a{1}, *a{1}]\n", i, i - 1);
  CHECK_THAT(yaml_error(bomb, {.nodes = 1000}), Catch::Contains("the document has more than 1000 values"));
  CHECK(yaml_error("a: &x xxxxxxxxxxxxxxxxxxxx\nb: [*x, *x, *x, *x, *x]\n", {.bytes = 100}) ==
        "f.yaml:2:5: aliases copy more than 100 bytes\n  b: [*x, *x, *x, *x, *x]\n      ^");
}

TEST_CASE("aliases cannot nest deeper than the limit", "[base][yaml][error]") {
  // a is 3 deep below its field, so *a at level 2 reaches level 5.
  CHECK(yaml_error("a: &a [[[x]]]\nb: [*a]\n", {.depth = 4}) ==
        "f.yaml:2:5: nested deeper than 4 levels\n  b: [*a]\n      ^");
}

TEST_CASE("limits of depth, size and number hold", "[base][yaml][error]") {
  CHECK(yaml_error("[[[1]]]", {.depth = 2}) == "f.yaml:1:3: nested deeper than 2 levels\n  [[[1]]]\n    ^");
  CHECK(yaml_error("[1, 2]", {.nodes = 2}) == "f.yaml:1:5: the document has more than 2 values\n  [1, 2]\n      ^");
  CHECK(yaml_error("a: 12345", {.bytes = 7}) == "f.yaml: the text is 8 bytes long, the limit is 7");
  CHECK_THAT(yaml_error(std::string(100000, '[') + std::string(100000, ']')),
             Catch::StartsWith("f.yaml:1:"));  // neither a crash nor a long wait
}

TEST_CASE("a file is UTF-8 without control characters", "[base][yaml][error]") {
  const std::string hint = "\n  hint: files are UTF-8 without control characters";
  CHECK(yaml_error(std::string{"a: \0b", 5}) == "f.yaml:1:4: byte 0x00 is not text\n  a:  b\n     ^" + hint);
  // Over-long, surrogate, past U+10FFFF, stray continuation, truncated (Unicode table 3-7).
  for (const std::string bad : {"\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xE2\x82"})
    CHECK_THAT(yaml_error("\n" + bad), Catch::StartsWith("f.yaml:2:1: byte 0x") && Catch::EndsWith(hint));
  CHECK(parse_yaml("\u20AC\U0001F600\u00E9", "f").scalar == "\u20AC\U0001F600\u00E9");
}

TEST_CASE("the escapes that the parser turns into Latin-1 are refused", "[base][yaml][error]") {
  CHECK(parse_yaml(R"("\u0085\u00a0\xe9")", "f").scalar == "\u0085\u00A0\u00E9");
  for (const std::string escape : {R"("\N")", R"("\_")"})
    CHECK(yaml_error("a: " + escape) == "f.yaml:1:4: the escapes \\N and \\_ are not supported\n  a: " + escape +
                                            "\n     ^\n  hint: write \\u0085 or \\u00a0");
}
