#!/bin/sh
# Fetches a well-known public image set, checks it, and unpacks it.
# Usage: data/fetch.sh NAME [FOLDER]
set -eu

usage() {
    cat <<'END'
Usage: data/fetch.sh NAME [FOLDER]
Fetches the set NAME into FOLDER (default: ./NAME), checks each file's checksum, and unpacks it so
that `pinline train --data FOLDER` reads it. What is there already and right is not fetched again.
  cifar10         60,000 colour images of 32 x 32, 10 classes    162 MB
  cifar100        60,000 colour images of 32 x 32, 100 classes   161 MB
  mnist           70,000 grey images of 28 x 28, 10 digits        11 MB
  fashion-mnist   70,000 grey images of 28 x 28, 10 garments      30 MB
  kmnist          70,000 grey images of 28 x 28, 10 letters       21 MB
  imagenette-160  13,000 photographs, 10 classes, 160 pixels      94 MB
  imagenette-320  13,000 photographs, 10 classes, 320 pixels     325 MB
END
}

fail() {
    echo "fetch.sh: $*" >&2
    exit 1
}

# Lines of "MD5 file URL [URL...]"; archives are unpacked.
files_of() {
    case $1 in
    cifar10)
        echo "c32a1d4ab5d03f1284b67883e8d87530 cifar-10-binary.tar.gz https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
        ;;
    cifar100)
        echo "03b5dce01913d631647c71ecec9e9cb8 cifar-100-binary.tar.gz https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
        ;;
    mnist)
        while read -r sum file; do
            echo "$sum $file https://ossci-datasets.s3.amazonaws.com/mnist/$file http://yann.lecun.com/exdb/mnist/$file"
        done <<'END'
f68b3c2dcbeaaa9fbdd348bbdeb94873 train-images-idx3-ubyte.gz
d53e105ee54ea40749a09fcbcd1e9432 train-labels-idx1-ubyte.gz
9fb629c4189551a2d022fa330f9573f3 t10k-images-idx3-ubyte.gz
ec29112dd5afa0611ce80d1b7f02629c t10k-labels-idx1-ubyte.gz
END
        ;;
    fashion-mnist)
        while read -r sum file; do
            echo "$sum $file http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/$file"
        done <<'END'
8d4fb7e6c68d591d4c3dfef9ec88bf0d train-images-idx3-ubyte.gz
25c81989df183df01b3e8a0aad5dffbe train-labels-idx1-ubyte.gz
bef4ecab320f06d8554ea6380940ec79 t10k-images-idx3-ubyte.gz
bb300cfdad3c16e7a12a480ee83cd310 t10k-labels-idx1-ubyte.gz
END
        ;;
    kmnist)
        while read -r sum file; do
            echo "$sum $file http://codh.rois.ac.jp/kmnist/dataset/kmnist/$file"
        done <<'END'
bdb82020997e1d708af4cf47b453dcf7 train-images-idx3-ubyte.gz
e144d726b3acfaa3e44228e80efcd344 train-labels-idx1-ubyte.gz
5c965bf0a639b31b8f53240b1b52f4d7 t10k-images-idx3-ubyte.gz
7320c461ea6c1c855c0b718fb2a4b134 t10k-labels-idx1-ubyte.gz
END
        ;;
    imagenette-160)
        echo "e793b78cc4c9e9a4ccc0c1155377a412 imagenette2-160.tgz https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz"
        ;;
    imagenette-320)
        echo "3df6f0d01a2c9592104656642f5e78a3 imagenette2-320.tgz https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-320.tgz"
        ;;
    *) return 1 ;;
    esac
}

checksum() {
    if command -v md5sum >/dev/null 2>&1; then
        md5sum <"$1" | cut -d' ' -f1
    elif command -v md5 >/dev/null 2>&1; then
        md5 -q "$1"
    else
        openssl md5 -r "$1" | cut -d' ' -f1
    fi
}

is_right() {
    [ -f "$1" ] && [ "$(checksum "$1")" = "$2" ]
}

download() {
    if command -v curl >/dev/null 2>&1; then
        curl --fail --location --silent --show-error --connect-timeout 20 --output "$2" "$1"
    elif command -v wget >/dev/null 2>&1; then
        wget --quiet --timeout=20 --tries=2 --output-document="$2" "$1"
    else
        echo "fetch.sh: neither curl nor wget is installed" >&2
        return 1
    fi
}

# What a person does where this script cannot.
by_hand() {
    {
        echo
        echo "The set could not be fetched. By hand: on a machine with a network, download"
        files_of "$name" | while read -r sum file urls; do
            echo "    ${urls%% *}"
            echo "        (MD5 $sum)"
        done
        echo "copy what you got into $folder, without unpacking it, and run this again:"
        echo "    data/fetch.sh $name '$folder'"
        echo "Without any of this, \`pinline synth FOLDER\` makes a set to try things on."
    } >&2
    exit 1
}

case ${1-} in
'' | -h | --help)
    usage
    [ -n "${1-}" ] || exit 2
    exit 0
    ;;
esac
[ $# -le 2 ] || fail "too many arguments; see data/fetch.sh --help"
name=$1
folder=${2-./$name}
case $folder in
-*) folder=./$folder ;;
esac
files_of "$name" >/dev/null || fail "no set is named $name; see data/fetch.sh --help"
mkdir -p "$folder" || fail "the folder $folder cannot be made"

list=$(files_of "$name")
while read -r sum file urls; do
    if is_right "$folder/$file" "$sum"; then
        echo "$file: here already, checksum right"
        continue
    fi
    got=
    for url in $urls; do
        echo "$file: fetching from $url"
        if download "$url" "$folder/$file.partial"; then
            if is_right "$folder/$file.partial" "$sum"; then
                got=1
                break
            fi
            echo "fetch.sh: $url gave a file with another checksum; it is thrown away" >&2
        fi
        rm -f "$folder/$file.partial"
    done
    [ -n "$got" ] || by_hand
    mv "$folder/$file.partial" "$folder/$file"
done <<END
$list
END

# Archives are unpacked into the folder itself, without the folder that they hold.
while read -r sum file urls; do
    case $file in
    *.tar.gz | *.tgz)
        echo "$file: unpacking"
        tar -xzf "$folder/$file" -C "$folder" --strip-components=1 ||
            fail "$folder/$file cannot be unpacked"
        ;;
    esac
done <<END
$list
END
echo "Done. Train with: pinline train --data '$folder'"
