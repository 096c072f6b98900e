#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A channel whose weights are far below its bias, as weight decay leaves one: the exported file gives octet's answers in ONNX Runtime's
default session, which makes int32 biases of it, and export says which channel it was.

usage: near_dead_test.py OCTET ONNX_LOGITS. Exits 77 (skipped) where onnx or onnxruntime is missing.
"""
import os
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import forked_octet  # noqa: E402

try:
    import judge
    import numpy as np
    import onnxruntime
    from onnx.helper import make_node as node
    from optional_qdq import X_SCALE, codes, network, pair, weights
except ImportError as missing:
    print(f"near_dead_test: Skipped\n{missing}; tools/setup.sh --tests installs it into .deps/venv")
    sys.exit(77)

OCTET = forked_octet.Program(sys.argv.pop(1), os.environ.get("OCTET_FORK_LIBRARY", ""))
ONNX_LOGITS = sys.argv.pop(1)
SHAPE, DEAD = (3, 8, 8), 2
CLOSE = 0.05  # of the largest output: fused kernels round other codes (0.008); without its bias the channel leaves 0.6
NETWORKS = {np.int8: (1, 1e-3, 1e-6, 1e-9, 1e-20, 1e-41, 0), np.uint8: (1e-6, 0)}  # by the codes of activations, what their dead channel has
PROFILES = ("onnxruntime", "openvino", "tensorrt", "int32_bias")


def quantized(dead, dtype):
    """A convolution whose channel 2 has `dead` times its weights and a bias of 1, and a classifier."""
    scales = np.array([5, 7, 6, 5, 3, 7], np.float32) / 256
    scales[DEAD] *= dead
    first = codes(6, 3, 3, 3)
    if scales[DEAD] == 0:
        first[DEAD], scales[DEAD] = 0, 1e-38
    conv = [node("Conv", ["image", "w1", "b1"], ["a"], name="conv1"), node("Relu", ["a"], ["r"])]
    pool = [node("GlobalAveragePool", ["m"], ["gap"], name="gap")]
    fc = [node("Flatten", ["g"], ["row"]), node("Gemm", ["row", "w2", "b2"], ["y"], name="fc", transB=1)]
    image_scale = X_SCALE * (2 if dtype == np.int8 else 1)
    return network(pair("x", "image", image_scale, 0, dtype), weights("w1", first, scales, np.zeros(6), axis=0),
                   (conv, [judge.tensor("b1", [.1, 0, 1, -.2, 0, .3])]), pair("r", "m", 0.0231, 0, dtype), (pool, []),
                   pair("gap", "g", 0.0117, 0, dtype), weights("w2", codes(5, 6, seed=9), 3 / 128, 0),
                   (fc, [judge.tensor("b2", [.1, -.2, 0, .2, 0])]))


def default_session(path, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0].reshape(-1)


class NearDead(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """What octet answers for each network, and a checkpoint of it: a start of octet takes longer than its work here."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.x = judge.pixels(SHAPE, images=16)
        networks = {f"{dtype.__name__}_{dead}": quantized(dead, dtype) for dtype, every in NETWORKS.items() for dead in every}
        cls.ours = judge.by_octet(ONNX_LOGITS, cls.folder, [judge.Case(name, network_, cls.x, quantized=True) for name, network_ in networks.items()])
        for name in networks:
            cls.octet("export", cls.folder / f"{name}.qdq.onnx", "--out", cls.folder / f"{name}.safetensors")

    @classmethod
    def octet(cls, *words):
        done = OCTET.run(words)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return done.stderr

    def check(self, dead, dtype, profile):
        """What export says."""
        name, out = f"{dtype.__name__}_{dead}", self.folder / "out.onnx"
        ours = self.ours[name]
        out.unlink(missing_ok=True)
        said = self.octet("export", self.folder / f"{name}.safetensors", "--onnx", out, "--profile", profile)
        theirs = default_session(out, self.x)
        self.assertLess(judge.distance(theirs, ours), CLOSE, f"{dead} {dtype.__name__} {profile}")
        agree = (theirs.reshape(-1, 5).argmax(1) == ours.reshape(-1, 5).argmax(1)).all()
        self.assertTrue(agree)
        return said

    def test_every_profile(self):
        for profile in PROFILES:
            for dead in NETWORKS[np.int8] if profile == "onnxruntime" else (1e-6, 1e-20):
                said = self.check(dead, np.int8, profile)
                self.assertEqual("conv1: 1 of 6 channels (the first: 2)" in said, 1e-40 < dead < 1e-4, f"{profile} {dead}: {said}")

    def test_unsigned_codes(self):
        for dead in NETWORKS[np.uint8]:
            self.check(dead, np.uint8, "onnxruntime")


def tearDownModule():
    OCTET.close()


if __name__ == "__main__":
    unittest.main()
