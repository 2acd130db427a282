// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace orrery::kernels {

/// Does a product of 32 rows four times (64 columns of 128 elements where vectors have 512 bits: 3.3 µs), on operands
/// that a core's own caches hold; the least seconds of processor time of the calling thread that it took. Where two
/// threads share a core, such as those of two virtual machines, it takes up to twice as long while the other one works,
/// and longer where wide vectors lower the clock: as products of matrices do, unlike arithmetic that waits for its own
/// results, or for loads.
double fixed_work();

}  // namespace orrery::kernels
