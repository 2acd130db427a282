// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// A problem in the user's input: where, what, and what to do about it.
struct Diagnostic {
  std::string message;       // what is wrong, with the values involved; lower case, no full stop
  std::string hint;          // what would be right; may be empty
  std::string file;          // empty when there is no file
  int line = 0, column = 0;  // from 1; 0 when unknown
  std::string source;        // the offending line; may be empty
};

/// `file:line:column: message`, the offending line with a caret, and the hint (C.7 of the style).
std::string to_text(const Diagnostic& d);

/// The input is wrong. Caught in `main` (exit code 2) and in tests only.
class UserError : public std::exception {
 public:
  explicit UserError(Diagnostic d) : UserError{std::vector<Diagnostic>{std::move(d)}} {}
  explicit UserError(std::string message, std::string hint = {})
      : UserError{Diagnostic{std::move(message), std::move(hint), {}, 0, 0, {}}} {}
  /// All the problems that a reader found in one file; at least one. The text tells the first ten.
  explicit UserError(std::vector<Diagnostic> all);

  const std::vector<Diagnostic>& diagnostics() const { return all_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::vector<Diagnostic> all_;
  std::string text_;
};

/// The problems of one file from top to bottom.
std::vector<Diagnostic> in_file_order(std::vector<Diagnostic> problems);

/// A device, a library or the file system said no during work. Exit code 3.
class DeviceError : public std::exception {
 public:
  explicit DeviceError(std::string text) : text_{std::move(text)} {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// A device, library or build option is missing. Exit code 4.
class MissingError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// Throws DeviceError: what was tried, such as the name of a call of the system, and what errno says.
[[noreturn]] void fail_call(const char* what);

/// A text of the user between single quotes for a message: control characters escaped, long texts cut in the middle.
std::string in_quotes(std::string_view text);

/// We are wrong: prints the text and aborts. Never reachable from input.
[[noreturn]] void bug(std::string_view text);

/// "unknown strategy 'tensorparallel'; did you mean 'tensor_parallel'? known strategies: a, b, c": for every look-up by
/// name.
UserError unknown_name(std::string_view what, std::string_view given, const std::vector<std::string>& known);

/// "did you mean 'tensor_parallel'? known strategies: a, b, c": the hint of the same look-up, for messages with a
/// place.
std::string name_hint(std::string_view what, std::string_view given, const std::vector<std::string>& known);

/// The element of `known` nearest to `given` by edit distance; where nothing is near (more than a third differs) the
/// shortest that holds it; empty where none does.
std::string nearest_name(std::string_view given, const std::vector<std::string>& known);

}  // namespace orrery
