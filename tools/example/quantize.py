# SPDX-License-Identifier: Apache-2.0
"""quantize.py NETWORK.onnx CHECKPOINT INPUTS.npy: int8 of a float network by inputs that are ready, what that costs, and a run of it.

INPUTS.npy: float32 [N, C, H, W], as the float network reads them. With images: octet.quantize(NETWORK, "photos/", preset="imagenet").
"""
import sys

import numpy as np
import octet

network, checkpoint, file = sys.argv[1:]
inputs = np.load(file)
made = octet.quantize(network, inputs, out=checkpoint, repair="fast")
for output in made.outputs:
    print(f"{output['output']}: {output['sqnr_db']:.1f} dB, same class {100 * output['same_class']:.1f} %")

int8 = octet.load(made.checkpoint)
result = int8(int8.codes(inputs[:2]))
print(f"{int8.engine}: {type(result).__name__} for {len(inputs[:2])} inputs")
