// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/verify_places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "sim/plan/placement.hpp"

namespace orrery {
namespace {

std::string problem_of(const Plan& plan, const RankView& v) {
  const Tensor& view = plan.tensors[v.view.index()];
  const std::int64_t positions = ranks_over(plan.mesh, v.axes), elements = plan.shape(v.view).elements();
  if (std::ssize(v.places) != positions)
    return fmt::format("has {} places, there are {} positions", v.places.size(), positions);
  for (const RankView::Place& p : v.places) {
    const Tensor& t = plan.tensors[p.tensor.index()];
    const std::int64_t room = plan.shape(p.tensor).elements();
    const bool lasts = t.persistent || p.tensor == view.base;
    if (!lasts || !t.base.is_none() || t.dtype != view.dtype)
      return fmt::format("lies in '{}', which has no lasting storage of its type", plan.names[t.name]);
    if (p.first < 0 || p.first + elements > room)
      return fmt::format("has elements {} to {} of '{}', which has {}", p.first, p.first + elements, plan.names[t.name],
                         room);
  }
  return {};
}

}  // namespace

std::vector<std::string> problems_of_places(const Plan& plan) {
  std::vector<std::string> problems;
  std::unordered_map<std::uint32_t, const RankView*> views;
  const auto name = [&](TensorId t) { return plan.name_of(t); };
  for (const RankView& v : plan.rank_views) {
    if (v.places.empty()) continue;
    views[v.view.value] = &v;
    if (const std::string p = problem_of(plan, v); !p.empty())
      problems.push_back(fmt::format("view '{}' {}", name(v.view), p));
  }
  if (views.empty()) return problems;
  for (const Op& op : plan.ops) {
    const auto operands = plan.operands_of(op);
    const auto has = [&](const RankView::Place& p) {
      return std::any_of(operands.begin(), operands.end(),
                         [&](const Operand& o) { return plan.owner(o.tensor()) == p.tensor; });
    };
    for (const Operand& o : operands)
      if (const auto it = views.find(o.tensor().value); it != views.end())
        if (const auto& places = it->second->places; !std::all_of(places.begin(), places.end(), has))
          problems.push_back(fmt::format("op '{}' touches view '{}' and not all tensors that it lies in",
                                         plan.name_of(op), name(o.tensor())));
  }
  return problems;
}

}  // namespace orrery
