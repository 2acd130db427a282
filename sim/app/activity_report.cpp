// SPDX-License-Identifier: Apache-2.0
#include "sim/app/activity_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "sim/base/units.hpp"

namespace orrery {
namespace {

using Calls = ActivityAccount::Calls;

std::string bytes_text(std::int64_t bytes) { return to_text(Bytes{static_cast<double>(bytes)}); }

Calls sum(const ActivityAccount& account) {
  Calls all = account.outside;
  for (const auto& [op, c] : account.of_op) {
    all.waits += c.waits, all.wait_ns += c.wait_ns, all.stream_waits += c.stream_waits;
    all.allocations += c.allocations, all.allocated += c.allocated;
    all.releases += c.releases, all.released += c.released;
  }
  return all;
}

/// The ops with the most of something, "mlp.up 128 MiB, embed 2 MiB"; empty where none has any.
template <class Amount, class Text>
std::string most(const ActivityAccount& account, Amount amount, Text text) {
  constexpr std::size_t kShown = 3;
  std::vector<std::pair<std::int64_t, std::string>> ops;
  for (const auto& [op, c] : account.of_op)
    if (amount(c) > 0) ops.emplace_back(-amount(c), op);
  std::sort(ops.begin(), ops.end());
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, ops.size()); ++i)
    out += fmt::format("{}{} {}", i == 0 ? " (of ops: " : ", ", ops[i].second, text(-ops[i].first));
  if (ops.size() > kShown) out += fmt::format(" and {} more", ops.size() - kShown);
  return ops.empty() ? out : out + ")";
}

nlohmann::json to_json(const Calls& c) {
  return {{"host_waits", c.waits},          {"host_wait_seconds", 1e-9 * static_cast<double>(c.wait_ns)},
          {"stream_waits", c.stream_waits}, {"allocations", c.allocations},
          {"allocated", c.allocated},       {"releases", c.releases},
          {"released", c.released}};
}

}  // namespace

std::string to_text(const ActivityAccount& a) {
  const Calls all = sum(a);
  const auto seconds = [](std::int64_t ns) { return to_text(Seconds{1e-9 * static_cast<double>(ns)}); };
  std::string text = fmt::format("\nrecords     {} kernels, {} copies of {}, {} fills of {}\n", a.kernels, a.copies,
                                 bytes_text(a.copied), a.fills, bytes_text(a.filled));
  text += fmt::format("host waits  {}, {}{}; streams waited for events {} times\n", all.waits, seconds(all.wait_ns),
                      most(
                          a, [](const Calls& c) { return c.wait_ns; }, seconds),
                      all.stream_waits);
  text += fmt::format("memory      asked for {} times, {}{}; given back {} times, {}\n", all.allocations,
                      bytes_text(all.allocated),
                      most(
                          a, [](const Calls& c) { return c.allocated; }, bytes_text),
                      all.releases, bytes_text(all.released));
  return text;
}

nlohmann::json to_json(const ActivityAccount& a) {
  nlohmann::json ops = nlohmann::json::object();
  for (const auto& [op, calls] : a.of_op)
    if (calls.is_any()) ops[op] = to_json(calls);
  return {{"kernels", a.kernels},
          {"copies", a.copies},
          {"copied", a.copied},
          {"fills", a.fills},
          {"filled", a.filled},
          {"calls", to_json(sum(a))},
          {"calls_of_ops", std::move(ops)}};
}

}  // namespace orrery
