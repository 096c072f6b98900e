# SPDX-License-Identifier: Apache-2.0
"""tools/python/octet: the logits of 1,000 pictures are the engine's, byte for byte, and errors say what the library says.

Environment: OCTET_PROGRAM, OCTET_RUNTIME, and OCTET_CHECKPOINT: a trained one for Fashion-MNIST in place of random weights.
"""
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

try:
    import numpy as np
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)  # SKIP_RETURN_CODE

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tools")]
import fashion_png  # noqa: E402
import octet  # noqa: E402

COUNT = 1000


def pictures():
    """Fashion-MNIST's first test pictures, or noise where Debian's data set is not installed: [COUNT, 28, 28, 1]."""
    if not os.path.exists(fashion_png.IMAGES):
        return np.random.default_rng(1).integers(0, 256, (COUNT, 28, 28, 1), np.uint8)
    with gzip.open(fashion_png.IMAGES) as file:
        return np.frombuffer(file.read(16 + COUNT * 28 * 28), np.uint8, offset=16).reshape(COUNT, 28, 28, 1)


def tensors(path):
    """A safetensors file's: 8 bytes of length, a JSON header, the data."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    kinds = {"F32": np.float32, "I8": np.int8, "U8": np.uint8}
    return {name: np.frombuffer(data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]], kinds[t["dtype"]]).reshape(t["shape"])
            for name, t in json.loads(data[8:begin]).items() if name != "__metadata__"}


class Module(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        grey = pictures()
        cls.checkpoint = os.environ.get("OCTET_CHECKPOINT")
        if not cls.checkpoint:
            cls.checkpoint = str(cls.folder / "random.safetensors")
            cls.program("bench", "--model", "small_cnn", "--size", "28", "--seconds", "0.01", "--quiet", "--save", cls.checkpoint)
        channels = octet.load(cls.checkpoint, engine="cpu").input_shape[2]  # random weights are for colour
        cls.images = np.repeat(grey, channels, axis=3)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def program(cls, *words):
        environment = dict(os.environ, XDG_CACHE_HOME=str(cls.folder / "cache"))
        return subprocess.run([os.environ["OCTET_PROGRAM"], *words], check=True, capture_output=True, env=environment)

    def test_a_thousand_pictures_give_the_engine_s_logits(self):
        network = octet.load(self.checkpoint, engine="cpu")
        self.assertEqual(network.input_shape, self.images.shape[1:])
        files = [str(self.folder / f"{i:05}.png") for i in range(COUNT)]
        for file, image in zip(files, self.images):
            fashion_png.write_png(file, 28, 28, image[:, :, 0].tobytes())
        self.program("run", self.checkpoint, *files, "--engine", "cpu", "--dump", str(self.folder / "dump"), "--quiet")
        dump = tensors(self.folder / "dump")
        np.testing.assert_array_equal(dump["images"], self.images)
        (logits,) = [values for name, values in dump.items() if name.startswith("values/")]
        got = network(self.images)
        self.assertEqual((got.dtype, got.shape), (np.float32, (COUNT, logits.shape[-1])))
        self.assertEqual(got.tobytes(), logits.tobytes())
        self.assertGreater(len(np.unique(got)), COUNT)
        np.testing.assert_array_equal(network.read_picture(files[7]), self.images[7])
        larger = str(self.folder / "larger.png")
        fashion_png.write_png(larger, 30, 28, bytes(30 * 28))
        with self.assertWarnsRegex(UserWarning, "larger.png: .*it sees the centre only"):
            network.read_picture(larger)
        for other in (octet.load(self.checkpoint, engine="reference"), octet.load(self.checkpoint, max_batch=1, threads=1)):
            self.assertEqual(other(self.images[:50]).tobytes(), logits[:50].tobytes())
        self.assertEqual(network(self.images[::-1][:100]).tobytes(), logits[::-1][:100].tobytes())  # strides of its own

    def test_numbers_that_are_no_counts_are_refused(self):
        for name, wrong in (("max_batch", (0, -1, 2**31, 2**32 + 1, True, 1.0, "8", None)),
                            ("threads", (-1, 2**31, 2**32, -2**32, False, 1.0, np.float32(1), np.bool_(True)))):
            for value in wrong:
                with self.subTest(name=name, value=value), self.assertRaisesRegex(ValueError, f"^{name}: "):
                    octet.load(self.checkpoint, "cpu", **{name: value})
        self.assertEqual(len(octet.load(self.checkpoint, "cpu", max_batch=np.int64(2), threads=np.uint8(1))(self.images[:3])), 3)

    def test_threads_may_share_a_network(self):
        network = octet.load(self.checkpoint, engine="cpu", max_batch=8)
        wanted, results = network(self.images[:64]).tobytes(), []
        threads = [threading.Thread(target=lambda: results.append(network(self.images[:64]).tobytes())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [wanted] * 4)

    def test_errors_say_what_the_library_says(self):
        with self.assertRaises(octet.Error) as caught:
            octet.load(self.folder / "none.safetensors")
        self.assertEqual(caught.exception.status, 3)
        self.assertIn("none.safetensors", str(caught.exception))
        with self.assertRaisesRegex(octet.Error, "'abacus'.*reference"):
            octet.load(self.checkpoint, engine="abacus")
        with self.assertRaisesRegex(octet.Error, "'cuda:x': behind the colon stands the number of a GPU"):
            octet.load(self.checkpoint, engine="cuda:x")
        for folder in (self.folder / "kernels", "", None):
            octet.keep_kernels(folder)
        with self.assertRaisesRegex(octet.Error, "random.onnx: an ONNX file.*octet export FILE.onnx --out int8.safetensors"):
            model = self.folder / "random.onnx"  # as onnx's Python begins a file
            model.write_bytes(b"\x08\x08\x12\x07pytorch" + bytes(100))
            octet.load(model)
        network = octet.load(self.checkpoint, engine="cpu")
        with self.assertRaisesRegex(octet.Error, "none.png"):
            network.read_picture("none.png")
        for wrong in (self.images.astype(np.float32), self.images[0], self.images[:, :27], self.images[..., :0]):
            with self.assertRaisesRegex(ValueError, r"the network reads uint8 \[N, 28, 28, [13]\]"):
                network(wrong)
        self.assertEqual(network(self.images[:0]).shape[0], 0)
        self.assertRegex(octet.version(), r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()
