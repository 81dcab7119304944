#!/bin/sh
# The article's comparison on three jobs, all eight cells, eight rounds each.
#
#   run.sh PHOTOS CIFAR OUT [FLAG...]
#
# PHOTOS and CIFAR are folders with train/ (one folder a class); OUT gets a folder a job with
# result.json and report.html. Flags at the end go to every job, for instance --seconds 1, or --rounds 16.
# From the environment: PINLINE (the program), REPEAT (each photograph so many times an epoch),
# PHOTOS_FLAGS, CACHED_FLAGS, CIFAR_FLAGS (model, precision, batch and the like of each job), TORCH
# (a Python that has torch and torchvision, to run PyTorch's own four cells on each job first and show
# them in its report, with the flags at the end), TORCH_FLAGS (of torch_cells.py: --rounds, --seconds).
# A job whose result is complete is not run again; one that was interrupted goes on.
set -eu

if [ $# -lt 3 ]; then
    echo "usage: run.sh PHOTOS CIFAR OUT [FLAG...]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")/../.." && pwd)
photos=$(cd "$1" && pwd)
cifar=$(cd "$2" && pwd)
mkdir -p "$3"
out=$(cd "$3" && pwd)
shift 3
: "${PINLINE:=$here/build/pinline}" "${REPEAT:=1}"
: "${TORCH:=}" "${TORCH_FLAGS:=}"
: "${PHOTOS_FLAGS=--model smallcnn --precision bf16 --batch-size 64}"
: "${CACHED_FLAGS=--model smallcnn --precision bf16 --batch-size 64}"
: "${CIFAR_FLAGS=--model smallcnn --precision bf16 --batch-size 64}"
case $REPEAT in
'' | *[!0-9]*)
    echo "run.sh: REPEAT takes a whole number, not \"$REPEAT\"" >&2
    exit 2
    ;;
esac
for set in "$photos" "$cifar"; do
    if [ ! -d "$set/train" ]; then
        echo "run.sh: $set has no train/: name a folder that holds train/ with a folder a class" >&2
        exit 1
    fi
done
for program in "$PINLINE" ${TORCH:+"$TORCH"}; do
    if ! command -v "$program" >/dev/null; then
        echo "run.sh: there is no program $program: build it with make, or set PINLINE and TORCH" >&2
        exit 1
    fi
done

# Few photographs make an epoch too short to time: links to their folders make it longer.
if [ "$REPEAT" -gt 1 ]; then
    many=$out/photographs-times-$REPEAT
    if [ ! -d "$many" ]; then
        rm -rf "$many.partial"
        for class in "$photos"/train/*/; do
            class=${class%/}
            mkdir -p "$many.partial/train/${class##*/}"
            copy=0
            while [ "$copy" -lt "$REPEAT" ]; do
                ln -s "$class" "$many.partial/train/${class##*/}/$copy"
                copy=$((copy + 1))
            done
        done
        mv "$many.partial" "$many"
    fi
    photos=$many
fi

# torch NAME FLAG...: PyTorch's cells with the job's own flags
torch() {
    rates=$out/$1/peer.csv
    shift
    if [ -n "$TORCH" ] && [ ! -f "$rates" ]; then
        mkdir -p "${rates%/*}"
        # shellcheck disable=SC2086
        "$TORCH" "$here/experiments/article/torch_cells.py" --out "$rates" "$@" $common $TORCH_FLAGS ||
            failed="$failed ${rates%/*}/peer.csv"
    fi
}

# job NAME FLAG...
job() {
    name=$1
    shift
    result=$out/$name/result.json
    how=--out
    echo "== $name"
    torch "$name" "$@"
    if [ -f "$result" ]; then
        how=--resume
    fi
    if [ -f "$out/$name/peer.csv" ]; then
        set -- "$@" --peer "$out/$name/peer.csv"
    fi
    if [ -f "$result" ] && grep -q '^  "finished": true' "$result" &&
        [ -z "$(find "$out/$name" -name peer.csv -newer "$result")" ]; then
        echo "$name: complete already"
        return 0
    fi
    # shellcheck disable=SC2086
    "$PINLINE" ablate "$how" "$out/$name" --copy-stream both $rounds "$@" $common ||
        failed="$failed $name"
}

# Flags hold no spaces, as those in the variables do not.
common=$*
case " $common " in
*" --rounds"*) rounds= ;;
*) rounds="--rounds 8" ;;
esac
failed=
# shellcheck disable=SC2086
{
    job photographs-u8 --data "$photos" --size 224 --transfer u8 $PHOTOS_FLAGS
    job cached-f32 --data "$photos" --size 224 --transfer f32 --cache decoded $CACHED_FLAGS
    job cifar-32 --data "$cifar" --size 32 --transfer u8 $CIFAR_FLAGS
}
if [ -n "$failed" ]; then
    echo "failed:$failed" >&2
    exit 1
fi
