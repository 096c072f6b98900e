#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On the machine that built octet: puts everything that tools/lab/gpu/run.sh needs on a bare GPU machine into DIR/part1, DIR/part2, ...
# Each part is small enough to be sent alone; `part1/tools/lab/gpu/run.sh unpack` there puts them together again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)

usage() {
  cat <<'END'
usage: tools/lab/gpu/pack.sh DIR [--data FOLDER] [--tiny FILE] [--wheels FOLDER] [--build FOLDER] [--limit MIB] [--no-tests]
  DIR             where part1, part2, ... go; must not exist or be empty
  --data FOLDER   CIFAR-10 too: a folder with data_batch_1.bin .. test_batch.bin, or with any files and an unpack.py that makes those
                  (called on the GPU machine as `unpack.py OUT_DIR`)
  --tiny FILE     Tiny-ImageNet-200 too, as tools/tiny_imagenet.py makes it, for row 5 of stage science (142 MiB more)
  --wheels FOLDER Python packages for stage training: the *.whl in it, for the GPU machine's python3 (README.md beside this)
  --build FOLDER  the build to take programs from (default: build); needs octet and, with -DOCTET_CUDA=ON, the tests with label gpu
  --limit MIB     largest size of a part (default: 48)
  --no-tests      no test programs: octet and train_bench are what stages choose, final, science, parallel and training need
Not packed, since run.sh finds them there: LibTorch and CUDA's libraries (a python3 with torch).
END
}
fail() { echo "pack: $*" >&2; exit "${code:-2}"; }

target='' data='' tiny='' wheels='' build=$root/build limit=48 no_tests=
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --data | --tiny | --wheels | --build | --limit) [ $# -ge 2 ] || fail "$1 needs a value"; declare "${1#--}=$2"; shift 2 ;;
    --no-tests) no_tests=1; shift ;;
    -*) usage >&2; fail "unknown argument '$1'" ;;
    *) [ -z "$target" ] || fail "one DIR only, not '$target' and '$1'"; target=$1; shift ;;
  esac
done
[ -n "$target" ] || { usage >&2; exit 2; }
[[ $limit =~ ^[1-9][0-9]*$ ]] || fail "--limit '$limit': a whole number of MiB"
[ -z "$(ls -A "$target" 2>/dev/null)" ] || fail "$target is not empty"
[ -x "$build/octet" ] || fail "no $build/octet; build first (tools/setup.sh --tests --cuda), or name the build with --build"
! grep -q '^OCTET_CUDA_CHECK:.*=ON$' "$build/CMakeCache.txt" 2>/dev/null || fail "the device code of $build was compiled only to be checked, as CI does; build it with tools/setup.sh --tests --cuda"
[ -z "$data" ] || [ -d "$data" ] || fail "--data $data: no such folder"
[ -z "$tiny" ] || [ -f "$tiny" ] || fail "--tiny $tiny: no such file"
[ -z "$wheels" ] || compgen -G "$wheels/*.whl" >/dev/null || fail "--wheels $wheels: no *.whl there"

if [ -e "$build/CMakeCache.txt" ]; then  # what is packed is what the sources say, tests that the build did not know yet included
  cmake --build "$build" ${no_tests:+--target octet} >&2 || fail "$build does not build"
  targets=$(cmake --build "$build" --target help) || fail "$build does not say what it builds"
  for bench in train_bench boxes_bench; do  # built by no other command; a build without training has no train_bench
    ! grep -q $bench <<<"$targets" || cmake --build "$build" --target $bench >&2 || fail "$build does not build $bench"
  done
fi
tests=
[ -n "$no_tests" ] || tests=$(python3 "$here/programs.py" --build "$build") || exit
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage"/{bin,lib,tools/lab}
cp -r "$root/recipes" "$stage/"
cp -r "$root/tools/lab/gpu" "$root/tools/lab/defaults" "$root/tools/lab/bench" "$stage/tools/lab/"
cp "$root/tools/tiny_imagenet.py" "$stage/tools/"
rm -rf "$stage"/tools/lab/*/__pycache__
cp "$build/octet" "$stage/bin/"
: >"$stage/gpu_tests.txt"
for name in $tests; do
  cp "$build/bin/$name" "$stage/bin/"
  echo "$name" >>"$stage/gpu_tests.txt"
done
for bench in train_bench boxes_bench; do
  if [ -x "$build/bin/$bench" ]; then
    cp "$build/bin/$bench" "$stage/bin/"
  else
    echo "pack: no $bench in $build/bin: stages training, bench and parallel, or detector_gpu.py will lack it" >&2
  fi
done
strip "$stage"/bin/*

# Libraries from the distribution, except those that every Linux system has, and LibTorch's and CUDA's.
for program in "$stage"/bin/*; do ldd "$program"; done | awk '$3 ~ /^\/(usr\/)?lib/ { print $3 }' | sort -u |
  grep -vE '/lib(c|m|dl|rt|util|pthread|gcc_s|stdc\+\+|z|gomp|torch.*|c10.*|cu.*|nv.*|nccl.*)\.so' |
  while read -r library; do cp -L "$library" "$stage/lib/"; done
nvjpeg=  # data.decode: gpu; octet loads it, so no program is linked with it
for folder in "${OCTET_TORCH_DIR:-$root/.deps/torch}/../nvidia/cu13/lib" "$root/.deps/nvidia/cu13/lib" "${CUDA_HOME:-/usr/local/cuda}/lib64"; do
  [ -n "$nvjpeg" ] || [ ! -e "$folder/libnvjpeg.so.13" ] || nvjpeg=$folder/libnvjpeg.so.13
done
if [ -n "$nvjpeg" ]; then cp -L "$nvjpeg" "$stage/lib/"; else echo "pack: no libnvjpeg.so.13 here: data.decode: gpu needs the GPU machine's (tools/setup.sh --cuda)" >&2; fi
if [ -n "$data" ]; then
  folder=$stage/data/binary  # where stages choose and final look
  [ ! -e "$data/unpack.py" ] || folder=$stage/data
  mkdir -p "$folder"
  cp -rL "$data"/. "$folder/"
  chmod -R u+w "$stage/data"
fi
if [ -n "$tiny" ]; then
  python3 "$root/tools/tiny_imagenet.py" split "$tiny" "$stage/tiny" --limit $((limit > 1 ? limit / 2 : 1)) >&2
fi
if [ -n "$wheels" ]; then
  mkdir "$stage/wheels"
  cp -L "$wheels"/*.whl "$stage/wheels/"
fi
python3 "$here/parts.py" split "$stage" "$target" --limit "$limit"
