// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "sim/base/kept_files.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

std::string system_text(int error) { return std::generic_category().message(error); }

/// A file descriptor that is closed at the end of its scope.
class File {
 public:
  File(const std::string& path, int flags, mode_t mode = 0) : fd_{::open(path.c_str(), flags | O_CLOEXEC, mode)} {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(); }

  bool is_open() const { return fd_ >= 0; }
  int descriptor() const { return fd_; }
  int close() {
    const int result = fd_ >= 0 ? ::close(fd_) : 0;
    fd_ = -1;
    return result;
  }

 private:
  int fd_;
};

[[noreturn]] void fail_read(const std::string& path, int error) {
  throw UserError{fmt::format("cannot read '{}': {}", path, system_text(error))};
}

[[noreturn]] void fail_write(const std::string& path, int error) {
  throw DeviceError{fmt::format("cannot write '{}': {}", path, system_text(error))};
}

/// Writes all of a text; the error number, or 0.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

int write_and_sync(File& file, std::string_view text) {
  if (const int error = write_all(file.descriptor(), text)) return error;
  if (::fsync(file.descriptor()) != 0) return errno;
  return file.close() != 0 ? errno : 0;
}

bool is_device(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

void write_device(const std::string& path, std::string_view text) {
  File file{path, O_WRONLY};
  if (!file.is_open()) fail_write(path, errno);
  if (const int error = write_all(file.descriptor(), text)) fail_write(path, error);
}

/// Makes the new name of a file survive a power cut. File systems that cannot sync a folder are left alone.
void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const File file{folder, O_RDONLY | O_DIRECTORY};
  if (file.is_open()) (void)::fsync(file.descriptor());
}

/// A name in the same folder that no other process and no other thread uses.
std::string temporary_name(const std::string& path, int attempt) {
  return fmt::format("{}.{}-{}.tmp", path, ::getpid(), attempt);
}

}  // namespace

std::string read_file(const std::string& path, std::size_t max_bytes) {
  constexpr std::size_t kBlock = 1u << 20;
  const File file{path, O_RDONLY};
  if (!file.is_open()) fail_read(path, errno);
  struct stat info {};
  const bool sized = ::fstat(file.descriptor(), &info) == 0 && S_ISREG(info.st_mode);
  std::string text;
  std::size_t size = 0;
  while (true) {
    const std::size_t expected = sized ? static_cast<std::size_t>(info.st_size) + 1 : 0;
    if (size == text.size()) text.resize(std::max(size + kBlock / 16, std::min(expected, max_bytes + 1)));
    const ssize_t got = ::read(file.descriptor(), text.data() + size, std::min(text.size() - size, kBlock));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_read(path, errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
    if (size > max_bytes) throw UserError{fmt::format("cannot read '{}': it is longer than {} bytes", path, max_bytes)};
  }
  text.resize(size);
  return text;
}

Node read_yaml(const std::string& path) {
  return KeptFiles::once(path, [&] { return parse_yaml(read_file(path, ReadLimits{}.bytes), path); });
}

Node read_json(const std::string& path, const ReadLimits& limits) {
  return KeptFiles::once(path, [&] { return parse_json(read_file(path, limits.bytes), path, limits); });
}

void write_file_atomically(const std::string& path, std::string_view text) {
  constexpr int kAttempts = 100;
  if (is_device(path)) return write_device(path, text);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string temporary = temporary_name(path, attempt);
    File file{temporary, O_WRONLY | O_CREAT | O_EXCL, 0666};
    if (!file.is_open() && errno == EEXIST) continue;
    if (!file.is_open()) fail_write(path, errno);
    int error = write_and_sync(file, text);
    if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
    if (error == 0) return sync_folder_of(path);
    ::unlink(temporary.c_str());
    fail_write(path, error);
  }
  fail_write(path, EEXIST);
}

}  // namespace orrery
