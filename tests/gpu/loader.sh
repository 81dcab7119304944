#!/usr/bin/env bash
# Measures decoding, loading and training from files, beside OpenCV and PyTorch in the same call, and
# ends with one table: rates, ratios, what each is held against and the share of it that is reached.
#
#   tests/gpu/loader.sh [PART...]      parts: photo png small workers train memory accuracy; all but
#                                      accuracy by default. photo, png, small and workers use no GPU
#
# From the environment:
#   PINLINE   the program (build/pinline)
#   CIFAR     CIFAR-10 as JPEG in train/<class>/; what wants images is left out without them
#   PHOTOS    photographs in train/<class>/; accuracy wants test/<class>/ too
#   PEERS     folder with decode_torch.py and article_torch.py; without it their columns read -
#   CELLS     what train measures: photo4 photo16 small packed cached; all by default
#   MANY      workers of the rows that use every CPU (the CPUs allowed)
#   ROUNDS    how often both sides of a decoding row are measured, in turn (3); the table has medians
#   EPOCHS    epochs of a training run (4), the first of which is not counted; PEER_ROUNDS (2)
#   IMAGES, SMALL_IMAGES, PEER_IMAGES   images of an epoch (7168, 49920) and of PyTorch's (2048 for 4
#             workers, twice that for more, 25600 small ones): whole batches, as many for each worker
#   STEPS, MEMORY_EPOCHS, SIZES, SEEDS, ACCURACY_EPOCHS, SECONDS_EACH, DEVICE, CANDIDATES   to shorten it,
#             or to try it without a GPU
#             (CANDIDATES matters where PLANS has no plans: plans.json beside this is for one kind of machine)
#   PLANS     file with cuDNN plans of earlier runs (OUT/plans.json, which begins as plans.json beside this)
#   LIMIT     seconds that one run may take (120): what takes longer reads - in the table
#   OUT       where results are left (build/measured)
# shellcheck disable=SC2317  # the parts are called by name
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
: "${PINLINE:=build/pinline}" "${CIFAR:=}" "${PHOTOS:=}" "${PEERS:=}" "${OUT:=build/measured}"
: "${CELLS:=photo4 photo16 small packed cached}" "${MANY:=$(nproc)}" "${ROUNDS:=3}" "${SECONDS_EACH:=0.6}"
: "${EPOCHS:=4}" "${PEER_ROUNDS:=2}" "${IMAGES:=7168}" "${SMALL_IMAGES:=49920}" "${PEER_IMAGES:=}"
: "${STEPS:=100}" "${MEMORY_EPOCHS:=50}" "${SIZES:=224 192 160 96}" "${SEEDS:=4}" "${DEVICE:=auto}"
: "${CANDIDATES:=8}" "${PLANS:=$OUT/plans.json}" "${LIMIT:=120}"
parts=("$@")
[ $# -gt 0 ] || parts=(photo png small workers train memory)
# shellcheck source=tests/gpu/common.sh
. tests/gpu/common.sh
only photo png small workers train memory accuracy
images CIFAR
images PHOTOS
scratch=$(mktemp -d) || exit 1
rows=$scratch/rows
trap finish EXIT
mkdir -p "$OUT"
rm -f "$OUT/loader.txt"
known_plans "$PLANS"
log=$OUT/loader.log
peers_log=$OUT/loader-peers.log
: >"$rows"
: >"$scratch/failures"
: >"$log"
: >"$peers_log"

device=(--device "$DEVICE")
[ "$DEVICE" = host ] || device+=(--plan-cache "$PLANS" --plan-candidates "$CANDIDATES")

# The CPU computes in float32 alone.
precision_here() {
    if [ "$DEVICE" = host ]; then echo f32; else echo "$1"; fi
}

# Figures are taken in subshells: what fails there is noted in a file.
complain() {
    printf 'FAILED: %s, see %s\n' "$1" "$log" | tee -a "$scratch/failures" >&2
}

# told WHAT PROGRAM [ARG...]: what the program prints, nothing where it fails.
told() {
    local what=$1 text
    shift
    text=$("$@" 2>>"$log") || { complain "$what"; return 1; }
    printf '%s\n' "$text"
}

# --- Figures ----------------------------------------------------------------------------------

# row ORDER WORK RATE AGAINST ITS_RATE TARGET LIMIT ITS_RATE: a line of the table; - is not known.
row() {
    (IFS=$'\t' && printf '%s\n' "$*") >>"$rows"
    printf '%-46s %s against %s %s, limit %s %s\n' "$2" "$3" "$4" "$5" "$7" "$8"
}

# The median of the numbers on standard input, - where there are none.
median() {
    grep -E '^[0-9.]+([eE][-+]?[0-9]+)?$' | sort -g |
        awk '{ v[NR] = $1 } END { print NR == 0 ? "-" : (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

# The smaller of two limits, named: "NAME<tab>RATE".
smaller() {
    awk -v a="$2" -v b="$4" -v x="$1" -v y="$3" 'BEGIN {
        if (a == "-" || (b != "-" && b + 0 < a + 0)) print y "\t" b; else print x "\t" a }'
}

times() {
    awk -v a="$1" -v b="$2" 'BEGIN { print b == "-" ? "-" : a * b }'
}

# from_json EXPRESSION: what it is of `d`, the object on standard input; - where it is not there.
from_json() {
    python3 -c '
import json, sys
try:
    d = json.load(sys.stdin)
    print(eval("(" + sys.argv[1] + ")"))
except (ValueError, KeyError, IndexError, TypeError):
    print("-")' "$1"
}

# decoder DATA SIZE: decoding rates of one core as JSON. The rows are picked by rate_of.
decoder() {
    told "bench decode $1" limited "$PINLINE" bench decode --data "$1" --val-fraction 0 --size "$2" \
        --seconds "$SECONDS_EACH" --json
}

# rate_of KIND whole|size: of the fastest library in a decoder's JSON, stb aside, which is for
# comparison and is not called for what the others read.
rate_of() {
    from_json "max(r['images_per_s'] for r in d['rows']
        if r['library'] != 'stb' and r['kind'] == '$1' and r['to'] == '$2')"
}

opencv() {
    [ -z "$PEERS" ] || told decode_torch.py opencv_rates "$@"
}

opencv_rates() {
    peer decode_torch.py --data "$1" --n "$2" | tee -a "$peers_log" |
        awk '$2 == "opencv" { print $3; found = 1 } END { exit !found }'
}

# loader DATA WORKERS [OPTION...]: images a second of the loader alone. Nothing is copied to a device.
# Where a worker's time went is left in $scratch/stages.
loader() {
    local data=$1 workers=$2
    shift 2
    told "bench loader $data" limited "$PINLINE" bench loader --data "$data" --val-fraction 0 \
        --num-workers "$workers" --device host --seconds 1 --json "$@" >"$scratch/loader.json"
    from_json "'{1:3} workers to {0}: {2[images_per_s]:.0f} images/s; an image: reading {2[read_us]:.1f} us, '
        'decoding {2[decode_us]:.1f}, copying {2[write_us]:.1f}, CPU {2[cpu_us]:.1f}'.format(
        d['size'], d['rows'][-1]['workers'], d['rows'][-1])" <"$scratch/loader.json" >>"$scratch/stages"
    from_json "d['rows'][-1]['images_per_s']" <"$scratch/loader.json"
}

# device_only SIZE PRECISION CLASSES: samples a second with the batch kept on the device.
device_only() {
    local file=$scratch/step-$1-$2
    [ -s "$file" ] || told "bench step" limited "$PINLINE" bench step --size "$1" \
        --precision "$(precision_here "$2")" --classes "$3" --batch-size 64 --steps "$STEPS" "${device[@]}" --json |
        from_json "d['samples_per_s_median']" >"$file"
    cat "$file"
}

# one_core DATA SIZE KIND: how fast one core decodes to SIZE.
one_core() {
    local file=$scratch/decoder-$2-$3
    [ -s "$file" ] || decoder "$1" "$2" | rate_of "$3" size >"$file"
    cat "$file"
}

# at_once DATA SIZE: what MANY decoders, each a process of its own, reach together: cores that share
# units or a clock are no MANY times one core.
at_once() {
    local i
    for ((i = 0; i < MANY; i++)); do
        decoder "$1" "$2" >"$scratch/at-once-$i" &
    done
    wait
    for ((i = 0; i < MANY; i++)); do
        rate_of JPEG size <"$scratch/at-once-$i"
    done | awk '$1 == "-" { failed = 1 } { sum += $1 } END { print failed || !NR ? "-" : sum }'
}

# train NAME DATA SIZE PRECISION WORKERS IMAGES [OPTION...]: the median rate of the epochs but the
# first. No batch is read before its epoch begins, as in PyTorch, and none is smaller than the others.
train() {
    local name=$1 data=$2 size=$3 precision=$4 workers=$5 images=$6 run=$OUT/loader-$1
    shift 6
    rm -rf "$run"
    limited "$PINLINE" train --data "$data" --val-fraction 0 --model smallcnn --size "$size" \
        --precision "$(precision_here "$precision")" --batch-size 64 --num-workers "$workers" --limit-samples "$images" --epochs "$EPOCHS" \
        --eval-every 0 --no-prefetch-epochs --pin-memory --non-blocking --copy-stream dedicated \
        "${device[@]}" --quiet --out "$run" "$@" >>"$log" 2>&1 || { complain "train $name"; echo -; return; }
    epochs "$run" | awk 'NR > 1 { print $2 }' | median
}

# Epoch and samples_per_s of each epoch of a run.
epochs() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { print $at["epoch"], $at["samples_per_s"] }' "$1/metrics.csv" 2>/dev/null
}

# pytorch DATA SIZE WORKERS IMAGES [OPTION...]: the median epoch of article_torch.py with both flags.
pytorch() {
    [ -z "$PEERS" ] || told article_torch.py pytorch_rate "$@"
}

pytorch_rate() {
    local data=$1 size=$2 workers=$3 images=${PEER_IMAGES:-$4}
    shift 4
    peer article_torch.py --data "$data/train" --size "$size" --workers "$workers" \
        --limit "$images" --rounds "$PEER_ROUNDS" --arms 3 "$@" | tee -a "$peers_log" |
        awk '{ for (i = 1; i < NF; i++) if ($i == "median") { print $(i + 1); found = 1 } }
            END { exit !found }'
}

enough_photos() {
    local count
    count=$(find -L "$PHOTOS/train" -type f | wc -l)
    many_photos $((count > 0 ? (IMAGES + count - 1) / count : 1))
}

count_classes() {
    find -L "$1/train" -mindepth 1 -maxdepth 1 -type d | wc -l
}

# --- Parts ------------------------------------------------------------------------------------

photo() {
    local round count whole size crop peer
    part "photographs to 224, one core"
    present PHOTOS || return 0
    count=$(find -L "$PHOTOS/train" -type f | wc -l)
    for ((round = 0; round < ROUNDS; round++)); do
        decoder "$PHOTOS" 224 >"$scratch/decode.json"
        rate_of JPEG whole <"$scratch/decode.json" >>"$scratch/photo-whole"
        rate_of JPEG size <"$scratch/decode.json" >>"$scratch/photo-size"
        loader "$PHOTOS" 1 --size 224 --augment rrc --cache encoded >>"$scratch/photo-crop"
        opencv "$PHOTOS/train" "$((count < 400 ? count : 400))" >>"$scratch/photo-peer"
    done
    whole=$(median <"$scratch/photo-whole")
    size=$(median <"$scratch/photo-size")
    crop=$(median <"$scratch/photo-crop")
    peer=$(median <"$scratch/photo-peer")
    row 10 "JPEG photograph to 224, one core" "$size" "libjpeg-turbo's full decode" "$whole" 0.85 "that decode" "$whole"
    row 11 "the same" "$size" "OpenCV's decode" "$peer" 1.0 "libjpeg-turbo's full decode" "$whole"
    row 20 "random resized crop to 224, one worker" "$crop" "OpenCV's decode" "$peer" 1.3 \
        "libjpeg-turbo's full decode" "$whole"
}

# one_core_rounds NAME KIND DATA SIZE IMAGES: sets `whole`, `size` and `peer`, the medians of the full
# decode, of decoding to SIZE, and of OpenCV's decode of so many images.
one_core_rounds() {
    local round
    for ((round = 0; round < ROUNDS; round++)); do
        decoder "$3" "$4" >"$scratch/decode.json"
        rate_of "$2" whole <"$scratch/decode.json" >>"$scratch/$1-whole"
        rate_of "$2" size <"$scratch/decode.json" >>"$scratch/$1-size"
        opencv "$3/train" "$5" >>"$scratch/$1-peer"
    done
    whole=$(median <"$scratch/$1-whole")
    size=$(median <"$scratch/$1-size")
    peer=$(median <"$scratch/$1-peer")
}

# The textures of synth make PNG files of the size of photographs' (114 KiB each at 256x256).
png() {
    local whole size peer
    part "256x256 PNG, one core"
    check limited "$PINLINE" synth "$scratch/png" --images 200 --val-images 0 --size 256 --format png --quiet
    one_core_rounds png PNG "$scratch/png" 224 200
    row 30 "256x256 PNG, one core" "$whole" "OpenCV's decode" "$peer" 1.0 - -
    row 31 "the same to 224" "$size" "OpenCV's decode" "$peer" - "the full decode" "$whole"
}

small() {
    local whole size peer
    part "32x32 JPEG, one core"
    present CIFAR || return 0
    one_core_rounds small JPEG "$CIFAR" 32 2000
    row 40 "32x32 JPEG, one core" "$size" "OpenCV's decode" "$peer" 1.4 "libjpeg-turbo's full decode" "$whole"
}

# 13 of 16: other machines are held to the same share of their CPUs.
workers() {
    local round one many target limit
    part "the loader alone, $MANY workers and 1"
    present PHOTOS && present CIFAR || return 0
    enough_photos
    target=$(times "$MANY" 0.8125)
    rm -f "$scratch/stages"
    for ((round = 0; round < ROUNDS; round++)); do
        loader "$photo_set" 1 --size 224 --limit-samples 1792 >>"$scratch/loader-photo-1"
        loader "$photo_set" "$MANY" --size 224 >>"$scratch/loader-photo-many"
        loader "$CIFAR" 1 --size 32 >>"$scratch/loader-small-1"
        loader "$CIFAR" "$MANY" --size 32 >>"$scratch/loader-small-many"
    done
    grep workers "$scratch/stages" | sort -k 4,4 -k 1,1n
    one=$(median <"$scratch/loader-photo-1")
    many=$(median <"$scratch/loader-photo-many")
    limit=$(at_once "$PHOTOS" 224)
    row 50 "loader, photographs to 224, $MANY workers" "$many" "1 worker" "$one" "$target" "$MANY decoders at once" "$limit"
    one=$(median <"$scratch/loader-small-1")
    many=$(median <"$scratch/loader-small-many")
    limit=$(at_once "$CIFAR" 32)
    row 51 "loader, 32x32 JPEG, $MANY workers" "$many" "1 worker" "$one" "$target" "$MANY decoders at once" "$limit"
}

# epoch_row ORDER WORK RATE PEER TARGET WORKERS ONE_CORE DEVICE_ONLY
epoch_row() {
    local limit
    limit=$(smaller "$6 decoders" "$(times "$6" "$7")" "device only" "$8")
    row "$1" "$2" "$3" "PyTorch, both flags" "$4" "$5" "${limit%$'\t'*}" "${limit#*$'\t'}"
}

train_photo() {
    local workers=$1 precision=$2 rate peer
    shift 2
    enough_photos
    peer=$(pytorch "$photo_set" 224 "$workers" "$((workers > 4 ? 4096 : 2048))" "${@:4}" | median)
    rate=$(train "photo-$workers" "$photo_set" 224 "$precision" "$workers" "$IMAGES")
    epoch_row "$1" "$2" "$rate" "$peer" "$3" "$workers" "$(one_core "$PHOTOS" 224 JPEG)" \
        "$(device_only 224 "$precision" "$(count_classes "$PHOTOS")")"
}

photo4() {
    train_photo 4 tf32 60 "epoch, photographs 224, 4 workers, tf32" 3
}

photo16() {
    train_photo "$MANY" bf16 70 "epoch, photographs 224, $MANY workers, bf16" 4 --amp --channels-last
}

# PyTorch's rate is asked for once: the packed rows are held against the same.
small_peer() {
    [ -s "$scratch/small-pytorch" ] || pytorch "$CIFAR" 32 4 25600 | median >"$scratch/small-pytorch"
    cat "$scratch/small-pytorch"
}

small_row() {
    epoch_row "$1" "$2" "$3" "$(small_peer)" "$4" 4 "$5" "$(device_only 32 tf32 "$(count_classes "$CIFAR")")"
}

small_files() {
    small_row 80 "epoch, 32x32 JPEG, 4 workers, tf32" \
        "$(train small "$CIFAR" 32 tf32 4 "$SMALL_IMAGES")" 8 "$(one_core "$CIFAR" 32 JPEG)"
}

# A packed set holds the training images alone here.
packed() {
    check limited "$PINLINE" pack "$CIFAR/train" "$scratch/encoded.pack" --quiet
    small_row 90 "the same, packed" "$(train packed "$scratch/encoded.pack" 32 tf32 4 "$SMALL_IMAGES")" 12 \
        "$(one_core "$CIFAR" 32 JPEG)"
    check limited "$PINLINE" pack "$CIFAR/train" "$scratch/decoded.pack" --decoded --size 32 --quiet
    small_row 91 "the same, packed as pixels" \
        "$(train packed-pixels "$scratch/decoded.pack" 32 tf32 4 "$SMALL_IMAGES")" 12 -
}

cached() {
    local precision only order=100
    enough_photos
    for precision in tf32 bf16; do
        only=$(device_only 224 "$precision" "$(count_classes "$PHOTOS")")
        row "$order" "epoch, decoded cache 224, $precision" \
            "$(train "cached-$precision" "$photo_set" 224 "$precision" 4 "$IMAGES" --cache decoded)" \
            "device only" "$only" 0.95 "that" "$only"
        order=$((order + 1))
    done
}

train_cells() {
    local cell
    for cell in $CELLS; do
        part "training: $cell"
        case $cell in
        photo4 | photo16 | cached) ! present PHOTOS || "$cell" ;;
        small) ! present CIFAR || small_files ;;
        packed) ! present CIFAR || packed ;;
        *) fail "there is no cell $cell" ;;
        esac
    done
}

# Resident memory after each epoch, while files are read and decoded in every one of them.
memory() {
    local run=$OUT/loader-memory pid seen kib rss begun=$SECONDS
    part "resident memory over $MEMORY_EPOCHS epochs"
    present CIFAR || return 0
    rm -rf "$run"
    "$PINLINE" train --data "$CIFAR" --model smallcnn --size 32 --precision "$(precision_here tf32)" --batch-size 64 --num-workers 4 \
        --limit-samples "$((SMALL_IMAGES < 6400 ? SMALL_IMAGES : 6400))" --epochs "$MEMORY_EPOCHS" \
        --eval-every 0 --pin-memory --non-blocking --copy-stream dedicated "${device[@]}" \
        --quiet --out "$run" >>"$log" 2>&1 &
    pid=$!
    : >"$scratch/memory"
    while kib=$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status" 2>/dev/null) && [ -n "$kib" ]; do
        seen=$(epochs "$run" | wc -l)
        printf '%d %d\n' "$seen" "$kib" >>"$scratch/memory"
        [ $((SECONDS - begun)) -lt "$LIMIT" ] || kill "$pid" 2>/dev/null
        sleep 0.02
    done
    wait "$pid" || { complain "train memory"; : >"$scratch/memory"; }
    # The highest reading while epochs 5 and 6 run, and in the last two.
    rss=$(awk -v last="$MEMORY_EPOCHS" '
        $1 >= 5 && $1 <= 6 && $2 > early { early = $2 }
        $1 >= last - 2 && $2 > late { late = $2 }
        END { print (late ? late / 1024 : "-") "\t" (early ? early / 1024 : "-") }' "$scratch/memory")
    row 110 "MiB resident at epoch $MEMORY_EPOCHS" "${rss%$'\t'*}" "epoch 5" "${rss#*$'\t'}" "<1.01" - -
}

# --- What scaled decoding changes -------------------------------------------------------------

# difference SIZE: of the pixels of PHOTOS, decoded at the fastest scale and at full scale. Both are
# packed as pixels: data/README.md describes the file.
difference() {
    limited "$PINLINE" pack "$PHOTOS" "$scratch/scaled.pack" --decoded --size "$1" --overwrite --quiet &&
        limited "$PINLINE" pack "$PHOTOS" "$scratch/exact.pack" --decoded --size "$1" --exact-decode --overwrite --quiet &&
        python3 - "$1" "$scratch/scaled.pack" "$scratch/exact.pack" <<'PY'
import collections, operator, struct, sys
def pixels(name):
    data = open(name, "rb").read()
    images = sum(struct.unpack_from("<QQ", data, 24))
    width, height, index = struct.unpack_from("<IIQ", data, 48)
    return data[128:index], images * width * height * 3
size, (scaled, values), (exact, _) = sys.argv[1], pixels(sys.argv[2]), pixels(sys.argv[3])
counts = collections.Counter(map(abs, map(operator.sub, scaled, exact)))
total, seen, high = sum(step * count for step, count in counts.items()), 0, 0
for step in sorted(counts, reverse=True):
    seen += counts[step]
    if seen > values / 1000:
        high = step
        break
print(f"to {size}: pixels differ by {total / values:.3f} of 255 on average, one of a thousand by {high} "
      f"or more, at most by {max(counts)}")
PY
}

# learn WAY SEED DATA SIZE EPOCHS [OPTION...]: trains into $scratch/WAY-SEED. Speed does not matter, so
# one plan is enough.
learn() {
    local way=$1 seed=$2 data=$3 size=$4 epochs=$5
    shift 5
    local plans=()
    [ "$way" = scaled ] || set -- "$@" --exact-decode
    [ "$DEVICE" = host ] || plans=(--plan-cache "$OUT/plans-accuracy.json" --plan-candidates 1 --precision bf16)
    limited "$PINLINE" train --data "$data" --model smallcnn --size "$size" --epochs "$epochs" --seed "$seed" \
        --batch-size 64 --num-workers 2 --cache decoded --eval-every "$epochs" --lr 0.1 --flip \
        --device "$DEVICE" "${plans[@]}" --overwrite --quiet --out "$scratch/$way-$seed" "$@" >>"$log" 2>&1 ||
        { complain "train $way $seed"; rm -rf "$scratch/$way-$seed"; }
}

# compare_ways NAME DATA SIZE EPOCHS [OPTION...]: both ways from the same seeds, all side by side but the
# first, which finds the plans.
compare_ways() {
    local name=$1 seed way pids=()
    shift
    rm -rf "$scratch"/scaled-* "$scratch"/exact-*
    learn scaled 1 "$@"
    learn exact 1 "$@" &
    pids+=($!)
    for ((seed = 2; seed <= SEEDS; seed++)); do
        for way in scaled exact; do
            learn "$way" "$seed" "$@" &
            pids+=($!)
        done
    done
    wait "${pids[@]}"
    check python3 - "$name" "$scratch" "$SEEDS" <<'PY'
import csv, statistics, sys
name, folder, seeds = sys.argv[1], sys.argv[2], range(1, int(sys.argv[3]) + 1)
def last(way, seed, column):
    return float(list(csv.DictReader(open(f"{folder}/{way}-{seed}/metrics.csv")))[-1][column])
for column in "val_accuracy", "val_loss":
    try:
        scaled, exact = ([last(way, seed, column) for seed in seeds] for way in ("scaled", "exact"))
    except (OSError, IndexError, ValueError) as error:
        print(f"{name}: {column} is not known: {error}")
        continue
    pairs = [a - b for a, b in zip(scaled, exact)]
    spread = statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else float("nan")
    print(f"{name}: {column} scaled {statistics.mean(scaled):.4f}, exact {statistics.mean(exact):.4f}, "
          f"difference {statistics.mean(pairs):+.4f} +- {spread:.4f} ({len(pairs)} seeds)")
PY
}

# At exactly half its size nothing smooths what scaling does to an image: 192 for photographs 384 wide. Of
# CIFAR there are ten thousand images to test on, of the photographs few.
accuracy() {
    local size epochs
    part "scaled and exact decoding of JPEG"
    if present PHOTOS; then
        for size in $SIZES; do
            check difference "$size"
        done
        epochs=${ACCURACY_EPOCHS:-40}
        compare_ways "photographs to 192, $epochs epochs" "$PHOTOS" 192 "$epochs"
    fi
    if present CIFAR; then
        epochs=${ACCURACY_EPOCHS:-8}
        compare_ways "CIFAR JPEG to 16, $epochs epochs" "$CIFAR" 16 "$epochs" --limit-samples "$SMALL_IMAGES"
    fi
}

# --- The table --------------------------------------------------------------------------------

table() {
    printf '\n'
    sort -t $'\t' -k 1,1n "$rows" | awk -F '\t' '
        function known(x) { return x ~ /^[0-9]/ }
        function show(x) { return !known(x) ? "-" : x >= 100 ? sprintf("%.0f", x) : sprintf("%.1f", x) }
        function share(a, b) { return !known(a) || !known(b) || b + 0 == 0 ? "-" : sprintf("%.3f", a / b) }
        function met(ratio, target) {
            if (ratio == "-" || target == "-") return ""
            if (target ~ /^</) return ratio + 0 < substr(target, 2) + 0 ? "yes" : "NO"
            return ratio + 0 >= target + 0 ? "yes" : "NO"
        }
        BEGIN {
            line = "%-42s %10s  %-28s %10s %8s %8s %-4s %-28s %10s %6s\n"
            printf line, "work", "images/s", "against", "images/s", "ratio", "to reach", "", "limit", "images/s", "share"
        }
        { ratio = share($3, $5)
          printf line, $2, show($3), $4, show($5), ratio, $6, met(ratio, $6), $7, show($8), share($3, $8) }'
    printf 'one core: best passes from memory, medians of %d rounds; epochs: medians without the first, smallcnn,\n' "$ROUNDS"
    printf 'batch 64, no batch read before its epoch begins; tf32 because PyTorch convolves in TF32 unless told otherwise.\n'
}

all_parts() {
    for name in "${parts[@]}"; do
        if [ "$name" = train ]; then train_cells; else "$name"; fi
    done
    [ ! -s "$scratch/failures" ] || failed=1
    exit "$failed"
}

# The table has what was measured, however the script ends.
finish() {
    local status=$?
    end_group
    if [ -s "$rows" ]; then
        table >"$OUT/loader.txt" || status=1
        cat "$OUT/loader.txt"
    fi
    rm -rf "$scratch"
    printf '\nall: %d s, %s\n' "$SECONDS" "$([ "$status" -eq 0 ] && echo ok || echo FAILED)"
    exit "$status"
}

in_group all_parts
