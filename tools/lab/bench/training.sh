#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One training step of octet (float and QAT) beside PyTorch's, in one run on this machine's GPU: the README's training table.
# python3 must have torch and torchvision, build/bin/train_bench must be built. Arguments go to turns.py; try --help.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[[ " $* " =~ " "(--help|-h)" " ]] || source "$here/libtorch_path.sh"
exec python3 "$here/turns.py" training "$@"
