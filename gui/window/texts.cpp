// SPDX-License-Identifier: Apache-2.0
#include "gui/window/texts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/core/alignment.hpp"
#include "sim/base/error.hpp"

namespace orrery::gui {
namespace {

const Document& document_of(const Explorer& e, Side side) {
  return side == Side::Main ? e.document() : e.other()->document;
}

std::string percent(double ratio) { return fmt::format("{:+.1f} %", 100 * std::expm1(ratio)); }

std::string signed_time(std::int64_t ps) { return (ps > 0 ? "+" : "") + exact_text(ps); }

std::string names_of(const Document& d, const std::vector<EventIndex>& events) {
  std::string out;
  for (const EventIndex e : events) out += (out.empty() ? "" : " + ") + std::string{d.events().name(e)};
  return out;
}

/// What stands for an op that has no partner of its own.
void add_fusion(const Explorer& explorer, EventIndex e, std::vector<Detail>& out) {
  const Companion& other = *explorer.other();
  const Fusion* f = other.matching.fusion_of(e);
  if (f == nullptr) return out.push_back({"partner", "none"});
  out.push_back({"fused", names_of(explorer.document(), f->main)});
  out.push_back({"into", names_of(other.document, f->other)});
  out.push_back({"error of duration", percent(other.errors[e]) + " of all of them"});
}

void add_error(const Explorer& explorer, EventIndex e, std::vector<Detail>& out) {
  const Companion* other = explorer.other();
  if (other == nullptr) return;
  if (other->matching.partner_of_main[e] == kNoEvent) return add_fusion(explorer, e, out);
  const EventIndex p = other->matching.partner_of_main[e];
  const OpError error = op_error(explorer.document(), *other, e);
  out.push_back({"partner", std::string{other->document.events().name(p)}});
  out.push_back({"matched by", std::string{name_of(static_cast<MatchTier>(other->matching.tier_of_main[e]))}});
  out.push_back({fmt::format("{} duration", side_name(explorer.document(), other->document, Side::Other)),
                 exact_text(other->document.events().end(p) - other->document.events().start(p))});
  out.push_back({"error of duration", fmt::format("{} ({})", percent(error.ratio), signed_time(error.absolute_ps))});
  out.push_back({"start skew", signed_time(error.start_skew_ps)});
  out.push_back({"gap before, difference", signed_time(error.gap_ps)});
  out.push_back({"overlap, difference", signed_time(error.overlap_ps)});
}

}  // namespace

std::vector<Detail> details_of(const Explorer& explorer, Selected s) {
  const Document& d = document_of(explorer, s.side);
  std::vector<Detail> out = {{"name", std::string{d.events().name(s.event)}},
                             {"timeline", fmt::format("{} {}", d.source(), d.name())},
                             {"start", exact_text(d.start(s.event))},
                             {"duration", exact_text(d.events().end(s.event) - d.events().start(s.event))}};
  if (s.side == Side::Main && explorer.insight() != nullptr) {
    const bool is_critical = explorer.insight()->is_critical[s.event];
    out.push_back(
        {"slack", is_critical ? "none: on the critical path" : exact_text(explorer.insight()->slack[s.event])});
    const std::int64_t waited = explorer.insight()->graph.ready_ps(s.event) - d.events().start(s.event);
    if (waited > 0) out.push_back({"waiting for partners", exact_text(waited)});
  }
  if (s.side == Side::Main) add_error(explorer, s.event, out);
  for (Detail& detail : d.events().details(s.event)) out.push_back(std::move(detail));
  return out;
}

void check_word(const QString& word, const QStringList& words) {
  if (words.contains(word)) return;
  std::vector<std::string> known;
  for (const QString& w : words) known.push_back(w.toStdString());
  throw unknown_name("word", word.toStdString(), known);
}

std::int64_t picoseconds_of(const QString& time) {
  const QString text = time.trimmed();
  const bool is_negative = text.startsWith('-');
  const double seconds = parse<Seconds>(text.mid(is_negative ? 1 : 0).trimmed().toStdString()).base();
  return static_cast<std::int64_t>(std::llround((is_negative ? -seconds : seconds) * 1e12));
}

QString tip_text(const Explorer& explorer, Selected s) {
  const std::vector<Detail> details = details_of(explorer, s);
  QString text = "<b>" + qt(details.front().value).toHtmlEscaped() + "</b><table>";
  for (std::size_t i = 2; i < std::min<std::size_t>(details.size(), 12); ++i)
    text += "<tr><td>" + qt(details[i].name).toHtmlEscaped() + "&nbsp;&nbsp;</td><td>" +
            qt(details[i].value).toHtmlEscaped() + "</td></tr>";
  return text + "</table>";
}

QString counter_text(const Explorer& explorer, const Row& row, int x, Rect picture) {
  const Counter& c = explorer.document().counters()[row.index];
  const Regions parts = regions(picture, explorer.view(), explorer.layout());
  const std::int64_t at = time_at(parts, explorer.view(), x);
  const auto next = std::upper_bound(c.at.begin(), c.at.end(), at) - c.at.begin();
  const double value = next > 0 ? c.value[static_cast<std::size_t>(next - 1)] : 0;
  return qt(fmt::format("{} of {}: {}", c.name, explorer.document().owners()[c.owner].name, value_text(value, c.unit)));
}

QString plain_text(const Explorer& explorer, Selected s) {
  const Document& d = document_of(explorer, s.side);
  const Track& track = d.tracks()[d.place(s.event).track];
  return qt(fmt::format("{} on {} {}, starts at {}, takes {}", d.events().name(s.event), d.owners()[track.owner].name,
                        track.name, exact_text(d.start(s.event)),
                        exact_text(d.events().end(s.event) - d.events().start(s.event))));
}

}  // namespace orrery::gui
