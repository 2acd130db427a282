// SPDX-License-Identifier: Apache-2.0
// What pages show of commands is what these print.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "sim/app/scenario.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

/// A command on a page, and what the page shows of its output.
struct Shown {
  std::string page, command;
  Lines output;
};

std::string trimmed(std::string line) {
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

/// The lines between each two fences of a page.
std::vector<Lines> blocks_of(const fs::path& page) {
  std::vector<Lines> blocks;
  bool inside = false;
  std::ifstream file{page};
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside) blocks.emplace_back();
    } else if (inside) {
      blocks.back().push_back(trimmed(line));
    }
  }
  return blocks;
}

/// A line and those that go on with it behind a backslash; `at` is then the last of them.
std::string joined(const Lines& block, std::size_t& at) {
  std::string line = block[at];
  while (line.ends_with('\\') && at + 1 < block.size()) {
    line.pop_back();
    line += block[++at];
  }
  return line;
}

bool is_command(const Lines& block) {
  return !block.empty() && (block[0].starts_with("orrery ") || block[0].starts_with("$ "));
}

/// Commands behind a `$` with their output below them, and blocks of one command with their output in the next one.
std::vector<Shown> shown_on(const fs::path& page) {
  std::vector<Shown> all;
  const std::vector<Lines> blocks = blocks_of(page);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    std::size_t at = 0;
    const std::string first = blocks[b].empty() ? "" : joined(blocks[b], at);
    const bool is_alone = first.starts_with("orrery ") && at + 1 == blocks[b].size();
    if (is_alone && b + 1 < blocks.size() && !is_command(blocks[b + 1])) all.push_back({page, first, blocks[b + 1]});
    if (!first.starts_with("$ ")) continue;
    for (at = 0; at < blocks[b].size(); ++at) {
      if (blocks[b][at].starts_with("$ ")) {
        all.push_back({page, joined(blocks[b], at).substr(2), {}});
      } else {
        all.back().output.push_back(blocks[b][at]);
      }
    }
  }
  return all;
}

/// As a shell splits it: by blanks, but not between single quotes.
std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words;
  bool quoted = false, open = false;
  for (const char c : command) {
    if (c == '\'') quoted = !quoted;
    const bool ends = c == ' ' && !quoted;
    if (!ends && !open) words.emplace_back();
    open = !ends;
    if (!ends && c != '\'') words.back() += c;
  }
  return words;
}

bool is_of_host(const std::string& name) {
  const Locations locations{{}};
  try {
    return load_scenario(locations.find_scenario(name), locations, {}, {}).cluster.device == "host";
  } catch (const UserError&) {
    return false;  // the argument is no scenario
  }
}

/// Whether a command prints the same everywhere and writes no files: nothing of this computer, and what takes long is
/// left out.
bool is_repeatable(const std::vector<std::string>& words) {
  static const std::set<std::string> of_scenarios{"simulate", "sensitivity", "plan", "memory", "serve"},
      others{"topo", "serve-plan", "fit", "reproduce"};
  if (words.size() < 3 || words[0] != "orrery") return false;
  return others.contains(words[1]) || (of_scenarios.contains(words[1]) && !is_of_host(words[2]));
}

/// Without what a command says of its own time.
std::string steady(const std::string& line) {
  static const std::regex own_time{"( in [0-9.]+ m?s of wall time|planned in .*|seed [0-9]+, .*|disk; .*)"};
  return std::regex_replace(trimmed(line), own_time, "");
}

/// The first line of a page that the output has not, behind those before it; empty when there is none.
std::string first_missing(const Lines& shown, const std::string& output) {
  std::istringstream text{output};
  for (const std::string& wanted : shown) {
    if (wanted.empty() || wanted == "…" || wanted == "  …") continue;
    std::string line;
    do {
      if (!std::getline(text, line)) return wanted;
    } while (steady(line) != steady(wanted));
  }
  return {};
}

}  // namespace

TEST_CASE("pages show what commands print today") {
  std::vector<Shown> all;
  for (const auto& entry : fs::recursive_directory_iterator{fs::path{ORRERY_SOURCE_DIR} / "scenarios"})
    if (entry.path().extension() == ".md")
      for (Shown& s : shown_on(entry.path())) all.push_back(std::move(s));
  for (const char* page : {"README.md", "sim/machine/README.md"})
    for (Shown& s : shown_on(fs::path{ORRERY_SOURCE_DIR} / page)) all.push_back(std::move(s));
  std::size_t compared = 0;
  for (const Shown& s : all) {
    std::vector<std::string> words = words_of(s.command);
    if (!is_repeatable(words)) continue;
    if (words[1] == "simulate") words.emplace_back("--no-out");
    INFO(s.page << ": " << s.command);
    const CommandResult r = testing::orrery({words.begin() + 1, words.end()});
    CHECK(r.err.substr(0, r.err.find('\n')) == "");
    CHECK(first_missing(s.output, r.out) == "");
    ++compared;
  }
  CHECK(compared > 25);
}
