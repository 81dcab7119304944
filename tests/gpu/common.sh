# shellcheck shell=bash disable=SC2034,SC2154
# What the scripts beside this share. Those that measure set `scratch` (a folder), CIFAR and PHOTOS.
failed=0

# in_group FUNCTION: runs it as a process group, whatever it starts included, and returns its status. The
# script itself only waits meanwhile, so that a signal ends it at once.
in_group() {
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    set -m
    "$@" &
    set +m
    wait $!
}

# For the EXIT trap: ends what the group still runs before files are removed under it.
end_group() {
    local signal=TERM try=0
    trap '' HUP INT TERM
    while [ -n "${!:-}" ] && [ "$try" -lt 30 ] && kill -s "$signal" -- "-$!" 2>/dev/null; do
        try=$((try + 1))
        [ "$try" -lt 20 ] || signal=KILL
        sleep 0.5
    done
}

# limited PROGRAM [ARG...]: runs it for at most LIMIT seconds.
limited() {
    timeout --foreground -k 10 "${LIMIT:-600}" "$@"
}

part() {
    printf '\n=== %s (%d s so far)\n' "$*" "$SECONDS"
}

# What fails is told where no part's results go.
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    failed=1
}

check() {
    "$@" || fail "$*"
}

# only PART... : ends the script unless each of `parts` is one of them.
only() {
    local name
    for name in "${parts[@]}"; do
        [[ " $* " == *" $name "* ]] || { printf 'unknown part %s: there are %s\n' "$name" "$*" >&2; exit 2; }
    done
}

# images NAME: makes the folder in the variable NAME absolute. One that is given must hold train/.
images() {
    [ -n "${!1}" ] || return 0
    [ -d "${!1}/train" ] || { printf '%s: there is no folder %s/train\n' "$1" "${!1}" >&2; exit 2; }
    printf -v "$1" %s "$(realpath "${!1}")"
}

# present NAME: whether the variable NAME names images to train on.
present() {
    [ -n "${!1}" ] || { printf 'left out: %s names no images\n' "$1"; return 1; }
}

# peer SCRIPT [ARG...]: runs a Python script of PEERS, at most LIMIT seconds, and ends it with its last line.
# A DataLoader's workers that do not leave at once are waited for at the end, each for five seconds.
peer() {
    (cd "$PEERS" && limited python3 -c '
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
