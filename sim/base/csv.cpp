// SPDX-License-Identifier: Apache-2.0
#include "sim/base/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/source_text.hpp"

namespace orrery {
namespace {

constexpr double kExact = 9007199254740992.0;  // 2^53: integers below are exact

/// Cuts a text into rows of cells.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& file) : text_{text}, file_{file} {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);  // byte order mark
  }

  bool at_end() const { return at_ >= text_.size(); }
  int line() const { return line_; }

  std::vector<std::string> row() {
    std::vector<std::string> cells;
    do cells.push_back(cell());
    while (take(','));
    take('\r');
    if (!at_end() && !take('\n')) fail("text after a closing quote", "separate cells by commas");
    return cells;
  }

  [[noreturn]] void fail(std::string message, std::string hint) const {
    throw UserError{Diagnostic{std::move(message), std::move(hint), file_, line_, 0, {}}};
  }

 private:
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    if (c == '\n') ++line_;
    ++at_;
    return true;
  }

  std::string cell() { return !at_end() && text_[at_] == '"' ? quoted_cell() : plain_cell(); }

  std::string plain_cell() {
    const std::size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end;
    return std::string{found};
  }

  std::string quoted_cell() {
    std::string out;
    const int first = line_;
    ++at_;
    while (!at_end()) {
      const char c = text_[at_++];
      if (c == '\n') ++line_;
      if (c != '"') {
        out += c;
      } else if (take('"')) {
        out += '"';
      } else {
        return out;
      }
    }
    line_ = first;
    fail("a quote is not closed", "write \"\" for a quote inside of quotes");
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  int line_ = 1;
};

void check_head(const std::string& file, const std::vector<std::string>& columns) {
  const auto fail = [&](std::string message, std::string hint) {
    throw UserError{Diagnostic{std::move(message), std::move(hint), file, 1, 0, {}}};
  };
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].empty()) fail(fmt::format("column {} has no name", i + 1), "the first line names the columns");
    if (std::find(columns.begin(), columns.begin() + std::ptrdiff_t(i), columns[i]) !=
        columns.begin() + std::ptrdiff_t(i))
      fail(fmt::format("column {} stands twice", in_quotes(columns[i])), "names of columns are unique");
  }
}

}  // namespace

CsvTable::CsvTable(std::string_view text, std::string file) : file_{std::move(file)} {
  CsvReader reader{text, file_};
  if (!is_utf8(text)) reader.fail("the file is not UTF-8 text", "save it as UTF-8");
  if (reader.at_end()) reader.fail("the file is empty", "the first line names the columns");
  columns_ = reader.row();
  check_head(file_, columns_);
  while (!reader.at_end()) {
    const int line = reader.line();
    std::vector<std::string> cells = reader.row();
    if (cells.size() == 1 && cells.front().empty()) continue;  // an empty line
    if (cells.size() != columns_.size())
      throw UserError{Diagnostic{fmt::format("{} cells under a head of {}", cells.size(), columns_.size()),
                                 "every row has one cell per column",
                                 file_,
                                 line,
                                 0,
                                 {}}};
    lines_.push_back(line);
    std::move(cells.begin(), cells.end(), std::back_inserter(cells_));
  }
}

std::optional<std::size_t> CsvTable::column(std::string_view name) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  if (found == columns_.end()) return {};
  return static_cast<std::size_t>(found - columns_.begin());
}

std::string_view CsvRow::operator[](std::string_view column) const {
  const std::optional<std::size_t> c = table_->column(column);
  return c ? table_->cell(index_, *c) : std::string_view{};
}

std::optional<double> CsvRow::number(std::string_view column) const { return parse_number((*this)[column]); }

std::optional<std::int64_t> CsvRow::integer(std::string_view column) const {
  const std::optional<double> v = number(column);
  if (!v || *v != std::floor(*v) || std::abs(*v) >= kExact) return {};
  return static_cast<std::int64_t>(*v);
}

int CsvRow::line() const { return table_->line(index_); }

CsvTable read_csv(const std::string& path) { return CsvTable{read_file(path), path}; }

}  // namespace orrery
