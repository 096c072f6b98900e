#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Times octet beside ONNX Runtime and OpenVINO (from PyPI, in a Python of their own under .deps/, never a dependency of octet).
# Arguments go to peers.py; try --help.
set -euo pipefail
cd "$(dirname "$0")/../../.."
[ -x build/octet ] || { echo "peers: no build/octet; run tools/setup.sh first" >&2; exit 3; }
if [ ! -x .deps/peers/bin/python ]; then
  "$(PATH=/usr/bin:$PATH command -v python3)" -m venv .deps/peers
  .deps/peers/bin/python -m pip install -q numpy safetensors onnx==1.23.2 onnxruntime==1.31.1 openvino==2026.4.1
fi
exec .deps/peers/bin/python tools/lab/bench/peers.py "$@"
