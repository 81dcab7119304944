# shellcheck shell=bash disable=SC2034,SC2154
# What the measuring scripts share. They set `scratch` (a folder) and PHOTOS before they call it.
failed=0

part() {
    printf '\n=== %s (%d s so far)\n' "$*" "$SECONDS"
}

check() {
    "$@" || { printf 'FAILED: %s\n' "$*"; failed=1; }
}

# peer SCRIPT [ARG...]: runs a Python script of PEERS, at most LIMIT seconds, and ends it with its last line.
# A DataLoader's workers that do not leave at once are waited for at the end, each for five seconds.
peer() {
    (cd "$PEERS" && timeout --foreground "${LIMIT:-600}" python3 -c '
import os, runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
os._exit(0)' "$@")
}

# known_plans FILE: plans that were found before on this kind of machine, for a run that has none. A plan
# takes seconds to look for, and counts only for the GPU, the driver and the libraries it was found with.
known_plans() {
    [ -e "$1" ] || cp tests/gpu/plans.json "$1"
}

# Photographs are few: each class is listed TIMES times through links, for an epoch that lasts.
# many_photos TIMES sets `photo_set` to the folder that holds train/.
many_photos() {
    local class copy
    photo_set=$scratch/photos-$1
    [ ! -d "$photo_set" ] || return 0
    for class in "$PHOTOS"/train/*/; do
        mkdir -p "$photo_set/train/$(basename "$class")"
        for ((copy = 1; copy <= $1; copy++)); do
            ln -s "$(realpath "$class")" "$photo_set/train/$(basename "$class")/$copy"
        done
    done
}
