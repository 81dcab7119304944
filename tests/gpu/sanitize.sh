#!/usr/bin/env bash
# A short training under compute-sanitizer: memcheck for accesses outside of memory and leaks, initcheck
# for reads of what nothing wrote. Needs a GPU and compute-sanitizer on the PATH.
#   tests/gpu/sanitize.sh [PINLINE] [memcheck|initcheck|racecheck|synccheck ...]
# Reports are counted by kernel, so that what a library causes is told apart from what we cause. What
# KNOWN lists is no failure. In bfloat16, initcheck reports reads by cuDNN's batch norm and by cuBLAS of
# what cuDNN's convolutions wrote; in float32, where other kernels convolve, it reports nothing. Those
# convolutions probably write through the tensor memory accelerator, which initcheck does not follow.
# That the values are written is shown by "measure.sh poison": with NaN in all new memory of the device a
# training ends with the same bits.
set -u
PINLINE=${1:-build/pinline}
shift || true
TOOLS=${*:-memcheck initcheck}
OUT=${OUT:-$(mktemp -d)}
mkdir -p "$OUT" || exit 1
MODELS=${MODELS:-smallcnn}
PRECISIONS=${PRECISIONS:-bf16 f32}
# shellcheck disable=SC2034  # read by name
KNOWN_initcheck='nhwc_batch_norm_(fwd|bwd)|[^ ]*gemm[^ ]*_cublas'
failed=0

if ! command -v compute-sanitizer >/dev/null; then
    echo "SKIP: compute-sanitizer is not on the PATH"
    exit 0
fi
"$PINLINE" synth "$OUT/images" --images 96 --val-images 40 --quiet || exit 1
for model in $MODELS; do
    for precision in $PRECISIONS; do
        # 80 images in batches of 32: two full ones and a smaller last one; then evaluation. Plans are
        # found before, because searching them under the tool would take minutes.
        args=(train --data "$OUT/images" --limit-samples 80 --batch-size 32 --epochs 1 --model "$model"
            --precision "$precision" --device cuda --plan-candidates 1 --plan-cache "$OUT/plans.json"
            --num-workers 2 --pin-memory --non-blocking --overwrite --out "$OUT/run")
        if ! "$PINLINE" "${args[@]}" >"$OUT/plain.log" 2>&1; then
            echo "FAILED  $model $precision without a tool:"
            tail -5 "$OUT/plain.log"
            exit 1
        fi
        for tool in $TOOLS; do
            log=$OUT/$tool.$model.$precision.log
            extra=()
            if [ "$tool" = memcheck ]; then
                extra=(--leak-check full)
            fi
            timeout "${LIMIT:-240}" compute-sanitizer --tool "$tool" "${extra[@]}" --print-limit 1000000 \
                --show-backtrace no "$PINLINE" "${args[@]}" >"$log" 2>&1
            status=$?
            summary=$(grep -E 'ERROR SUMMARY|LEAK SUMMARY' "$log" | sed 's/^=* *//' | tr '\n' ' ')
            echo "$tool $model $precision: status $status; ${summary:-no summary}"
            # Kernels in which something was reported, and the first report of what nobody knows.
            kernels=$(grep -oE ' at [^ ]+.*\+0x' "$log" | sed 's/^ at *//; s/+0x.*//' | sort | uniq -c | sort -rn)
            known=KNOWN_$tool
            unknown=$(printf '%s\n' "$kernels" | grep -vE "^ *[0-9]* (${!known:-nothing})" | grep -c .)
            [ -z "$kernels" ] || printf '%s\n' "$kernels" | head -12
            if [ $status -ne 0 ] || [ -z "$summary" ] || [ "$unknown" -ne 0 ] ||
                { [ -z "$kernels" ] && ! grep -q 'ERROR SUMMARY: 0 errors' "$log"; }; then
                failed=1
                grep -m1 -A 12 -iE 'uninitialized|invalid|out.of.bounds|leaked [0-9]' "$log"
            fi
        done
    done
done
echo "logs: $OUT"
exit $failed
