// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace orrery {

class Database;

/// A prepared statement. Errors throw as those of its database do.
class Statement {
 public:
  Statement(Database& database, std::string_view sql);

  Statement& bind(int position, std::int64_t value);
  Statement& bind(int position, double value);
  /// Texts and blobs must outlive the next `step`.
  Statement& bind(int position, std::string_view text);
  Statement& bind_blob(int position, std::string_view bytes);

  /// Goes to the next row; false when there is none, and then it can be bound again.
  bool step();

  std::int64_t integer(int column) const;
  double real(int column) const;
  /// Valid until the next `step`.
  std::string_view text(int column) const;
  std::string_view blob(int column) const;

 private:
  void check(int result) const;
  struct Finalise {
    void operator()(sqlite3_stmt* s) const;
  };
  Database& database_;
  std::unique_ptr<sqlite3_stmt, Finalise> statement_;
};

/// A database in memory: made empty, or a view of the bytes of a file that nobody trusts (read only, without views and
/// triggers, with a limit on the work of a query). Its errors are UserError ("'x.orrery' is not a trace: …").
class Database {
 public:
  explicit Database(std::string file);
  Database(std::string_view bytes, std::string file);

  void execute(const char* sql);
  /// The bytes of its file.
  std::string bytes() const;

  const std::string& file() const { return file_; }
  sqlite3* handle() const { return handle_.get(); }
  [[noreturn]] void fail() const;

 private:
  void open();
  struct Close {
    void operator()(sqlite3* d) const;
  };
  std::string file_;
  std::unique_ptr<sqlite3, Close> handle_;
};

}  // namespace orrery
