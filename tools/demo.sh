#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job from nothing: sets up, builds, trains the demo on Fashion-MNIST, exports int8, proves it, shows the report.
# Arguments go to octet train (--set train.epochs=2, --out DIR).
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh

run=runs/demo
number=1
while [ -e "$run" ]; do run=runs/demo-$((++number)); done
step() { printf '\n$ %s\n' "$*" >&2; "$@"; }

start=$SECONDS
step build/octet train recipes/small_cnn_fashion_mnist_affine_u8.yaml --out "$run" "$@"
step build/octet compare "$run"
step .deps/venv/bin/python tools/fashion_png.py 100 "$run/pictures"
step build/octet run "$run" "$run/pictures/00000.png"
# The witness computes every layer of 100 images itself, in numpy, and holds the engine's codes to it.
printf '\n$ build/octet run %s %s/pictures/*.png --dump %s/codes.safetensors\n' "$run" "$run" "$run" >&2
build/octet run "$run" "$run"/pictures/*.png --dump "$run/codes.safetensors" >/dev/null
step .deps/venv/bin/python tools/verify_checkpoint.py "$run/int8.safetensors" --against "$run/codes.safetensors"
echo
echo "demo: $((SECONDS - start)) s after set-up; the report is $run/report.html"
