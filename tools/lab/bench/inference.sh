#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# octet's int8 engines beside PyTorch fp16, images in, logits out, in one run on this machine's GPU: the README's inference table.
# python3 must have torch and torchvision, build/octet must be built. Arguments go to turns.py; try --help.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[[ " $* " =~ " "(--help|-h)" " ]] || source "$here/libtorch_path.sh"
exec python3 "$here/turns.py" inference "$@"
