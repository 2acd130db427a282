// SPDX-License-Identifier: Apache-2.0
#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <tuple>

namespace orrery {
namespace {

constexpr std::size_t kExcerptWidth = 110;  // columns of a source line that are shown
constexpr std::size_t kQuotedWidth = 80;
constexpr std::size_t kMostShown = 10;  // problems of one file

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

/// The part of a line around a column, and where the column is in it.
struct Excerpt {
  std::string text;
  std::size_t caret;
};

Excerpt excerpt_of(std::string_view line, int column) {
  const std::size_t indent = std::min(line.find_first_not_of(" \t"), line.size());
  std::size_t position = std::clamp<std::size_t>(column > 0 ? column - 1 : 0, indent, line.size());
  std::size_t first = indent;
  std::size_t last = line.size();
  if (last - first > kExcerptWidth) {
    if (position - first > kExcerptWidth / 2) first = position - kExcerptWidth / 2;
    last = std::min(line.size(), first + kExcerptWidth);
    while (first < position && is_continuation(line[first])) ++first;
    while (last > position && last < line.size() && is_continuation(line[last])) --last;
  }
  const std::string_view shown = line.substr(first, last - first);
  const std::string_view before = shown.substr(0, position - first);
  std::string text{first > indent ? "..." : ""};
  const std::size_t caret = text.size() + before.size() - std::count_if(before.begin(), before.end(), is_continuation);
  for (char c : shown) text += is_control(c) ? ' ' : c;
  if (last < line.size()) text += "...";
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return {std::move(text), caret};
}

std::string place_of(const Diagnostic& d) {
  if (d.file.empty()) return {};
  if (d.line <= 0) return fmt::format("{}: ", d.file);
  if (d.column <= 0) return fmt::format("{}:{}: ", d.file, d.line);
  return fmt::format("{}:{}:{}: ", d.file, d.line, d.column);
}

/// Of "type of weights" the plural is "types of weights".
std::string plural(std::string_view noun) {
  if (const std::size_t of = noun.find(" of "); of != std::string_view::npos)
    return plural(noun.substr(0, of)) + std::string{noun.substr(of)};
  const auto ends_with = [&](std::string_view end) { return noun.ends_with(end); };
  if (noun.size() > 1 && ends_with("y") &&
      std::string_view{"aeiou"}.find(noun[noun.size() - 2]) == std::string_view::npos)
    return std::string{noun.substr(0, noun.size() - 1)} + "ies";
  if (ends_with("is")) return std::string{noun.substr(0, noun.size() - 2)} + "es";
  if (ends_with("s") || ends_with("x") || ends_with("ch") || ends_with("sh")) return std::string{noun} + "es";
  return std::string{noun} + "s";
}

/// Names that differ only in case and in the kind of dash are the same for the purpose of a proposal.
char folded(char c) {
  if (c == '-' || c == ' ') return '_';
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// Levenshtein distance of two names after folding.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (folded(a[i]) == folded(b[j]) ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string to_text(const Diagnostic& d) {
  std::string text = place_of(d) + d.message;
  if (!d.source.empty()) {
    const Excerpt excerpt = excerpt_of(d.source, d.column);
    text += fmt::format("\n  {}", excerpt.text);
    if (d.column > 0) text += fmt::format("\n  {:>{}}", '^', excerpt.caret + 1);
  }
  if (!d.hint.empty()) text += fmt::format("\n  hint: {}", d.hint);
  return text;
}

UserError::UserError(std::vector<Diagnostic> all) : all_{std::move(all)} {
  if (all_.empty()) bug("a user error without a diagnostic");
  const std::size_t shown = all_.size() > kMostShown + 1 ? kMostShown : all_.size();
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text_ += '\n';
    text_ += to_text(all_[i]);
  }
  if (shown < all_.size()) text_ += fmt::format("\nand {} more problems", all_.size() - shown);
}

std::vector<Diagnostic> in_file_order(std::vector<Diagnostic> problems) {
  std::stable_sort(problems.begin(), problems.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::tie(a.line, a.column) < std::tie(b.line, b.column);
  });
  return problems;
}

void fail_call(const char* what) { throw DeviceError{fmt::format("{}: {}", what, std::strerror(errno))}; }

std::string in_quotes(std::string_view text) {
  std::string safe;
  const auto append = [&](std::string_view part) {
    for (char c : part)
      safe += is_control(c) ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c)) : std::string{c};
  };
  if (text.size() <= kQuotedWidth) {
    append(text);
    return fmt::format("'{}'", safe);
  }
  std::size_t head = kQuotedWidth / 2;
  std::size_t tail = text.size() - kQuotedWidth / 4;
  while (head > 0 && is_continuation(text[head])) --head;
  while (tail < text.size() && is_continuation(text[tail])) ++tail;
  append(text.substr(0, head));
  safe += "...";
  append(text.substr(tail));
  return fmt::format("'{}'", safe);
}

void bug(std::string_view text) {
  std::fprintf(stderr, "orrery: internal error: %.*s\nthis is a bug in orrery, please report it\n",
               static_cast<int>(text.size()), text.data());
  std::abort();
}

/// Letters, small ones, and digits alone.
static std::string bare(std::string_view name) {
  std::string out;
  for (const unsigned char c : name)
    if (std::isalnum(c)) out += static_cast<char>(std::tolower(c));
  return out;
}

/// The shortest name that holds the given one, however its parts are joined: dgx_h100 for h100, llama-3-8b for llama3.
static std::string shortest_with(std::string_view given, const std::vector<std::string>& known) {
  constexpr std::size_t kFewest = 3;  // letters that say something
  const std::string part = bare(given);
  if (part.size() < kFewest) return {};
  std::string shortest;
  for (const std::string& name : known)
    if (bare(name).find(part) != std::string::npos && (shortest.empty() || name.size() < shortest.size()))
      shortest = name;
  return shortest;
}

std::string nearest_name(std::string_view given, const std::vector<std::string>& known) {
  constexpr std::size_t kLongestName = 100;
  if (given.size() > kLongestName) return {};
  std::string nearest;
  std::size_t least = kLongestName;
  for (const std::string& name : known) {
    if (name.size() > kLongestName) continue;
    const std::size_t distance = edit_distance(given, name);
    const std::size_t allowed = std::max(given.size(), name.size()) / 3;
    if (distance <= allowed && distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest.empty() ? shortest_with(given, known) : nearest;
}

std::string name_hint(std::string_view what, std::string_view given, const std::vector<std::string>& known) {
  if (known.empty()) return fmt::format("there are no {}", plural(what));
  const std::string nearest = nearest_name(given, known);
  const std::string proposal = nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest);
  return fmt::format("{}known {}: {}", proposal, plural(what), fmt::join(known, ", "));
}

UserError unknown_name(std::string_view what, std::string_view given, const std::vector<std::string>& known) {
  return UserError{fmt::format("unknown {} {}; {}", what, in_quotes(given), name_hint(what, given, known))};
}

}  // namespace orrery
