// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "sim/base/yaml.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

std::string json_error(std::string_view text, const ReadLimits& limits = {}) {
  return user_error([&] { parse_json(text, "f.json", limits); });
}

}  // namespace

TEST_CASE("JSON keeps numbers as text and strings as quoted text", "[base][json]") {
  const Node root = parse_json(R"({"a": 1e-05, "b": "x", "c": [true, false, null], "d": {}, "e": -0})", "f.json");
  CHECK(root.find("a")->scalar == "1e-05");
  CHECK_FALSE(root.find("a")->quoted);
  CHECK(root.find("b")->quoted);
  CHECK(root.find("c")->items[2].kind == Node::Kind::Null);
  CHECK(root.find("d")->kind == Node::Kind::Map);
  CHECK(root.fields[4].first == "e");
}

TEST_CASE("JSON escapes become UTF-8", "[base][json]") {
  // U+00E9 has two bytes, U+20AC three, U+1F600 (a surrogate pair) four.
  CHECK(parse_json(R"("\u00e9\u20AC\ud83d\ude00\n\t\"\\\/\b\f\r")", "f").scalar ==
        "\u00E9\u20AC\U0001F600\n\t\"\\/\b\f\r");
}

TEST_CASE("JSON values and keys know where they stand", "[base][json]") {
  const Node root = parse_json("{\n  \"a\": 1,\n  \"b\":\n    [2]\n}", "f.json");
  CHECK(to_text(at(*root.find("a"), "wrong")) == "f.json:2:8: wrong\n  \"a\": 1,\n       ^");
  CHECK(to_text(at_key(*root.find("b"), "wrong")) == "f.json:3:3: wrong\n  \"b\":\n  ^");
}

TEST_CASE("what JSON does not have is refused", "[base][json][error]") {
  CHECK(json_error("[1,]") == "f.json:1:4: expected a value, got ']'\n  [1,]\n     ^");
  CHECK(json_error("{'a': 1}") == "f.json:1:2: expected a key between quotes, got ''a''\n  {'a': 1}\n   ^");
  CHECK(json_error("{\"a\" 1}") == "f.json:1:6: expected ':', got '1'\n  {\"a\" 1}\n       ^");
  CHECK(json_error("{\"a\": 1 \"b\"}") == "f.json:1:9: expected ',' or '}', got '\"'\n  {\"a\": 1 \"b\"}\n          ^");
  CHECK(json_error("[1 2]") == "f.json:1:4: expected ',' or ']', got '2'\n  [1 2]\n     ^");
  CHECK(json_error("[1] 2") == "f.json:1:5: something follows the end of the document\n  [1] 2\n      ^");
  CHECK(json_error("") == "f.json:1:1: the text ends where a value should stand");
  for (const std::string word :
       {"NaN", "Infinity", "-Infinity", "01", "1.", ".5", "+1", "1e", "-", "0x1", "tru", "nulll"})
    CHECK(json_error(word) == "f.json:1:1: expected a value, got '" + word + "'\n  " + word + "\n  ^");
}

TEST_CASE("duplicate keys of JSON are refused", "[base][json][error]") {
  CHECK(json_error("{\"a\": 1,\n \"b\": 2,\n \"a\": 3}") ==
        "f.json:3:2: duplicate key 'a'\n  \"a\": 3}\n  ^\n  hint: it stands on line 1 too");
}

TEST_CASE("broken strings of JSON are refused", "[base][json][error]") {
  CHECK(json_error("[\"ab") == "f.json:1:2: a string without its closing quote\n  [\"ab\n   ^");
  CHECK(json_error("\"a\nb\"") ==
        "f.json:1:3: a line break or tab inside of a string\n  \"a\n    ^\n  hint: write \\n, \\r or \\t");
  CHECK(json_error(R"("\x")") ==
        "f.json:1:2: unknown escape in a string\n  \"\\x\"\n   ^\n"
        "  hint: known are \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
  CHECK(json_error(R"("\u12g4")") == "f.json:1:2: \\u needs four hexadecimal digits\n  \"\\u12g4\"\n   ^");
  for (const std::string half : {R"("\ud800")", R"("\ud800\u0041")", R"("\udc00")"})
    CHECK(json_error(half) == "f.json:1:2: half of a surrogate pair in a string\n  " + half + "\n   ^");
}

TEST_CASE("limits of JSON hold", "[base][json][error]") {
  CHECK(json_error("[[[1]]]", {.depth = 2}) == "f.json:1:3: nested deeper than 2 levels\n  [[[1]]]\n    ^");
  CHECK(json_error("[1, 2]", {.nodes = 2}) == "f.json:1:5: the document has more than 2 values\n  [1, 2]\n      ^");
  CHECK_THAT(json_error(std::string(1'000'000, '[')), Catch::StartsWith("f.json:1:65: nested deeper than 64 levels"));
}

TEST_CASE("a vocabulary on one line of megabytes is read in linear time", "[base][json]") {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i)
    text += (i ? ", " : "") + ("\"token" + std::to_string(i)) + "\": " + std::to_string(i);
  CHECK(parse_json(text + "}", "tokenizer.json").fields.size() == 100'000);
}
