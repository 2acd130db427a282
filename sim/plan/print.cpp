// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "sim/plan/plan.hpp"

namespace orrery {
namespace {

std::string shape_text(const Plan& plan, TensorId t) {
  const Shape& s = plan.shape(t);
  std::string out = "[";
  for (int i = 0; i < s.rank; ++i) out += fmt::format("{}{}", i ? "," : "", s[i]);
  return out + "]";
}

std::string operand_text(const Plan& plan, const Operand& o) {
  constexpr std::string_view marks[] = {"", "=", "~"};
  return fmt::format("{}{}{}{}{}", o.allocates() ? "+" : "", marks[static_cast<int>(o.access())],
                     plan.name_of(o.tensor()), shape_text(plan, o.tensor()), o.frees() ? "-" : "");
}

void print_op(const Plan& plan, std::size_t i, std::back_insert_iterator<std::string> out) {
  const Op& op = plan.ops[i];
  fmt::format_to(out, "{:>6}  {:<8} {:<9} {:<32} {}", i, name_of(op.stream), name_of(op.phase), plan.name_of(op),
                 to_text(plan.work(op)));
  for (const Operand& o : plan.operands_of(op)) fmt::format_to(out, "  {}", operand_text(plan, o));
  if (op.joins) fmt::format_to(out, "  joins");
  if (op.num_deps > 0) {
    fmt::format_to(out, "  after");
    for (OpId d : plan.deps_of(op)) fmt::format_to(out, " {}", d.index());
  }
  fmt::format_to(out, "\n");
}

}  // namespace

std::string print_text(const Plan& plan, std::size_t max_ops) {
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "plan {}: {} ops in {} classes, {} ranks, {} tensors\n", plan.name, plan.ops.size(),
                 plan.classes.size(), plan.mesh.size(), plan.tensors.size());
  fmt::format_to(out, "operands: = written, ~ updated, + storage taken before, - given back after\n");
  std::size_t printed = 0;
  for (const RankClass& c : plan.classes) {
    fmt::format_to(out, "class {} ({} ranks, {} ops)\n", c.name, c.size(), c.num_ops);
    for (std::size_t i = c.first_op; i < c.first_op + c.num_ops && printed < max_ops; ++i, ++printed)
      print_op(plan, i, out);
  }
  if (printed < plan.ops.size()) fmt::format_to(out, "… {} more ops\n", plan.ops.size() - printed);
  return text;
}

std::string print_dot(const Plan& plan, std::size_t max_ops) {
  std::string text = "digraph plan {\n  rankdir=TB; node [shape=box, fontname=\"sans-serif\", fontsize=10];\n";
  auto out = std::back_inserter(text);
  const std::size_t n = std::min(max_ops, plan.ops.size());
  for (std::size_t i = 0; i < n; ++i)
    fmt::format_to(out, "  n{} [label=\"{} {}\\n{}\"];\n", i, i, plan.name_of(plan.ops[i]),
                   kind_name(plan.work(plan.ops[i])));
  for (const RankClass& c : plan.classes) {
    std::array<std::size_t, kNumStreams> last;
    last.fill(SIZE_MAX);
    for (std::size_t i = c.first_op; i < std::min<std::size_t>(c.first_op + c.num_ops, n); ++i) {
      std::size_t& before = last[static_cast<std::size_t>(plan.ops[i].stream)];
      if (before != SIZE_MAX) fmt::format_to(out, "  n{} -> n{} [color=gray];\n", before, i);
      before = i;
      for (OpId d : plan.deps_of(plan.ops[i])) fmt::format_to(out, "  n{} -> n{};\n", d.index(), i);
    }
  }
  if (n < plan.ops.size()) fmt::format_to(out, "  more [label=\"{} more ops\", style=dashed];\n", plan.ops.size() - n);
  return text + "}\n";
}

}  // namespace orrery
