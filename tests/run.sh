#!/bin/sh
# Runs test programs, each under a time limit, and adds up their checks; tests/cli.sh, if there,
# comes last. A check that prints a line "SKIP: reason" counts as skipped. A program that is not
# built, crashes or runs out of time counts as one failure more.
# From the environment: JOBS programs at a time, TIMEOUT seconds each, MODE, PINLINE (the program).
set -u
cd "$(dirname "$0")/.." || exit 1
: "${JOBS:=1}" "${TIMEOUT:=300}" "${MODE:=release}" "${PINLINE:=$PWD/build/release/pinline}"
case $MODE in
asan | ubsan | debug) scale=3 ;;
tsan) scale=8 ;;
*) scale=1 ;;
esac
TIMEOUT=$((TIMEOUT * scale))
: "${CK_DEFAULT_TIMEOUT:=60}" "${CK_TIMEOUT_MULTIPLIER:=$scale}"
ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:suppressions=$PWD/tests/tsan.supp}
OPENBLAS_NUM_THREADS=1
export TIMEOUT MODE PINLINE CK_DEFAULT_TIMEOUT CK_TIMEOUT_MULTIPLIER ASAN_OPTIONS UBSAN_OPTIONS \
    TSAN_OPTIONS OPENBLAS_NUM_THREADS

logs=$(mktemp -d) || exit 1
# Programs that still run are ended with this script, by the pids that they left.
leave() {
    for file in "$logs"/*.pid; do
        if [ -f "$file" ]; then
            kill "$(cat "$file")" 2>/dev/null
        fi
    done
    rm -rf "$logs"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export logs

# One program: its output into a file, then "status seconds" into another. An interrupted runner
# leaves no folder, and nothing more is begun.
# shellcheck disable=SC2016
one='
name=$(basename "$1")
begin=$(date +%s)
[ -d "$logs" ] || exit 255
if [ -x "$1" ] || [ "${1##*.}" = sh ]; then
    set -- "$TIMEOUT" "$1"
    if [ "${2##*.}" = sh ]; then
        set -- "$((TIMEOUT * 4))" bash "$2"
    fi
    timeout -k 10 "$@" >"$logs/$name.out" 2>&1 </dev/null &
    echo $! >"$logs/$name.pid"
    wait $!
    status=$?
    rm -f "$logs/$name.pid"
else
    echo "not built" >"$logs/$name.out"
    status=127
fi
echo "$status $(($(date +%s) - begin))" >"$logs/$name.part" && mv "$logs/$name.part" "$logs/$name.status"
'
if [ -f tests/cli.sh ] && [ -z "${NO_CLI:-}" ]; then
    set -- "$@" tests/cli.sh
fi
if [ $# -gt 0 ]; then
    printf '%s\n' "$@" | xargs -P "$JOBS" -n 1 sh -c "$one" sh &
fi

passed=0
failed=0
skipped=0
for program in "$@"; do
    name=$(basename "$program")
    while [ ! -f "$logs/$name.status" ]; do
        sleep 0.1
    done
    read -r status seconds <"$logs/$name.status" || { status=1; seconds=0; }
    # "checks failures skips" from Check's summaries, or from a script's own last line.
    counts=$(awk '
        /^[0-9]+%: Checks: / {
            line = $0; gsub(/[^0-9 ]/, "", line); split(line, n, " ")
            checks += n[2]; bad += n[3] + n[4]
        }
        /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ {
            checks += $1 + $3 + $5; bad += $3; own += $5
        }
        /^SKIP: / { skips++ }
        END { print checks + 0, bad + 0, (own > 0 ? own : skips) + 0 }' "$logs/$name.out")
    # shellcheck disable=SC2086
    set_counts() { checks=$1 bad=$2 skips=$3; }
    # shellcheck disable=SC2086
    set_counts $counts
    verdict=ok
    if [ "$bad" -gt 0 ] || [ "$status" -ne 0 ]; then
        verdict=FAILED
    fi
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
        case $status in
        124 | 137) echo "($TIMEOUT s were not enough)" >>"$logs/$name.out" ;;
        *) echo "(ended with status $status)" >>"$logs/$name.out" ;;
        esac
        bad=1
        checks=$((checks + 1))
    elif [ "$status" -eq 0 ] && [ "$checks" -eq 0 ]; then
        echo '(made no checks)' >>"$logs/$name.out"
        bad=1
        checks=1
        verdict=FAILED
    fi
    printf '%-6s %-32s %3d checks, %d failed, %d skipped, %d s\n' "$verdict" "$name" "$checks" \
        "$bad" "$skips" "$seconds"
    if [ "$verdict" = FAILED ]; then
        tail -n 60 "$logs/$name.out" | sed 's/^/    /'
    elif [ "$skips" -gt 0 ]; then
        grep '^SKIP: ' "$logs/$name.out" | sort | uniq -c | sed 's/^ *\([0-9]*\) /    \1 x /'
    fi
    passed=$((passed + checks - bad - skips))
    failed=$((failed + bad))
    skipped=$((skipped + skips))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
