// SPDX-License-Identifier: Apache-2.0
// Part of every program of a build with the address sanitizer, which asks it for options.

extern "C" const char* __asan_default_options();

/// Up to LLVM 16 and GCC 13 what `__tls_get_addr` returns is taken for the block of an older libc, with a header, where
/// it lies 16 bytes behind the start of a page: the leak check then reads as many bytes as that header says, and dies
/// of it. Blocks that malloc gave out are found without.
extern "C" const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }
