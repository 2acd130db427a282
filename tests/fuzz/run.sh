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

# As many processes a target as there are cores, side by side: all cores are busy to the end, however many targets there
# are. Those of a target learn from what the others found, by its folder.
mkdir -p "$build/crashes"
set -- $(cd "$build/bin" && echo fuzz_*)
cores=$(nproc)
share=$((seconds / $#))
[ "$share" -gt 0 ] || share=1
for name in "$@"; do
  mkdir -p "$build/corpus/$name" "tests/fuzz/corpus/$name"
  rm -f "$build/$name".*.log
done

export build share
for name in "$@"; do
  for core in $(seq "$cores"); do echo "$name $core"; done
done | xargs -P "$cores" -n 2 sh -c '
  name=$1 log=$build/$1.$2.log
  "$build/bin/$name" -max_total_time="$share" -timeout=10 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 \
    -verbosity=0 -artifact_prefix="$build/crashes/$name-" "$build/corpus/$name" "tests/fuzz/corpus/$name" \
    >"$log" 2>&1 && exit 0
  cat "$log"
  # In base 64, since what a machine of CI keeps is only what it printed.
  for input in "$build/crashes/$name"-*; do echo "$input:" && base64 "$input"; done
  echo "$name: FAILED, see $build/crashes/"
  exit 1' sh || exit 1

for name in "$@"; do
  sed -n 's/^stat::number_of_executed_units: *//p' "$build/$name".*.log |
    awk -v name="$name" -v seconds=$((share * cores)) \
      '{ inputs += $1 } END { printf "%s: %d s, %d inputs, no finding\n", name, seconds, inputs }'
done
