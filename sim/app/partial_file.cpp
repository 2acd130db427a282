// SPDX-License-Identifier: Apache-2.0
#include "sim/app/partial_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "sim/base/error.hpp"

namespace orrery {

PartialFile::PartialFile(const std::string& path) : path_{path}, partial_{path + ".partial"} {
  errno = 0;
  out_.open(partial_);
  if (!out_) fail(errno);
}

void PartialFile::close() {
  errno = 0;
  out_.flush();
  const int error = errno;
  if (!out_) fail(error);
  out_.close();
  std::error_code failure;
  std::filesystem::rename(partial_, path_, failure);
  if (failure) fail(failure.value());
  closed_ = true;
}

PartialFile::~PartialFile() {
  if (closed_) return;
  out_.close();
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

void PartialFile::fail(int error) const {
  const std::string why = error != 0 ? ": " + std::generic_category().message(error) : std::string{};
  throw DeviceError{fmt::format("cannot write '{}'{}", path_, why)};
}

}  // namespace orrery
