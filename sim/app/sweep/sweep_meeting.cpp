// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/sweep_meeting.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "runtime/sockets.hpp"
#include "sim/base/sha256.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

constexpr std::chrono::seconds kSweepPatience{300};
constexpr std::chrono::milliseconds kLookAgain{200};
constexpr std::size_t kLongestToken = 4096;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

ListenAt parse_listen(const std::string& option, const std::string& value) {
  const std::size_t colon = value.rfind(':');
  const std::string host = colon == std::string::npos || colon == 0 ? "127.0.0.1" : value.substr(0, colon);
  const std::optional<double> port = parse_number(colon == std::string::npos ? value : value.substr(colon + 1));
  if (!port || *port < 0 || *port > 65535 || *port != static_cast<int>(*port))
    throw UserError{fmt::format("option {} is {}", option, in_quotes(value)), "give HOST:PORT"};
  return {host, static_cast<std::uint16_t>(*port)};
}

std::string random_secret() {
  std::FILE* file = std::fopen("/dev/urandom", "rb");
  std::string bytes(32, '\0');
  const bool is_read = file != nullptr && std::fread(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (file != nullptr) std::fclose(file);
  if (!is_read) throw DeviceError{"cannot read /dev/urandom"};
  return sha256(bytes);
}

std::string read_token(const std::string& path) {
  const std::string token = first_line(read_file(path, kLongestToken));
  if (token.empty()) throw UserError{fmt::format("'{}' holds no token", path)};
  return token;
}

std::string make_token(const std::string& folder) {
  const std::string path = folder + "/token";
  std::error_code missing;
  if (std::filesystem::exists(path, missing)) return read_token(path);
  const std::string token = random_secret();
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool is_written = file >= 0 && write(file, token.data(), token.size()) == std::ssize(token);
  const int error = errno;
  if (file >= 0) close(file);
  if (!is_written)
    throw DeviceError{fmt::format("cannot write '{}': {}", path, std::generic_category().message(error))};
  return token;
}

void leave_address(const std::string& folder, const ListenAt& at) {
  write_file_atomically(folder + "/address",
                        fmt::format("{}:{}\n", at.host == "0.0.0.0" ? own_host() : at.host, at.port));
}

SweepMeeting find_sweep(const std::string& where, const std::string& token_file, const std::function<void()>& check) {
  std::error_code missing;
  const bool is_address = where.find(':') != std::string::npos && !std::filesystem::exists(where, missing);
  if (is_address) {
    if (token_file.empty()) throw UserError{"the address alone does not let a worker in", "give --token FILE"};
    return {parse_listen("HOST:PORT", where), read_token(token_file)};
  }
  const std::string address = where + "/address";
  const auto deadline = std::chrono::steady_clock::now() + kSweepPatience;
  while (!std::filesystem::exists(address, missing)) {
    check();
    if (std::chrono::steady_clock::now() > deadline)
      throw UserError{fmt::format("no sweep listens in '{}'", where), "start it with --listen"};
    std::this_thread::sleep_for(kLookAgain);
  }
  return {parse_listen("address", first_line(read_file(address, kLongestToken))),
          read_token(token_file.empty() ? where + "/token" : token_file)};
}

}  // namespace orrery
