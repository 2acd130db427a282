// SPDX-License-Identifier: Apache-2.0
// The rules of the tree: who may include whom, sizes, and lists that must agree with the folders they describe.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "sim/strategy/strategy.hpp"
#include "tests/cpp_functions.hpp"

namespace {

namespace fs = std::filesystem;
using orrery::testing::Function;
using orrery::testing::functions_of;
using orrery::testing::shared_types_of;

constexpr std::size_t kMaxFileLines = 400, kMaxFunctionLines = 60, kMaxPageLines = 60;

/// A folder and the folders that it may include besides itself. "*" is all.
struct Folder {
  std::string path;
  std::set<std::string> may_include;
};

const std::vector<Folder>& folders() {
  static const std::vector<Folder> table = {
      {"kernels", {}},
      {"sim/base", {}},
      {"sim/model", {"sim/base"}},
      {"sim/plan", {"sim/base", "sim/model"}},
      {"sim/strategy", {"sim/base", "sim/model", "sim/plan"}},
      {"sim/program", {"sim/base", "sim/model", "sim/plan", "sim/strategy"}},
      {"sim/machine", {"sim/base", "sim/plan"}},
      {"sim/timeline", {"sim/base", "sim/model", "sim/plan"}},
      {"sim/engine", {"sim/base", "sim/plan", "sim/machine", "sim/timeline"}},
      {"sim/search",
       {"sim/base", "sim/model", "sim/plan", "sim/strategy", "sim/program", "sim/machine", "sim/timeline", "sim/engine",
        "hw_models"}},
      {"hw_models", {"sim/base", "sim/plan", "sim/machine"}},
      {"runtime", {"sim/base", "sim/plan", "sim/timeline", "kernels"}},
      {"calibrate", {"sim/base", "sim/plan", "sim/machine", "sim/timeline", "hw_models", "runtime"}},
      {"gui/core", {"sim/base", "sim/plan", "sim/timeline"}},
      {"gui/window", {"gui/core", "sim/base", "sim/plan", "sim/timeline"}},
      {"sim/app", {"*"}},
      {"tests", {"*"}},
      {"scenarios", {}},
  };
  return table;
}

/// What a strategy brings besides its line in the registry. Absent from this table: source, scenario folder and test
/// carry its name (sim/strategy/x.cpp, scenarios/x/, tests/x_test.cpp).
struct StrategyFiles {
  std::string name, source, scenario, test;
};

/// Strategies whose source or test is not called like them. Presets share a header with their family and a test that
/// takes them from the registry; where one stands is found by its name.
const std::vector<StrategyFiles>& named_otherwise() {
  static const std::vector<StrategyFiles> table = {
      {"single", "single_device", "single", "parity"},
      {"zero-offload", "offload/zero_offload", "zero-offload", "zero_offload"},
      {"cached-embedding", "offload/cached_embedding", "cached-embedding", "cached_embedding"},
      {"zero-infinity", "offload/zero_infinity", "zero-infinity", "zero_infinity"},
      {"patrickstar", "offload/patrickstar", "patrickstar", "patrickstar"},
      {"gemini", "offload/gemini", "gemini", "gemini"},
      {"memo", "offload/memo", "memo", "memo_swap"},
      {"elixir-v1", "offload/elixir_v1", "elixir-v1", "elixir_v1"},
      {"elixir", "offload/elixir", "elixir", "elixir"},
      {"angel-ptm", "offload/angel_ptm", "angel-ptm", "angel_ptm"},
      {"activation-offload", "offload/activation_offload", "activation-offload", "activation_offload"},
  };
  return table;
}

const fs::path& root() {
  static const fs::path path{ORRERY_SOURCE_DIR};
  return path;
}

std::string read(const fs::path& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

bool is_source(const fs::path& path) {
  static const std::set<std::string> suffixes = {".cpp", ".hpp", ".cu", ".cuh"};
  return suffixes.contains(path.extension().string());
}

bool is_script(const fs::path& path) {
  const std::string name = path.filename().string();
  return name == "bootstrap" || name == "run" || name == "CMakeLists.txt" || path.extension() == ".sh" ||
         path.extension() == ".cmake";
}

/// Files of the repository relative to its root, sorted; without what git ignores.
std::vector<fs::path> files() {
  static const std::set<std::string> skipped = {".git", "build", "runs"};
  std::vector<fs::path> found;
  for (auto it = fs::recursive_directory_iterator{root()}; it != fs::recursive_directory_iterator{}; ++it) {
    if (it->is_directory() &&
        (skipped.contains(it->path().filename().string()) || it->path().extension() == ".orrery-run"))
      it.disable_recursion_pending();
    else if (it->is_regular_file())
      found.push_back(it->path().lexically_relative(root()));
  }
  std::sort(found.begin(), found.end());
  return found;
}

template <class Predicate>
std::vector<fs::path> files_that(Predicate&& is_wanted) {
  std::vector<fs::path> found = files();
  std::erase_if(found, [&](const fs::path& path) { return !is_wanted(path); });
  return found;
}

/// The folder of the table that a file lies in: the longest that fits.
const Folder* folder_of(const fs::path& file) {
  const Folder* best = nullptr;
  for (const Folder& folder : folders())
    if (file.generic_string().starts_with(folder.path + "/") &&
        (best == nullptr || folder.path.size() > best->path.size()))
      best = &folder;
  return best;
}

std::vector<std::string> quoted_includes(const fs::path& file) {
  static const std::regex pattern{R"re(^\s*#\s*include\s*"([^"]+)")re"};
  std::vector<std::string> found;
  for (const std::string& line : lines_of(read(root() / file)))
    if (std::smatch match; std::regex_search(line, match, pattern)) found.push_back(match[1]);
  return found;
}

/// All complaints in one text, so that one run shows everything there is to do.
using Complaints = std::vector<std::string>;

std::string joined(const Complaints& complaints) {
  std::string text;
  for (const std::string& complaint : complaints) text += "\n  " + complaint;
  return text;
}

void check_none(const Complaints& complaints) {
  INFO(joined(complaints));
  CHECK(complaints.empty());
}

std::optional<std::string> include_complaint(const fs::path& file, const Folder& from, const std::string& include) {
  const std::string what = file.generic_string() + " includes \"" + include + "\"";
  if (from.path == "tests" && fs::exists(root() / "tests" / include)) return {};
  if (!fs::exists(root() / include)) return what + ", which is not a path from the root of the repository";
  const Folder* to = folder_of(include);
  if (to == nullptr) return what + ", outside the folders of the include table";
  if (to->path == from.path || from.may_include.contains(to->path) || from.may_include.contains("*")) return {};
  return what + "; " + from.path + " may not include " + to->path;
}

TEST_CASE("every source lies in a folder of the include table and includes only what that folder may") {
  Complaints complaints;
  for (const fs::path& file : files_that(is_source)) {
    const Folder* from = folder_of(file);
    if (from == nullptr) {
      complaints.push_back(file.generic_string() + " lies outside the folders of the include table");
      continue;
    }
    for (const std::string& include : quoted_includes(file))
      if (auto complaint = include_complaint(file, *from, include)) complaints.push_back(*complaint);
  }
  check_none(complaints);
}

TEST_CASE("types that others see are told from those in unnamed namespaces") {
  const std::string source = R"(namespace a {
struct Forward;
class One final : public Base {
};
namespace {
struct Hidden {
};
}  // namespace
namespace b::c {
enum class Two : std::uint8_t { X };
}  // namespace b::c
struct alignas(8) Three {
};
struct Three<int> {
};
}  // namespace a
)";
  CHECK(shared_types_of(source) == std::vector<std::string>{"a::One", "a::b::c::Two", "a::Three"});
}

TEST_CASE("no two types have one name: what the linker then joins need not be alike") {
  std::map<std::string, std::string> seen;
  Complaints complaints;
  for (const fs::path& file : files_that(is_source)) {
    if (file.generic_string().starts_with("tests/")) continue;
    for (const std::string& name : shared_types_of(read(root() / file)))
      if (const auto [at, fresh] = seen.try_emplace(name, file.generic_string()); !fresh)
        complaints.push_back(name + " is in " + at->second + " and in " + file.generic_string());
  }
  CHECK(seen.size() > 100);
  check_none(complaints);
}

TEST_CASE("no source has more than 400 lines") {
  Complaints complaints;
  for (const fs::path& file : files_that(is_source))
    if (const std::size_t n = lines_of(read(root() / file)).size(); n > kMaxFileLines)
      complaints.push_back(file.generic_string() + ": " + std::to_string(n) + " lines");
  check_none(complaints);
}

TEST_CASE("a function reaches from its first line to its closing brace") {
  const std::string source =
      "#define OPEN {\n"                                          //  1
      "namespace a {\n"                                           //  2
      "const std::map<int, int> kTable = {\n"                     //  3
      "    {1, 2}};\n"                                            //  4
      "struct alignas(8) S : Base<int> {\n"                       //  5
      " public:\n"                                                //  6
      "  explicit S(int x)\n"                                     //  7
      "      : x_{x}, y_{\"{\"} {\n"                              //  8
      "    if (x > 1'000) call([&](int) { y_; });\n"              //  9
      "  }\n"                                                     // 10
      "  bool operator==(const S&) const { return '{' == 0; }\n"  // 11
      "  int x_{3};  // {\n"                                      // 12
      "};\n"                                                      // 13
      "template <class T = int>\n"                                // 14
      "auto f(T t = {}) -> std::vector<T> {\n"                    // 15
      "  return {t};\n"                                           // 16
      "}\n"                                                       // 17
      "}  // namespace a\n";
  const std::vector<Function> found = functions_of(source);
  REQUIRE(found.size() == 3);
  CHECK((found[0].line == 7 && found[0].lines == 4));
  CHECK((found[1].line == 11 && found[1].lines == 1));
  CHECK((found[2].line == 14 && found[2].lines == 4));
}

TEST_CASE("no function has more than 60 lines, and nine of ten have at most 25") {
  Complaints complaints;
  std::vector<std::size_t> lengths;
  for (const fs::path& file : files_that(is_source)) {
    for (const Function& function : functions_of(read(root() / file))) {
      if (!file.generic_string().starts_with("tests/")) lengths.push_back(function.lines);
      if (function.lines > kMaxFunctionLines)
        complaints.push_back(file.generic_string() + ":" + std::to_string(function.line) + ": " +
                             std::to_string(function.lines) + " lines");
    }
  }
  check_none(complaints);
  REQUIRE(lengths.size() > 100);
  std::sort(lengths.begin(), lengths.end());
  const std::size_t p90 = lengths[lengths.size() * 9 / 10];
  WARN(lengths.size() << " functions outside tests: median " << lengths[lengths.size() / 2]
                      << " lines, 90th percentile " << p90 << ", longest " << lengths.back());
  CHECK(p90 <= 25);
}

TEST_CASE("every source is listed in the CMakeLists.txt of its folder") {
  Complaints complaints;
  for (const fs::path& file :
       files_that([](const fs::path& path) { return path.extension() == ".cpp" || path.extension() == ".cu"; })) {
    fs::path folder = file.parent_path();
    while (!folder.empty() && !fs::exists(root() / folder / "CMakeLists.txt")) folder = folder.parent_path();
    const std::string list = folder.empty() ? "" : read(root() / folder / "CMakeLists.txt");
    const std::string name = file.lexically_relative(folder).generic_string();
    // A function of the list may add the suffix: orrery_fuzz(fuzz_json …).
    const std::string stem = name.substr(0, name.size() - file.extension().string().size());
    const std::regex pattern{"(^|[\\s(])" + stem + "(\\" + file.extension().string() + ")?($|[\\s)])"};
    if (!std::regex_search(list, pattern))
      complaints.push_back(file.generic_string() + " is not in " + (folder / "CMakeLists.txt").generic_string());
  }
  check_none(complaints);
}

TEST_CASE("every source and script names its licence in the first lines") {
  Complaints complaints;
  for (const fs::path& file : files_that([](const fs::path& path) { return is_source(path) || is_script(path); })) {
    const std::vector<std::string> lines = lines_of(read(root() / file));
    const std::size_t first = !lines.empty() && lines[0].starts_with("#!") ? 1 : 0;
    if (lines.size() <= first || lines[first].find("SPDX-License-Identifier: Apache-2.0") == std::string::npos)
      complaints.push_back(file.generic_string() + " does not begin with the SPDX line");
  }
  check_none(complaints);
}

TEST_CASE("nothing is left to do in a source, script or page") {
  // Spelled in two halves, so that this file does not find itself.
  const std::regex pattern{std::string{"\\b(TO"} + "DO|FIX" + "ME|X" + "XX)\\b"};
  Complaints complaints;
  for (const fs::path& file : files_that(
           [](const fs::path& path) { return is_source(path) || is_script(path) || path.extension() == ".md"; })) {
    const std::vector<std::string> lines = lines_of(read(root() / file));
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (std::regex_search(lines[i], pattern))
        complaints.push_back(file.generic_string() + ":" + std::to_string(i + 1) + ": " + lines[i]);
  }
  check_none(complaints);
}

TEST_CASE("no file refers to a place outside the repository") {
  const std::vector<std::string> places = {std::string{"../"} + "shared", std::string{"/wo"} + "rk/",
                                           std::string{".lib"} + "rary"};
  Complaints complaints;
  for (const fs::path& file : files()) {
    const std::vector<std::string> lines = lines_of(read(root() / file));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      // CI looks for the tables of published measurements beside the repository, unless told where they are.
      if (file == ".ci/run" && lines[i].find("ORRERY_TABLES:-") != std::string::npos) continue;
      for (const std::string& place : places)
        if (lines[i].find(place) != std::string::npos)
          complaints.push_back(file.generic_string() + ":" + std::to_string(i + 1) + " mentions " + place);
    }
  }
  check_none(complaints);
}

TEST_CASE("every folder has a page of one screen that names each of its headers") {
  Complaints complaints;
  std::map<std::string, std::vector<fs::path>> headers;
  for (const fs::path& file : files_that(is_source))
    if (const Folder* folder = folder_of(file); folder != nullptr && folder->path != "tests")
      if (auto& list = headers[folder->path]; file.extension() == ".hpp") list.push_back(file);
  headers["tests"];
  headers["scenarios"];
  for (const auto& [path, list] : headers) {
    const fs::path page = fs::path{path} / "README.md";
    if (!fs::exists(root() / page)) {
      complaints.push_back(page.generic_string() + " is missing");
      continue;
    }
    const std::string text = read(root() / page);
    if (lines_of(text).size() > kMaxPageLines)
      complaints.push_back(page.generic_string() + " is longer than " + std::to_string(kMaxPageLines) + " lines");
    for (const fs::path& file : list)
      if (!std::regex_search(text, std::regex{"\\b" + file.stem().string() + "\\b"}))
        complaints.push_back(page.generic_string() + " does not name " + file.filename().string());
  }
  check_none(complaints);
}

/// The header of the family that declares a preset; empty when there is none.
std::string preset_header(const std::string& name) {
  for (const fs::path& file : files_that(is_source))
    if (file.generic_string().starts_with("sim/strategy/presets_") &&
        read(root() / file).find(".name = \"" + name + "\"") != std::string::npos)
      return file.generic_string();
  return {};
}

StrategyFiles files_of(const std::string& name) {
  for (const StrategyFiles& other : named_otherwise())
    if (other.name == name)
      return {name, "sim/strategy/" + other.source + ".cpp", other.scenario, "tests/" + other.test + "_test.cpp"};
  if (const std::string header = preset_header(name); !header.empty())
    return {name, header, name, "tests/parallel_presets_test.cpp"};
  return {name, "sim/strategy/" + name + ".cpp", name, "tests/" + name + "_test.cpp"};
}

TEST_CASE("every registered strategy has its source, its scenario with a page, and a test") {
  Complaints complaints;
  for (const orrery::StrategyEntry& entry : orrery::strategies()) {
    const std::string name{entry.name};
    const StrategyFiles expected = files_of(name);
    const std::string folder = "scenarios/" + expected.scenario;
    for (const std::string& path : {expected.source, folder + "/scenario.yaml", folder + "/README.md", expected.test})
      if (!fs::exists(root() / path)) complaints.push_back("strategy '" + name + "' lacks " + path);
    if (!complaints.empty()) continue;
    if (read(root() / folder / "scenario.yaml").find("- " + name + ":") == std::string::npos)
      complaints.push_back(folder + "/scenario.yaml does not use the strategy '" + name + "'");
    if (expected.test == "tests/parallel_presets_test.cpp" &&
        read(root() / expected.test).find("{\"" + name + "\", ") == std::string::npos)
      complaints.push_back(expected.test + " does not name the strategy '" + name + "'");
  }
  check_none(complaints);
}

}  // namespace
