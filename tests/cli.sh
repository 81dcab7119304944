#!/bin/bash
# The program as its users meet it: every command's ordinary use from end to end, wrong uses with
# their exit codes and messages, signals, odd names, full disks, installing. From the environment:
# PINLINE (the program) and MODE (how it was built). Needs no network and no GPU. A check prints one
# line; the last line adds them up.
set -u
cd "$(dirname "$0")/.." || exit 1
ROOT=$PWD
: "${MODE:=release}" "${PINLINE:=$ROOT/build/$MODE/pinline}"
case $PINLINE in
/*) ;;
*) PINLINE=$ROOT/$PINLINE ;;
esac
# Sanitized programs run slower; what only repeats is left out for them.
case $MODE in
release | debug) scale=1 short= ;;
tsan) scale=8 short=1 ;;
*) scale=4 short=1 ;;
esac
LIMIT=$((40 * scale))     # seconds for one program
STOP_MS=$((4000 * scale)) # for ending after a signal: 2 s, and writing on a busy machine
unset LANG LC_NUMERIC LC_CTYPE
export LC_ALL=C

if [ ! -x "$PINLINE" ]; then
    echo "FAILED: there is no program $PINLINE"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
work=$(mktemp -d) || exit 1
mounted=
children=()
leave() {
    local pid
    for pid in "${children[@]}"; do
        kill -9 "$pid" 2>/dev/null
    done
    if [ -n "$mounted" ]; then
        umount "$mounted" 2>/dev/null
    fi
    chmod -R u+rwx "$work" 2>/dev/null
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$work" || exit 1

# --- Checking -------------------------------------------------------------------------------------
passed=0 failed=0 skipped=0 failures=
pass() {
    passed=$((passed + 1))
    echo "ok: $1"
}
# A failure shows what the program said.
fail() {
    failed=$((failed + 1))
    echo "FAILED: $1: $2"
    failures+="failed: $1: $2"$'\n'
    head -c 1500 "$work/err" 2>/dev/null | sed 's/^/    /'
}
skip() {
    skipped=$((skipped + 1))
    echo "SKIP: $1: $2"
}

# call ARGS...: runs the program; its exit code in $code, its output in the files out and err.
call() {
    timeout -k 5 "$LIMIT" "$PINLINE" "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
}
is_sane() {
    ! grep -qE 'Sanitizer|runtime error:|Assertion' "$work/err"
}
# ends CODE NAME ARGS...: it exits so.
ends() {
    local want=$1 name=$2
    shift 2
    call "$@"
    if [ "$code" -ne "$want" ]; then
        fail "$name" "exit code $code instead of $want"
    elif ! is_sane; then
        fail "$name" "a sanitizer's report"
    else
        pass "$name"
    fi
}
# says CODE NAME PATTERN ARGS...: it exits so, and its one message, or what it prints, matches.
says() {
    local want=$1 name=$2 pattern=$3
    shift 3
    call "$@"
    if [ "$code" -ne "$want" ]; then
        fail "$name" "exit code $code instead of $want"
    elif ! is_sane; then
        fail "$name" "a sanitizer's report"
    elif ! cat "$work/err" "$work/out" | tr '\n' ' ' | grep -aqE -- "$pattern"; then
        fail "$name" "nothing said like \"$pattern\""
    elif [ "$want" -ne 0 ] && [ "$want" -lt 128 ] && [ "$(grep -ac '^error: ' "$work/err")" -ne 1 ]; then
        fail "$name" "not exactly one error message"
    else
        pass "$name"
    fi
}
# holds NAME COMMAND...: the command succeeds.
holds() {
    local name=$1
    shift
    if "$@" >>"$work/err" 2>&1; then
        pass "$name"
    else
        fail "$name" "not so: $*"
    fi
}
# prints NAME PATTERN: the last output has a line like this.
prints() {
    if grep -aqE -- "$2" "$work/out"; then
        pass "$1"
    else
        fail "$1" "no line like \"$2\" in the output"
    fi
}
python=
if command -v python3 >/dev/null 2>&1 && python3 -c 'import json' 2>/dev/null; then
    python=1
fi
# is_json NAME [EXPRESSION]: the last output is JSON, and the expression over `d` is true.
is_json() {
    if [ -z "$python" ]; then
        skip "$1" "no python3 to read JSON with"
    elif python3 -c 'import json, sys
d = json.load(open(sys.argv[1], "rb"))
sys.exit(0 if eval(sys.argv[2]) else 1)' "$work/out" "${2:-True}" 2>>"$work/err"; then
        pass "$1"
    else
        fail "$1" "no JSON, or not so: ${2:-}"
    fi
}
weights_hash() {
    sed -n 's/.*"weights_hash": *"\([0-9a-f]*\)".*/\1/p' "$1" | tail -n 1
}
now_ms() {
    echo $(($(date +%s%N) / 1000000))
}
half() {
    head -c $(($(stat -c %s "$1") / 2)) "$1" >"$work/half" && cat "$work/half" >"$1"
}
# copy_set NAME: a set of its own to spoil.
copy_set() {
    rm -rf "${work:?}/$1" && cp -r "$work/set" "$work/$1"
}

small=(--device host --size 16 -j 1)
probe=("${small[@]}" --model probe --batch-size 16)

# --- Ordinary use ---------------------------------------------------------------------------------
try_help() {
    local command option missing=
    says 0 "version" '^pinline [0-9]+\.[0-9]+' --version
    says 0 "overview lists the commands" 'Usage: pinline COMMAND.*train.*ablate.*doctor' help
    cp out overview
    says 0 "--help is help" 'Usage: pinline COMMAND' --help
    call
    if [ "$code" -eq 2 ] && cmp -s err overview; then
        pass "no command: the overview, exit code 2"
    else
        fail "no command: the overview, exit code 2" "exit code $code"
    fi
    "$PINLINE" man >man.1 2>>err
    "$PINLINE" completion >completion.bash 2>>err
    sed 's/\\-/-/g; s/\[no-\]//g' man.1 >man.txt
    for command in train ablate compare eval predict synth check pack bench doctor; do
        says 0 "help $command" "^Usage: pinline $command" help "$command"
        cp out "help.$command"
        "$PINLINE" "$command" --help >help_again 2>&1
        cmp -s help_again "help.$command" || missing+=" $command --help"
        while read -r option; do
            [ "$option" = --help ] || grep -q -- "$option" man.txt || missing+=" man:$option"
            grep -q -- "$option" completion.bash || missing+=" completion:$option"
        done < <(grep -oE -- '--(\[no-\])?[a-z][a-z0-9-]+' "help.$command" | sed 's/\[no-\]//' | sort -u)
    done
    echo "missing:$missing" >err
    holds "help, man page and completion know the same options" test -z "$missing"
    holds "help has no line over 100 columns" \
        sh -c '! grep -nE "^.{101,}" help.*'
}
try_man_and_completion() {
    grep '^\.SS' man.1 | sort | uniq -d >err
    holds "the man page has no two sections of one title" test ! -s err
    if command -v groff >/dev/null 2>&1; then
        groff -man -Tascii -ww -z man.1 >/dev/null 2>err
        holds "groff formats the man page without a warning" test ! -s err
    else
        skip "groff formats the man page without a warning" "no groff"
    fi
    if command -v man >/dev/null 2>&1; then
        MANWIDTH=100 MAN_KEEP_FORMATTING='' man -l man.1 >page 2>err </dev/null
        holds "man shows the page" grep -q 'pin-memory' page
    else
        skip "man shows the page" "no man"
    fi
    complete_words() {
        # shellcheck disable=SC2016
        bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            _pinline; printf "%s\n" "${COMPREPLY[@]}"' bash "$work/completion.bash" "$@"
    }
    holds "completion: commands" test "$(complete_words pinline tr)" = train
    holds "completion: options" test "$(complete_words pinline train --non-b)" = --non-blocking
    holds "completion: choices" \
        test "$(complete_words pinline train --copy-stream d)" = dedicated
    holds "completion: commands to help" test "$(complete_words pinline help doc)" = doctor
    : >file.png
    holds "completion: files" test "$(complete_words pinline predict file.p)" = file.png
}
try_sets() {
    ends 0 "synth" synth set --images 100 --val-images 40 --size 16 --format mixed
    ends 0 "synth again elsewhere" synth again --images 100 --val-images 40 --size 16 \
        --format mixed -j 3 --quiet
    holds "synth makes the same files with another number of threads" diff -r set again
    holds "--quiet prints nothing" test ! -s err
    ends 0 "synth --json" synth again --images 20 --val-images 0 --size 16 --overwrite --json
    is_json "synth --json" 'd["files"] == 20 and d["classes"] == 10'
    ends 0 "check" check set
    prints "check counts" '^train: 100 images, 0 cannot be used'
    ends 0 "check --csv" check set --csv
    holds "check --csv of a good set is its header" test "$(cat out)" = "set,file,class,reason"
    ends 0 "check --json" check set --json
    is_json "check --json" 'd["train"]["images"] == 100 and d["val"]["unusable"] == 0'
}
try_training() {
    ends 0 "train" train --data set "${probe[@]}" --epochs 2 --out run
    holds "train says what an epoch gave" grep -qE 'epoch 2/2: loss [0-9.]+, .* accuracy' err
    local file
    for file in settings.json log.jsonl metrics.csv best.safetensors last.safetensors \
        last.state.safetensors; do
        holds "train writes $file" test -s "run/$file"
    done
    cp run/settings.json out
    is_json "settings.json is JSON" 'd is not None'
    if [ -n "$python" ]; then
        holds "log.jsonl is a JSON object a line" python3 -c 'import json
for line in open("run/log.jsonl"): json.loads(line)["event"]'
    else
        skip "log.jsonl is a JSON object a line" "no python3"
    fi
    ends 0 "train --json" train --data set "${probe[@]}" --epochs 2 --out json --json --quiet
    holds "--quiet says nothing on standard error" test ! -s err
    is_json "train --json" 'd["finished"] and len(d["epochs"]) == 2'
    holds "the same run twice gives the same weights" cmp run/last.safetensors json/last.safetensors
    ends 0 "train with other workers and staging" train --data set "${small[@]:0:4}" --model probe \
        --batch-size 16 --epochs 2 --out other -j 3 --pin-memory --non-blocking --copy-stream compute
    holds "workers and staging change no bit" cmp run/last.safetensors other/last.safetensors
    ends 0 "train --max-steps, then --resume" train --data set "${probe[@]}" --epochs 2 --out part \
        --max-steps 3
    says 0 "resume" 'epoch 1, batch 3 of' train --resume part/last.safetensors
    holds "resume in the middle of an epoch gives the same weights" \
        cmp run/last.safetensors part/last.safetensors
    ends 0 "train --verify-batches" train --data set "${probe[@]}" --epochs 1 --out verified \
        --verify-batches
    ends 0 "train with more workers than CPUs" train --data set "${small[@]:0:4}" --model probe \
        --epochs 1 --max-steps 1 --out busy -j $(($(nproc --all) + 1))
    holds "more workers than CPUs are allowed, with a warning" \
        grep -q 'warning: --num-workers .* CPUs allowed' err
    ends 0 "train with a cache that is too small" train --data set "${probe[@]}" --epochs 2 \
        --out cached --cache encoded --cache-bytes 8KiB
    holds "a cache that is too small is told once" \
        test "$(grep -c 'warning: --cache holds [0-9]* of 100 images' err)" -eq 1
    ends 0 "train with another order of options and =" train --out=equals --epochs=1 \
        --data=set --device=host --size=16 --model=probe --no-shuffle --log-every=0
    ends 0 "dump-batches" train --data set "${probe[@]}" --epochs 1 --max-steps 3 --out dumped \
        --dump-batches dump.safetensors --dump-count 2
    if [ -n "$python" ]; then
        holds "the dump is a safetensors file of two batches" python3 -c 'import json, struct
f = open("dump.safetensors", "rb").read()
n, = struct.unpack("<Q", f[:8])
h = json.loads(f[8:8 + n])
t = {k: v for k, v in h.items() if k != "__metadata__"}
ends = [v["data_offsets"][1] for v in t.values()]
assert max(ends) == len(f) - 8 - n
assert sum(v["shape"][-2:] == [16, 16] or v["shape"][1:3] == [16, 16] for v in t.values()) == 2, t'
    else
        skip "the dump is a safetensors file of two batches" "no python3"
    fi
}
try_using() {
    ends 0 "eval" eval --device host --weights run/best.safetensors --data set
    prints "eval prints accuracy" '^40 images: accuracy [0-9.]+ %'
    prints "eval prints the confusion matrix" '^Confusion'
    ends 0 "eval --json" eval --device host --weights run/best.safetensors --data set --json
    is_json "eval --json" 'd["model"] == "probe"'
    ends 0 "eval of a folder without parts" eval --device host --weights run/best.safetensors \
        --data set/val
    prints "eval of a folder without parts takes all" '^40 images'
    local image
    image=$(find set/val -name '*.png' | sort | head -n 1)
    ends 0 "predict of a file" predict --device host --weights run/best.safetensors -k 3 "$image"
    holds "predict prints the file and three classes" test "$(wc -l <out)" -eq 4
    ends 0 "predict of a folder, CSV" predict --device host --weights run/best.safetensors -k 1 \
        --csv set/val
    holds "predict of a folder has a row a file" test "$(wc -l <out)" -eq 41
    prints "predict --csv has a header" '^file,rank,class,probability$'
    ends 0 "predict, JSON" predict --device host --weights run/best.safetensors --json "$image" set/val
    is_json "predict --json" \
        'len(d) == 41 and abs(sum(p["probability"] for p in d[0]["predictions"])) <= 1.001'
    ends 0 "pack" pack set set.pack
    ends 0 "pack --decoded" pack set pixels.pack --decoded --size 16
    ends 0 "train from the pack" train --data set.pack "${probe[@]}" --epochs 2 --out packed
    holds "the pack gives the weights that the folder gives" \
        test "$(hash_of run)" = "$(hash_of packed)"
    ends 0 "train from the pack of pixels" train --data pixels.pack "${probe[@]}" --epochs 2 \
        --out pixels
    holds "the pack of pixels gives them too" test "$(hash_of run)" = "$(hash_of pixels)"
    ends 0 "check of the pack" check set.pack
    prints "check of the pack has both parts" '^val: 40 images, 0 cannot be used'
    cp pixels.pack changed.pack
    printf 'U\252' | dd of=changed.pack bs=1 seek=5000 conv=notrunc 2>/dev/null
    says 1 "check of a pack with a changed pixel" '1 of 140 samples are damaged.*pack the set again' \
        check changed.pack
    ends 0 "eval of the pack" eval --device host --weights run/best.safetensors --data set.pack
    prints "eval of the pack takes its validation part" '^40 images'
    copy_set divided
    mv divided/val divided/valid
    ends 0 "eval of train/ and valid/" eval --device host --weights run/best.safetensors --data divided
    prints "eval of train/ and valid/ takes valid/" '^40 images'
    ends 0 "pack of train/ and valid/" pack divided divided.pack
    ends 0 "check of that pack" check divided.pack
    prints "the pack keeps the parts" '^val: 40 images'
    ends 0 "eval --val-fraction" eval --device host --weights run/best.safetensors --data set/train \
        --val-fraction 0.5
    prints "eval --val-fraction takes a part" '^[1-9][0-9] images'
    local cells=(--data set "${probe[@]}" --cells 'default,both' --rounds 2 --epochs 1
        --ceiling-seconds 0.02 --settle 0.01)
    ends 0 "ablate --predict-only" ablate "${cells[@]}" --predict-only --out ablation
    ends 0 "ablate --resume takes the result's folder" ablate "${cells[@]}" --resume ablation/
    cp ablation/result.json out
    is_json "the result that goes on is finished" 'd["finished"] is True'
    ends 0 "ablate --resume takes the result itself" ablate "${cells[@]}" \
        --resume ablation/result.json --out ./ablation
    says 2 "ablate does not replace rounds" 'ablation/result.json.*--resume ablation to go on' \
        ablate "${cells[@]}" --out ablation
    says 2 "ablate --resume goes on in no other folder" '--resume ablation.*--out' ablate \
        "${cells[@]}" --resume ablation --out elsewhere
    says 1 "ablate --resume of nothing" '--resume nowhere.*nowhere/result.json' ablate \
        "${cells[@]}" --resume nowhere
    says 1 "ablate --resume with another setting names it" '"shuffle":true' ablate "${cells[@]}" \
        --resume ablation --no-shuffle
    says 1 "ablate --resume with another --matters" '--matters 0.02, and goes on with it' ablate \
        "${cells[@]}" --resume ablation --matters 5%
    says 1 "ablate --resume with other cells names them" '"both" where "default again"' ablate \
        "${cells[@]/default,both/default,default}" --resume ablation
    local brief=(--data set --device host --size 16 --model probe --rounds 2 --epochs 1
        --ceiling-seconds 0.02 --settle 0.01 --out axis)
    local axis=("${brief[@]:0:16}" --num-workers 3 --axis 'num-workers=1,2')
    ends 0 "ablate of an axis that lacks the job's value" ablate "${axis[@]}" --out axis
    tr '\n' ' ' <out >err
    holds "its report speaks of what cells have" grep -qE \
        'in cell "default num-workers=1":.* --num-workers 1 in cell "default num-workers=1"' err
    holds "its report speaks of nothing else" sh -c '! grep -E "3 workers|workers 3 in" out axis/report.html'
    ends 0 "ablate --resume of it with the flags that it was begun with" ablate "${axis[@]}" \
        --resume axis
    says 0 "ablate warns of the most workers of any cell" '1000 workers share' ablate "${brief[@]}" \
        --axis num-workers=1,1000 --overwrite --predict-only
    says 0 "ablate plans with the samples of each cell" 'epoch of 16 to 48 samples a cell' ablate \
        "${brief[@]}" --axis limit-samples=16,48 --overwrite
    says 2 "ablate --warmup-epochs beyond the schedule" \
        '--warmup-epochs 11:.*training of 10 epochs.*--epochs times' ablate "${cells[@]}" --out no \
        --warmup-epochs 11
    says 2 "ablate of equal values" '--axis num-workers=1,01.*same setting' ablate "${cells[@]}" \
        --out no --axis num-workers=1,01
    says 2 "ablate of an empty axis" '--axis takes OPTION=.*empty' ablate "${cells[@]}" --out no --axis ''
    says 2 "ablate of cells whose settings do not fit each other" 'optimizer=adamw.*--nesterov' ablate \
        "${cells[@]}" --out no --nesterov --axis optimizer=sgd,adamw
    says 0 "ablate of two optimisers" 'optimizer=adamw' ablate "${brief[@]}" --predict-only \
        --axis optimizer=sgd,adamw --overwrite
    cp axis/result.json out
    is_json "each has its own rate" \
        '{c["settings"]["optimizer"]: c["settings"]["lr"] for c in d["cells"]} == {"sgd": "0.05", "adamw": "0.001"}'
    mkdir traces
    says 1 "ablate --trace in place of a folder is told before a round" 'traces is there and no' \
        ablate "${cells[@]}" --out untraced --trace traces
    says 2 "ablate --trace without a round" '--trace.*--predict-only' ablate "${cells[@]}" \
        --out untraced --trace t.json --predict-only
    holds "ablate --trace in place of a folder runs nothing" test ! -e untraced
    ends 0 "ablate --trace beside the result" ablate "${cells[@]}" --out traced --trace traced/t.json
    holds "ablate --trace beside the result is there" test -s traced/t.json
    says 2 "ablate of a setting that nothing uses" '--cache-bytes does nothing without --cache' ablate \
        "${cells[@]}" --out no --cache-bytes 1K
    ends 0 "ablate of a setting that a cell uses" ablate "${brief[@]}" --axis cache=none,encoded \
        --cache-bytes 1M --overwrite --predict-only
    printf 'rate,cell\n1,2\n' >peer.csv
    says 1 "ablate --peer without its columns" 'peer.csv.*no column "name"' ablate "${cells[@]}" \
        --out no --peer peer.csv
    holds "what is refused makes no folder" test ! -e no
    mkdir cut_result && head -c 2000 axis/result.json >cut_result/result.json
    says 1 "compare of a cut result" 'cut_result/result.json is cut, or no result' compare axis \
        cut_result
    says 2 "ablate --batch-bytes with batches of several sizes" '--batch-bytes.*--axis batch-size' \
        ablate --data set --device host --step-ms 5 --batch-bytes 12K --axis batch-size=1,2 --out no
    says 2 "ablate --step-ms with a model" '--step-ms.*--axis model' ablate --data set --device host \
        --step-ms 5 --axis model=probe,smallcnn --out no
    says 2 "ablate: --epochs and --seconds" '--epochs.*--seconds' ablate "${cells[@]}" --seconds 1
    says 1 "ablate --trace in no folder is told before a round" 'nowhere/t.json.*no folder' ablate \
        "${cells[@]}" --out untraced --trace nowhere/t.json
    holds "ablate --trace in no folder runs nothing" test ! -e untraced
    says 2 "ablate --trace without times" '--trace.*--no-timing' ablate "${cells[@]}" \
        --out untraced --trace t.json --no-timing
    says 2 "ablate --axis that the CPU has no use for" '--axis workspace=1.*--device cuda' ablate \
        "${cells[@]}" --out untraced --axis workspace=1,2
    # A set that changed is another experiment: named as such, and not as cells that disagree.
    copy_set moving
    cells[1]=moving
    ends 0 "ablate of a set that will change" ablate "${cells[@]}" --out moved
    sed -i 's/"rounds_done": 2/"rounds_done": 1/' moved/result.json
    cp "$(find moving/train/cross -name '*.png' | head -n 1)" moving/train/cross/added.png
    says 1 "ablate of a set that changed" '1 of 2 rounds.*--data moving changed since round 1' \
        ablate "${cells[@]}" --resume moved
    rm moving/train/cross/added.png
    ends 0 "ablate of a set that was put back" ablate "${cells[@]}" --resume moved
    sed -i '/"rounds_done"/d' moved/result.json
    says 1 "ablate --resume of half a result" 'moved/result.json.*lacks its protocol' ablate \
        "${cells[@]}" --resume moved
    head -c 1000 ablation/result.json >moved/result.json
    says 1 "ablate --resume of a cut result" 'moved/result.json is cut.*--overwrite' ablate \
        "${cells[@]}" --resume moved
    copy_set spotted
    echo junk >"$(find spotted/train -name '*.png' | head -n 1)"
    cells[1]=spotted
    ends 0 "ablate of a set with a bad image" ablate "${cells[@]}" --out skipped --on-bad-image skip
    holds "ablate tells of images left out" grep -q 'could not be read were left out.*up to 1;' \
        skipped/result.json
    ends 0 "compare" compare ablation/result.json ablation/result.json
    cp out compared
    ends 0 "compare of folders" compare ablation ablation/
    sed -i 1,2d out compared
    holds "compare of folders says what compare of files says" cmp out compared
    ends 0 "compare of a folder and a file" compare ablation ablation/result.json
    says 1 "compare of a folder without a result" 'folder set holds no result.json.*--out' \
        compare ablation set
    ends 0 "doctor" doctor
    prints "doctor lists CPUs" 'CPU: '
    if [ -e /dev/nvidia0 ]; then
        skip "doctor tells once why there is no GPU" "there is a GPU"
    else
        cp out err
        # Which of the two depends on whether the program was built with CUDA.
        holds "doctor tells once why there is no GPU" \
            test "$(grep -cE 'NVIDIA driver|pinline_cuda.so' out)" -eq 1
        call doctor --device cuda
        cp out err
        holds "doctor --device cuda tells once why there is none" \
            test "$(grep -cE 'NVIDIA driver|pinline_cuda.so' out)" -eq 1
    fi
    ends 0 "doctor --device host" doctor --device host
    cp out err
    holds "doctor describes the host device once" test "$(grep -cE ' loops' out)" -eq 1
    holds "doctor --device host misses no GPU" sh -c '! grep -E "NVIDIA|cuda" out'
    ends 0 "doctor --json" doctor --json
    is_json "doctor --json" 'len(d["lines"]) > 4'
    ends 0 "bench step" bench step "${small[@]:0:4}" --model probe --batch-size 16 --steps 2 --repeats 1
    prints "bench step gives a rate" 'samples/s'
    ends 0 "bench loader" bench loader --data set "${small[@]}" --seconds 0.02
    prints "bench loader has a row a number of workers" '^ +1 +[0-9]+'
    ends 0 "bench decode" bench decode --data set --size 16 --seconds 0.02
    prints "bench decode has a row a library" '^libpng +PNG'
    ends 0 "bench step --json" bench step "${probe[@]:0:4}" --model probe --steps 2 --repeats 1 --json
    is_json "bench step --json" 'd["model"] == "probe" and d["size"] == 16'
    ends 0 "bench loader --json" bench loader --data set "${small[@]}" --batch-size 16 --seconds 0.02 \
        --json
    is_json "bench loader --json" 'd["images"] == 100 and d["rows"][0]["workers"] == 1'
    ends 0 "bench decode --json" bench decode --data set --size 16 --seconds 0.02 --json
    is_json "bench decode --json" 'd["size"] == 16 and len(d["rows"]) > 0'
}
# --quiet leaves out progress and notes, and nothing else. quiet NAME ARGS...: on standard output stands
# what stands there without it, judged by the words of the first line.
quiet() {
    local name=$1 first
    shift
    call "$@"
    first=$(head -n 1 out | tr -d '0-9.')
    call "$@" --quiet
    if [ "$code" -ne 0 ] || [ -s err ]; then
        fail "--quiet $name" "exit code $code, or lines on standard error"
    elif [ "$(head -n 1 out | tr -d '0-9.')" != "$first" ]; then
        fail "--quiet $name" "its first line is not \"$first\" but \"$(head -n 1 out)\""
    else
        pass "--quiet $name"
    fi
}
try_quiet() {
    local cells=(ablate --data set "${small[@]:2}" --model probe --batch-size 16 --cells 'default,both'
        --rounds 2 --epochs 1 --ceiling-seconds 0.02 --settle 0.01 --overwrite) command
    quiet synth synth spoken --images 10 --size 8 --overwrite
    quiet check check set
    quiet pack pack set spoken.pack --overwrite
    quiet train train --data set "${small[@]:2}" --model probe --epochs 1 --out spoken_run --overwrite
    quiet eval eval --weights run/best.safetensors --data set
    quiet predict predict --weights run/best.safetensors set/val/ring
    quiet "bench step" bench step --model probe --size 16 --batch-size 16 --steps 2 --repeats 1
    quiet "bench loader" bench loader --data set --size 16 --seconds 0.01
    quiet "bench decode" bench decode --data set --size 16 --seconds 0.01
    quiet doctor doctor
    quiet compare compare ablation ablation
    call "${cells[@]}" --out spoken_ablation --quiet
    holds "--quiet ablate prints its report" grep -qE '^cell +samples/s' out
    cp err said
    holds "--quiet ablate says nothing else, nor do its rounds" \
        sh -c '! grep -v "^warning: " said'
    call "${cells[@]}" --out spoken_ablation
    holds "ablate names its files beside the report, not in it" \
        sh -c 'grep -q "spoken_ablation/result.json" err && ! grep "spoken_ablation" out'
    call train --data set --size 16 --model probe --epochs 1 --out spoken_run --overwrite --quiet \
        -j $(($(nproc --all) + 1)) --max-steps 1
    holds "--quiet leaves warnings" grep -q '^warning: --num-workers' err
    for command in "train --data set" "ablate --data set" "compare ablation ablation" "check set" \
        "eval --data set --weights run/best.safetensors" "synth spoken" "pack set spoken.pack" \
        "predict --weights run/best.safetensors set" "bench step" doctor; do
        # shellcheck disable=SC2086
        says 2 "${command%% *}: --quiet or --verbose" '--quiet and --verbose exclude each other' \
            $command --quiet --verbose
    done
}
hash_of() {
    weights_hash "$work/$1/log.jsonl"
}
# Every option that a page shows is one that some command has.
try_pages() {
    local page option known unknown=
    known=$(cat help.* | grep -oE -- '--(\[no-\])?[a-z][a-z0-9-]+' |
        sed 's/--\[no-\]\(.*\)/--\1\n--no-\1/' | sort -u)
    for page in "$ROOT"/docs/*.md; do
        while read -r option; do
            if [ "$option" != --help ] && ! grep -qxF -- "$option" <<<"$known"; then
                unknown+=" ${page##*/}:$option"
            fi
        done < <(grep -oE -- '(^|[ `(])--[a-z][a-z0-9-]+' "$page" | grep -oE -- '--.*' | sort -u)
    done
    echo "unknown:$unknown" >err
    holds "the pages name only options that exist" test -z "$unknown"
}

# --- Wrong use ------------------------------------------------------------------------------------
wrong_words() {
    says 2 "unknown command" '"trian".*did you mean train' trian
    says 2 "unknown command, none near" '"xyzzy".*pinline help' xyzzy
    says 2 "help for an unknown command" '"tran".*train' help tran
    says 2 "help for two commands" '"eval".*one command' help train eval
    says 2 "version of something" '.pinline version..*"x"' version x
    says 2 "version of something, by its option" '.pinline --version..*"x"' --version x
    says 2 "manual page of something" '.pinline man..*"train"' man train
    says 2 "completion for another shell" '.pinline completion..*"zsh"' completion zsh extra
    says 0 "--help of a command" 'Usage: pinline train' --help train
    says 2 "unknown option, the nearest" '--bach-size.*--batch-size' train --bach-size 3
    says 2 "unknown option, a part of its name" '--workers.*--num-workers' train --workers 3
    says 2 "unknown option, a part with a slip" '--wokers.*--num-workers' train --wokers 3
    says 2 "unknown option, none near" '--qqqq.*pinline help train' train --qqqq
    says 2 "unknown letter" '-z' train -z
    says 2 "option of another command" '--top-k' train --top-k 3
    says 2 "operand where none is taken" '"set".*options' train set
    says 2 "operand missing" 'needs DIR' synth
    says 2 "operand too many" '"more"' check set more
    says 2 "value missing" '--data needs a value' train --data
    says 2 "an option twice" '--epochs.*twice.*"1".*"2"' train --epochs 1 --epochs 2
    says 2 "batch 0" '--batch-size.*from 1.*"0"' train --data set --batch-size 0
    says 2 "workers -1" '--num-workers.*from 0.*"-1"' train --data set --num-workers -1
    says 2 "--lr abc" '--lr takes a number.*"abc"' train --data set --lr abc
    says 2 "--lr nan" '--lr takes a number.*"nan"' train --data set --lr nan
    says 2 "--lr with a comma" '--lr takes a number.*"0,1"' train --data set --lr 0,1
    says 2 "--lr 1e30" '--lr takes a number.*to 1000000' train --data set --lr 1e30
    says 2 "epochs with a tail" '--epochs.*"3x"' train --data set --epochs 3x
    says 2 "epochs without end" '--epochs.*"99999999999999999999"' train --data set \
        --epochs 99999999999999999999
    says 2 "bytes of an unknown unit" '--cache-bytes.*2GiB.*"3 apples"' train --data set \
        --cache-bytes '3 apples'
    says 2 "a choice that is none" '--augment takes none, centre, crop or rrc.*"rcc"' train \
        --data set --augment rcc
    says 2 "two numbers for three channels" '--mean takes.*"1,2"' train --data set --mean 1,2
    says 2 "unknown model" '"resnt9".*smallcnn.*did you mean resnet9' train --data set --model resnt9
    says 2 "unknown device" '--device takes auto, host, cuda.*"gpu"' train --data set --device gpu
    says 2 "unknown decoder" '--decoders' train --data set --decoders turbo,magick
    says 2 "unknown benchmark" '"stp".*did you mean step' bench stp
    says 2 "bench step reads no images" 'bench step does not use --data;' bench step --data set
    says 2 "bench loader trains nothing" 'bench loader does not use --model;' bench loader \
        --data set --model probe
    says 2 "bench decode has no batches" 'bench decode does not use --batch-size;' bench decode \
        --data set --batch-size 8
    says 2 "bench decode takes every library" 'bench decode does not use --decoders;' bench decode \
        --data set --decoders stb
    says 2 "bench has no weights" 'unknown option --weights' bench step --weights run/best.safetensors
    says 2 "doctor computes nothing" 'unknown option --precision' doctor --precision bf16
    says 2 "images too small for the model" '6.*resnet9.*--size 8' train --data set --device host \
        --size 6 --model resnet9 --out small
    says 2 "padding without a crop" '--padding does nothing without --augment crop' train --data set \
        --padding 2
    says 2 "beta1 of sgd" '--beta1 .* --optimizer adamw' train --data set --beta1 0.5
    says 2 "a final rate of no schedule" '--final-lr .* --schedule cosine' train --data set \
        --final-lr 0.001 --schedule constant
    says 2 "a setting of the GPU for the host device" '--workspace does nothing without --device cuda' \
        train --data set --device host --workspace 1GiB
    says 2 "TF32 for the host device" '--precision tf32 does nothing without --device cuda' \
        train --data set --device host --precision tf32
    local command
    for command in "train --data set" "ablate --data set" "eval --data set" "predict set" "bench step"; do
        # shellcheck disable=SC2086
        says 2 "${command%% *} has no plans for the host device" '--plan-cache does nothing without' \
            $command --device host --plan-cache plans.json
    done
    says 2 "a setting of the host device for the GPU" '--simulate does nothing without --device host' \
        train --data set --device cuda --simulate 1,1,1
    says 2 "size of a pack of files" '--size does nothing without --decoded' pack set no.pack --size 8
    local option
    for command in eval predict check pack; do
        for option in flip label-smoothing=0.1 padding=2 shuffle seed=1 drop-last cache=encoded; do
            says 2 "$command has no --${option%=*}" "unknown option --${option%=*}" "$command" set \
                "--$option"
        done
    done
    says 2 "two validation sets" '--val-fraction .* --val-data' train --data set/train \
        --val-data set/val --val-fraction 0.5
    says 2 "no data" '--data is missing' train
    says 2 "no weights" '--weights is missing' eval --data set
    says 2 "an empty value" '--data needs a value that is not empty' train --data ''
    says 2 "an empty name for the run" '--out needs a value' train --data set --out=
    says 2 "two kinds of output" '--json and --csv' predict --weights run/best.safetensors --json \
        --csv set/val
    says 2 "two kinds of output, check" '--json and --csv' check set --json --csv
    says 2 "--resume of weights alone" 'best.safetensors.*--weights' train \
        --resume run/best.safetensors
}
wrong_data() {
    local image
    mkdir -p nothing plain alone/a
    echo text >text.txt
    cp set/train/*/*.png plain
    cp set/train/cross/* alone/a
    says 1 "missing folder" 'no folder or file nowhere.*path' train --data nowhere "${probe[@]}"
    image=$(find set/train -name '*.png' | head -n 1)
    says 1 "an image instead of a folder" 'is one image.*give the folder' train --data "$image" \
        "${probe[@]}"
    says 1 "a text instead of a folder" 'text.txt.*a folder' train --data text.txt "${probe[@]}"
    says 1 "empty folder" 'nothing.*no class folders' train --data nothing "${probe[@]}"
    says 1 "images without class folders" 'plain.*no class folders.*put' train --data plain "${probe[@]}"
    says 1 "one class" 'alone.*single class, a.*two' train --data alone "${probe[@]}"
    copy_set empty
    mkdir empty/train/zebra empty/val/zebra
    says 1 "an empty class" 'no images: zebra.*add' train --data empty "${probe[@]}"
    copy_set more
    cp -r more/val/cross more/val/zebra
    says 1 "a class that training lacks" 'only in validation: zebra' train --data more "${probe[@]}"
    rm -r more/val/zebra more/val/cross
    says 1 "a class that validation lacks" 'only in training: cross' train --data more "${probe[@]}"
    says 1 "missing --val-data" 'nowhere' train --data set/train --val-data nowhere "${probe[@]}"
    copy_set single
    says 2 "a last batch of one on maps of one pixel" '1.*(--drop-last|--batch-size)' train --data single \
        --device host --model resnet18 --size 16 --batch-size 99 --size 16 --stem large --out tiny
    ends 0 "a last batch of one trains otherwise" train --data single "${small[@]}" --model probe \
        --batch-size 99 --epochs 1 --out tiny
    ends 0 "a set smaller than a batch trains" train --data set "${small[@]}" --model probe \
        --batch-size 1000 --epochs 1 --out less
    says 2 "a set smaller than a batch with --drop-last" '100 training images.*1000.*--batch-size' \
        train --data set "${small[@]}" --model probe --batch-size 1000 --drop-last --out less2
    says 1 "missing folder for check" 'nowhere' check nowhere
    says 1 "missing folder for pack" 'nowhere' pack nowhere nowhere.pack
    says 1 "missing file for predict" 'nowhere.png' predict --device host \
        --weights run/best.safetensors nowhere.png
    says 1 "folder without images for predict" 'nothing' predict --device host \
        --weights run/best.safetensors nothing
    says 1 "synth into a folder in use" 'set.*not empty.*--overwrite' synth set
    says 1 "synth in place of a file" 'text.txt.*folder' synth text.txt
    says 1 "pack in place of a file" 'text.txt exists.*--overwrite' pack set text.txt
    says 1 "compare of what is not there" 'a.json' compare a.json b.json
    holds "nothing was harmed" test "$(cat text.txt)" = text
    head -c 3000 set.pack >cut.pack
    says 1 "a cut pack" 'cut.pack' train --data cut.pack "${probe[@]}"
}
# bad_image NAME PATTERN FOLDER: stop names it, skip goes on, check lists it.
bad_image() {
    rm -rf bad
    says 1 "$1: stop" "$2.*--on-bad-image skip" train --data "$3" "${probe[@]}" --epochs 1 --out bad
    says 0 "$1: skip" 'could not be read' train --data "$3" "${probe[@]}" --epochs 1 \
        --out bad --overwrite --on-bad-image skip
    holds "$1: the log lists it" grep -qE 'cross/[^"]*"' bad/log.jsonl
    says 1 "$1: check" "$2" check "$3"
}
wrong_images() {
    copy_set cutpng
    half "$(find cutpng/train/cross -name '*.png' | sort | head -n 1)"
    bad_image "PNG cut in half" 'cross/.*\.png.*cut' cutpng
    copy_set cutjpeg
    half "$(find cutjpeg/train/cross -name '*.jpg' | sort | head -n 1)"
    bad_image "JPEG cut in half" 'cross/.*\.jpg' cutjpeg
    ends 1 "check --csv of a cut image" check cutjpeg --csv
    prints "check --csv has a row for it" '^train,cross/.*\.jpg,cross,'
    ends 1 "check --json of a cut image" check cutjpeg --json
    is_json "check --json lists it" 'len(d["train"]["files"]) == 1'
    copy_set zero
    : >zero/train/cross/zero.png
    bad_image "zero bytes" 'cross/zero.png.*empty' zero
    copy_set text
    echo "no image at all" >text/train/cross/text.jpg
    bad_image "text named .jpg" 'cross/text.jpg.*not an image' text
    copy_set webp
    printf 'RIFF\x24\0\0\0WEBPVP8 \x18\0\0\0\x30\x01\0\x9d\x01\x2a\x01\0\x01\0' \
        >webp/train/cross/web.jpg
    bad_image "WebP named .jpg" 'cross/web.jpg.*WebP.*not supported' webp
    copy_set swapped
    local file
    for file in swapped/train/*/*.png; do
        mv "$file" "${file%.png}.jpeg"
    done
    ends 0 "PNG named .jpeg is a PNG" check swapped
    prints "PNG named .jpeg is counted as PNG" '[0-9]+ PNG'
    copy_set typed
    mv typed/train/cross "typed/train/cross.old" && mkdir typed/train/cross
    for file in typed/train/cross.old/*; do
        mv "$file" "typed/train/cross/$(basename "${file%.*}").tiff"
    done
    rmdir typed/train/cross.old
    says 1 "a class of unsupported types" 'cross' train --data typed "${probe[@]}"
    says 1 "image over --max-pixels" 'cross|16 x 16 = 256 pixels.*100 \(--max-pixels\)' train \
        --data set "${probe[@]}" --max-pixels 100 --out big
    says 1 "predict goes on past a bad file" '1 of 2 files.*text.jpg' predict --device host \
        --weights run/best.safetensors text/train/cross/text.jpg \
        "$(find set/val -name '*.png' | head -n 1)"
    holds "predict prints the good one" grep -q '%' out
}
wrong_runs() {
    local at bytes file
    says 2 "--out of an earlier run" 'run holds an earlier run.*--overwrite.*--resume' train \
        --data set "${probe[@]}" --out run
    copy_set own
    for at in own own/train own/train/cross own/train/more/runs; do
        says 2 "--out $at among the data's images" "--out $at (is|lies in).*elsewhere" train \
            --data own "${probe[@]}" --out "$at"
        says 2 "ablate --out $at among the data's images" "--out $at (is|lies in).*elsewhere" ablate \
            --data own "${probe[@]}" --predict-only --out "$at"
    done
    holds "what is refused leaves the data alone" diff -r set own
    cd own/train || exit 1
    says 2 "the usual --out in the data's folder" '--out run lies in' train --data . "${probe[@]}"
    cd "$work" || exit 1
    says 2 "--out is a file" '--out text.txt is a file' train --data set "${probe[@]}" --out text.txt
    says 1 "--dump-batches into a missing folder, at the start" 'nowhere/dump' train --data set \
        "${probe[@]}" --out undone --dump-batches nowhere/dump
    mkfifo pipe
    says 1 "--dump-batches in place of a pipe" 'pipe.*no regular file' train --data set "${probe[@]}" \
        --out undone --dump-batches pipe
    says 1 "pack in place of a pipe" 'pipe.*(regular file|exists)' pack set pipe --overwrite
    holds "the pipe is there still" test -p pipe
    holds "no run was begun" test ! -e undone
    says 1 "--out below a file" 'text.txt.*file' train --data set "${probe[@]}" --out text.txt/run
    says 5 "weights of another model" 'run/best.safetensors holds weights of probe.*--model probe' \
        train --data set "${small[@]}" --model smallcnn --weights run/best.safetensors --out w1
    says 5 "weights of another model, eval" '--model probe' eval --device host --data set \
        --model smallcnn --weights run/best.safetensors
    copy_set nine
    rm -r nine/train/cross nine/val/cross
    says 5 "another number of classes" '10 classes.* 9' train --data nine "${probe[@]}" \
        --weights run/best.safetensors --out w2
    says 5 "another number of classes, eval" '9 classes.* 10' eval --device host --data nine \
        --weights run/best.safetensors
    copy_set named
    mv named/train/cross named/train/crux && mv named/val/cross named/val/crux
    says 5 "other classes, eval" '"crux".*"cross"' eval --device host --data named \
        --weights run/best.safetensors
    says 1 "missing weights" 'nowhere' eval --device host --data set --weights nowhere
    says 1 "weights that are a text" 'text.txt' eval --device host --data set --weights text.txt
    says 1 "missing checkpoint" 'no checkpoint nowhere/last.safetensors' train \
        --resume nowhere/last.safetensors
    says 5 "resume with another batch size" '--batch-size 16, not 8.*--weights' train \
        --resume run/last.safetensors --batch-size 8
    says 5 "resume with another model" '--model probe, not smallcnn' train \
        --resume run/last.safetensors --model smallcnn
    copy_set changed
    cp -r run changed_run
    rm "$(find changed/train/cross -type f | sort | head -n 1)"
    says 5 "resume from fewer data" '100 images.*99.*own data' train \
        --resume changed_run/last.safetensors --data changed --epochs 3
    copy_set changed
    cp "$(find changed/train/cross -type f | sort | head -n 1)" changed/train/cross/zzzz.png
    rm "$(find changed/train/circle -type f | sort | head -n 1)"
    says 5 "resume from as many other data" 'other images.*--weights' train \
        --resume changed_run/last.safetensors --data changed --epochs 3
    for file in last.safetensors last.state.safetensors; do
        bytes=$(stat -c %s "run/$file")
        for at in 0 5 8 60 $((bytes / 2)) $((bytes - 1)); do
            if [ -n "$short" ] && [ "$at" -ne 5 ] && [ "$at" -ne $((bytes / 2)) ]; then
                continue
            fi
            rm -rf cut_run && cp -r run cut_run
            head -c "$at" "run/$file" >"cut_run/$file"
            says 1 "resume, $file cut at $at" "$file" train --resume cut_run/last.safetensors \
                --epochs 3
            if [ "$file" = last.safetensors ]; then
                says 1 "weights cut at $at" "$file" eval --device host --data set \
                    --weights cut_run/last.safetensors
            fi
        done
    done
    rm -rf cut_run && cp -r run cut_run
    printf 'X' | dd of=cut_run/last.safetensors bs=1 seek=$((bytes / 3)) conv=notrunc 2>/dev/null
    says 1 "a changed checkpoint" 'cut_run/last.safetensors.*(changed|hash|damaged)' eval \
        --device host --data set --weights cut_run/last.safetensors
    says 4 "a rate at which the loss is lost" 'lower --lr' train --data set "${small[@]}" \
        --model smallcnn --batch-size 16 --lr 1e6 --epochs 50 --out lost
    if [ -e /dev/nvidia0 ]; then
        skip "--device cuda without a GPU" "there is a GPU"
    else
        call train --data set "${small[@]:2}" --model probe --device cuda --out gpu
        # Which of the two depends on whether the program was built with CUDA.
        if { [ "$code" -eq 1 ] || [ "$code" -eq 3 ]; } &&
            grep -qE -- 'not built.*--device host|driver.*install' err; then
            pass "--device cuda without a GPU"
        else
            fail "--device cuda without a GPU" "exit code $code, or no way out named"
        fi
        # What the CPU cannot do is told where it takes over, and what it can do is not.
        call train --data set "${small[@]:2}" --model probe --epochs 1 --out unasked \
            --precision tf32 --workspace 1GiB --plan-cache plans.json --no-capture
        holds "--device auto without a GPU names what has no effect" grep -q "warning: running on \
the CPU, which has no use for --precision tf32, --no-capture, --workspace, --plan-cache: ." err
        says 0 "--device auto without a GPU" 'running on the CPU: ' train --data set \
            "${small[@]:2}" --model probe --epochs 1 --out unasked --overwrite --precision bf16
        holds "bfloat16 has an effect on the CPU" sh -c '! grep "no use" err'
        call ablate --data set "${probe[@]:2}" --predict-only --ceiling-seconds 0.02 --out unasked \
            --overwrite --spin
        holds "ablate --device auto without a GPU names it too" grep -q 'no use for --spin: ' err
    fi
}
# As root, files that forbid are read and written nevertheless: another user tries.
wrong_rights() {
    local as=()
    if [ "$(id -u)" -eq 0 ]; then
        as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
        chmod 755 "$work"
        if ! "${as[@]}" "$PINLINE" --version >/dev/null 2>&1; then
            skip "files that may not be read or written" "root, and no setpriv to another user"
            return
        fi
    fi
    copy_set closed
    local image
    image=$(find closed/train/cross -type f | sort | head -n 1)
    chmod 000 "$image"
    mkdir -p free readonly && chmod 777 free && chmod 555 readonly
    as_user() {
        timeout "$LIMIT" "${as[@]}" "$PINLINE" "$@" >out 2>err </dev/null
        code=$?
    }
    denied() {
        if [ "$code" -eq 1 ] && tr '\n' ' ' <err | grep -qE -- "$2"; then
            pass "$1"
        else
            fail "$1" "exit code $code, or nothing said like \"$2\""
        fi
    }
    as_user train --data closed "${probe[@]}" --epochs 1 --out free/run
    denied "unreadable image" "$(basename "$image").*[Pp]ermission denied"
    as_user check closed
    denied "unreadable image, check" "1 images? cannot be used"
    as_user train --data set "${probe[@]}" --epochs 1 --out readonly/run
    denied "read-only folder for the run" 'readonly'
    as_user train --data set "${probe[@]}" --epochs 1 --out readonly
    denied "read-only run folder" 'readonly.*written|readonly.*ermission'
    as_user synth readonly/set --images 10
    denied "read-only folder for synth" 'readonly'
    as_user pack set readonly/set.pack
    denied "read-only folder for pack" 'readonly'
    chmod 000 closed/train/cross
    as_user train --data closed "${probe[@]}" --epochs 1 --out free/run2
    denied "a class folder that may not be read" 'cross'
    chmod 755 readonly closed/train/cross
}

# --- A full disk ----------------------------------------------------------------------------------
full_output() {
    local word weights="--device host --weights run/best.safetensors"
    for word in version "man" "help train" "doctor --json" "eval $weights --data set" \
        "predict $weights --csv set" "check set --csv"; do
        # shellcheck disable=SC2086
        timeout "$LIMIT" "$PINLINE" $word >/dev/full 2>err </dev/null
        code=$?
        if [ "$code" -eq 1 ] && grep -q 'standard output: No space left' err; then
            pass "output to a full device: ${word%% *}"
        else
            fail "output to a full device: ${word%% *}" "exit code $code"
        fi
    done
}
limited_files() {
    # The limit on a file's size ends a write as a full disk does; the signal is ignored for that.
    rm -rf limited
    ends 0 "a run of smallcnn" train --data set "${small[@]}" --model smallcnn --batch-size 50 \
        --epochs 1 --out limited
    cp limited/last.safetensors before
    (
        trap '' XFSZ
        ulimit -f 300
        timeout "$LIMIT" "$PINLINE" train --resume limited/last.safetensors --epochs 2 >out 2>err
        echo $? >code
    )
    code=$(cat code)
    if [ "$code" -eq 1 ] && grep -qE 'limited/last|File too large' err; then
        pass "a checkpoint that cannot be written whole"
    else
        fail "a checkpoint that cannot be written whole" "exit code $code"
    fi
    holds "the weights before are as they were" cmp before limited/last.safetensors
    holds "no half-written file is left" test ! -e limited/last.new.safetensors
    says 0 "the run goes on when there is room" 'going on with epoch 2' train \
        --resume limited/last.safetensors --epochs 2
}
full_disk() {
    local disk=$work/disk pid
    mkdir -p "$disk"
    if [ "$(id -u)" -ne 0 ] || ! mount -t tmpfs -o size=16m none "$disk" 2>/dev/null; then
        skip "a full disk" "not root, or no mount allowed"
        return
    fi
    mounted=$disk
    dd if=/dev/zero of="$disk/filler" bs=64k count=200 2>/dev/null
    says 1 "too little space is noticed before training" 'disk.*(free|space)' train --data set \
        "${small[@]}" --model smallcnn --epochs 1 --out "$disk/run"
    rm -rf "$disk/filler" "$disk/run"
    timeout "$LIMIT" "$PINLINE" train --data set "${probe[@]}" --epochs 1000000 --eval-every 0 \
        --out "$disk/run" >out 2>err </dev/null &
    pid=$!
    children+=("$pid")
    wait_for "$disk/run/last.state.safetensors"
    dd if=/dev/zero of="$disk/filler" bs=64k 2>/dev/null
    dd if=/dev/zero of="$disk/filler2" bs=512 2>/dev/null
    wait "$pid" 2>/dev/null
    code=$?
    if [ "$code" -eq 1 ] && grep -q 'No space left' err; then
        pass "a disk that fills up ends the run"
    else
        fail "a disk that fills up ends the run" "exit code $code"
    fi
    rm -f "$disk"/filler*
    says 0 "the checkpoint before is whole" 'going on with epoch' train \
        --resume "$disk/run/last.safetensors" --out after --max-steps 1
    dd if=/dev/zero of="$disk/filler" bs=64k 2>/dev/null
    says 1 "synth onto a full disk" 'No space left' synth "$disk/set" --images 1000 --size 64
    says 1 "pack onto a full disk" 'No space left|space' pack set "$disk/set.pack"
    holds "pack leaves no half-written file" test ! -e "$disk/set.pack"
    umount "$disk" && mounted=
}

# --- Signals --------------------------------------------------------------------------------------
# wait_for FILE: until it is there.
wait_for() {
    local i
    for ((i = 0; i < 50 * scale; i++)); do
        [ -e "$1" ] && return 0
        sleep 0.1
    done
    return 1
}
# stopped NAME SIGNAL CODE READY ARGS...: when READY is there (or after 0.3 s for "-"), the signal
# ends the program with the code in time.
stopped() {
    local name=$1 signal=$2 want=$3 ready=$4 pid from took
    shift 4
    "$PINLINE" "$@" >out 2>err </dev/null &
    pid=$!
    children+=("$pid")
    if [ "$ready" = - ]; then
        sleep 0.3
    else
        wait_for "$ready" || echo "$ready did not come" >>err
    fi
    kill "-$signal" "$pid" 2>/dev/null
    from=$(now_ms)
    wait "$pid"
    code=$?
    took=$(($(now_ms) - from))
    unset 'children[-1]'
    if [ "$code" -ne "$want" ]; then
        fail "$name" "exit code $code instead of $want"
    elif [ "$took" -gt "$STOP_MS" ]; then
        fail "$name" "$took ms instead of $STOP_MS at most"
    elif ! is_sane; then
        fail "$name" "a sanitizer's report"
    else
        pass "$name ($took ms)"
    fi
}
try_signals() {
    local name
    ends 0 "a run to its end" train --data set "${probe[@]}" --epochs 30 --eval-every 0 --out whole
    for name in INT:130 TERM:143; do
        rm -rf stopped
        # Emulated copies make a step long, so that the signal comes in the middle.
        stopped "SIG${name%:*} ends train" "${name%:*}" "${name#*:}" stopped/last.safetensors train \
            --data set "${probe[@]}" --epochs 30 --eval-every 0 --out stopped --simulate 1,1,15
        holds "SIG${name%:*}: the message says how to go on" \
            grep -qF -- '--resume stopped/last.safetensors' err
        says 0 "SIG${name%:*}: resume" 'going on with epoch' train \
            --resume stopped/last.safetensors -j 3 --pin-memory
        holds "SIG${name%:*}: as not stopped" cmp whole/last.safetensors stopped/last.safetensors
    done
}
many_files() {
    local i
    # Links to one folder: many names from few files.
    ends 0 "a set of 4000 images" synth source --images 4000 --val-images 0 --size 8
    mkdir -p many/a many/b
    for ((i = 0; i < 60; i++)); do
        ln -s "$work/source/train" "many/a/$i"
        ln -s "$work/source/train" "many/b/$i"
    done
    stopped "SIGINT while listing" INT 130 - train --data many "${probe[@]}" --epochs 1000 --out listed
    stopped "SIGINT during check" INT 130 - check many
    stopped "SIGTERM during pack" TERM 143 - pack many many.pack
    holds "pack that was stopped leaves no file" test ! -e many.pack
    stopped "SIGINT during synth" INT 130 made synth made --images 500000 --size 64
    stopped "SIGINT during predict" INT 130 - predict --device host --weights run/best.safetensors --csv many
}

# Killed without a warning, and twice asked to stop.
try_kills() {
    local pid
    rm -rf stopped
    stopped "SIGKILL" KILL 137 stopped/last.state.safetensors train --data set "${probe[@]}" \
        --epochs 30 --eval-every 0 --out stopped --simulate 1,1,15 2>/dev/null
    says 0 "SIGKILL: resume" 'going on with epoch' train --resume stopped/last.safetensors
    holds "SIGKILL: as not stopped" cmp whole/last.safetensors stopped/last.safetensors
    # A step of a minute holds the first signal up; the second does not wait for it.
    rm -rf stopped
    "$PINLINE" train --data set "${probe[@]}" --epochs 2 --out stopped --simulate 1,1,60000 \
        >out 2>err </dev/null &
    pid=$!
    children+=("$pid")
    wait_for stopped/log.jsonl
    sleep 0.5
    kill -INT "$pid"
    sleep 0.2
    kill -INT "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    code=$?
    holds "a second SIGINT ends at once" test "$code" -eq 130
}

# --- Names, languages -----------------------------------------------------------------------------
odd_names() {
    local class classes
    # shellcheck disable=SC2016
    classes=('with space' 'größe ß' $'new\nline' '-dash' '--help' ';$(x)' "quo'te\"s" '%s%n')
    mkdir odd
    for class in "${classes[@]}"; do
        mkdir -p "odd/$class"
        cp set/train/cross/* "odd/$class/"
        cp "$(find set/train -name '*.png' | head -n 1)" "odd/$class/$class.png"
    done
    ends 0 "odd names: check" check odd
    ends 0 "odd names: check --json" check odd --json
    is_json "odd names: check --json" \
        'len(d["train"]["classes"]) == 8 and any(c["name"] == "new\nline" for c in d["train"]["classes"])'
    ends 0 "odd names: train" train --data odd "${probe[@]}" --epochs 1 --out '-odd run'
    ends 0 "odd names: eval" eval --device host --data odd --weights '-odd run/last.safetensors'
    ends 0 "odd names: eval --json" eval --device host --data odd --weights '-odd run/last.safetensors' --json
    is_json "odd names: eval --json"
    ends 0 "odd names: predict" predict --device host --weights '-odd run/last.safetensors' -- \
        odd/*/*.png
    ends 0 "odd names: predict --csv" predict --device host --weights '-odd run/last.safetensors' \
        --csv -k 1 odd
    if [ -n "$python" ]; then
        holds "odd names: CSV is read back" python3 -c 'import csv
rows = list(csv.reader(open("out", newline="", encoding="utf-8")))
assert all(len(r) == 4 for r in rows), [r for r in rows if len(r) != 4]
assert any("new\nline" in r[0] for r in rows)'
    else
        skip "odd names: CSV is read back" "no python3"
    fi
    cp "$(find set/train -name '*.png' | head -n 1)" ./-image.png
    ends 0 "a file with a leading dash after --" predict --device host \
        --weights run/best.safetensors -- -image.png
    says 2 "a file with a leading dash" '-image.png.*--' predict --device host \
        --weights run/best.safetensors -image.png
    copy_set noise
    : >noise/train/.DS_Store
    : >noise/train/cross/Thumbs.db
    mkdir -p noise/train/.ipynb_checkpoints
    echo hello >noise/train/cross/notes.txt
    ln -s .. noise/train/cross/loop
    ends 0 "hidden files, other types and loops are passed over" train --data noise "${probe[@]}" \
        --epochs 2 --out noise_run
    holds "they change nothing" cmp run/last.safetensors noise_run/last.safetensors
    ends 0 "a pack of odd names" pack odd odd.pack
    ends 0 "training from it" train --data odd.pack "${probe[@]}" --epochs 1 --out odd_run
}
other_languages() {
    local language
    copy_set upper
    local file
    for file in upper/*/*/*.png; do
        mv "$file" "${file%.png}.PNG"
    done
    for language in tr_TR.UTF-8 de_DE.UTF-8; do
        if ! locale -a 2>/dev/null | grep -qiE "^${language%%.*}\.utf-?8\$" &&
            ! { mkdir -p locales && export LOCPATH=$work/locales &&
                localedef -i "${language%%.*}" -f UTF-8 "locales/$language" 2>/dev/null; }; then
            skip "language $language" "the locale is neither installed nor can be made"
            continue
        fi
        LC_ALL=$language LANG=$language "$PINLINE" train --data set "${probe[@]}" --epochs 2 --lr 0.05 \
            --overwrite --out language >out 2>err
        holds "$language: the same weights" cmp run/last.safetensors language/last.safetensors
        LC_ALL=$language "$PINLINE" help train >out 2>err
        holds "$language: the same help" cmp out help.train
        LC_ALL=$language "$PINLINE" predict --device host --weights run/best.safetensors --csv \
            set/val >out 2>err
        "$PINLINE" predict --device host --weights run/best.safetensors --csv set/val >plain.csv 2>err
        holds "$language: the same CSV" cmp out plain.csv
        LC_ALL=$language "$PINLINE" check upper >out 2>err
        prints "$language: extensions in any case" '^train: 100 images, 0 cannot'
    done
}

# --- Installing -----------------------------------------------------------------------------------
try_install() {
    local build=${PINLINE%/*/pinline} cuda=1 place=$work/place
    if ! command -v make >/dev/null 2>&1 || [ ! -d "$build/$MODE/obj" ] || [ ! -w "$build/$MODE" ]; then
        skip "install" "no make, or the program is not in a build folder of this user"
        return
    fi
    [ -f "$build/$MODE/pinline_cuda.so" ] || cuda=0
    as_built() {
        env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -C "$ROOT" -o all "BUILD=$build" \
            "MODE=$MODE" "CUDA=$cuda" "DESTDIR=$place" PREFIX=/usr "$@" >out 2>err </dev/null
    }
    holds "make install" as_built install
    says_installed=$("$place/usr/bin/pinline" --version 2>&1)
    holds "the installed program runs" grep -q '^pinline ' <<<"$says_installed"
    holds "the installed man page is the program's" \
        cmp man.1 "$place/usr/share/man/man1/pinline.1"
    holds "the installed completion is the program's" \
        cmp completion.bash "$place/usr/share/bash-completion/completions/pinline"
    holds "make install again" as_built install
    holds "make uninstall" as_built uninstall
    find "$place" ! -type d >err
    holds "uninstall leaves no file" test ! -s err
    holds "uninstall leaves no folder of its own" test ! -d "$place/usr/lib/pinline"
    holds "uninstall again" as_built uninstall
}

try_help
try_man_and_completion
try_sets
try_training
try_using
try_quiet
try_pages
wrong_words
wrong_data
wrong_images
wrong_runs
wrong_rights
full_output
limited_files
full_disk
try_signals
try_kills
many_files
odd_names
other_languages
try_install

printf '%s' "$failures"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
