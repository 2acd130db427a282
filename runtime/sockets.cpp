// SPDX-License-Identifier: Apache-2.0
#include "runtime/sockets.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr std::size_t kHeader = 9;  // kind and length

template <class T>
void set(int descriptor, int level, int name, T value) {
  setsockopt(descriptor, level, name, &value, sizeof value);
}

/// A computer that is switched off says nothing: after a quarter of a minute it counts as gone.
void watch(int descriptor) {
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 5);
  set(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, 15'000u);
  set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
}

bool send_all(int descriptor, const char* from, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = send(descriptor, from, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

bool receive_all(int descriptor, char* to, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = recv(descriptor, to, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

std::string system_text() { return std::strerror(errno); }

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

Socket listen_on(std::uint16_t port) { return listen_on("0.0.0.0", port); }

Socket listen_on(const std::string& host, std::uint16_t port) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found); error != 0)
    throw DeviceError{fmt::format("cannot listen on '{}': {}", host, gai_strerror(error))};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all{found, &freeaddrinfo};
  Socket s{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!s) throw DeviceError{fmt::format("no socket: {}", system_text())};
  set(s.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(s.get(), all->ai_addr, all->ai_addrlen) != 0 || listen(s.get(), SOMAXCONN) != 0)
    throw DeviceError{fmt::format("cannot listen on port {}: {}", port, system_text())};
  return s;
}

std::uint16_t port_of(const Socket& listening) {
  sockaddr_in at{};
  socklen_t size = sizeof at;
  getsockname(listening.get(), reinterpret_cast<sockaddr*>(&at), &size);
  return ntohs(at.sin_port);
}

std::optional<Socket> accept_from(const Socket& listening, std::chrono::milliseconds patience) {
  pollfd waits{listening.get(), POLLIN, 0};
  if (poll(&waits, 1, static_cast<int>(patience.count())) <= 0) return std::nullopt;
  Socket s{accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC)};
  if (!s) return std::nullopt;
  watch(s.get());
  return s;
}

std::optional<Socket> connect_to(const std::string& host, std::uint16_t port) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all{found, &freeaddrinfo};
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    Socket s{socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0)};
    if (!s) continue;
    watch(s.get());  // before: it bounds the wait for an answer as well
    set(s.get(), SOL_SOCKET, SO_SNDTIMEO, timeval{5, 0});
    if (connect(s.get(), a->ai_addr, a->ai_addrlen) != 0) continue;
    set(s.get(), SOL_SOCKET, SO_SNDTIMEO, timeval{0, 0});
    return s;
  }
  return std::nullopt;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all{found, &freeifaddrs};
    for (const ifaddrs* i = found; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
      std::array<char, INET_ADDRSTRLEN> text{};
      const auto* at = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
      if (ntohl(at->sin_addr.s_addr) >> 24 == 127) continue;
      if (inet_ntop(AF_INET, &at->sin_addr, text.data(), text.size())) addresses.emplace_back(text.data());
    }
  }
  addresses.emplace_back("127.0.0.1");
  return addresses;
}

std::string own_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool send_message(const Socket& to, MessageKind kind, std::string_view text) {
  std::array<char, kHeader> header{static_cast<char>(kind)};
  const std::uint64_t bytes = text.size();
  std::memcpy(header.data() + 1, &bytes, sizeof bytes);
  return send_all(to.get(), header.data(), header.size()) && send_all(to.get(), text.data(), text.size());
}

std::optional<Message> receive_message(const Socket& from) {
  std::array<char, kHeader> header;
  if (!receive_all(from.get(), header.data(), header.size())) return std::nullopt;
  Message m{static_cast<MessageKind>(header[0]), {}};
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, header.data() + 1, sizeof bytes);
  constexpr std::uint64_t kLongestHello = 4096;  // of somebody who may be none of us
  if (m.kind != MessageKind::Data && bytes > kLongestHello) return std::nullopt;
  m.text.resize(bytes);
  if (!receive_all(from.get(), m.text.data(), m.text.size())) return std::nullopt;
  return m;
}

bool MessageBuffer::fill(const Socket& from) {
  std::array<char, 1 << 16> part;
  const ssize_t n = recv(from.get(), part.data(), part.size(), MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  bytes_.append(part.data(), static_cast<std::size_t>(n));
  return n > 0 && next_is_legal();
}

bool MessageBuffer::next_is_legal() const {
  if (bytes_.size() < kHeader) return true;
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, bytes_.data() + 1, sizeof bytes);
  const char kind = bytes_[0];
  return bytes <= most_ && (kind == 'H' || kind == 'D' || kind == 'F');
}

std::optional<Message> MessageBuffer::next() {
  if (bytes_.size() < kHeader) return std::nullopt;
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, bytes_.data() + 1, sizeof bytes);
  if (bytes_.size() - kHeader < bytes) return std::nullopt;
  Message m{static_cast<MessageKind>(bytes_[0]), bytes_.substr(kHeader, bytes)};
  bytes_.erase(0, kHeader + bytes);
  return m;
}

Waiting waiting_on(const Socket& connection) {
  char kind = 0;
  const ssize_t n = recv(connection.get(), &kind, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Waiting::Nothing : Waiting::Ended;
  if (n == 0) return Waiting::Ended;
  return kind == static_cast<char>(MessageKind::Failed) ? Waiting::Failed : Waiting::Data;
}

}  // namespace orrery
