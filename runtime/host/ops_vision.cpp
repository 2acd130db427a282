// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/vision.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"

namespace orrery {

template <class T>
void run(const Patchify& p, const OpContext<T>& c) {
  kernels::patchify<T>({p.batch, p.channels, p.side, p.side, p.patch}, c.dense(0), c.dense(1));
}

template <class T>
void run(const ConcatPrefix& p, const OpContext<T>& c) {
  kernels::concat_prefix<T>({p.batch, p.rows, p.cols}, c.dense(1), c.dense(0), c.dense(2));
}

template <class T>
void run(const ConcatPrefixBackward& p, const OpContext<T>& c) {
  kernels::concat_prefix_backward<T>({p.batch, p.rows, p.cols}, c.dense(0), c.dense(1), c.dense(2),
                                     p.accumulate ? kernels::Write::Accumulate : kernels::Write::Overwrite);
}

template <class T>
void run(const MeanPool& p, const OpContext<T>& c) {
  kernels::mean_tokens<T>({p.batch, p.rows, p.cols}, c.dense(0), c.dense(1));
}

template <class T>
void run(const MeanPoolBackward& p, const OpContext<T>& c) {
  kernels::mean_tokens_backward<T>({p.batch, p.rows, p.cols}, c.dense(0), c.dense(1));
}

Kernel find_vision(const Work& work) {
  return find_typed<Patchify, ConcatPrefix, ConcatPrefixBackward, MeanPool, MeanPoolBackward>(work);
}

}  // namespace orrery
