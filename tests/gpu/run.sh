#!/usr/bin/env bash
# Everything that needs a GPU, in one call: `make test-gpu`. Builds nothing; make did. Runs the Check
# programs one case a process, several at a time, then measures the operations of a training step.
#   TESTS    the test programs (make gives them)
#   PINLINE  the program
#   JOBS     processes at a time, 4
#   LIMIT    seconds a case may take, 300
#   MEASURE  networks that bench_ops times: smallcnn-32 (default), smallcnn-224, resnet18-224, all, none
#   OUT      folder for logs, a temporary one that is named at the end
set -u
TESTS=${TESTS:-}
JOBS=${JOBS:-4}
LIMIT=${LIMIT:-300}
MEASURE=${MEASURE:-smallcnn-32}
OUT=${OUT:-$(mktemp -d)}
mkdir -p "$OUT" || exit 1
# shellcheck source=tests/gpu/common.sh
. tests/gpu/common.sh
trap end_group EXIT

# The cases of a program are the names between START_TEST( and ).
cases() {
    sed -n 's/^START_TEST(\(.*\))$/\1/p' "tests/gpu/$(basename "$1").c"
}

run_case() {
    local program=$1 name=$2 log
    log=$OUT/$(basename "$program").$name.log
    CK_FORK=no CK_RUN_CASE=$name limited "$program" >"$log" 2>&1
    local status=$?
    if [ $status -eq 0 ] && grep -q '^SKIP:' "$log"; then
        echo "skipped $(basename "$program") $name: $(grep -m1 '^SKIP:' "$log" | cut -c7-)" | tee -a "$OUT/skipped"
    elif [ $status -eq 0 ] && ! grep -q 'Checks: 0,' "$log"; then
        echo "passed  $(basename "$program") $name" | tee -a "$OUT/passed"
    else
        echo "FAILED  $(basename "$program") $name (status $status)" | tee -a "$OUT/failed"
        grep -E ':[FE]:' "$log" | cut -c1-600
    fi
}

all_cases() {
    local program name names bench precision
    [ -z "${PINLINE:-}" ] || "$PINLINE" doctor
    # What stands in the way is told once a case, and the last line sums up.
    for name in failed passed skipped; do
        : >"$OUT/$name"
    done
    for program in ${TESTS:-none}; do
        names=$(cases "$program")
        [ -n "$names" ] || echo "FAILED  TESTS: $program has no cases" | tee -a "$OUT/failed"
        for name in $names; do
            while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do
                wait -n
            done
            run_case "$program" "$name" &
        done
    done
    wait
    failed=$(wc -l <"$OUT/failed")

    bench=$(dirname "${TESTS%% *}")/bench_ops
    if [ "$MEASURE" != none ] && [ "$failed" -eq 0 ] && [ -s "$OUT/passed" ] && [ -x "$bench" ]; then
        for precision in bf16 tf32; do
            "$bench" $precision "$MEASURE" || failed=$((failed + 1))
        done
    fi
    echo "$(wc -l <"$OUT/passed") passed, $failed failed, $(wc -l <"$OUT/skipped") skipped; logs: $OUT"
    [ "$failed" -eq 0 ]
}

in_group all_cases
