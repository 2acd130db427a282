// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// tokens[r] = column of the largest logit of row r; ties go to the lower index.
template <class T>
void argmax(std::int64_t rows, std::int64_t vocab, const T* logits, std::int32_t* tokens);

/// Draws one token a row from softmax(logits/temperature), restricted to the top_k largest and then to the smallest
/// prefix of them, in descending order, whose probability reaches top_p; ties go to the lower index. Row r takes the
/// uniform number of Philox key (seed, step) at element first_row + r, so the draw does not depend on how rows are
/// batched.
template <class T>
struct SampleArgs {
  std::int64_t rows = 0, vocab = 0;
  T temperature = 1;                       ///< > 0; use argmax for greedy decoding
  std::optional<std::int64_t> top_k = {};  ///< absent: the whole vocabulary
  double top_p = 1;
  std::uint64_t seed = 0, step = 0, first_row = 0;
  const T* logits = nullptr;
  std::int32_t* tokens = nullptr;
  void* workspace = nullptr;  ///< sample_workspace(vocab, sizeof(T)) bytes
};

std::size_t sample_workspace(std::int64_t vocab, std::size_t element_size);

template <class T>
void sample(const SampleArgs<T>& args);

}  // namespace orrery::kernels
