// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QString>
#include <QStringList>

#include "gui/core/explorer.hpp"

namespace orrery::gui {

inline QString qt(std::string_view text) { return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size())); }

/// The words of an enumeration, and the value of one. Unknown words are UserErrors with those that are known.
template <class E>
QStringList words(E) {
  QStringList out;
  for (const EnumName<E>& e : enum_names(E{})) out << qt(e.name);
  return out;
}
void check_word(const QString& word, const QStringList& words);
template <class E>
E value_of(const QString& word) {
  check_word(word, words(E{}));
  for (const EnumName<E>& e : enum_names(E{}))
    if (qt(e.name) == word) return e.value;
  return {};
}

/// "1.5 ms" or "-20 us". Throws UserError for what is no time.
std::int64_t picoseconds_of(const QString& time);

/// What the pointer says of a slice, as rich text; of a counter's value under it.
QString tip_text(const Explorer& explorer, Selected s);
QString counter_text(const Explorer& explorer, const Row& row, int x, Rect picture);
/// One sentence about a slice, for screen readers and the status bar.
QString plain_text(const Explorer& explorer, Selected s);
/// All that is known of a slice: start, duration, slack, its partner and its error, then what the file says.
std::vector<Detail> details_of(const Explorer& explorer, Selected s);

}  // namespace orrery::gui
