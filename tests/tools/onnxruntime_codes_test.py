# SPDX-License-Identifier: Apache-2.0
"""tools/octet/onnxruntime_codes.py: values of ONNX Runtime lie in octet's order, in attention too. The script answers a pipe, so its function
is taken out of it; ONNX Runtime need not be installed."""
import ast
import pathlib
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)  # SKIP_RETURN_CODE

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "octet" / "onnxruntime_codes.py"
FUNCTION = next(node for node in ast.parse(SCRIPT.read_text()).body if isinstance(node, ast.FunctionDef) and node.name == "nhwc")
exec(compile(ast.Module([FUNCTION], []), str(SCRIPT), "exec"))  # defines nhwc

N, HEADS, EACH, H, W = 2, 3, 5, 4, 2
IMAGE = np.arange(N * HEADS * EACH * H * W).reshape(N, HEADS * EACH, H, W)
SHAPE = (H, W, HEADS * EACH)


class Order(unittest.TestCase):
    def expect(self, values, image=IMAGE, shape=SHAPE):
        np.testing.assert_array_equal(nhwc(values, shape), image.transpose(0, 2, 3, 1))

    def test_images(self):
        self.expect(IMAGE)

    def test_heads(self):
        heads = IMAGE.reshape(N, HEADS, EACH, H * W)
        self.expect(heads)
        self.expect(heads.swapaxes(2, 3))

    def test_one_head(self):
        row = IMAGE.reshape(N, HEADS * EACH, H * W)
        self.expect(row)
        self.expect(row.swapaxes(1, 2))

    def test_no_pixels(self):
        logits = np.arange(N * 7).reshape(N, 7)
        np.testing.assert_array_equal(nhwc(logits, (1, 1, 7)), logits)


if __name__ == "__main__":
    unittest.main()
