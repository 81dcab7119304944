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
# A job that was interrupted goes on with the flags it was begun with, and one that is complete is only reported
# again: with other flags, more --rounds among them, it would be another experiment, which wants another OUT
# or --overwrite.
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

# Few photographs make an epoch too short to time: links to their folders make it longer. The name holds whose
# they are, so that a result of other photographs does not go on with these.
if [ "$REPEAT" -gt 1 ]; then
    many=$out/photographs-times-$REPEAT$photos
    rm -rf "$many/train"
    for class in "$photos"/train/*/; do
        class=${class%/}
        mkdir -p "$many/train/${class##*/}"
        copy=0
        while [ "$copy" -lt "$REPEAT" ]; do
            ln -s "$class" "$many/train/${class##*/}/$copy"
            copy=$((copy + 1))
        done
    done
    photos=$many
fi

# attempt WHAT PROGRAM [ARG...]: what fails is named at the end, but what was interrupted ends the script.
attempt() {
    what=$1 status=0
    shift
    "$@" || status=$?
    case $status in
    0) ;;
    130 | 143) exit "$status" ;;
    *) failed="$failed $what" ;;
    esac
}

# torch NAME FLAG...: PyTorch's cells with the job's own flags. Rates of the same flags are kept.
torch() {
    rates=$out/$1/peer.csv
    flags=$out/$1/peer.flags
    shift
    if [ -z "$TORCH" ]; then
        return
    fi
    asked="$* $common $TORCH_FLAGS"
    if [ ! -f "$rates" ] || [ "$(cat "$flags" 2>/dev/null)" != "$asked" ]; then
        mkdir -p "${rates%/*}"
        rm -f "$rates"
        printf '%s\n' "$asked" >"$flags"
        # shellcheck disable=SC2086
        attempt "$rates" "$TORCH" "$here/experiments/article/torch_cells.py" --out "$rates" "$@" $common $TORCH_FLAGS
    fi
}

# job NAME FLAG...
job() {
    name=$1
    shift
    how="$rounds --out"
    echo "== $name"
    torch "$name" "$@"
    case " $common " in
    *" --overwrite "*) ;;
    *) [ ! -f "$out/$name/result.json" ] || how=--resume ;;
    esac
    if [ -f "$out/$name/peer.csv" ]; then
        set -- "$@" --peer "$out/$name/peer.csv"
    fi
    # shellcheck disable=SC2086
    attempt "$name" "$PINLINE" ablate $how "$out/$name" --copy-stream both "$@" $common
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
