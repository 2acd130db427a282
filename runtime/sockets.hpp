// SPDX-License-Identifier: Apache-2.0
// TCP between processes: addresses, connections, and messages with a kind and a length.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery {

/// Owns a file descriptor; −1: none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_{descriptor} {}
  Socket(Socket&& other) noexcept : descriptor_{std::exchange(other.descriptor_, -1)} {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// Listens on a port of all addresses; 0: any free one. Throws DeviceError when the port is taken.
Socket listen_on(std::uint16_t port);
/// The same on the address of one name or number; "0.0.0.0" is all of them. Throws DeviceError for unknown ones, too.
Socket listen_on(const std::string& host, std::uint16_t port);
std::uint16_t port_of(const Socket& listening);
/// A connection that has been asked for within so long; none when there was none.
std::optional<Socket> accept_from(const Socket& listening, std::chrono::milliseconds patience);
/// None when nobody listens there.
std::optional<Socket> connect_to(const std::string& host, std::uint16_t port);
/// Numeric IPv4 addresses of this computer; the loopback last.
std::vector<std::string> own_addresses();
std::string own_host();

enum class MessageKind : std::uint8_t { Hello = 'H', Data = 'D', Failed = 'F' };
struct Message {
  MessageKind kind = MessageKind::Data;
  std::string text;
};
/// Whether all of it could be sent.
bool send_message(const Socket& to, MessageKind kind, std::string_view text);
/// The next message, waiting for it; none when the connection has ended.
std::optional<Message> receive_message(const Socket& from);

/// Messages that come in over a connection, put together without waiting for the rest of one.
class MessageBuffer {
 public:
  explicit MessageBuffer(std::uint64_t most_bytes) : most_{most_bytes} {}
  /// The longest message from here on.
  void allow(std::uint64_t most_bytes) { most_ = most_bytes; }
  /// Takes some of what is there. False when the connection has ended, or says something that is no message, or a
  /// longer one; what came before is still there.
  bool fill(const Socket& from);
  std::optional<Message> next();

 private:
  bool next_is_legal() const;

  std::uint64_t most_;
  std::string bytes_;
};

/// What a connection has, without waiting.
enum class Waiting : std::uint8_t { Nothing, Data, Failed, Ended };
Waiting waiting_on(const Socket& connection);

}  // namespace orrery
