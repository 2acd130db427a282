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
cmake --preset asan >/dev/null
cmake --build --preset asan --target fuzz_targets

# One process a core; each target gets the time that is left when the targets share the cores evenly.
mkdir -p "$build/crashes"
set -- "$build"/bin/fuzz_*
cores=$(nproc)
share=$((seconds * cores / $#))
[ "$share" -gt 0 ] || share=1
for target in "$@"; do
  mkdir -p "$build/corpus/$(basename "$target")" "tests/fuzz/corpus/$(basename "$target")"
done

export build share
printf '%s\n' "$@" | xargs -P "$cores" -I TARGET sh -c '
  name=$(basename TARGET)
  if TARGET -max_total_time="$share" -timeout=10 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$build/crashes/$name-" "$build/corpus/$name" "tests/fuzz/corpus/$name" >"$build/$name.log" 2>&1; then
    echo "$name: $share s, $(sed -n "s/^stat::number_of_executed_units: *//p" "$build/$name.log") inputs, no finding"
  else
    cat "$build/$name.log"
    # In base 64, since what a machine of CI keeps is only what it printed.
    for input in "$build/crashes/$name"-*; do echo "$input:" && base64 "$input"; done
    echo "$name: FAILED, see $build/crashes/"
    exit 1
  fi' || exit 1
