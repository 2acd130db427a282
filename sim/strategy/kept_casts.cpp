// SPDX-License-Identifier: Apache-2.0
// Inputs of products in 8 bits that are kept as they were cast, as Transformer Engine keeps them: the first product on
// an input writes its numbers with their scale, which the gradients of the weights of all products on it read. So the
// input itself is let go where nobody else needs it. Of rows that were gathered from the ranks of tp each rank keeps
// its own; they are gathered again in 8 bits, and have one scale, as each rank has cast all of them.
#include <fmt/format.h>

#include "sim/strategy/layers.hpp"

namespace orrery {
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
  const Collective gather = over(tp, CollectiveKind::AllGather, rows * cols, DType::F8E4M3);
  tape_.add_later_steps({reads(part.numbers), writes(gathered)},
                        [&b, gather, name = fmt::format("{}.input_gather", name)](std::span<const TensorId> t) {
                          gather_rows(b, name, gather, t[0], t[1]);
                        });
  tape_.set_copy(x, {gathered, part.scale});
  return part;
}

Layers::KeptCast Layers::keep_own_cast(std::string_view name, TensorId all, TensorId x, TensorId weight) {
  const Shape own = tape_.plan().shape(x);
  const bool keeps = sizes_.keep_narrow && !tape_.recompute() && own[1] % kWholeRow == 0;
  if (!keeps || !tape_.wants(weight) || tape_.is_made_again(x)) return {};
  PlanBuilder& b = tape_.builder();
  const Split& tp = roles().tp;
  const auto tensor = [&](std::string_view suffix, const Shape& shape, DType dtype) {
    return b.tensor(fmt::format("{}.{}", name, suffix), shape, {.dtype = dtype});
  };
  const auto gather = [&](const Shape& shape, DType dtype) {
    return over(tp, CollectiveKind::AllGather, shape.elements(), dtype);
  };
  const KeptCast part{.first = {},
                      .numbers = tensor("input", own, DType::F8E4M3),
                      .scale = tensor("input_scale", Shape{1}, DType::F32),
                      .rows = own[0]};
  const Shape rows{own[0] * tp.ranks, own[1]}, each{tp.ranks};
  const TensorId numbers = tensor("input_gathered", rows, DType::F8E4M3),
                 scales = tensor("input_scales", each, DType::F32);
  tape_.add_later_steps({reads(part.numbers), reads(part.scale), writes(numbers), writes(scales)},
                        [&b, of_numbers = gather(rows, DType::F8E4M3), of_scales = gather(each, DType::F32),
                         name = std::string{name}](std::span<const TensorId> t) {
                          gather_rows(b, name + ".input_gather", of_numbers, t[0], t[2]);
                          gather_rows(b, name + ".scale_gather", of_scales, t[1], t[3]);
                        });
  tape_.set_copy(all, {numbers, scales, own[0]});
  return part;
}

}  // namespace orrery
