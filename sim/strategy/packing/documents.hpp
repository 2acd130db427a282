// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/options.hpp"

namespace orrery {

/// What of a file is a document: all of it, or what lies between blank lines.
enum class DocumentUnit : std::uint8_t { File, Paragraph };
inline std::span<const EnumName<DocumentUnit>> enum_names(DocumentUnit) {
  static constexpr EnumName<DocumentUnit> names[] = {{DocumentUnit::File, "file"},
                                                     {DocumentUnit::Paragraph, "paragraph"}};
  return names;
}

/// The documents of a text, without empty ones.
std::vector<std::string> documents_of(std::string_view text, DocumentUnit unit);

/// The documents of a file. One that ends in `.jsonl` has an object a line, whose `text` or `content` is a document.
/// Throws UserError with the line.
std::vector<std::string> read_documents(const std::string& path, DocumentUnit unit);

}  // namespace orrery
