#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz targets and runs each for an equal share of the time, from the seeds in corpus/. Exit 1 on a crash, a
# time-out or too much memory; the input that did it lies in build/asan/fuzz/crashes/ and is printed in base 64.
#
#   tests/fuzz/run.sh SECONDS_TOTAL
set -eu

if [ $# -ne 1 ] || ! [ "$1" -gt 0 ] 2>/dev/null; then
  echo "usage: $0 SECONDS_TOTAL" >&2
  exit 2
fi
seconds=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/asan/fuzz

cd "$root"
[ -f build/asan/build.ninja ] || cmake --preset asan >/dev/null
cmake --build --preset asan --target fuzz_targets

# One target after the other on all cores, so that these are busy to the end however many targets there are.
mkdir -p "$build/crashes"
set -- $(cd "$build/bin" && echo fuzz_*)
cores=$(nproc)
share=$((seconds / $#))
[ "$share" -gt 0 ] || share=1
failed=0
for name in "$@"; do
  log=$build/$name.log
  mkdir -p "$build/corpus/$name" "$build/jobs/$name" "tests/fuzz/corpus/$name"
  cd "$build/jobs/$name"  # where the jobs' own logs go, which the common one repeats
  if "$build/bin/$name" -jobs="$cores" -workers="$cores" -max_total_time="$share" -timeout=10 -rss_limit_mb=1024 \
    -max_len=65536 -print_final_stats=1 -verbosity=0 -artifact_prefix="$build/crashes/$name-" \
    "$build/corpus/$name" "$root/tests/fuzz/corpus/$name" >"$log" 2>&1; then
    inputs=$(awk '/^stat::number_of_executed_units:/ { sum += $2 } END { printf "%d", sum }' "$log")
    echo "$name: $((share * cores)) s, $inputs inputs, no finding"
  else
    cat "$log"
    # In base 64, since what a machine of CI keeps is only what it printed.
    for input in "$build/crashes/$name"-*; do echo "$input:" && base64 "$input"; done
    echo "$name: FAILED, see $build/crashes/"
    failed=1
  fi
  cd "$root"
done
exit "$failed"
