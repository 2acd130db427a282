// SPDX-License-Identifier: Apache-2.0
#include "sim/base/error.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/base/ids.hpp"

using namespace orrery;

TEST_CASE("a diagnostic prints place, message, source line, caret and hint", "[base][error]") {
  // The caret stands below column 11; the line loses its indentation of two, so it stands 8 columns into the excerpt.
  const Diagnostic d{
      "7 pipeline stages do not divide 32 layers", "use 1, 2, 4, 8, 16 or 32", "s.yaml", 14, 11, "  stages: 7"};
  CHECK(to_text(d) ==
        "s.yaml:14:11: 7 pipeline stages do not divide 32 layers\n"
        "  stages: 7\n"
        "          ^\n"
        "  hint: use 1, 2, 4, 8, 16 or 32");
}

TEST_CASE("a diagnostic leaves out what it does not know", "[base][error]") {
  CHECK(to_text({.message = "no ranks"}) == "no ranks");
  CHECK(to_text({.message = "no ranks", .hint = "add one", .file = "--set"}) == "--set: no ranks\n  hint: add one");
  CHECK(to_text({.message = "no ranks", .file = "a", .line = 3, .source = "x: 1"}) == "a:3: no ranks\n  x: 1");
}

TEST_CASE("the excerpt of a long line is cut around the column", "[base][error]") {
  // 110 columns are shown; position 499 is preceded by half of them, so the excerpt starts at 444 and the caret stands
  // behind the three dots and 55 characters.
  std::string line(1000, 'a');
  line[499] = 'X';
  const std::string excerpt = "..." + std::string(55, 'a') + "X" + std::string(54, 'a') + "...";
  CHECK(to_text({.message = "m", .file = "f", .line = 1, .column = 500, .source = line}) ==
        "f:1:500: m\n  " + excerpt + "\n  " + std::string(58, ' ') + "^");
}

TEST_CASE("the caret counts code points, not bytes", "[base][error]") {
  CHECK(to_text({.message = "m", .file = "f", .line = 1, .column = 5, .source = "\u00E9\u00E9x"}) ==
        "f:1:5: m\n  \u00E9\u00E9x\n    ^");
}

TEST_CASE("control characters of the input never reach the terminal", "[base][error]") {
  CHECK(to_text({.message = "m", .file = "f", .line = 1, .column = 1, .source = "a\x1b[31m"}) ==
        "f:1:1: m\n  a [31m\n  ^");
  CHECK(in_quotes("a\nb\x1b") == "'a\\x0ab\\x1b'");
}

TEST_CASE("a long text is quoted with its middle cut out", "[base][error]") {
  CHECK(in_quotes(std::string(80, 'a')) == "'" + std::string(80, 'a') + "'");
  CHECK(in_quotes(std::string(81, 'a')) == "'" + std::string(40, 'a') + "..." + std::string(20, 'a') + "'");
}

TEST_CASE("a user error joins all its problems", "[base][error]") {
  const UserError e{std::vector<Diagnostic>{{.message = "first"}, {.message = "second", .hint = "third"}}};
  CHECK(std::string{e.what()} == "first\nsecond\n  hint: third");
  CHECK(e.diagnostics().size() == 2);
}

TEST_CASE("of many problems the text tells the first ten", "[base][error]") {
  const auto lines = [](std::size_t problems) {
    const std::string text = UserError{std::vector<Diagnostic>(problems, {.message = "wrong"})}.what();
    return std::pair{std::count(text.begin(), text.end(), '\n') + 1, text.substr(text.rfind('\n') + 1)};
  };
  CHECK(lines(11) == std::pair<std::ptrdiff_t, std::string>{11, "wrong"});
  CHECK(lines(12) == std::pair<std::ptrdiff_t, std::string>{11, "and 2 more problems"});
}

TEST_CASE("problems are put in the order of the file", "[base][error]") {
  const auto sorted = in_file_order({{.message = "c", .line = 2, .column = 1},
                                     {.message = "b", .line = 1, .column = 7},
                                     {.message = "a", .line = 1, .column = 2}});
  CHECK(sorted[0].message + sorted[1].message + sorted[2].message == "abc");
}

TEST_CASE("an unknown name lists the known ones and proposes the nearest", "[base][error]") {
  const std::vector<std::string> known{"data_parallel", "pipeline_1f1b", "tensor_parallel"};
  CHECK(std::string{unknown_name("strategy", "tensorparallel", known).what()} ==
        "unknown strategy 'tensorparallel'; did you mean 'tensor_parallel'? "
        "known strategies: data_parallel, pipeline_1f1b, tensor_parallel");
  CHECK(std::string{unknown_name("key", "x", known).what()} ==
        "unknown key 'x'; known keys: data_parallel, pipeline_1f1b, tensor_parallel");
  CHECK(name_hint("type of weights", "x", {"fp8"}) == "known types of weights: fp8");
  CHECK(std::string{unknown_name("class", "x", {}).what()} == "unknown class 'x'; there are no classes");
}

TEST_CASE("a name is near when at most a third of it differs", "[base][error]") {
  CHECK(nearest_name("stage", {"stages", "states"}) == "stages");              // distances 1 and 2
  CHECK(nearest_name("Data-Parallel", {"data_parallel"}) == "data_parallel");  // case and dashes do not count
  CHECK(nearest_name("abcdef", {"abcxyz"}).empty());                           // 3 of 6 differ
  CHECK(nearest_name("abcdef", {"abcdxy"}) == "abcdxy");                       // 2 of 6
  // Part of a name, however it is joined; of several the shortest.
  CHECK(nearest_name("H100", {"dgx_a100", "dgx_h100_x8", "dgx_h100"}) == "dgx_h100");
  CHECK(nearest_name("llama3", {"llama-2-7b", "llama-3-70b", "llama-3-8b"}) == "llama-3-8b");
  CHECK(nearest_name("vt", {"svt_large"}).empty());                             // two letters say nothing
  CHECK(nearest_name(std::string(101, 'a'), {std::string(101, 'a')}).empty());  // too long to be a name
}

TEST_CASE("a missing library is a device error of its own kind", "[base][error]") {
  const MissingError e{"built without CUDA"};
  CHECK(std::string{static_cast<const DeviceError&>(e).what()} == "built without CUDA");
}

TEST_CASE("equal names have equal ids, and views of names stay valid while names are added", "[base][ids]") {
  Names names;
  const NameId first = names.intern("mlp.up");
  const std::string_view view = names[first];
  for (int i = 0; i < 1000; ++i) names.intern(std::to_string(i));
  CHECK(names.intern("mlp.up") == first);
  CHECK(view == "mlp.up");
  CHECK(names.size() == 1001);
  CHECK(NameId{}.is_none());
}

TEST_CASE("copies of names share what there is, and go on each on its own", "[base][ids]") {
  Names names;
  CHECK(names.intern("").index() == 0);
  for (int i = 0; i < 100; ++i) names.intern("first " + std::to_string(i));
  Names copy = names;
  CHECK(copy[NameId{1}].data() == names[NameId{1}].data());
  const NameId theirs = names.intern("theirs"), own = copy.intern("its own");
  CHECK(theirs == own);
  CHECK(names[theirs] == "theirs");
  CHECK(copy[own] == "its own");
  CHECK(copy.intern("theirs").index() == 102);
  CHECK(copy.intern("first 7") == names.intern("first 7"));
  const std::string longest(1 << 20, 'x');
  CHECK(copy[copy.intern(longest)] == longest);

  Names moved = std::move(names);
  CHECK(moved.intern("theirs") == theirs);
  names = copy;  // what was moved from can be used again
  CHECK(names.intern(longest).index() == 103);
  copy = Names{};
  CHECK(copy.size() == 0);
  CHECK(copy.intern("first 7").index() == 0);
  CHECK(names[own] == "its own");  // whoever stored it first is gone
}
