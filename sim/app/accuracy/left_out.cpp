// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/left_out.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace orrery {
namespace {

constexpr std::string_view kMisconfigured = "the notes call the machine or the run misconfigured";
constexpr std::string_view kAnomalous = "the notes call the row anomalous";
constexpr std::string_view kMislabelled = "the notes say that the row is not what it is labelled";
constexpr std::string_view kCorrected = "its page corrected the number later";

constexpr LeftOutRule kRules[] = {
    {"confidence", "memory", SkipReason::Recalled, "the number was recalled, not read"},
    {"notes", "misconfigur", SkipReason::LeftOut, kMisconfigured},
    {"interconnect", "misconfigur", SkipReason::LeftOut, kMisconfigured},
    {"notes", "anomal", SkipReason::LeftOut, kAnomalous},
    {"notes", "this row is an outlier", SkipReason::LeftOut, kAnomalous},
    {"notes", "outlier:", SkipReason::LeftOut, kAnomalous},
    {"notes", "looks mislabelled", SkipReason::LeftOut, kMislabelled},
    {"notes", "does not match the", SkipReason::LeftOut, kMislabelled},
    {"notes", "does not multiply", SkipReason::LeftOut, kMislabelled},
    {"notes", "looks wrong", SkipReason::LeftOut, kAnomalous},
    {"notes", "prints a corrected value", SkipReason::LeftOut, kCorrected},
};

bool mentions(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

}  // namespace

std::span<const LeftOutRule> left_out_rules() { return kRules; }

std::optional<Skip> left_out(const CsvRow& row) {
  for (const LeftOutRule& r : kRules)
    if (mentions(row[r.column], r.says)) return Skip{r.reason, fmt::format("{} has \"{}\"", r.column, r.says)};
  return {};
}

}  // namespace orrery
