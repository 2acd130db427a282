// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "sim/base/sha256.hpp"
#include "sim/base/yaml.hpp"

using namespace orrery;

namespace {

std::string rewritten(std::string_view yaml) { return to_yaml(parse_yaml(yaml, "f")); }

}  // namespace

TEST_CASE("a document is written in blocks, short lists on one line", "[base][write]") {
  const std::string text =
      "model: ../models/gpt_1b3.json\n"
      "workload:\n"
      "  train:\n"
      "    batch: 32\n"
      "strategy:\n"
      "  - pipeline_1f1b:\n"
      "      stages: 4\n"
      "    order: [0, 1, -2]\n"
      "  - - a\n"
      "    - b: {}\n"
      "  - null\n"
      "empty: []\n";
  // "- - a" holds a map and is no short list, so it stays a block.
  const std::string expected = text;
  CHECK(rewritten("{model: ../models/gpt_1b3.json, workload: {train: {batch: 32}}, strategy: [{pipeline_1f1b: "
                  "{stages: 4}, order: [0, 1, -2]}, [a, {b: {}}], ~], empty: []}") == expected);
  CHECK(rewritten(expected) == expected);
}

TEST_CASE("what a reader would take for something else is written between quotes", "[base][write]") {
  CHECK(rewritten("['no', '12', 'null', '', 'a: b', '- x', '#', 'tab\tx', \"line\\nx\", 'plain', '80 GiB']") ==
        "[\"no\", \"12\", \"null\", \"\", \"a: b\", \"- x\", \"#\", \"tab\\tx\", \"line\\nx\", plain, 80 GiB]\n");
  CHECK(rewritten("[no, 12, -1.5, -.5, true]") == "[no, 12, -1.5, -.5, true]\n");
  CHECK(rewritten("{'a: b': 1, 'null': 2}") == "\"a: b\": 1\n\"null\": 2\n");
}

TEST_CASE("a lone value is a document", "[base][write]") {
  CHECK(rewritten("x") == "x\n");
  CHECK(rewritten("") == "null\n");
}

TEST_CASE("canonical JSON sorts keys and normalises numbers", "[base][write]") {
  CHECK(to_canonical_json(
            parse_yaml("{b: 1.0, a: [1e3, -0, 0.50, 9007199254740993, '12', true, ~, 80 GiB], B: x}", "f")) ==
        "{\"B\":\"x\",\"a\":[1000,0,0.5,9007199254740993,\"12\",true,null,\"80 GiB\"],\"b\":1}");
  CHECK(to_canonical_json(parse_json(R"({"k\u0001\"": "\\\n\r\t"})", "f")) == R"({"k\u0001\"":"\\\n\r\t"})");
}

TEST_CASE("two spellings of one document have one canonical form", "[base][write]") {
  const std::string a = to_canonical_json(parse_yaml("a: 1\nb: [x, 2.50]\n", "f"));
  CHECK(a == to_canonical_json(parse_json(R"({"b": ["x", 2.5], "a": 1})", "g")));
  CHECK(sha256(a).size() == 64);
}

TEST_CASE("SHA-256 gives the digests of FIPS 180", "[base][sha256]") {
  // The examples of the standard: no block, one block, a message of 56 bytes whose padding needs a second block, 10^6
  // 'a'.
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256(std::string(1'000'000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
