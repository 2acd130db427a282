// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "sim/app/partial_file.hpp"

namespace orrery {

/// Events as Chrome JSON, written as they come: the file grows, memory does not. Times are seconds.
class ChromeEventFile {
 public:
  /// Throws UserError for a name that does not end in .json, DeviceError when the file cannot be written.
  explicit ChromeEventFile(const std::string& path);
  /// A process, and a thread of it, get their names.
  void name_process(std::size_t process, std::string_view name);
  void name_thread(std::size_t process, std::size_t thread, std::string_view name);
  /// `arguments` and `series`: fields of JSON. Ends are rounded as starts are: what ends when another begins does not
  /// overlap it.
  void span(std::size_t process, std::size_t thread, double start, double end, std::string_view name,
            std::string_view arguments);
  void counter(std::size_t process, double time, std::string_view name, std::string_view series);
  /// Ends the file; throws DeviceError when not all of it could be written. Without it the file is deleted.
  void close();

 private:
  void event(const std::string& json);

  PartialFile file_;
  bool first_ = true;
};

}  // namespace orrery
