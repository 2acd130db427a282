// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sweep/sweep_record.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "runtime/sockets.hpp"
#include "sim/base/crc32.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "ORSW";
constexpr std::size_t kFrame = 12;  // mark, length, CRC-32
constexpr std::uint32_t kLongestRecord = 64u << 20;
constexpr std::size_t kSyncEvery = 64;
constexpr std::chrono::seconds kSyncAfter{5};

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t v = 0;
  for (int i = 3; i >= 0; --i) v = v << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  return v;
}

void put_number(std::string& out, std::uint32_t v) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>(v >> (8 * i) & 0xFF);
}

/// The payload of a whole record that starts here.
std::optional<std::string_view> payload_at(std::string_view bytes, std::size_t at) {
  if (bytes.size() - at < kFrame || bytes.substr(at, kMark.size()) != kMark) return {};
  const std::uint32_t length = number_at(bytes, at + 4);
  if (length > kLongestRecord || bytes.size() - at - kFrame < length) return {};
  const std::string_view payload = bytes.substr(at + kFrame, length);
  if (crc32(payload) != number_at(bytes, at + 8)) return {};
  return payload;
}

[[noreturn]] void fail_shard(const std::string& path, std::string_view what) {
  throw DeviceError{fmt::format("cannot {} '{}': {}", what, path, std::generic_category().message(errno))};
}

}  // namespace

std::span<const EnumName<PointStatus>> enum_names(PointStatus) {
  static constexpr EnumName<PointStatus> names[] = {
      {PointStatus::Done, "done"}, {PointStatus::Refused, "refused"}, {PointStatus::Quarantined, "quarantined"}};
  return names;
}

nlohmann::json to_json(const SweepRecord& r) {
  nlohmann::json out = {{"id", r.id},
                        {"scenario", r.scenario},
                        {"status", enum_name(r.status)},
                        {"attempts", r.attempts},
                        {"seconds", r.seconds},
                        {"cpu_seconds", r.cpu_seconds},
                        {"host", r.host},
                        {"time", r.time}};
  if (r.status == PointStatus::Done)
    out["result"] = r.result;
  else
    out["error"] = r.error;
  return out;
}

SweepRecord record_of(const nlohmann::json& document) {
  try {
    SweepRecord r;
    r.id = document.at("id");
    r.scenario = document.at("scenario");
    const std::string status = document.at("status");
    const auto names = enum_names(PointStatus{});
    const auto found = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.name == status; });
    if (found == names.end()) throw UserError{fmt::format("a record has the status {}", in_quotes(status))};
    r.status = found->value;
    r.attempts = document.at("attempts");
    r.seconds = document.at("seconds");
    r.cpu_seconds = document.at("cpu_seconds");
    r.host = document.at("host");
    r.time = document.at("time");
    if (r.status == PointStatus::Done)
      r.result = document.at("result");
    else
      r.error = document.at("error");
    return r;
  } catch (const nlohmann::json::exception& e) {
    throw UserError{fmt::format("a record of a sweep is not as it should be: {}", e.what())};
  }
}

bool is_same_result(const SweepRecord& a, const SweepRecord& b) {
  return a.status == b.status && (a.status == PointStatus::Done ? a.result == b.result : true);
}

ShardFile::ShardFile(const std::string& folder) : last_sync_{std::chrono::steady_clock::now()} {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw DeviceError{fmt::format("cannot make the folder '{}': {}", folder, failure.message())};
  for (int n = 0; descriptor_ < 0; ++n) {
    path_ = fmt::format("{}/{}-{}-{}.log", folder, own_host(), getpid(), n);
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail_shard(path_, "write");
  }
  (void)flock(descriptor_, LOCK_EX | LOCK_NB);  // where files have no locks, nobody cuts torn ends
}

ShardFile::~ShardFile() {
  if (descriptor_ < 0) return;
  (void)fsync(descriptor_);
  close(descriptor_);
}

void ShardFile::append(const SweepRecord& record) {
  const std::string bytes = framed(record);
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(descriptor_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_shard(path_, "write");
    done += static_cast<std::size_t>(n);
  }
  if (++unsynced_ >= kSyncEvery || std::chrono::steady_clock::now() - last_sync_ >= kSyncAfter) sync();
}

void ShardFile::sync() {
  if (unsynced_ > 0 && fdatasync(descriptor_) != 0) fail_shard(path_, "write");
  unsynced_ = 0;
  last_sync_ = std::chrono::steady_clock::now();
}

std::string framed(const SweepRecord& record) {
  const std::string payload = to_json(record).dump();
  std::string out{kMark};
  put_number(out, static_cast<std::uint32_t>(payload.size()));
  put_number(out, crc32(payload));
  return out + payload;
}

ShardContents parse_shard(std::string_view bytes) {
  ShardContents out;
  std::size_t at = 0, skipped = 0;
  while (at < bytes.size()) {
    if (const auto payload = payload_at(bytes, at)) {
      out.damaged += skipped;
      skipped = 0;
      out.records.push_back(record_of(nlohmann::json::parse(*payload, nullptr, false)));
      at += kFrame + payload->size();
      continue;
    }
    const std::size_t next = std::min(bytes.find(kMark, at + 1), bytes.size());
    skipped += next - at;
    at = next;
  }
  out.torn = skipped;
  return out;
}

ShardContents recover_shard(const std::string& path) {
  const std::string bytes = read_file(path);
  ShardContents out = parse_shard(bytes);
  if (out.torn == 0) return out;
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) fail_shard(path, "write");
  const bool is_alone = flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  const bool failed = is_alone && ftruncate(descriptor, static_cast<off_t>(bytes.size() - out.torn)) != 0;
  if (failed) fail_shard(path, "write");
  close(descriptor);
  return out;
}

std::vector<std::string> shards_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code missing;
  for (const fs::directory_entry& file : fs::directory_iterator{folder, missing})
    if (file.path().extension() == ".log") paths.push_back(file.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace orrery
