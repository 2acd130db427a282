// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/recommendation.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"

namespace orrery {

template <class T>
void run(const EmbeddingBagForward& e, const OpContext<T>& c) {
  kernels::embedding_bag(kernels::EmbeddingBagArgs<T>{.bags = e.bags,
                                                      .dim = e.cols,
                                                      .first = 0,
                                                      .last = e.table_rows,
                                                      .mode = e.mean ? kernels::BagMode::Mean : kernels::BagMode::Sum,
                                                      .offsets = c.ints(2),
                                                      .ids = c.ints(1),
                                                      .table = c.dense(0),
                                                      .out = c.dense(3)});
}

template <class T>
void run(const EmbeddingBagBackward& e, const OpContext<T>& c) {
  kernels::EmbeddingBagBackwardArgs<T> a;
  a.bags = e.bags;
  a.dim = e.cols;
  a.first = 0;
  a.last = e.table_rows;
  a.mode = e.mean ? kernels::BagMode::Mean : kernels::BagMode::Sum;
  a.offsets = c.ints(2);
  a.ids = c.ints(1);
  a.dout = c.dense(0);
  a.dtable = c.dense(3);
  a.write = kernels::Write::Accumulate;
  kernels::embedding_bag_backward(a);
}

template <class T>
void run(const DotInteractionForward& d, const OpContext<T>& c) {
  kernels::dot_interaction<T>({d.batch, d.features, d.dim}, c.dense(0), c.dense(1));
}

template <class T>
void run(const DotInteractionBackward& d, const OpContext<T>& c) {
  kernels::dot_interaction_backward<T>({d.batch, d.features, d.dim}, c.dense(0), c.dense(1), c.dense(2));
}

Kernel find_recommendation(const Work& work) {
  return find_typed<EmbeddingBagForward, EmbeddingBagBackward, DotInteractionForward, DotInteractionBackward>(work);
}

}  // namespace orrery
