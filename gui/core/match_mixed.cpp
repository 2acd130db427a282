// SPDX-License-Identifier: Apache-2.0
#include "gui/core/match_mixed.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <set>
#include <tuple>

#include "gui/core/foreign_marks.hpp"
#include "gui/core/match_keys.hpp"

namespace orrery::gui {
namespace {

enum class Role : std::uint8_t { Compute, Communication, Copy };
constexpr std::array kRoles = {Role::Compute, Role::Communication, Role::Copy};
constexpr std::array<const char*, kRoles.size()> kRoleNames = {"compute", "communication", "copy"};

Role role_of(OpClass c) {
  if (c == OpClass::Collective || c == OpClass::PointToPoint) return Role::Communication;
  return c == OpClass::Copy ? Role::Copy : Role::Compute;
}

/// Which collective a name means, whoever wrote it: "all_reduce", "ncclDevKernel_AllReduce_Sum_bf16",
/// "_allgather_base".
std::uint64_t collective_word(std::string_view name) {
  constexpr std::array<std::string_view, 8> kWords = {"allreduce", "allgather", "reducescatter", "alltoall",
                                                      "broadcast", "sendrecv",  "reduce",        "gather"};
  std::string letters;
  for (const unsigned char c : name)
    if (std::isalpha(c)) letters += char(std::tolower(c));
  for (std::size_t i = 0; i < kWords.size(); ++i)
    if (letters.find(kWords[i]) != std::string::npos) return i + 1;
  return 0;
}

std::uint64_t kind_of(OpClass c, std::string_view collective) {
  return key_of(static_cast<int>(c), c == OpClass::Collective ? collective_word(collective) : 0);
}

/// Kernels that say by their name that they do what several ops do: those that PyTorch's compiler made of several, and
/// products with an activation. They are no op of ours: those around them say which ops they stand for.
bool is_fused(OpClass c, std::string_view kernel) {
  if (kernel.starts_with("triton_")) return kernel.find("_fused_") != std::string_view::npos;
  std::string lower{kernel};
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  constexpr std::array kActivations = {"gelu", "relu", "silu", "swish", "swiglu"};
  return c == OpClass::Gemm && std::any_of(kActivations.begin(), kActivations.end(),
                                           [&](const char* a) { return lower.find(a) != std::string::npos; });
}

/// Numbers in a text: "[0, 1, 2]". Nothing where the writer left some out.
std::vector<std::uint32_t> numbers_in(std::string_view text) {
  std::vector<std::uint32_t> out;
  if (text.find("...") != std::string_view::npos) return out;
  for (std::size_t i = 0; i < text.size();) {
    std::uint32_t n = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), n);
    if (error == std::errc{}) out.push_back(n);
    i = error == std::errc{} ? static_cast<std::size_t>(end - text.data()) : i + 1;
  }
  return out;
}

std::uint64_t key_of_ranks(const std::vector<std::uint32_t>& ranks) {
  std::uint64_t k = 1;
  for (const std::uint32_t r : ranks) k = combined(k, r + 1);
  return k;
}

/// An event with what it is put into order and found by.
struct Entry {
  MatchItem item;
  std::uint32_t rank = 0;
  Role role = Role::Compute;
  std::int64_t start = 0;
  std::uint64_t group = 0;   // of a collective: its ranks; 0: unknown
  std::uint64_t number = 0;  // of a collective: its place among those of the group
  std::uint64_t step = 0;    // 0: unknown, else one more than the number
};
using Entries = std::vector<Entry>;

/// The instances that the steps of the other side mean: warm-up comes first, so the last steps are those predicted.
class StepNumbers {
 public:
  StepNumbers(const std::vector<std::uint64_t>& steps, std::size_t instances) : is_single_{instances == 1} {
    const std::size_t skipped = steps.size() > instances ? steps.size() - instances : 0;
    for (std::size_t i = skipped; i < steps.size(); ++i) numbers_[steps[i]] = i - skipped + 1;
  }
  /// 0: not one of them.
  std::uint64_t of(std::optional<std::uint64_t> step) const {
    if (numbers_.empty()) return is_single_ ? 1 : 0;
    const auto it = step ? numbers_.find(*step) : numbers_.end();
    return it != numbers_.end() ? it->second : 0;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> numbers_;
  bool is_single_;
};

struct Recorded {
  Entries entries;
  std::set<std::uint32_t> ranks;
  bool has_layers = false, has_backward_layers = false;
};

Recorded recorded(const Document& document, std::size_t instances) {
  const ForeignTrace& trace = *document.foreign();
  const ForeignMarks marks{trace};
  const StepNumbers steps{marks.steps(), instances};
  Recorded out;
  for (EventIndex e = 0; e < trace.events.size(); ++e) {
    const ForeignEvent& event = trace.events[e];
    if (!event.is_device || event.is_marker) continue;
    const ForeignPlace place = marks.place(e);
    Entry entry;
    entry.item.event = e;
    entry.rank = static_cast<std::uint32_t>(trace.processes[trace.threads[event.thread].process].rank);
    entry.role = role_of(event.op_class);
    entry.start = event.start_ps;
    entry.step = steps.of(place.step);
    const std::string_view collective = trace.argument(event, "Collective name");
    const std::string_view name = trace.names[event.name];
    entry.item.is_fused = is_fused(event.op_class, name);
    entry.item.kind =
        entry.item.is_fused ? hash_of(name) : kind_of(event.op_class, collective.empty() ? name : collective);
    if (entry.step > 0 && place.layer) entry.item.segment = key_of(entry.step, *place.layer);
    entry.item.stretch = entry.step;
    if (event.op_class == OpClass::Collective) {
      const std::string_view number = trace.argument(event, "Seq");
      std::from_chars(number.data(), number.data() + number.size(), entry.number);
      const std::vector<std::uint32_t> ranks = numbers_in(trace.argument(event, "Process Group Ranks"));
      if (!number.empty() && !ranks.empty()) entry.group = key_of_ranks(ranks);
    }
    out.ranks.insert(entry.rank);
    out.has_layers = out.has_layers || entry.item.segment != 0;
    out.has_backward_layers = out.has_backward_layers || (entry.item.segment != 0 && place.is_backward);
    out.entries.push_back(std::move(entry));
  }
  return out;
}

/// Whose trace a rank of ours is compared with: its own, or that of a rank of its class that was not simulated.
std::map<std::uint32_t, std::uint32_t> played_ranks(const Trace& trace, const std::set<std::uint32_t>& recorded) {
  std::set<std::uint32_t> ours;
  for (const Span& s : trace.timeline.spans) ours.insert(s.rank.value);
  std::map<std::uint32_t, std::uint32_t> out;
  const auto is_played = [&](std::uint32_t rank) {
    return std::any_of(out.begin(), out.end(), [&](const auto& p) { return p.second == rank; });
  };
  for (const std::uint32_t rank : ours)
    if (recorded.contains(rank)) out[rank] = rank;
  const PlanDigest& plan = trace.plans.front();
  const auto is_in = [&](const RankClass& c, std::uint32_t rank) {
    return std::int64_t{rank} < plan.mesh.size() && c.contains(plan.mesh.coordinates(RankId{rank}));
  };
  for (const std::uint32_t rank : ours)
    for (const RankClass& c : plan.classes)
      for (const std::uint32_t other : recorded)
        if (!out.contains(rank) && is_in(c, rank) && is_in(c, other) && !is_played(other)) out[rank] = other;
  return out;
}

Entries predicted(const Document& document, const Recorded& other) {
  const Trace& trace = *document.trace();
  const std::map<std::uint32_t, std::uint32_t> played = played_ranks(trace, other.ranks);
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint64_t> groups;  // plan, group, rank
  Entries out;
  for (EventIndex e = 0; e < trace.timeline.spans.size(); ++e) {
    const Span& s = trace.timeline.spans[e];
    const PlanDigest& plan = plan_of(trace.timeline, trace.plans, s);
    const Op& op = plan[s.op];
    const WorkDigest& work = plan.work(s.op);
    const auto rank = played.find(s.rank.value);
    if (s.part != 0 || work.op_class == OpClass::Host || rank == played.end()) continue;
    Entry entry;
    entry.item.event = e;
    entry.rank = rank->second;
    entry.role = role_of(work.op_class);
    entry.start = s.start_ps;
    entry.step = s.instance + 1;
    entry.item.kind = kind_of(work.op_class, plan.names[work.kind]);
    const bool is_marked = other.has_layers && (op.phase == Phase::Forward || other.has_backward_layers);
    if (op.layer >= 0 && is_marked) entry.item.segment = key_of(entry.step, static_cast<std::uint64_t>(op.layer));
    entry.item.stretch = entry.step;
    if (work.meeting == MeetingKind::Collective) {
      const std::uint32_t p = trace.timeline.plan_of(s.instance);
      std::uint64_t& group = groups[{p, work.group.value, entry.rank}];
      if (group == 0) {
        std::vector<std::uint32_t> ranks;
        for (const RankId r : members(plan.mesh, plan.groups[work.group.index()], RankId{entry.rank}))
          ranks.push_back(r.value);
        group = key_of_ranks(ranks);
      }
      entry.group = group;
      entry.number = static_cast<std::uint64_t>(s.start_ps);
    }
    out.push_back(std::move(entry));
  }
  return out;
}

/// The collectives of each communicator in each step.
CollectiveGroups collectives(Entries& entries) {
  std::map<std::uint64_t, std::vector<Entry*>> groups;
  for (Entry& e : entries)
    if (e.group != 0 && e.step != 0) groups[key_of(e.rank, e.group, e.step)].push_back(&e);
  CollectiveGroups out;
  for (auto& [key, all] : groups) {
    std::stable_sort(all.begin(), all.end(), [](auto* x, auto* y) { return x->number < y->number; });
    for (Entry* e : all) out[key].push_back(&e->item);
  }
  return out;
}

std::vector<MatchStream> streams(Entries entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tuple{a.rank, a.role, a.start} < std::tuple{b.rank, b.role, b.start};
  });
  std::vector<MatchStream> out;
  for (const Entry& e : entries) {
    const char* name = kRoleNames[static_cast<std::size_t>(e.role)];
    if (out.empty() || out.back().rank != e.rank || out.back().name != name) out.push_back({e.rank, name, {}});
    out.back().items.push_back(e.item);
  }
  return out;
}

}  // namespace

MatchInput mixed_input(const Document& ours, const Document& foreign) {
  if (ours.trace()->plans.empty()) return {};
  Recorded other = recorded(foreign, ours.trace()->timeline.instance_ends_ps.size());
  Entries own = predicted(ours, other);
  join_collectives(collectives(own), collectives(other.entries));
  return {streams(std::move(own)), streams(std::move(other.entries))};
}

}  // namespace orrery::gui
