// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/yaml.hpp"

namespace orrery {

/// True when all of a text is well-formed UTF-8, control characters included.
bool is_utf8(std::string_view text);

/// The text of a file that is being read, cut into lines: gives readers their origins and their errors.
/// Refers to the text; lives as long as one call of a reader.
class SourceText {
 public:
  /// Throws UserError when the text is larger than the limit, holds bad UTF-8 or control characters.
  SourceText(std::string_view text, std::string_view file, const ReadLimits& limits);

  std::string_view text() const { return text_; }

  /// The text of a line (from 1) without its end; empty past the last one.
  std::string_view line(int number) const;

  /// An origin with the text of its line, as long as lines are short and the texts together are small.
  Origin origin(int line, int column);

  /// The text of a line if it is worth keeping, taken from the same allowance.
  std::string kept_line(int line);

  /// Line and column (from 1, in bytes) of a byte of the text.
  struct Place {
    int line, column;
  };
  Place place(std::size_t offset) const;

  UserError error(int line, int column, std::string message, std::string hint = {}) const;

 private:
  std::string_view text_;
  std::string file_;
  std::vector<std::size_t> starts_;  // of each line
  std::size_t allowance_;            // bytes of line texts that origins may still keep
};

}  // namespace orrery
