# SPDX-License-Identifier: Apache-2.0
"""tools/lab/bench/qdq.py: the QDQ form of a node gives the node's codes. Runs what it writes with numpy; onnx need not be installed."""
import pathlib
import sys
import types
import unittest

try:
    import numpy as np
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)  # SKIP_RETURN_CODE

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools" / "lab" / "bench"))
onnx = types.ModuleType("onnx")
onnx.TensorProto = None
onnx.helper = types.SimpleNamespace(make_node=lambda op, inputs, outputs, **attributes: (op, inputs, outputs[0]))
onnx.numpy_helper = types.SimpleNamespace(from_array=lambda array, name: (name, array))
sys.modules["onnx"] = onnx
import qdq  # noqa: E402


def edge(quant_min, quant_max, zero_point, clamp):
    return {"out": {"scale": 0.05, "zero_point": zero_point, "quant_min": quant_min, "quant_max": quant_max}, "clamp": clamp}


def run(writer, images):
    """The codes of the last QuantizeLinear, and which operators ran."""
    known, codes = {**dict(writer.constants), "images": images}, None
    for op, inputs, output in writer.nodes:
        x, *more = [known[name] for name in inputs]
        if op == "QuantizeLinear":
            limits = np.iinfo(more[1].dtype)
            y = codes = np.clip(np.rint(x / more[0]) + more[1], limits.min, limits.max)
        elif op == "DequantizeLinear":
            y = ((x - more[1]) * more[0]).astype(np.float32)
        else:
            y = {"Relu": lambda: np.maximum(x, np.float32(0)), "Clip": lambda: np.clip(x, *more), "Mul": lambda: x * more[0],
                 "Sigmoid": lambda: 1 / (1 + np.exp(-x)), "Tanh": lambda: np.tanh(x),
                 "Softplus": lambda: np.log1p(np.exp(x)), "Elu": lambda: np.where(x < 0, np.expm1(x), x),
                 "HardSwish": lambda: x * np.clip(x + 3, 0, 6) / 6}[op]()
        known[output] = y
    return codes, [op for op, _, _ in writer.nodes]


class Clamp(unittest.TestCase):
    def check(self, node, expected):
        wide = edge(-128, 127, 0, [-128, 127])
        nodes = [dict(wide, name="input", op="input", inputs=[], float_output=False),
                 dict(node, name="r", op="requantize", inputs=[0], float_output=False)]
        nodes[0]["out"] = dict(nodes[0]["out"], scale=0.11)
        writer = qdq.Writer({"nodes": nodes, "outputs": [1]})
        writer.convert()
        codes, operators = run(writer, np.linspace(-14, 14, 1001, dtype=np.float32))
        real = np.clip(np.rint(np.linspace(-14, 14, 1001, dtype=np.float32) / np.float32(0.11)), -128, 127) * np.float32(0.11)
        q = node["out"]
        wanted = np.clip(np.rint(real.astype(np.float32) / np.float32(q["scale"])) + q["zero_point"], *node["clamp"])
        np.testing.assert_array_equal(codes, wanted)
        self.assertGreater(len(np.unique(wanted)), 20)
        self.assertEqual(operators[2:-2], expected)

    def test_saturation_is_enough(self):
        self.check(edge(-128, 127, 0, [-128, 127]), [])
        self.check(edge(0, 255, 0, [0, 255]), [])
        self.check(edge(0, 255, 90, [0, 255]), [])

    def test_relu(self):
        self.check(edge(-128, 127, 0, [0, 127]), ["Relu"])
        self.check(edge(0, 255, 90, [90, 255]), ["Relu"])

    def test_relu6(self):
        self.check(edge(-128, 127, 0, [0, 120]), ["Clip"])
        self.check(edge(0, 255, 0, [0, 120]), ["Clip"])
        self.check(edge(0, 255, 90, [90, 210]), ["Clip"])


class Lookup(unittest.TestCase):
    def test_functions_give_the_codes_of_their_tables(self):
        formulas = {"silu": lambda x: x / (1 + np.exp(-x)), "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh,
                    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))), "elu": lambda x: np.where(x < 0, np.expm1(x), x),
                    "softplus": lambda x: np.log1p(np.exp(x)), "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6}
        for text, formula in formulas.items():
            nodes = [dict(edge(-128, 127, 0, [-128, 127]), name="input", op="input", inputs=[], float_output=False),
                     dict(edge(0, 255, 90, [0, 255]), name="f", op="lookup", inputs=[0], float_output=False, function=text)]
            writer = qdq.Writer({"nodes": nodes, "outputs": [1]})
            writer.convert()
            x = (np.arange(-128, 128) * np.float32(0.05)).astype(np.float32)
            codes, _ = run(writer, x)
            table = np.clip(np.rint(formula(x.astype(np.float64)).astype(np.float32) / np.float32(0.05)) + 90, 0, 255)
            np.testing.assert_array_equal(codes, table, text)


if __name__ == "__main__":
    unittest.main()
