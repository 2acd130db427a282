// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/options.hpp"

namespace orrery {

/// How a point ended: with a result; refused as wrong input, which is the same each time; or given up after it failed
/// several times.
enum class PointStatus : std::uint8_t { Done, Refused, Quarantined };
std::span<const EnumName<PointStatus>> enum_names(PointStatus);

/// What became of one point of a sweep.
struct SweepRecord {
  std::string id, scenario;
  PointStatus status = PointStatus::Done;
  int attempts = 1;
  nlohmann::json result;  // what the command of its workload prints with --json, without lists and wall time
  std::string error;      // why there is none
  double seconds = 0, cpu_seconds = 0;
  std::string host;
  std::int64_t time = 0;  // seconds since 1970
};

nlohmann::json to_json(const SweepRecord& record);
/// Throws UserError for other documents.
SweepRecord record_of(const nlohmann::json& document);
/// Whether two records of one id say the same of it.
bool is_same_result(const SweepRecord& a, const SweepRecord& b);

/// A file that records are appended to, each framed by a mark, its length and its CRC-32, so that one which a crash cut
/// short is told from the others. No other process may write to it while it lives.
class ShardFile {
 public:
  /// Makes a new file in the folder. Throws DeviceError.
  explicit ShardFile(const std::string& folder);
  ~ShardFile();
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  /// Hands the record to the system; to the disk every 64 records or 5 seconds. Throws DeviceError.
  void append(const SweepRecord& record);
  /// What was appended survives a power cut.
  void sync();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::size_t unsynced_ = 0;
  std::chrono::steady_clock::time_point last_sync_;
};

/// What a shard holds.
struct ShardContents {
  std::vector<SweepRecord> records;
  std::size_t torn = 0;     // bytes at the end that are no whole record
  std::size_t damaged = 0;  // bytes before records that can be read
};
ShardContents parse_shard(std::string_view bytes);
/// The frame of one record.
std::string framed(const SweepRecord& record);

/// Reads a shard and cuts off a torn end, unless the process that writes it still lives. Throws UserError or
/// DeviceError.
ShardContents recover_shard(const std::string& path);
/// The shards of a folder, sorted; none where there is no folder.
std::vector<std::string> shards_in(const std::string& folder);

}  // namespace orrery
