// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <string>

namespace orrery {

/// A file that is written as its contents come, under another name until all of it is there.
class PartialFile {
 public:
  /// Throws DeviceError when it cannot be written.
  explicit PartialFile(const std::string& path);
  std::ostream& stream() { return out_; }
  /// Gives the file its name; throws DeviceError when not all of it could be written.
  void close();
  /// Deletes what was not closed.
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_, partial_;
  std::ofstream out_;
  bool closed_ = false;
};

}  // namespace orrery
