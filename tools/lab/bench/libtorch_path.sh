# SPDX-License-Identifier: Apache-2.0
# Sourced: lets programs that were built elsewhere find the LibTorch and CUDA libraries of python3's torch.
# Finds them without importing torch, which takes seconds.
octet_site=$(python3 - <<'END'
import importlib.util, os, sys
torch = importlib.util.find_spec("torch")
if torch is None:
    sys.exit("python3 has no torch; install torch==2.11.0, or put the Python that has it first in PATH")
print(os.path.dirname(os.path.dirname(torch.origin)))
END
) || exit 3
octet_cuda=${CUDA_HOME:-/usr/local/cuda}
for octet_folder in "$octet_cuda/extras/CUPTI/lib64" "$octet_cuda/lib64" "$octet_site"/nvidia/*/lib "$octet_site/torch/lib"; do
  [ -d "$octet_folder" ] && export LD_LIBRARY_PATH="$octet_folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
