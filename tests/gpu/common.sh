# shellcheck shell=bash disable=SC2034,SC2154
# What the measuring scripts share. They set `scratch` (a folder) and PHOTOS before they call it.
failed=0

part() {
    printf '\n=== %s (%d s so far)\n' "$*" "$SECONDS"
}

check() {
    "$@" || { printf 'FAILED: %s\n' "$*"; failed=1; }
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
