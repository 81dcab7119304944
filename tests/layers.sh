#!/bin/sh
# Checks that the layers are the directed graph that they are meant to be: what each folder may
# include, GPU headers in device/cuda alone, and no file name twice. Prints each offence.
set -u
cd "$(dirname "$0")/.." || exit 1

allowed() {
    case $1 in
    base) echo 'base' ;;
    device) echo 'base device' ;;
    models) echo 'base device models' ;;
    data) echo 'base data' ;;
    loader) echo 'base data device loader' ;;
    trainer) echo 'base data device models loader trainer' ;;
    experiments) echo 'base data device models loader trainer experiments' ;;
    esac
}

offences() {
    for layer in base device models data loader trainer experiments; do
        find "$layer" -name '*.[ch]' | sort | while read -r file; do
            may=$(allowed "$layer")
            sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file" |
                while read -r header; do
                    case " $may " in
                    *" ${header%%/*} "*) ;;
                    *) echo "$file includes $header, which is not below $layer" ;;
                    esac
                    if [ "$layer" != device ]; then
                        case $header in
                        device/*/*) echo "$file includes $header, which is private to device" ;;
                        *_internal.h)
                            if [ "${header%%/*}" != "$layer" ]; then
                                echo "$file includes $header, which is private to ${header%%/*}"
                            fi
                            ;;
                        esac
                    fi
                    case $layer:$header in
                    loader:device/device.h) ;;
                    loader:device/*) echo "$file includes $header; loader may see device/device.h only" ;;
                    esac
                    case $file:$header in
                    device/cuda/*:device/host/*)
                        echo "$file includes $header: the two devices do not know each other" ;;
                    device/cuda/*) ;;
                    device/*:device/cuda/*)
                        echo "$file includes $header: the CUDA device is opened, not linked" ;;
                    esac
                done
        done
    done
    grep -rnE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"](cuda|cudnn|cublas|nvml|nccl|cupti|driver_types)' \
        base device models data loader trainer experiments pinline.c 2>/dev/null |
        grep -v '^device/cuda/' | sed 's/$/   (a GPU header outside device\/cuda)/'
    find base device models data loader trainer experiments tests -name '*.[ch]' |
        sed 's|.*/||' | sort | uniq -d | sed 's/$/: this file name is used more than once/'
}

found=$(offences)
if [ -n "$found" ]; then
    printf '%s\n' "$found"
    exit 1
fi
echo 'layers: every include points down'
