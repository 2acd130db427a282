// SPDX-License-Identifier: Apache-2.0
// A report for people.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/app/evaluation.hpp"
#include "sim/app/report.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

constexpr double kShownShare = 0.001;
constexpr double kAlike = 0.005;
constexpr std::size_t kShownLetters = 200;

std::string time_text(double s) { return to_text(Seconds{s}); }
std::string bytes(double b) { return to_text(Bytes{b}); }

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : std::string{"-"};
}

std::string line(std::string_view name, std::string_view value) { return fmt::format("  {:<22} {}\n", name, value); }

std::string step_lines(const Report& r, const Console& console) {
  const std::string_view what = r.speculation              ? "time per round"
                                : r.workload == "generate" ? "time per token"
                                : r.workload == "train"    ? "step time"
                                                           : "pass time";
  std::string value = console.bold(time_text(r.step));
  if (r.high > r.low)
    value +=
        fmt::format("   {} {} … {}", r.measured ? "mean within" : "90 % interval", time_text(r.low), time_text(r.high));
  std::string text = line(what, value);
  if (r.prefill) text += line("prefill", time_text(*r.prefill));
  if (r.tokens_per_second > 0) text += line("tokens", rate_text(r.tokens_per_second) + " /s");
  if (r.padding) text += line("padding", percent(*r.padding, 1) + " of all places");
  text += line("arithmetic", fmt::format("{} per step{}", to_text(Flops{r.model_flops}),
                                         r.mfu > 0 ? fmt::format(", MFU {:.1f} %", 100 * r.mfu) : ""));
  text += line("ops", fmt::format("{} per step on {} rank{}", r.ops, r.ranks, r.ranks == 1 ? "" : "s"));
  if (!r.spread.empty()) text += line("ranks", to_text(r.spread));
  if (r.exposed_communication > 0)
    text += line("exposed communication",
                 fmt::format("{} ({})", time_text(r.exposed_communication), percent(r.exposed_communication, r.step)));
  return text + line("bubble", fmt::format("{:.2f} %", 100 * r.bubble));
}

std::string speculation_lines(const Report& r) {
  if (!r.speculation) return {};
  const SpeculationReport& s = *r.speculation;
  std::int64_t all = 0;
  for (const std::int64_t n : s.accepted) all += n;
  std::string shares;
  for (std::size_t i = 0; i < s.accepted.size(); ++i)
    shares += fmt::format("{}{}: {}", i == 0 ? "" : ", ", i, percent(double(s.accepted[i]), double(all)));
  return line("rounds", fmt::format("{} of {:.1f} tokens, {:.3f} kept by a sequence", s.rounds, s.verified_per_round,
                                    s.tokens_per_round)) +
         line("  accepted drafts", shares) +
         line("  drafting", fmt::format("{} ({})", time_text(s.drafting), percent(s.drafting, r.step))) +
         line("  verifying", fmt::format("{} ({})", time_text(s.verifying), percent(s.verifying, r.step)));
}

std::string memory_lines(const Report& r, const Console& console) {
  const MemoryReport& m = r.memory;
  if (m.bytes == 0) return {};
  std::string value = bytes(double(m.bytes));
  if (m.sharers > 1) value += fmt::format(", {} ranks {}", m.sharers, bytes(double(m.together)));
  if (m.capacity) value += fmt::format(" of {}", bytes(*m.capacity));
  value += m.fits() ? "" : "  " + console.bad("does not fit");
  if (!m.op.empty()) value += fmt::format("   at {} on rank {}", m.op, m.rank);
  std::string text = line("peak memory", value);
  for (const MemoryReport::Owner& o : m.by_role)
    text += line("  " + o.role,
                 fmt::format("{:>10}  {}", bytes(double(o.bytes)), percent(double(o.bytes), double(m.bytes))));
  return text;
}

std::string tier_lines(const Report& r, const Console& console) {
  std::string text;
  for (const TierReport& t : r.tiers)
    if (t.tier != Tier::Device)
      text += line(fmt::format("peak on {}", name_of(t.tier)),
                   bytes(double(t.bytes)) + (t.capacity ? fmt::format(" of {}", bytes(*t.capacity)) : "") +
                       (t.fits() ? "" : "  " + console.bad("does not fit")));
  for (const TransferReport& t : r.transfers)
    text += line(fmt::format("{} to {}", name_of(t.from), name_of(t.to)),
                 fmt::format("{} in {:.0f} copies per step", bytes(t.bytes), t.moves));
  return text;
}

std::string share_table(std::string_view head, const std::vector<NamedSeconds>& rows, double whole) {
  Table table{{{std::string{head}}, {"time", Align::Right}, {"share", Align::Right}}};
  for (const NamedSeconds& row : rows) table.add({row.name, time_text(row.seconds), percent(row.seconds, whole)});
  return rows.empty() ? std::string{} : "\n" + table.text("  ");
}

/// How the stages of a pipeline differ. Those after one another that are nearly alike share a row, with the most of
/// each.
std::string stage_table(const Report& r) {
  if (r.stages.size() < 2) return {};
  const auto alike = [](double a, double b) { return std::abs(a - b) <= kAlike * std::max(a, b); };
  Table table{{{"stage"}, {"busy", Align::Right}, {"of the step", Align::Right}, {"peak memory", Align::Right}}};
  for (std::size_t i = 0, next = 0; i < r.stages.size(); i = next) {
    StageReport most = r.stages[i];
    for (next = i + 1; next < r.stages.size(); ++next) {
      const StageReport& s = r.stages[next];
      if (!alike(s.busy, r.stages[i].busy) || !alike(double(s.bytes), double(r.stages[i].bytes))) break;
      most.busy = std::max(most.busy, s.busy), most.bytes = std::max(most.bytes, s.bytes);
    }
    table.add({next == i + 1 ? fmt::format("{}", i) : fmt::format("{} … {}", i, next - 1), time_text(most.busy),
               percent(most.busy, r.step), bytes(double(most.bytes))});
  }
  return "\n" + table.text("  ");
}

std::string loss_line(const std::vector<double>& loss) {
  if (loss.empty()) return {};
  constexpr std::size_t kShown = 8;
  std::string text;
  const std::size_t stride = (loss.size() + kShown - 1) / kShown;
  for (std::size_t i = 0; i < loss.size(); i += stride) text += fmt::format("{}{:.4f}", i == 0 ? "" : " ", loss[i]);
  if ((loss.size() - 1) % stride != 0) text += fmt::format(" {:.4f}", loss.back());
  return line("loss", text);
}

/// Kinds with the same reason share a line; what takes next to no time is left to the JSON report.
std::string extrapolation_lines(const Report& r, const Console& console) {
  struct Line {
    std::string reason, kinds;
    double share = 0;
  };
  std::vector<Line> lines;
  for (const Extrapolation& e : r.extrapolated) {
    if (e.share < kShownShare) continue;
    const std::size_t colon = std::min(e.reason.find(": "), e.reason.size());
    const std::string kind = e.reason.substr(0, e.reason.find_first_of(" :")),
                      reason = e.reason.substr(std::min(colon + 2, e.reason.size()));
    auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.reason == reason; });
    if (line == lines.end()) line = lines.insert(lines.end(), {reason, {}, 0});
    if (line->kinds.find(kind) == std::string::npos) line->kinds += (line->kinds.empty() ? "" : ", ") + kind;
    line->share += e.share;
  }
  std::string text;
  for (const Line& l : lines)
    text += fmt::format("  {:.1f} % of the time ({}): {}\n", 100 * l.share, l.kinds, l.reason);
  return text.empty() ? text
                      : fmt::format("\n{}\n{}", console.bad("outside of what was measured on this device"), text);
}

}  // namespace

std::string rate_text(double per_second) {
  constexpr int kDigits = 4;
  if (!(per_second >= std::pow(10, kDigits) - 0.5)) return fmt::format("{:.{}g}", per_second, kDigits);
  const double unit = std::pow(10, std::floor(std::log10(per_second)) + 1 - kDigits);
  std::string digits = fmt::format("{:.0f}", std::round(per_second / unit) * unit);
  for (std::size_t i = digits.size(); i > 3;) digits.insert(i -= 3, ",");
  return digits;
}

std::string to_text(const Report& r, const Console& console) {
  std::string text = fmt::format("{} {}: {} on {}\n", console.bold(r.measured ? "measured" : "predicted"), r.scenario,
                                 r.plan, r.machine.empty() ? r.device : r.machine);
  text += step_lines(r, console);
  text += speculation_lines(r);
  text += memory_lines(r, console);
  text += tier_lines(r, console);
  text += loss_line(r.loss);
  if (!r.text.empty()) text += line("text", one_line(r.text, kShownLetters));
  text += share_table("time by class", r.by_class, r.step) + stage_table(r);
  text += share_table("critical path", r.critical_path, r.step);
  return text + extrapolation_lines(r, console);
}

}  // namespace orrery
