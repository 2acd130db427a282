// SPDX-License-Identifier: Apache-2.0
#include "runtime/peers.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "runtime/sockets.hpp"
#include "sim/base/error.hpp"
#include "sim/base/whole_number.hpp"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kRetry{50}, kHelloPatience{2000};
constexpr std::string_view kGreeting = "orrery-peers";

/// Where process 0 listens.
struct Address {
  std::string host;  // its name, or that of the meeting place
  std::uint16_t port = 0;
  std::string token;  // that who comes must know; empty where the address is given
  std::vector<std::string> numbers = {};
};

/// "HOST:PORT"; nothing for the name of a file.
std::optional<Address> address_in(const std::string& at) {
  const std::size_t colon = at.rfind(':');
  if (colon == std::string::npos || colon == 0 || at.find('/') != std::string::npos) return std::nullopt;
  Address a{at.substr(0, colon)};
  a.port = whole_number<std::uint16_t>(std::string_view{at}.substr(colon + 1)).value_or(0);
  if (a.port == 0) return std::nullopt;
  a.numbers = {a.host};
  return a;
}

/// What process 0 has left in a file; nothing when it is not there or not whole yet.
std::optional<Address> address_from(const std::string& file) {
  std::ifstream in{file};
  Address a;
  if (!(in >> a.host >> a.port >> a.token)) return std::nullopt;
  for (std::string number; in >> number;) a.numbers.push_back(number);
  if (a.host == own_host()) a.numbers = {"127.0.0.1"};
  return a;
}

void leave_address(const std::string& file, const Address& a) {
  const std::string fresh = fmt::format("{}.{}", file, getpid());
  std::ofstream out{fresh};
  out << a.host << ' ' << a.port << ' ' << a.token << '\n';
  for (const std::string& number : a.numbers) out << number << '\n';
  if (!out.flush() || std::rename(fresh.c_str(), file.c_str()) != 0) {
    std::remove(fresh.c_str());
    throw DeviceError{fmt::format("cannot write {}, where processes are to meet", file)};
  }
}

std::string hello(int process, int processes, const std::string& token) {
  return fmt::format("{} {} {} {}", kGreeting, process, processes, token);
}

}  // namespace

/// Process 0 has a connection to each of the others; they have one, to process 0.
class Peers::Connections {
 public:
  explicit Connections(const MeetingPlace& place)
      : place_{place}, sockets_(static_cast<std::size_t>(std::max(0, place.processes))) {
    if (place.processes < 1 || place.process < 0 || place.process >= place.processes)
      throw UserError{fmt::format("process {} of {}", place.process, place.processes),
                      "processes count from 0, so that the last of 4 is 3"};
    if (place.processes == 1) return;
    if (place.at.empty())
      throw UserError{"nothing says where processes are to meet",
                      "add --meet HOST:PORT, or a file that all of them see"};
    deadline_ = Clock::now() + place.patience;
    is_first() ? receive_all() : come();
  }

  int process() const { return place_.process; }
  int count() const { return place_.processes; }
  bool is_first() const { return process() == 0; }

  /// To process 0 what this one has, or from it to all.
  void send(int to, std::string_view text) {
    if (!send_message(socket(to), MessageKind::Data, text)) ended(to);
  }
  /// The next message of a process; looks after the others meanwhile.
  std::string receive(int from) {
    while (waiting_on(socket(from)) == Waiting::Nothing) {
      check();
      pollfd waits{socket(from).get(), POLLIN, 0};
      poll(&waits, 1, static_cast<int>(kRetry.count()));
    }
    std::optional<Message> m = receive_message(socket(from));
    if (!m) lost(from);
    if (m->kind == MessageKind::Failed) throw DeviceError{m->text};
    return std::move(m->text);
  }
  void check() {
    for (int p = 0; p < count(); ++p) {
      if (p == process() || !socket(p)) continue;
      const Waiting w = waiting_on(socket(p));
      if (w == Waiting::Ended) lost(p);
      if (w == Waiting::Failed) (void)receive(p);
    }
  }

 private:
  Socket& socket(int p) { return sockets_[static_cast<std::size_t>(p)]; }
  std::chrono::milliseconds left() const {
    return std::max(std::chrono::milliseconds{0},
                    std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()));
  }
  /// One that has ended may have said why, behind what it was asked for before.
  [[noreturn]] void ended(int p) {
    for (Waiting w = waiting_on(socket(p)); w == Waiting::Data || w == Waiting::Failed; w = waiting_on(socket(p))) {
      const std::optional<Message> m = receive_message(socket(p));
      if (!m) break;
      if (m->kind == MessageKind::Failed) throw DeviceError{m->text};
    }
    lost(p);
  }
  [[noreturn]] void lost(int p) { fail(fmt::format("process {} of {} is gone: all of them end", p, count())); }
  /// Tells the others before it throws.
  [[noreturn]] void fail(const std::string& text) {
    for (const Socket& s : sockets_)
      if (s) (void)send_message(s, MessageKind::Failed, text);
    throw DeviceError{text};
  }

  void receive_all() {
    std::optional<Address> given = address_in(place_.at);
    const Socket listening = listen_on(given ? given->port : 0);
    std::string token;
    if (!given) {
      std::random_device random;
      token = fmt::format("{:08x}{:08x}", random(), random());
      leave_address(place_.at, {own_host(), port_of(listening), token, own_addresses()});
    }
    for (int missing = count() - 1; missing > 0;) {
      std::optional<Socket> fresh = accept_from(listening, left());
      if (fresh) missing -= welcome(std::move(*fresh), token);
      if (left().count() > 0) continue;
      if (!given) std::remove(place_.at.c_str());
      nobody();
    }
    if (!given) std::remove(place_.at.c_str());
    for (int p = 1; p < count(); ++p) send(p, {});
  }
  /// How many of the missing have come with a connection: 1, or 0 when somebody else asked for it.
  int welcome(Socket fresh, const std::string& token) {
    pollfd waits{fresh.get(), POLLIN, 0};
    if (poll(&waits, 1, static_cast<int>(std::min(left(), kHelloPatience).count())) <= 0) return 0;
    const std::optional<Message> m = receive_message(fresh);
    if (!m || m->kind != MessageKind::Hello) return 0;
    std::istringstream in{m->text};
    std::string greeting, known;
    int p = 0, all = 0;
    if (!(in >> greeting >> p >> all) || greeting != kGreeting) return 0;
    in >> known;
    if (known != token) return 0;
    if (all != count())
      refuse(fresh, fmt::format("process {} was started as one of {}, process 0 as one of {}", p, all, count()));
    if (p < 1 || p >= count() || socket(p)) refuse(fresh, fmt::format("two processes were started as process {}", p));
    socket(p) = std::move(fresh);
    return 1;
  }
  [[noreturn]] void refuse(const Socket& fresh, const std::string& text) {
    (void)send_message(fresh, MessageKind::Failed, text);
    fail(text);
  }
  [[noreturn]] void nobody() {
    std::string missing;
    for (int p = 1; p < count(); ++p)
      if (!socket(p)) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", p);
    fail(fmt::format("of {} processes these have not come within {:.3g} s: {}", count(),
                     std::chrono::duration<double>(place_.patience).count(), missing));
  }

  void come() {
    while (true) {
      std::optional<Address> a = address_in(place_.at);
      if (!a) a = address_from(place_.at);
      if (a && arrive(*a)) return;
      if (left().count() == 0)
        throw DeviceError{fmt::format("process 0 was not found at {} within {:.3g} s", place_.at,
                                      std::chrono::duration<double>(place_.patience).count())};
      std::this_thread::sleep_for(kRetry);
    }
  }
  /// Whether process 0 was there and let this one in, when all have come. A file may be one of an earlier run.
  bool arrive(const Address& a) {
    for (const std::string& number : a.numbers) {
      std::optional<Socket> found = connect_to(number, a.port);
      if (!found || !send_message(*found, MessageKind::Hello, hello(process(), count(), a.token))) continue;
      pollfd waits{found->get(), POLLIN, 0};
      // Process 0 gives up first, and says why.
      if (poll(&waits, 1, static_cast<int>((left() + kHelloPatience).count())) <= 0) continue;
      const std::optional<Message> m = receive_message(*found);
      if (!m) continue;
      if (m->kind == MessageKind::Failed) throw DeviceError{m->text};
      socket(0) = std::move(*found);
      return true;
    }
    return false;
  }

  MeetingPlace place_;
  std::vector<Socket> sockets_;  // by process
  Clock::time_point deadline_;
};

Peers::Peers(const MeetingPlace& place) : connections_{std::make_unique<Connections>(place)} {}
Peers::~Peers() = default;

int Peers::process() const { return connections_->process(); }
int Peers::processes() const { return connections_->count(); }
void Peers::check() { connections_->check(); }

std::string Peers::from(int process, std::string_view mine) {
  Connections& c = *connections_;
  if (!c.is_first()) {
    if (c.process() == process) c.send(0, mine);
    return c.receive(0);
  }
  std::string text = process == 0 ? std::string{mine} : c.receive(process);
  for (int p = 1; p < c.count(); ++p) c.send(p, text);
  return text;
}

std::vector<std::string> Peers::gather(std::string_view mine) {
  Connections& c = *connections_;
  const auto n = static_cast<std::size_t>(c.count());
  std::vector<std::string> all(n);
  if (!c.is_first()) {
    c.send(0, mine);
    for (std::string& text : all) text = c.receive(0);
    return all;
  }
  all[0] = mine;
  for (std::size_t p = 1; p < n; ++p) all[p] = c.receive(static_cast<int>(p));
  for (int p = 1; p < c.count(); ++p)
    for (const std::string& text : all) c.send(p, text);
  return all;
}

int Peers::process_of(RankId rank, std::size_t ranks) const {
  const auto n = static_cast<std::size_t>(processes());
  if (ranks % n != 0)
    throw UserError{fmt::format("{} processes cannot share {} ranks", n, ranks),
                    "the number of ranks must be a multiple of that of processes"};
  return static_cast<int>(rank.index() / (ranks / n));
}

}  // namespace orrery
