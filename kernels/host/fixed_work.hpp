// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace orrery::kernels {

/// Does some 2 µs of multiplications and additions four times, on 24 KiB that a first-level cache holds; the least seconds
/// of processor time of the calling thread that they took. Where two threads share a core, such as those of two virtual
/// machines, they take up to twice as long while the other one works, whether it computes or moves data: as products of
/// matrices do, and unlike arithmetic in registers alone.
double fixed_work();

}  // namespace orrery::kernels
