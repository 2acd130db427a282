// SPDX-License-Identifier: Apache-2.0
#include "sim/app/node_shares.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <variant>

#include "calibrate/statistics.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

constexpr double kLeastBytes = 64 << 20, kShareOfCopies = 0.85, kShareOfProducts = 0.6;
constexpr std::int64_t kLeastTokens = 8192;

std::string type_of(const Work& work) {
  return std::visit(
      [](const auto& w) -> std::string {
        if constexpr (requires { w.shape.dtype; })
          return std::string{name_of(w.shape.dtype)};
        else if constexpr (requires { w.dtype; })
          return std::string{name_of(w.dtype)};
        else
          return {};
      },
      work);
}

std::string kind_of(const Work& work) {
  const std::string type = type_of(work);
  return std::string{kind_name(work)} + (type.empty() ? "" : " " + type);
}

/// Queries of a sequence; nothing for other kinds.
std::optional<std::int64_t> tokens_of(const Work& work) {
  if (const auto* a = std::get_if<AttentionForward>(&work)) return a->shape.q;
  if (const auto* a = std::get_if<AttentionBackward>(&work)) return a->shape.q;
  return std::nullopt;
}

struct Speeds {
  double copies = 0;                       // B/s
  std::map<std::string, double> products;  // FLOP/s by type
};

Speeds speeds_of(const std::vector<GpuResult>& results) {
  Speeds s;
  for (const GpuResult& r : results) {
    if (!r.work || r.seconds.median <= 0) continue;
    if (std::holds_alternative<Copy>(*r.work) && r.group == "memory" && r.bytes >= kLeastBytes)
      s.copies = std::max(s.copies, r.bytes / r.seconds.median);
    if (const auto* g = std::get_if<Gemm>(&*r.work)) {
      double& best = s.products[std::string{name_of(g->arithmetic())}];
      best = std::max(best, r.flops / r.seconds.median);
    }
  }
  return s;
}

}  // namespace

std::vector<KernelShare> kernel_shares(const std::vector<GpuResult>& results) {
  const Speeds speeds = speeds_of(results);
  std::map<std::string, std::vector<double>> shares;
  std::map<std::string, double> wanted;
  for (const GpuResult& r : results) {
    if (!r.work || r.seconds.median <= 0) continue;
    const std::string kind = kind_of(*r.work);
    if (r.group == "memory" && r.bytes >= kLeastBytes && speeds.copies > 0) {
      shares[kind].push_back(r.bytes / r.seconds.median / speeds.copies);
      wanted[kind] = kShareOfCopies;
    }
    const auto product = speeds.products.find(type_of(*r.work));
    if (tokens_of(*r.work).value_or(0) >= kLeastTokens && product != speeds.products.end()) {
      shares[kind].push_back(r.flops / r.seconds.median / product->second);
      wanted[kind] = kShareOfProducts;
    }
  }
  std::vector<KernelShare> out;
  for (auto& [kind, all] : shares) out.push_back({kind, median(all), wanted[kind], all.size()});
  return out;
}

std::string text_of(const std::vector<KernelShare>& shares) {
  Table table{{{"kernel"}, {"points", Align::Right}, {"share", Align::Right}, {"wanted", Align::Right}, {""}}};
  for (const KernelShare& s : shares)
    table.add({s.kind, std::to_string(s.points), fmt::format("{:.0f} %", 100 * s.share),
               fmt::format("{:.0f} %", 100 * s.wanted), s.is_enough() ? "" : "slower than wanted"});
  return shares.empty() ? "" : table.text("  ");
}

}  // namespace orrery
