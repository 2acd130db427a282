// SPDX-License-Identifier: Apache-2.0
// Inputs of products in 8 bits that are kept as they were cast, as Transformer Engine keeps them: the first product on
// an input writes its numbers with their scale, which the gradients of the weights of all products on it read. So the
// input itself is let go where nobody else needs it. Of rows that were gathered from the ranks of tp each rank keeps
// its own; they are gathered again in 8 bits, and have one scale, as each rank has cast all of them.
#include <fmt/format.h>

#include "sim/strategy/layers.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kWholeRow = 16;  // numbers; products in 8 bits take rows of so many

}  // namespace

Layers::KeptCast Layers::keep_cast(std::string_view name, TensorId x, std::int64_t rows, std::int64_t cols,
                                   TensorId weight) {
  const bool keeps = sizes_.keep_narrow && !tape_.recompute() && cols % kWholeRow == 0;
  if (!keeps || !tape_.wants(weight) || tape_.copy_of(x)) return {};
  PlanBuilder& b = tape_.builder();
  const auto numbers_of = [&](std::string_view suffix, std::int64_t n) {
    return b.tensor(fmt::format("{}.{}", name, suffix), Shape{n, cols}, {.dtype = DType::F8E4M3});
  };
  const auto scale = [&] { return b.tensor(fmt::format("{}.input_scale", name), Shape{1}, {.dtype = DType::F32}); };
  if (!tape_.is_made_again(x)) {
    const KeptCast all{.numbers = numbers_of("input", rows), .scale = scale(), .rows = rows};
    tape_.set_copy(x, {all.numbers, all.scale});
    return all;
  }
  const auto own = gathered_.find(x.value);
  if (own == gathered_.end() || tape_.is_made_again(own->second)) return {};
  const Split& tp = roles().tp;
  const std::int64_t each = rows / tp.ranks;
  const KeptCast part{
      .first = first_of_shard(each, tp), .numbers = numbers_of("input", each), .scale = scale(), .rows = each};
  const TensorId gathered = numbers_of("input_gathered", rows);
  const Collective gather{.kind = CollectiveKind::AllGather,
                          .group = tp.group,
                          .bytes = size_of(DType::F8E4M3, rows * cols),
                          .dtype = DType::F8E4M3};
  tape_.add_later_steps({reads(part.numbers), writes(gathered)},
                        [&b, gather, name = fmt::format("{}.input_gather", name)](std::span<const TensorId> t) {
                          gather_rows(b, name, gather, t[0], t[1]);
                        });
  tape_.set_copy(x, {gathered, part.scale});
  return part;
}

}  // namespace orrery
