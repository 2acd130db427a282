// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/sqlite.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

/// Steps of SQLite's machine after which a query on an untrusted file is stopped: seconds of work.
constexpr int kProgressSteps = 100'000'000;

int stop_query(void*) { return 1; }

}  // namespace

void Database::Close::operator()(sqlite3* d) const { sqlite3_close_v2(d); }
void Statement::Finalise::operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }

Database::Database(std::string file) : file_{std::move(file)} { open(); }

Database::Database(std::string_view bytes, std::string file) : file_{std::move(file)} {
  open();
  auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));  // read only by the flag below
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  if (sqlite3_deserialize(handle(), "main", data, size, size, SQLITE_DESERIALIZE_READONLY) != SQLITE_OK) fail();
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_progress_handler(handle(), kProgressSteps, stop_query, nullptr);
  execute("PRAGMA cell_size_check = ON");
}

void Database::open() {
  sqlite3* raw = nullptr;
  const int result = sqlite3_open_v2(":memory:", &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY, nullptr);
  handle_.reset(raw);
  if (result != SQLITE_OK) fail();
}

void Database::execute(const char* sql) {
  if (sqlite3_exec(handle(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail();
}

std::string Database::bytes() const {
  sqlite3_int64 size = 0;
  const std::unique_ptr<unsigned char, decltype(&sqlite3_free)> data{sqlite3_serialize(handle(), "main", &size, 0),
                                                                     sqlite3_free};
  if (data == nullptr) throw DeviceError{fmt::format("cannot write '{}': out of memory", file_)};
  return {reinterpret_cast<const char*>(data.get()), static_cast<std::size_t>(size)};
}

void Database::fail() const {
  throw UserError{fmt::format("cannot read '{}' as a trace: {}", file_, sqlite3_errmsg(handle())),
                  "traces of this kind are written by 'orrery simulate --trace FILE.orrery'"};
}

Statement::Statement(Database& database, std::string_view sql) : database_{database} {
  sqlite3_stmt* raw = nullptr;
  const int result = sqlite3_prepare_v2(database.handle(), sql.data(), static_cast<int>(sql.size()), &raw, nullptr);
  statement_.reset(raw);
  check(result);
}

void Statement::check(int result) const {
  if (result != SQLITE_OK) database_.fail();
}

Statement& Statement::bind(int position, std::int64_t value) {
  check(sqlite3_bind_int64(statement_.get(), position, value));
  return *this;
}
Statement& Statement::bind(int position, double value) {
  check(sqlite3_bind_double(statement_.get(), position, value));
  return *this;
}
Statement& Statement::bind(int position, std::string_view text) {
  const char* data = text.data() == nullptr ? "" : text.data();
  check(sqlite3_bind_text64(statement_.get(), position, data, text.size(), SQLITE_STATIC, SQLITE_UTF8));
  return *this;
}
Statement& Statement::bind_blob(int position, std::string_view bytes) {
  const char* data = bytes.data() == nullptr ? "" : bytes.data();
  check(sqlite3_bind_blob64(statement_.get(), position, data, bytes.size(), SQLITE_STATIC));
  return *this;
}

bool Statement::step() {
  const int result = sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  if (result != SQLITE_DONE) database_.fail();
  check(sqlite3_reset(statement_.get()));
  return false;
}

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
double Statement::real(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string_view Statement::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

std::string_view Statement::blob(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

}  // namespace orrery
