#!/usr/bin/env bash
# run_fuzzers.sh BUILD SECONDS JOBS: every fuzz target of BUILD for SECONDS, from its seed corpus.
# Inputs found on the way stay in BUILD/corpus; one that fails is kept in BUILD/findings.
set -uo pipefail
build=$1 seconds=$2 jobs=$3
mkdir -p "$build/findings"
status=0

run_one() {
  local program=$1 name folder
  name=$(basename "$1")
  folder=$build/corpus/$name
  mkdir -p "$folder"
  local seeds=fuzz/corpus/${name%_fuzz}
  if ! [ -d "$seeds" ]; then
    echo "$name: no seed inputs in $seeds"
    return 1
  fi
  if "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -seed=1 \
    -artifact_prefix="$build/findings/$name-" "$folder" "$seeds" >"$build/findings/$name.log" 2>&1
  then
    echo "$name: ok, $(grep -oE 'Done [0-9]+ runs' "$build/findings/$name.log" || echo no runs)"
  else
    tail -n 40 "$build/findings/$name.log"
    echo "$name: FAILED"
    return 1
  fi
}
export -f run_one
export build seconds

programs=("$build"/bin/*_fuzz)
[ -x "${programs[0]}" ] || { echo "no fuzz targets in $build/bin"; exit 1; }
printf '%s\0' "${programs[@]}" |
  xargs -0 -n 1 -P "$jobs" bash -c 'run_one "$0"' || status=1
exit $status
