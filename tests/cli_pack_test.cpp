// SPDX-License-Identifier: Apache-2.0
// `orrery pack`: documents of files or lengths into windows.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

std::string file_with(const std::string& name, const std::string& text) {
  const std::string path = (std::filesystem::temp_directory_path() / ("orrery_pack_" + name)).string();
  std::ofstream{path} << text;
  return path;
}

json packed(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"pack", "--json"});
  const CommandResult r = orrery::testing::orrery(arguments);
  INFO(r.err);
  REQUIRE(r.code == 0);
  return json::parse(r.out);
}

std::string refusal(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "pack");
  const CommandResult r = orrery::testing::orrery(arguments);
  CHECK(r.code == 2);
  return r.err;
}

}  // namespace

TEST_CASE("pack tells what each packer makes of lengths") {
  // 7, 6 and 3 tokens in windows of 5, as packing_test works out.
  const json r = packed({"--lengths", file_with("lengths", "7\n6\n3\n"), "--window", "5", "--packer", "concatenate",
                         "--packer", "best_fit"});
  CHECK(r["documents"] == 3);
  CHECK(r["tokens"] == 16);
  const json& concatenated = r["packers"][0];
  CHECK(concatenated["windows"] == 4);
  CHECK(concatenated["truncations_per_window"] == 0.5);
  CHECK(concatenated["attention"].get<double>() == Approx(0.52));
  CHECK(r["packers"][1]["truncations_per_window"] == 0);
}

TEST_CASE("pack reads texts, of which one a line, and tells likeness by words") {
  const std::string lines = file_with("texts.jsonl", "{\"text\": \"a b\"}\n\n{\"content\": \"c d e\"}\n");
  const json r = packed({lines, "--window", "4"});
  CHECK(r["documents"] == 2);
  CHECK(r["tokens"] == 8);  // bytes
  CHECK(r["packers"].size() == 7);
  const std::string text = file_with("text.txt", "one\ntwo\n\n\nthree\n");
  CHECK(packed({text, "--window", "4"})["documents"] == 1);
  CHECK(packed({text, "--window", "4", "--paragraphs"})["documents"] == 2);
}

TEST_CASE("pack draws lengths") {
  const json r = packed({"--lengths", "{kind: datasculpt_documents}", "--tokens", "2000000", "--window", "16000"});
  CHECK(r["packers"].size() == 6);
  CHECK(r["tokens"] >= 2000000);
  const json fixed =
      packed({"--lengths", "{mean: 100}", "--tokens", "1000", "--window", "200", "--packer", "best_fit"});
  CHECK(fixed["documents"] == 10);
  CHECK(fixed["packers"][0]["windows"] == 5);
  CHECK(fixed["packers"][0]["attention"] == 0.5);
  const CommandResult table = orrery::testing::orrery({"pack", "--lengths", "{mean: 100}", "--tokens", "1000"});
  CHECK_THAT(table.out, Catch::StartsWith("10 documents of 1000 tokens in windows of 4096\n"));
}

TEST_CASE("pack says what is wrong with what it is given") {
  CHECK(refusal({}) == "orrery: there are no documents\n  hint: name files, or give --lengths\n");
  CHECK(refusal({"x", "--lengths", "y"}) == "orrery: --lengths and files exclude each other\n");
  CHECK_THAT(refusal({"--lengths", "/nowhere"}), Catch::Contains("cannot read the lengths in '/nowhere'"));
  CHECK_THAT(refusal({"/nowhere"}), Catch::Contains("cannot read '/nowhere'"));
  CHECK_THAT(refusal({"x", "--packer", "bestfit"}),
             Catch::Contains("unknown packer 'bestfit'; did you mean 'best_fit'?"));
  CHECK(refusal({"--lengths", "{mean: 9}", "--packer", "datasculpt"}) ==
        "orrery: datasculpt needs to know which documents are alike\n  hint: give files in place of --lengths\n");
  CHECK_THAT(refusal({"--lengths", "{main: 9}"}), Catch::Contains("unknown key 'main'"));
  CHECK_THAT(refusal({file_with("wrong.jsonl", "{\"txt\": 1}\n")}),
             Catch::Contains("a line without `text` or `content`"));
  CHECK_THAT(refusal({file_with("empty.txt", " \n")}), Catch::Contains("the files have no documents"));
  CHECK_THAT(refusal({file_with("some.txt", "a"), "--tokens", "5"}), Catch::Contains("--tokens is for lengths"));
  CHECK_THAT(refusal({"--lengths", "{mean: 9}", "--paragraphs"}), Catch::Contains("--paragraphs is for files"));
  CHECK_THAT(refusal({"--lengths", "{mean: 9}", "--tokenizer", "x"}), Catch::Contains("--tokenizer is for files"));
}
