#!/bin/sh
# Installs what Pinline is built from, where it is missing, and says what it does.
#
#   sh setup.sh        what building and running need
#   sh setup.sh run    the same, then `make run`: makes images and trains on them
#   sh setup.sh test   what the tests need too, then `make test`
#   sh setup.sh dev    what the checks of a contributor need too (see CONTRIBUTING.md)
#
# On Debian 12 and Ubuntu 24.04 packages come through apt. Elsewhere, and without the right to
# install, it names what is missing and stops.
set -u
cd "$(dirname "$0")" || exit 1

say() {
    printf 'setup: %s\n' "$*"
}

usage() {
    sed -n '4,7s/^# *//p' "$0"
}

want=${1:-build}
case $want in
build | run | test | dev) ;;
-h | --help | help)
    usage
    exit 0
    ;;
*)
    say "unknown word '$want'. One of these is meant:"
    usage
    exit 2
    ;;
esac
if [ $# -gt 1 ]; then
    say "one word at most, not $#"
    exit 2
fi

# Whether any of the named commands, or the named header, is there.
has_command() {
    for name in "$@"; do
        if command -v "$name" >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}
has_header() {
    for folder in /usr/include /usr/include/*-linux-gnu /usr/include/*-linux-gnu/openblas* \
        /usr/include/openblas /usr/local/include; do
        if [ -f "$folder/$1" ]; then
            return 0
        fi
    done
    return 1
}

has_fuzzer() {
    for file in "$(clang -print-resource-dir 2>/dev/null)"/lib/*/libclang_rt.fuzzer*.a; do
        if [ -f "$file" ]; then
            return 0
        fi
    done
    return 1
}
# The version of clang that is there, or that the distribution will install.
clang_version() {
    if has_command clang; then
        clang -dumpversion | cut -d. -f1
    elif grep -q '^VERSION_CODENAME=bookworm' /etc/os-release 2>/dev/null; then
        echo 14
    else
        echo 18
    fi
}

# Names the Debian packages that are missing. `need package test…` runs the test.
missing=
need() {
    package=$1
    shift
    if ! "$@"; then
        missing="$missing $package"
    fi
}
look() {
    missing=
    need make has_command make
    need gcc has_command gcc clang
    need libc6-dev has_header stdio.h
    need pkg-config has_command pkg-config
    need zlib1g-dev has_header zlib.h
    need libpng-dev has_header png.h
    need libjpeg-dev has_header jpeglib.h
    need libdeflate-dev has_header libdeflate.h
    need libstb-dev has_header stb/stb_image.h
    # cblas.h alone may be the reference BLAS's.
    need libopenblas-dev has_header openblas_config.h
    if [ "$want" = test ] || [ "$want" = dev ]; then
        need check has_header check.h
        need libsubunit-dev has_header subunit/child.h
        need python3 has_command python3
    fi
    if [ "$want" = dev ]; then
        need clang has_command clang
        need "libclang-rt-$(clang_version)-dev" has_fuzzer
        need clang-format-14 has_command clang-format-14
        need cppcheck has_command cppcheck
        need shellcheck has_command shellcheck
    fi
    missing=${missing# }
}

look
if [ -n "$missing" ]; then
    say "missing: $missing"
    install="apt-get install -y --no-install-recommends $missing"
    if ! has_command apt-get; then
        say 'this system has no apt-get. Install the equivalents of these Debian packages and run this again.'
        exit 1
    fi
    if [ "$(id -u)" -eq 0 ]; then
        as_root=
    elif has_command sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        as_root=sudo
    else
        say 'they can be installed by root alone. Run this command, then this script again:'
        if has_command sudo; then
            printf "    sudo sh -c 'apt-get update && %s'\n" "$install"
        else
            printf "    su -c 'apt-get update && %s'\n" "$install"
        fi
        exit 1
    fi
    say "installing them: ${as_root:+$as_root }$install"
    # shellcheck disable=SC2086
    if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q ||
        ! $as_root env DEBIAN_FRONTEND=noninteractive $install -q; then
        say 'apt-get failed; its message stands above. On Ubuntu the packages are in "universe".'
        exit 1
    fi
    look
    if [ -n "$missing" ]; then
        say "still missing after apt-get had succeeded: $missing"
        exit 1
    fi
else
    say 'everything that is needed is there'
fi

case $want in
build) say 'done. Next: make' ;;
dev) say 'done. Next: .ci/run, or a single check of "make help"' ;;
*)
    say "make $want"
    exec make -j"$(nproc)" "$want"
    ;;
esac
