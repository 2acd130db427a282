// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace orrery {

/// Where workers of other computers join.
struct ListenAt {
  std::string host;
  std::uint16_t port = 0;
};
/// "HOST:PORT", or a port of this computer alone. Throws UserError that names the option.
ListenAt parse_listen(const std::string& option, const std::string& value);

/// Where a sweep listens, and what its workers have to know.
struct SweepMeeting {
  ListenAt at;
  std::string token;
};

/// A text that nobody can guess. Throws DeviceError.
std::string random_secret();

/// The token in a file; of a folder without one, a new one that only this user can read. Throws UserError, DeviceError.
std::string read_token(const std::string& path);
std::string make_token(const std::string& folder);

/// Leaves in a folder where its sweep listens. All addresses: the name of this computer.
void leave_address(const std::string& folder, const ListenAt& at);

/// `where`: HOST:PORT, or the folder of a sweep, which is waited for up to five minutes. `token_file` may be empty for
/// a folder. `check` may throw to stop.
SweepMeeting find_sweep(const std::string& where, const std::string& token_file, const std::function<void()>& check);

}  // namespace orrery
