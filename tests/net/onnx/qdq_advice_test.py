#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What octet advises where it refuses a quantized file is done here, step by step: the file that it leads to is read, and gives the
answers of the file before.

usage: qdq_advice_test.py OCTET ONNX_LOGITS. Exits 77 (skipped) where onnx or onnxruntime is missing.
"""
import ast
import logging
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import forked_octet  # noqa: E402
from written_files import png_file  # noqa: E402

try:
    import judge
    import numpy as np
    import onnx
    from judge import Case, model, pixels, tensor
    from onnx.helper import make_node as node
    from onnxruntime import quantization
    from optional_qdq import MID, X, between, network, pair
    from qdq_operators import BIASES, COLUMNS, IMAGE, MATMUL, ROW
    from safetensors.numpy import load_file
except ImportError as missing:
    print(f"qdq_advice_test: Skipped\n{missing}; tools/setup.sh --tests installs it into .deps/venv")
    sys.exit(77)

OCTET = forked_octet.Program(sys.argv.pop(1), os.environ.get("OCTET_FORK_LIBRARY", ""))
ONNX_LOGITS = sys.argv.pop(1)
SHAPE = (3, 8, 8)
NEAR = 0.02  # of the largest output: other codes, the same answers
logging.disable(logging.WARNING)


def float_network(norm=False, bias=False, prepared=False):
    """A convolution, perhaps with a bias or BatchNormalization, or a Pow before it, and a classifier with biases that decide."""
    random = np.random.default_rng(2)
    tensors = [tensor("w", random.standard_normal((8, 3, 3, 3)) * 0.3), tensor("F", random.standard_normal((8, 5)) * 0.5),
               tensor("B", [-3, 2, 0, 4, -1]), tensor("m", random.standard_normal(8) * 0.1), tensor("v", random.uniform(0.5, 2, 8)),
               tensor("g", random.uniform(0.5, 2, 8)), tensor("b", random.standard_normal(8) * 0.1)]
    nodes = [node("Conv", ["x", "w"], ["a"], name="conv"), node("Relu", ["n" if norm else "a"], ["r"], name="relu"),
             node("GlobalAveragePool", ["r"], ["gap"], name="gap"), node("Flatten", ["gap"], ["row"], name="flatten"),
             node("MatMul", ["row", "F"], ["mm"], name="dense/MatMul"), node("Add", ["mm", "B"], ["y"], name="dense/BiasAdd")]
    if norm:
        nodes.insert(1, node("BatchNormalization", ["a", "g", "b", "m", "v"], ["n"], name="norm"))
    if bias:
        nodes[0].input.append("b")
    if prepared:
        tensors.append(tensor("half", np.float32(0.5)))
        nodes.insert(0, node("Pow", ["x", "half"], ["root"], name="root"))
        nodes[1].input[0] = "root"
    read = {name for n in nodes for name in n.input}
    return model(nodes, [t for t in tensors if t.name in read], "y", SHAPE)


class Pictures(quantization.CalibrationDataReader):
    def __init__(self):
        self.left = iter([{"x": pixels(SHAPE, seed=seed)} for seed in range(8)])

    def get_next(self):
        return next(self.left, None)


def png(image):
    """uint8 [H, W, 3] as a file."""
    return png_file([row.tobytes() for row in image], image.shape[1], 8, 2)


class Advice(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.source = self.folder / "float.onnx"

    def save(self, network, name="file.onnx"):
        path = self.folder / name
        onnx.save(onnx.shape_inference.infer_shapes(network), path)  # onnx.utils wants an output's shape
        return path

    def octet(self, *words, code=0):
        """What it says, on both streams."""
        done = OCTET.run(words)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout + done.stderr

    def refusal(self, path):
        return self.octet("export", path, "--out", self.folder / "refused.safetensors", code=3)

    def outputs(self, path, x=X):
        """octet's and ONNX Runtime's of a quantized file."""
        case = Case("case", onnx.load(path), x, quantized=True)
        with tempfile.TemporaryDirectory() as folder:
            answer = judge.by_octet(ONNX_LOGITS, folder, [case])["case"]
        self.assertNotIsInstance(answer, str, answer)
        return answer, judge.by_onnxruntime(case)

    def quantize(self, name="quantized.onnx", **more):
        """By ONNX Runtime's quantizer, as the messages spell it."""
        path = self.folder / name
        settings = {"quant_format": quantization.QuantFormat.QDQ, "activation_type": quantization.QuantType.QUInt8,
                    "weight_type": quantization.QuantType.QInt8, "per_channel": True, **more}
        quantization.quantize_static(self.source, path, Pictures(), **settings)
        return path

    def check_quantized_again(self, path):
        ours, theirs = self.outputs(path)
        self.assertLess(judge.distance(ours, theirs), NEAR)
        as_float = judge.by_onnxruntime(Case("float", onnx.load(self.source), X))
        self.assertLess(judge.distance(ours, as_float), 3 * NEAR)
        np.testing.assert_array_equal(ours.reshape(-1, 5).argmax(1), as_float.reshape(-1, 5).argmax(1))

    def test_other_forms_are_quantized_again(self):
        onnx.save(float_network(), self.source)
        dynamic = self.folder / "dynamic.onnx"
        quantization.quantize_dynamic(self.source, dynamic)
        biased = self.folder / "biased.onnx"  # what it writes for the bias stands before all else
        onnx.save(float_network(bias=True), self.source)
        quantization.quantize_dynamic(self.source, biased, op_types_to_quantize=["Conv"], weight_type=quantization.QuantType.QUInt8)
        self.assertEqual(onnx.load(biased).graph.node[0].op_type, "Reshape")
        onnx.save(float_network(), self.source)
        of_dynamic = "a dynamically quantized network"
        for path, what in ((dynamic, of_dynamic), (biased, of_dynamic)):
            for message in (self.refusal(path), self.octet("inspect", path, code=3)):
                self.assertIn(what, message)
                self.assertIn("onnxruntime.quantization.quantize_static(", message)
                self.assertIn("quant_format=QuantFormat.QDQ)", message)
        self.check_quantized_again(self.quantize())

    def test_both_forms_are_read(self):
        """Of ONNX Runtime's quantizer, QDQ and QOperator are the same network."""
        onnx.save(float_network(), self.source)
        operators = self.quantize(quant_format=quantization.QuantFormat.QOperator)
        self.assertIn("QLinearConv", {n.op_type for n in onnx.load(operators).graph.node})
        self.assertIn("octet run and bench take it", self.octet("inspect", operators, code=3))
        self.check_quantized_again(operators)

    def test_weights_are_quantized_again(self):
        onnx.save(float_network(), self.source)
        random = np.random.default_rng(3)
        loaded = onnx.load(self.source)
        for t in loaded.graph.initializer:
            if t.name == "w":
                t.CopyFrom(tensor("w", random.uniform(-0.1, 0.5, (8, 3, 3, 3))))
        onnx.save(loaded, self.source)
        message = self.refusal(self.quantize(weight_type=quantization.QuantType.QUInt8, per_channel=False))
        self.assertIn("beyond int8", message)
        self.assertIn("ONNX Runtime's quantize_static does with weight_type=QuantType.QInt8", message)
        self.check_quantized_again(self.quantize())

    def test_an_open_size_is_given(self):
        onnx.save(float_network(), self.source)
        fixed = self.quantize()
        quantized = onnx.load(fixed)
        height, width = quantized.graph.input[0].type.tensor_type.shape.dim[2:]
        height.dim_param, width.dim_param = "height", "width"
        message = self.refusal(self.save(quantized, "open.onnx"))
        self.assertIn("its height is open ('height')", message)
        command = re.search(r"python (-m .*FIXED.onnx) gives it a size", message)[1].replace("H,W", "8,8")
        subprocess.run([sys.executable, *shlex.split(command)], cwd=self.folder, check=True, capture_output=True)
        np.testing.assert_array_equal(self.outputs(self.folder / "FIXED.onnx", X[:1])[0], self.outputs(fixed, X[:1])[0])

    def test_batch_norm_is_folded_first(self):
        onnx.save(float_network(norm=True), self.source)
        message = self.refusal(self.quantize())
        self.assertIn("BatchNormalization): in a quantized network; fold it into its convolution before quantizing: "
                      "onnxruntime.quantization.quant_pre_process(", message)
        folded = self.folder / "folded.onnx"
        quantization.quant_pre_process(self.source, folded, skip_symbolic_shape=True)
        before = judge.by_onnxruntime(Case("before", onnx.load(self.source), X))
        self.source = folded
        self.assertLess(judge.distance(judge.by_onnxruntime(Case("after", onnx.load(folded), X)), before), judge.EQUAL)
        self.check_quantized_again(self.quantize())

    def test_a_quantized_file_is_run_and_exported(self):
        path = self.save(between(pair("a", "m", MID, 120)))
        message = self.octet("inspect", path, code=3)
        self.assertIn("octet run and bench take it, octet export FILE.onnx --out int8.safetensors makes a checkpoint of it", message)
        picture = self.folder / "picture.png"
        picture.write_bytes(png(np.random.default_rng(1).integers(0, 256, (8, 8, 3), np.uint8)))
        self.octet("run", self.save(network(IMAGE, ROW, COLUMNS, MATMUL, output="mm"), "classifier.onnx"), picture)
        self.octet("bench", path, "--engine", "reference", "--batch", 1, "--seconds", 0.01)
        self.octet("export", path, "--out", self.folder / "int8.safetensors")
        self.octet("inspect", self.folder / "int8.safetensors")

    def test_biases_behind_codes_run_on_every_engine(self):
        """And come back from the file that octet writes of them."""
        add = [node("Add", ["mmq", "B"], ["y"])], [tensor("B", BIASES)]
        path = self.save(network(IMAGE, ROW, COLUMNS, MATMUL, pair("mm", "mmq", 0.0173, 120), add))
        picture = self.folder / "picture.png"
        picture.write_bytes(png(np.random.default_rng(1).integers(0, 256, (8, 8, 3), np.uint8)))
        dumps = []
        for engine in ("cpu", "reference"):
            self.octet("run", path, picture, "--engine", engine, "--dump", self.folder / f"{engine}.safetensors")
            dumps.append(load_file(self.folder / f"{engine}.safetensors"))
        self.assertIn("values/y", dumps[0])
        for name, values in dumps[0].items():
            np.testing.assert_array_equal(values, dumps[1][name], name)
        self.octet("export", path, "--out", self.folder / "int8.safetensors")
        self.octet("export", self.folder / "int8.safetensors", "--onnx", self.folder / "again.onnx")
        again = onnx.load(self.folder / "again.onnx")
        again.graph.input[0].name = "x"
        for n in again.graph.node:
            n.input[:] = ["x" if name == "images" else name for name in n.input]
        np.testing.assert_array_equal(self.outputs(path)[0], self.outputs(self.save(again))[0])

    def test_picking_a_class_is_cut_off(self):
        pick = [node("Add", ["mmq", "B"], ["sum"]), node("ArgMax", ["sum"], ["y"], axis=1)], [tensor("B", BIASES)]
        whole = network(IMAGE, ROW, COLUMNS, MATMUL, pair("mm", "mmq", 0.0173, 120), pick)
        whole.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
        path = self.save(whole)
        message = self.refusal(path)
        command = re.search(r"Leave it to your program \(ArgMax\) and end the network before it: octet (export .* --outputs sum --out .*)$",
                            message, re.MULTILINE)[1]
        int8, picture = self.folder / "int8.safetensors", self.folder / "picture.png"
        self.octet(*shlex.split(command.replace("int8.safetensors", str(int8))))
        image = np.random.default_rng(1).integers(0, 256, (8, 8, 3), np.uint8)
        picture.write_bytes(png(image))
        self.octet("run", int8, picture, "--outputs", self.folder / "out.safetensors")
        cut = self.folder / "cut.onnx"
        onnx.utils.extract_model(path, cut, ["x"], ["sum"])
        theirs = judge.by_onnxruntime(Case("cut", onnx.load(cut), image.transpose(2, 0, 1)[None].astype(np.float32) / 255))
        outputs = load_file(self.folder / "out.safetensors")
        self.assertEqual(list(outputs), ["sum"])  # as the file calls it
        self.assertLess(judge.distance(outputs["sum"].ravel(), theirs), judge.EQUAL)

    def test_what_prepares_images_is_cut_off(self):
        whole = self.save(float_network(prepared=True))
        message = self.octet("inspect", whole, code=3)
        arguments = re.search(r"begin the file behind it: onnx.utils.extract_model(\(.*\))", message)[1]
        cut = self.folder / "NEW.onnx"
        source, _, inputs, outputs = ast.literal_eval(arguments)
        onnx.utils.extract_model(source, cut, inputs, outputs)
        case = Case("case", onnx.load(cut), np.sqrt(X))
        ours = judge.by_octet(ONNX_LOGITS, self.folder, [case])["case"]
        self.assertNotIsInstance(ours, str, ours)
        self.assertLess(judge.distance(ours, judge.by_onnxruntime(Case("whole", onnx.load(whole), X))), judge.EQUAL)

    def test_biases_are_not_cut_off(self):
        """What is refused here would be an Add of numbers that were trained."""
        add = [node("Add", ["mmq", "B"], ["sum"]), node("Acosh", ["sum"], ["a"]), node("Mul", ["a", "F"], ["y"])]
        vectors = [tensor("B", BIASES), tensor("F", BIASES)]
        path = self.save(network(IMAGE, ROW, COLUMNS, MATMUL, pair("mm", "mmq", 0.0173, 120), (add, vectors)))
        message = self.refusal(path)
        self.assertIn("(Acosh): octet has no such operator", message)
        self.assertNotIn("extract_model", message)

    def test_a_relu_of_the_output_is_left_to_the_program(self):
        last = [node("Relu", ["mm"], ["r"], name="relu")], []
        path = self.save(network(IMAGE, ROW, COLUMNS, MATMUL, last, pair("r", "y", 0.0173, 0)))
        message = self.refusal(path)
        self.assertIn("end the file before the Relu or Clip (onnx.utils.extract_model) and bound octet's outputs in your program", message)
        cut = self.folder / "cut.onnx"
        onnx.utils.extract_model(path, cut, ["x"], ["mm"])
        ours, _ = self.outputs(cut)
        whole = judge.by_onnxruntime(Case("whole", onnx.load(path), X))
        self.assertLess(np.abs(np.maximum(ours, 0) - whole).max(), 0.0173 / 2 * 1.001)
        self.assertGreater(whole.max(), 1)

    def test_external_weights_are_put_into_one_file(self):
        path = self.folder / "external.onnx"
        onnx.save(between(pair("a", "m", MID, 120)), path, save_as_external_data=True, size_threshold=0)
        message = self.octet("compare", path, "--against", "onnxruntime", code=3)
        self.assertIn("put them into one: onnx.save(onnx.load(FILE), NEW)", message)
        new = self.folder / "new.onnx"
        onnx.save(onnx.load(path), new)
        ours, theirs = self.outputs(new)
        self.assertLess(judge.distance(ours, theirs), judge.EQUAL)

    def test_a_profile_that_takes_other_codes(self):
        self.octet("export", self.save(between(pair("a", "m", MID, 120))), "--out", self.folder / "int8.safetensors")
        words = ["export", self.folder / "int8.safetensors", "--onnx", self.folder / "new.onnx"]
        self.assertIn("or choose another --profile", self.octet(*words, "--profile", "tensorrt", code=2))
        for profile in ("onnxruntime", "openvino", "int32_bias"):
            self.octet(*words, "--profile", profile)

    def test_scales_that_are_missing_are_put_in(self):
        path = self.save(between(([node("Identity", ["a"], ["m"])], [])))
        self.assertIn("expected a QuantizeLinear and a DequantizeLinear behind it", self.refusal(path))
        ours, theirs = self.outputs(self.save(between(pair("a", "m", MID, 120))))
        self.assertLess(judge.distance(ours, theirs), judge.EQUAL)


def tearDownModule():
    OCTET.close()


if __name__ == "__main__":
    unittest.main()
