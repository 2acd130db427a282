// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/timeline/columns.hpp"

namespace orrery {

/// Appends fields of a protocol buffer message to a string.
class ProtoWriter {
 public:
  explicit ProtoWriter(std::string& out) : out_{out} {}

  void integer(std::uint32_t field, std::uint64_t value) {
    append_varint(out_, std::uint64_t{field} << 3);
    append_varint(out_, value);
  }
  void fixed64(std::uint32_t field, std::uint64_t value) {
    append_varint(out_, std::uint64_t{field} << 3 | 1);
    for (int i = 0; i < 8; ++i) out_ += static_cast<char>(value >> (8 * i));
  }
  /// A text, bytes, or a message that is already written.
  void bytes(std::uint32_t field, std::string_view value) {
    append_varint(out_, std::uint64_t{field} << 3 | 2);
    append_varint(out_, value.size());
    out_ += value;
  }

 private:
  std::string& out_;
};

/// Goes through the fields of a message that nobody trusts. Fields point into its bytes.
class ProtoReader {
 public:
  struct Field {
    std::uint32_t number = 0;
    std::uint64_t integer = 0;  // of a varint or fixed field
    std::string_view bytes;     // of a length-delimited one
  };

  explicit ProtoReader(std::string_view message) : rest_{message} {}

  /// The next field; false at the end, and at damaged bytes, after which `is_damaged`.
  bool next(Field& out);
  bool is_damaged() const { return damaged_; }

 private:
  bool varint(std::uint64_t& out);
  bool fixed(int size, std::uint64_t& out);

  std::string_view rest_;
  bool damaged_ = false;
};

}  // namespace orrery
