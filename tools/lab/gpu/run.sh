#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything octet does on a GPU machine, stage by stage; logs, JSON and tables go under one folder. `run.sh --help`.
# Works in a source tree (stage build) and, on a machine with nothing but a driver, CUDA and a python3 with torch, in a package that
# tools/lab/gpu/pack.sh made elsewhere (stage unpack).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)

usage() {
  cat <<'END'
usage: tools/lab/gpu/run.sh STAGE... [options]
stages, run in the order given:
  build      in a source tree: tools/setup.sh --tests --cuda, and the programs for benchmarks
  unpack     in a part made by pack.sh: adds it to --home; once all parts are there, makes the data; later stages run from --home
  tests      every test program with label gpu
  sanitize   compute-sanitizer's memcheck, racecheck, initcheck and synccheck on the quick cases of each
  forward    QAT's forward pass on codes (qat.forward: int8): its tests, a step beside the simulation's, compute-sanitizer
  choose     variants of the four CIFAR-10 recipes and several seeds over all GPUs, compared on validation images
  final      the four recipes as they are: float, float control, int8 on the test images
  science    what QAT brings at few bits: the rows of science_plan.py, variants beside a float control, on the test images
  training   a training step beside PyTorch's and other frameworks' (those that pack.sh --wheels packed)
  bench      inference beside PyTorch, octet bench with layers, three engines side by side (cuDNN compiles for minutes), charts
  parallel   two GPUs and more: QAT on all beside one, whether the networks are alike, a process killed, from data to report
options:
  --out DIR        results (default: HOME/out); small ones also in DIR.tar.gz
  --home DIR       unpack: where the parts go (default: ~/octet-gpu)
  --dry            every stage for one case, step or epoch
  --data DIR       choose, final, science, parallel: data_batch_1.bin .. test_batch.bin of CIFAR-10 (default: data/binary of the package)
  --networks LIST  choose, final: of mobilenet_v2,vgg16_bn,resnet18,resnet20 (default: all)
  --rows LIST      science: of science_plan.py, in this order (default: all of CIFAR-10 but 7)
  --tiny FILE      science: Tiny-ImageNet-200 for row 5, made by tools/tiny_imagenet.py (default: the package's, if it has one)
  --seeds LIST     choose, final, parallel's report (default: 1,2,3), science (default: 1)
  --only LIST      choose, final: these variants beside the recipe (default: all of accuracy_plan.py); science: these variants
  --few-bits       final: no QAT of eight bits, and one float control for all that train as long
  --float-from V   final: start from stage choose's float weights: recipe, or recipe,resnet20:cutout-12
  --per-gpu N      choose, final, science: runs at a time on each GPU (default: 1)
  --minutes N      choose, final, science, parallel's report: stop then, with every run saved; the same command later goes on
  --set KEY=VALUE  choose, final, science, parallel's report: for every recipe, NETWORK:KEY=VALUE for one (science:
                   NETWORK-VARIANT:KEY=VALUE too); may be given several times (what a stage varies itself stays)
  --models LIST    training (default: resnet18,resnet50,mobilenet_v2), forward (resnet50,mobilenet_v2,efficientnet_b0)
  --turns N        training, bench (default: 2), forward (3)
  --programs LIST  tests: only these, in this order (test_qat_cuda,test_engine_cuda)
  --parts LIST     parallel: of speed,pipeline,folder,agree,faults,hang,report; forward: of tests,speed,sanitize (default: all)
  --pictures FILE  parallel's part folder: a .tar file or a folder with JPEG files
exit code: 0, or 1 if a stage failed (the others run nevertheless), 2 for a wrong call
END
}
fail() { echo "run: $*" >&2; exit 2; }

stages=() home=$HOME/octet-gpu out='' dry='' data='' pictures='' models='' turns='' parts='' programs='' rows='' accuracy=() science=() report=() given=("$@")
while [ $# -gt 0 ]; do
  case "$1" in
    build | unpack | tests | sanitize | forward | choose | final | science | training | bench | parallel) stages+=("$1"); shift ;;
    --dry) dry=--dry; shift ;;
    --few-bits) accuracy+=("$1"); shift ;;
    --out | --home | --data | --pictures | --models | --turns | --parts | --programs)
      [ $# -ge 2 ] || fail "$1 needs a value"
      declare "${1#--}=$2"; shift 2 ;;
    --seeds | --minutes | --set)
      [ $# -ge 2 ] || fail "$1 needs a value"
      accuracy+=("$1" "$2") science+=("$1" "$2") report+=("$1" "$2"); shift 2 ;;
    --only | --per-gpu)
      [ $# -ge 2 ] || fail "$1 needs a value"
      accuracy+=("$1" "$2") science+=("$1" "$2"); shift 2 ;;
    --networks | --float-from)
      [ $# -ge 2 ] || fail "$1 needs a value"
      accuracy+=("$1" "$2"); shift 2 ;;
    --rows | --tiny)
      [ $# -ge 2 ] || fail "$1 needs a value"
      [ "$1" = --tiny ] || rows=$2
      science+=("$1" "$2"); shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; fail "unknown stage or argument '$1'" ;;
  esac
done
[ ${#stages[@]} -gt 0 ] || { usage >&2; exit 2; }

unpack() {
  [ -e "$root/manifest.json" ] || fail "unpack: $root is no part made by pack.sh (no manifest.json)"
  mkdir -p "$home"
  home=$(cd "$home" && pwd)
  [ "$root" = "$home" ] || python3 "$here/parts.py" join "$root" "$home" || return
  if [ -e "$home/data/unpack.py" ] && [ ! -e "$home/data/binary" ] && python3 "$home/tools/lab/gpu/parts.py" complete "$home"; then
    rm -rf "$home/data/binary.new"
    python3 "$home/data/unpack.py" "$home/data/binary.new" && mv "$home/data/binary.new" "$home/data/binary"
  fi
}

# The stage unpack hands over to the scripts that it unpacked.
if [ "${stages[0]}" = unpack ]; then
  unpack || exit 1
  [ ${#stages[@]} -gt 1 ] || exit 0
  rest=()
  for argument in "${given[@]}"; do [ "$argument" = unpack ] || rest+=("$argument"); done
  [ -e "$home/tools/lab/gpu/run.sh" ] || exit 1
  exec "$home/tools/lab/gpu/run.sh" "${rest[@]}"
fi

out=${out:-$root/out}
mkdir -p "$out"
out=$(cd "$out" && pwd)
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
if [ -e "$root/manifest.json" ]; then  # a source tree's programs know where their libraries are
  source "$root/tools/lab/bench/libtorch_path.sh"
  export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$root/lib
fi
octet=$(python3 "$here/programs.py" --path octet)
train_bench=$(python3 "$here/programs.py" --path train_bench)

build() {
  (cd "$root" && tools/setup.sh --tests --cuda && cmake --build build --target train_bench)
}
tests() { python3 "$here/tests.py" --out "$out" ${programs:+--programs "$programs"} $dry; }
sanitize() { python3 "$here/sanitize.py" --out "$out" $dry; }
forward() { python3 "$here/forward.py" --out "$out" ${models:+--models "$models"} ${turns:+--turns "$turns"} ${parts:+--parts "$parts"} $dry; }
accuracy() { python3 "$here/accuracy.py" "$1" --out "$out" ${data:+--data "$data"} "${accuracy[@]}" $dry; }
choose() { accuracy choose; }
final() { accuracy final; }
science() {
  if [ -e "$root/tiny/tiny.json" ] && [ ! -e "$root/tiny.tar" ]; then  # of a package; rows that do not read it go on without
    python3 "$root/tools/tiny_imagenet.py" join "$root/tiny" "$root/tiny.tar" >&2 || case ",$rows," in *,5,*) return 1 ;; esac
  fi
  if [ -e "$root/tiny.tar" ]; then science=(--tiny "$root/tiny.tar" "${science[@]}"); fi
  python3 "$here/science.py" --out "$out" ${data:+--data "$data"} "${science[@]}" $dry
}
beside() {  # training or inference, beside others; then the options of both and of this one
  local what=$1; shift
  "$root/tools/lab/bench/$what.sh" --octet "$octet" --train-bench "$train_bench" --turns "${turns:-2}" "$@" \
    ${dry:+--turns 1 --seconds 0.05 --models resnet18} --json "$out/$what.json" --svg "$out/$what.svg"
}
training() {
  if [ -e "$root/wheels" ] && [ ! -e "$root/site" ]; then
    python3 "$here/parts.py" complete "$root" wheels/ >&2 || return
    rm -rf "$root/site.new"
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$root/site.new" "$root"/wheels/*.whl >&2 || return
    mv "$root/site.new" "$root/site"
  fi
  PYTHONPATH=$root/site${PYTHONPATH:+:$PYTHONPATH} beside training ${models:+--models "$models"}
}
bench() {
  local failed=0 model few='' batches=1,128 all=1,128,512 layers_of=resnet50
  if [ -n "$dry" ]; then batches=1; all=1; layers_of=small_cnn; few='--seconds 0.05'; fi
  beside inference >"$out/inference.txt" || failed=1
  for model in resnet50 resnet18 mobilenet_v2 efficientnet_b0; do
    "$octet" bench --model "$model" --engine cuda --batch "$batches" --layers $few --svg "$out/layers_$model.svg" >"$out/bench_$model.txt" || failed=1
  done
  "$octet" bench --model resnet50 --engine cuda,cudnn,cutlass --batch $all ${few:---seconds 1} --svg "$out/engines.svg" >"$out/engines.txt" ||
    { [ $? = 2 ] && ! grep -v '^cutlass' "$out/engines.txt" | grep -q ': not measured: '; } || failed=1  # CUTLASS is optional when octet is built
  "$octet" bench --layers-of "$layers_of" --batch 128 --svg "$out/layers_of_$layers_of.svg" >"$out/layers.txt" || failed=1
  cat "$out"/bench_*.txt "$out/engines.txt" "$out/layers.txt" "$out/inference.txt"
  return $failed
}
parallel() { python3 "$here/parallel.py" --out "$out" ${data:+--data "$data"} ${pictures:+--pictures "$pictures"} ${parts:+--only "$parts"} "${report[@]}" $dry; }

failed=()
for stage in "${stages[@]}"; do
  [ "$stage" != unpack ] || fail "unpack comes first"
  echo "== $stage" >&2
  start=$SECONDS
  # Through a file, so that the stage's exit code stays and the tables stand together at the end.
  if "$stage" >"$out/$stage.txt"; then verdict=good; else verdict=FAILED; failed+=("$stage"); fi
  echo "$stage: $verdict, $((SECONDS - start)) s" | tee -a "$out/$stage.txt" >&2
done
echo
for stage in "${stages[@]}"; do echo "== $stage"; cat "$out/$stage.txt"; done
# What fits everywhere: no weights, no training states, no pages of a hundred variants.
(cd "$out" && find . -type f -size -1000k ! -name '*.safetensors' ! -path '*/choose*/report.html' -print0 | tar czf "$out.tar.gz" --null -T -)
[ ${#failed[@]} = 0 ]
