#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets octet up on Debian 12 or 13, or Ubuntu 24.04: installs what is missing, fetches LibTorch into .deps/, builds build/octet.
# Idempotent: what is there is reused. Run by tools/demo.sh and tools/test.sh; see `tools/setup.sh --help`.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TORCH_VERSION=2.11.0
readonly PACKAGES=(g++ cmake ninja-build ccache libyaml-cpp-dev libgtest-dev libcli11-dev libfmt-dev nlohmann-json3-dev
                   libjpeg-dev libpng-dev libwebp-dev zlib1g-dev libpugixml-dev libonnx-dev libprotobuf-dev protobuf-compiler
                   dataset-fashion-mnist python3 python3-venv)

usage() {
  cat <<'END'
usage: tools/setup.sh [--tests] [--cuda | --cuda-check] [--no-build]
  --tests      build the tests too; onnx, onnxruntime and pycocotools, which some need, go into .deps/venv
  --cuda       build the device code although this machine has no GPU (it is built where there is one, and where build/ has it)
  --cuda-check compile the device code only to see that it compiles, in a third of the time (CI); octet then uses no GPU, until a
               --cuda, or a run of this script on a machine with one
  --no-build   install only
environment:
  OCTET_TORCH_DIR   the torch folder of an installed torch==2.11.0 or LibTorch (default: .deps/torch, fetched when missing)
  CUDA_HOME         a CUDA toolkit whose libcudart and libcupti LibTorch may use (default: /usr/local/cuda)
END
}

tests=OFF build=yes cuda=no check=OFF
for argument in "$@"; do
  case "$argument" in
    --tests) tests=ON ;;
    --cuda) cuda=yes ;;
    --cuda-check) cuda=yes check=ON ;;
    --no-build) build=no ;;
    --help | -h) usage; exit 0 ;;
    *) echo "setup: unknown argument '$argument'" >&2; usage >&2; exit 2 ;;
  esac
done

say() { echo "setup: $*" >&2; }
timed() {  # timed WHAT COMMAND...: says what is done and how long it took
  local what=$1 start=$SECONDS
  shift
  say "$what ..."
  "$@" || { say "failed: $what"; exit 3; }
  say "$what: $((SECONDS - start)) s"
}
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
  local missing=() package
  for package in "${PACKAGES[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ]; then say "packages: all there"; return; fi
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    say "these packages are missing and there is no sudo; install them as root: ${missing[*]}"
    exit 3
  fi
  say "packages to install: ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive sh -c \
    'apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" >/dev/null' sh "${missing[@]}"
}

# A private Python for pip and the tests' witness; the user's own Python is never touched.
make_venv() {
  [ -x .deps/venv/bin/python ] || "$(PATH=/usr/bin:$PATH command -v python3)" -m venv .deps/venv
  .deps/venv/bin/python -c 'import numpy, safetensors' 2>/dev/null ||
    .deps/venv/bin/python -m pip install -q numpy safetensors
  [ "$tests" = OFF ] || .deps/venv/bin/python -c 'import onnx, onnxruntime, pycocotools' 2>/dev/null ||
    .deps/venv/bin/python -m pip install -q onnx==1.23.2 onnxruntime==1.32.0 pycocotools==2.0.11
}

# Of the 1.1 GB wheel the headers and the CPU libraries are kept (about 500 MB), with nvcc the CUDA libraries too.
fetch_torch() {
  rm -rf .deps/torch.new .deps/download
  .deps/venv/bin/python -m pip download -q --no-deps -d .deps/download "torch==$TORCH_VERSION"
  .deps/venv/bin/python - "$preset" <<'END'
import glob, re, sys, zipfile
cuda = "|c10_cuda|torch_cuda|torch_cuda_linalg|torch_nvshmem|caffe2_nvrtc" if sys.argv[1] == "cuda" else ""
keep = re.compile(rf"torch/(include/|lib/lib(c10|torch_cpu|torch|gomp[^/]*|shm{cuda})\.so|lib/libgomp|version\.py)")
with zipfile.ZipFile(glob.glob(".deps/download/torch-*.whl")[0]) as wheel:
    wheel.extractall(".deps/torch.new", [name for name in wheel.namelist() if keep.match(name)])
END
  rm -rf .deps/torch .deps/download
  mv .deps/torch.new/torch .deps/torch
  rmdir .deps/torch.new
}

has_library() {  # has_library FILE FOLDER...
  local name=$1 folder
  shift
  for folder in "$@"; do [ -e "$folder/$name" ] && return 0; done
  return 1
}

# What libtorch_cuda needs beyond a full CUDA toolkit with cuDNN and NCCL, the headers of cuDNN's graph API, and nvJPEG for data.decode: gpu.
fetch_cuda_wheels() {
  if has_library libnvshmem_host.so.3 "$torch/../nvidia/nvshmem/lib" .deps/nvidia/nvshmem/lib &&
     has_library cudnn_frontend.h "$torch/../include" .deps/include &&
     has_library libnvjpeg.so.13 "$torch/../nvidia/cu13/lib" .deps/nvidia/cu13/lib "${CUDA_HOME:-/usr/local/cuda}/lib64"; then return; fi
  timed "fetching cusparselt, nvshmem, cufile, cudnn-frontend, nvjpeg (wheels)" .deps/venv/bin/python -m pip install -q --no-deps --no-compile \
    --upgrade --target .deps nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5 nvidia-cufile==1.15.1.6 nvidia-cudnn-frontend==1.32.0 'nvidia-nvjpeg==13.0.*'
}

# libtorch_cpu of the CUDA wheel loads libcudart and libcupti at start: from a toolkit, or from two small wheels.
fetch_cuda_libraries() {
  local folders=(.deps/nvidia/cu13/lib "${CUDA_HOME:-/usr/local/cuda}/lib64" "${CUDA_HOME:-/usr/local/cuda}/extras/CUPTI/lib64")
  if has_library libcudart.so.13 "${folders[@]}" && has_library libcupti.so.13 "${folders[@]}"; then return; fi
  timed "fetching libcudart and libcupti (wheels, 15 MB)" .deps/venv/bin/python -m pip install -q --no-deps --no-compile \
    --upgrade --target .deps 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cupti==13.0.*'
}

has_gpu() { [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; }  # the second: under WSL
built_to_check() { [ -e build/CMakeCache.txt ] && grep -q '^OCTET_CUDA_CHECK:.*=ON$' build/CMakeCache.txt; }
built_with_cuda() { [ -e build/CMakeCache.txt ] && grep -q '^OCTET_CUDA:.*=ON$' build/CMakeCache.txt; }
if [ "$cuda" = no ] && ! has_gpu && built_to_check; then
  check=ON
  say "build/ compiles the device code only to see that it compiles (--cuda-check), and stays so; --cuda ends that"
fi
preset=cuda
if ! command -v nvcc >/dev/null && [ ! -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; then
  [ "$cuda" = no ] || { say "--cuda: no nvcc in PATH nor in ${CUDA_HOME:-/usr/local/cuda}/bin; install the CUDA Toolkit 13.0 or set CUDA_HOME"; exit 2; }
  preset=cpu
  say "no nvcc: a CPU-only build"
elif [ "$cuda" = no ] && ! has_gpu && ! built_with_cuda; then
  preset=cpu
  say "no GPU in this machine: a CPU-only build, which is minutes shorter (--cuda builds the device code all the same)"
fi
mkdir -p .deps
timed "checking packages" install_packages
timed "Python for tests (.deps/venv)" make_venv
torch=${OCTET_TORCH_DIR:-$PWD/.deps/torch}
wanted=libtorch_cpu.so
[ "$preset" = cpu ] || wanted=libtorch_cuda.so
if [ -e "$torch/lib/$wanted" ]; then
  say "LibTorch: $torch"
elif [ -n "${OCTET_TORCH_DIR:-}" ]; then
  say "OCTET_TORCH_DIR=$OCTET_TORCH_DIR has no lib/$wanted; name the torch folder of torch==$TORCH_VERSION"
  exit 3
else
  timed "fetching LibTorch $TORCH_VERSION (0.8 GB) into .deps/torch" fetch_torch
fi
fetch_cuda_libraries
[ "$preset" = cpu ] || fetch_cuda_wheels
[ "$build" = yes ] || exit 0

configure() {
  CUDA_HOME=${CUDA_HOME:-/usr/local/cuda} cmake --preset "$preset" -DOCTET_TORCH_DIR="$torch" -DOCTET_TESTS="$tests" -DOCTET_CUDA_CHECK="$check" >.deps/configure.log 2>&1 ||
    { cat .deps/configure.log >&2; return 1; }
}
timed "configuring" configure
timed "building build/octet (minutes on the first run)" cmake --build --preset "$preset"
