#!/usr/bin/env bash
# Measures the trainer on a machine with a GPU, part by part, and prints what came out.
#
#   tests/gpu/measure.sh [PART...]      parts: right same faults poison learn copies step cells; all by default
#
# From the environment:
#   PINLINE   the program (build/pinline)
#   CIFAR     CIFAR-10 as JPEG in train/<class>/ and test/<class>/; what wants images is left out without them
#   PHOTOS    photographs in train/<class>/ (and test/<class>/)
#   PEERS     folder with step_torch.py and article_torch.py; without it PyTorch is not measured
#   MODELS, CANDIDATES, ROUNDS, WORKERS, SECONDS_EACH, PEER_ROUNDS   to shorten or lengthen it (CANDIDATES
#             matters where OUT/plans.json, which begins as plans.json beside this, has no plans: on other machines)
#   LIMIT     seconds that one of PyTorch's runs may take (600)
#   OUT       where results are left (build/measured)
# shellcheck disable=SC2317  # the parts are called by name
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
: "${PINLINE:=build/pinline}" "${CIFAR:=}" "${PHOTOS:=}" "${PEERS:=}" "${OUT:=build/measured}"
: "${ROUNDS:=2}" "${WORKERS:=4 16}" "${PEER_ROUNDS:=2}" "${MODELS:=smallcnn,resnet18}" "${CANDIDATES:=8}" "${SECONDS_EACH:=0.7}"
parts=("$@")
[ $# -gt 0 ] || parts=(right same faults poison learn copies step cells)
# shellcheck source=tests/gpu/common.sh
. tests/gpu/common.sh
only right same faults poison learn copies step cells
images CIFAR
images PHOTOS
scratch=$(mktemp -d) || exit 1
trap 'end_group; rm -rf "$scratch"' EXIT
mkdir -p "$OUT"
cache=$OUT/plans.json
known_plans "$cache"

right() {
    part "gradients and losses against PyTorch"
    check "$PINLINE" synth "$scratch/set" --images 3300 --val-images 10 --size 64 --quiet
    check python3 tests/gpu/compare_torch.py --data "$scratch/set" --pinline "$PINLINE" \
        --models "$MODELS" --plan-cache "$cache" --plan-candidates "$CANDIDATES"
}

same() {
    part "the same bits in every cell, by pinning, blocking, stream and workers"
    rm -f "$OUT/same/result.json"
    present CIFAR || return 0
    check "$PINLINE" ablate --data "$CIFAR" --limit-samples 6400 --epochs 1 --rounds 2 --settle 0.1 \
        --ceiling-seconds 0.1 --copy-stream both --axis num-workers=1,4,16 --overwrite --quiet \
        --out "$OUT/same" --plan-cache "$cache" --plan-candidates "$CANDIDATES"
    check python3 - "$OUT/same/result.json" <<'PY'
import json, sys
result = json.load(open(sys.argv[1]))
runs = [run for cell in result["cells"] for run in cell["rounds"]]
print(len(result["cells"]), "cells,", len(runs), "runs; different loss hashes:",
      len({run["loss_hash"] for run in runs}), "different weight hashes:",
      len({run["weights_hash"] for run in runs}), "failures:", result["failures"])
PY
}

# A loader with a planted fault must be caught by --verify-batches within 2,000 steps, and the real one
# must pass the same runs. A slot that is refilled too early shows where its copy still waits: on the
# compute stream, behind a step that takes longer than loading and comparing a batch. Compute that does
# not wait for its copy shows on a stream of its own.
faults() {
    local fault program stream status
    part "planted faults against --verify-batches"
    present PHOTOS || return 0
    many_photos 10
    while read -r fault stream; do
        program=$PINLINE
        if [ "$fault" != NONE ]; then
            make -s -j"$(nproc)" ${DEPS:+DEPS="$DEPS"} BUILD="$scratch/$fault" "CPPFLAGS=-DPINLINE_FAULT_$fault" \
                >"$scratch/$fault.log" 2>&1 || cat "$scratch/$fault.log"
            program=$scratch/$fault/pinline
        fi
        "$program" train --data "$photo_set" --model smallcnn --precision bf16 --size 224 --batch-size 64 \
            --transfer f32 --cache decoded --pin-memory --non-blocking --copy-stream "$stream" --prefetch 4 \
            --num-workers 8 --verify-batches --max-steps 2000 --epochs 1000 --eval-every 0 --lr 0.001 \
            --overwrite --quiet --out "$scratch/run" --plan-cache "$cache" --plan-candidates "$CANDIDATES" \
            >"$scratch/$fault.out" 2>&1
        status=$?
        printf '%-8s %-9s exit status %d %s\n' "$fault" "$stream" "$status" \
            "$(tail -n 1 "$scratch/$fault.out" | cut -c1-200)"
        if [ "$fault" = NONE ] && [ "$status" -ne 0 ] || [ "$fault" != NONE ] && [ "$status" -ne 5 ]; then
            fail "$fault $stream"
        fi
    done <<'END'
NONE compute
NONE dedicated
REUSE compute
NO_WAIT dedicated
END
}

# A build that fills all new memory of the device with NaN trains to the same bits: nothing is read that
# was not written. This also judges what compute-sanitizer's initcheck reports of libraries.
poison() {
    local model
    part "training from poisoned memory"
    make -s -j"$(nproc)" ${DEPS:+DEPS="$DEPS"} BUILD="$scratch/poison" CPPFLAGS=-DPINLINE_POISON \
        >"$scratch/poison.log" 2>&1 || cat "$scratch/poison.log"
    check "$PINLINE" synth "$scratch/few" --images 180 --val-images 40 --size 64 --quiet
    for model in smallcnn resnet18; do
        for program in "$PINLINE" "$scratch/poison/pinline"; do
            check "$program" train --data "$scratch/few" --model "$model" --precision bf16 --epochs 3 --size 64 \
                --batch-size 50 --device cuda --overwrite --quiet --out "$scratch/run" --plan-cache "$cache" \
                --plan-candidates 2
            sha256sum <"$scratch/run/last.safetensors"
        done >"$scratch/hashes"
        sed "s/^/$model /" "$scratch/hashes"
        [ "$(sort -u "$scratch/hashes" | wc -l)" -eq 1 ] || fail "$model trains to other bits"
    done
}

learn() {
    part "smallcnn on CIFAR-10 as JPEG, 10 epochs, bf16"
    rm -f "$OUT/cifar/metrics.csv"
    present CIFAR || return 0
    check "$PINLINE" train --data "$CIFAR" --model smallcnn --precision bf16 --epochs 10 --batch-size 128 \
        --lr 0.1 --augment crop --flip --label-smoothing 0.1 --pin-memory --non-blocking --overwrite \
        --out "$OUT/cifar" --plan-cache "$cache" --plan-candidates "$CANDIDATES"
}

# Copies of 38.5 MB a batch (floats at 224, decoded in memory) beside the step of probe, which is about as
# long, and beside an emulated step of 2 ms, of which they are a third.
copies() {
    local name
    rm -f "$OUT"/copies-{probe,emulated}{/result.json,.txt}
    part "copies of floats at 224, decoded in memory"
    present PHOTOS || return 0
    many_photos 40
    for name in probe emulated; do
        local flags='--model probe'
        [ "$name" = probe ] || flags='--step-ms 2'
        part "$name"
        # shellcheck disable=SC2086  # flags are several words
        check "$PINLINE" ablate --data "$photo_set" --val-fraction 0 --size 224 --transfer f32 --cache decoded \
            $flags --cells default,pin,both,both+stream --rounds 2 --seconds 1 --settle 0.5 --ceiling-seconds 0.5 \
            --overwrite --out "$OUT/copies-$name" --plan-cache "$cache" --plan-candidates "$CANDIDATES" \
            >"$OUT/copies-$name.txt"
        check python3 - "$OUT/copies-$name/result.json" <<'PY'
import json, sys
result = json.load(open(sys.argv[1]))
alone = result["ceilings"]["copy_locked_quiet_s"]
print("failures:", result["failures"])
for cell in result["cells"]:
    run = cell["rounds"][-1]
    counters, device = run["counters"], run["device"]
    copy = counters["copy_device_s"] / counters["copies"]
    print(f"{cell['name']:16s} {run['samples_per_s']:8.0f} samples/s; a copy takes {copy * 1e3:.3f} ms "
          f"({counters['copy_bytes'] / counters['copies'] / copy / 1e9:.1f} GB/s), page-locked alone "
          f"{alone * 1e3:.3f} ms, share {alone / copy:.3f}; hidden {device['hidden'] / device['copy']:.3f} of copying; "
          f"copying is {device['copy'] / device['compute']:.2f} of computing; the call held the host for "
          f"{counters['copy_call_s'] / counters['copy_device_s']:.3f} of it")
PY
    done
}

step() {
    part "the step alone, one batch kept on the device"
    local size batch precision model steps
    rm -f "$OUT"/step{,-ops,-torch}.txt "$OUT/step-torch.log"
    while read -r model size batch precision steps; do
        check "$PINLINE" bench step --model "$model" --size "$size" --batch-size "$batch" \
            --precision "$precision" --steps "$steps" --plan-cache "$cache" --plan-candidates "$CANDIDATES"
    done <<'END' >"$OUT/step.txt"
smallcnn 32 64 bf16 200
smallcnn 32 512 bf16 100
smallcnn 224 64 bf16 50
smallcnn 224 256 bf16 20
smallcnn 32 64 tf32 200
smallcnn 32 512 tf32 100
smallcnn 224 64 tf32 30
smallcnn 224 256 tf32 10
resnet18 224 256 bf16 20
resnet18 224 256 tf32 10
END
    cat "$OUT/step.txt"
    part "each operation of a step in a captured graph of 20 runs over rotating buffers, the same plans"
    local bench
    bench=$(dirname "$PINLINE")/release/tests/gpu/bench_ops
    if [ -x "$bench" ]; then
        ("$bench" bf16 smallcnn-32 512 "$cache" && "$bench" bf16 smallcnn-224 64 "$cache") >"$OUT/step-ops.txt" ||
            fail "$bench"
        grep -E '^==.*sum' "$OUT/step-ops.txt"
    else
        printf 'not built: make gpu-tests\n'
    fi
    if [ -n "$PEERS" ]; then
        part "PyTorch's step"
        # What takes longest comes last; what autotuning prints goes to a file of its own.
        (peer step_torch.py --modes bf16,tf32 &&
            peer step_torch.py --model resnet18 --sizes 224:256 --modes bf16,tf32 &&
            peer step_torch.py --modes compile --sizes 32:64) 2>"$OUT/step-torch.log" |
            grep --line-buffered samples/s | tee "$OUT/step-torch.txt" || fail "PyTorch's step, see $OUT/step-torch.log"
    fi
    check python3 - "$OUT" <<'PY'
import os, re, sys
def lines(name):
    path = os.path.join(sys.argv[1], name)
    return open(path) if os.path.exists(path) else []
ours, peers, sums = {}, {}, {}
for line in lines("step.txt"):
    m = re.match(r"(\w+) size=(\d+) batch=(\d+) (\w+): (\d+) samples/s best, (\d+) median, (\d+) lowest", line)
    if m:
        ours[m.group(1, 2, 3, 4)] = [float(x) for x in m.group(5, 6, 7)]
for line in lines("step-torch.txt"):
    m = re.match(r"(\w+) size=(\d+) batch=(\d+) (\w+) +(\d+) samples/s", line)
    if m:
        peers[m.group(1, 2, 3, 4)] = float(m.group(5))
for line in lines("step-ops.txt"):
    m = re.match(r"== (\w+)-(\d+), (\w+), batch (\d+): ([\d.]+) ms a step", line)
    if m:
        sums[(m.group(1), m.group(2), m.group(4), m.group(3))] = float(m.group(5))
for key, (best, median, lowest) in ours.items():
    text = "%s size=%s batch=%s %s" % key + f": {median:.0f} samples/s median ({lowest:.0f} to {best:.0f})"
    if key in peers:
        text += f"; PyTorch's best {peers[key]:.0f}, ratio {median / peers[key]:.2f}"
    compiled = peers.get(key[:3] + ("compile",))
    if compiled and key[3] == "bf16":
        text += f"; compiled {compiled:.0f}, ratio {median / compiled:.2f}"
    if key in sums:
        alone = int(key[2]) / sums[key] * 1e3
        text += f"; its operations alone {alone:.0f}, share {median / alone:.2f}"
    print(text)
PY
}

# Few workers with the precision that PyTorch has by default (TF32 in convolutions), many with bfloat16.
cells() {
    local workers precision peer_flags
    part "eight cells, few workers and many"
    rm -f "$OUT"/{photos,cifar}-[0-9]*/result.json "$OUT"/{photos,cifar,torch}-[0-9]*.{txt,log}
    present PHOTOS && present CIFAR || return 0
    many_photos 10
    for workers in $WORKERS; do
        precision=tf32 peer_flags=
        [ "$workers" -lt 8 ] || precision=bf16 peer_flags='--amp --channels-last'
        part "photographs at 224, $workers workers, $precision"
        check "$PINLINE" ablate --data "$photo_set" --val-fraction 0 --size 224 --num-workers "$workers" \
            --precision "$precision" --rounds "$ROUNDS" --seconds "$SECONDS_EACH" --settle 0.5 \
            --ceiling-seconds 0.3 --copy-stream both --overwrite --out "$OUT/photos-$workers" \
            --plan-cache "$cache" --plan-candidates "$CANDIDATES" >"$OUT/photos-$workers.txt"
        part "CIFAR at 32, $workers workers, $precision"
        check "$PINLINE" ablate --data "$CIFAR" --num-workers "$workers" --precision "$precision" \
            --rounds "$ROUNDS" --seconds "$SECONDS_EACH" --settle 0.5 --ceiling-seconds 0.3 --copy-stream both \
            --overwrite --out "$OUT/cifar-$workers" --plan-cache "$cache" --plan-candidates "$CANDIDATES" \
            >"$OUT/cifar-$workers.txt"
        if [ -n "$PEERS" ]; then
            # shellcheck disable=SC2086  # flags are several words
            (peer article_torch.py --data "$photo_set/train" --workers "$workers" \
                --rounds "$PEER_ROUNDS" --limit 1024 --tag photos $peer_flags &&
                peer article_torch.py --data "$CIFAR/train" --size 32 --workers "$workers" \
                    --rounds "$PEER_ROUNDS" --limit 12800 --tag cifar $peer_flags) 2>"$OUT/torch-$workers.log" |
                grep --line-buffered samples/s >"$OUT/torch-$workers.txt" ||
                fail "PyTorch with $workers workers, see $OUT/torch-$workers.log"
        fi
    done
    # shellcheck disable=SC2086  # the numbers of workers are several words
    check python3 - "$OUT" $WORKERS <<'PY'
import json, os, re, statistics, sys
out = sys.argv[1]
for workers in sys.argv[2:]:
    peers = {}
    path = os.path.join(out, f"torch-{workers}.txt")
    for line in open(path) if os.path.exists(path) else []:
        m = re.match(r"(\w+) .* (\w+) +median +([\d.]+) samples/s +min ([\d.]+) max ([\d.]+)", line)
        if m:
            peers[m.group(1, 2)] = [float(x) for x in m.group(3, 4, 5)]
    for job in "photos", "cifar":
        path = os.path.join(out, f"{job}-{workers}", "result.json")
        if not os.path.exists(path):
            continue
        result = json.load(open(path))
        print(f"{job}, {workers} workers; failures: {result['failures']}")
        for cell in result["cells"]:
            rates = [run["samples_per_s"] for run in cell["rounds"]]
            text = f"  {cell['name']:16s} {statistics.median(rates):10.0f} samples/s ({min(rates):.0f} to {max(rates):.0f})"
            peer = peers.get((job, {"pin": "pin_memory"}.get(cell["name"], cell["name"])))
            if peer:
                text += f"; PyTorch {peer[0]:.0f} ({peer[1]:.0f} to {peer[2]:.0f}), ratio {statistics.median(rates) / peer[0]:.2f}"
            print(text)
PY
}

all_parts() {
    for name in "${parts[@]}"; do
        "$name"
    done
    printf '\nall: %d s, %s\n' "$SECONDS" "$([ "$failed" -eq 0 ] && echo ok || echo FAILED)"
    exit "$failed"
}

in_group all_parts
