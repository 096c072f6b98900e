# SPDX-License-Identifier: Apache-2.0
"""tools/python/octet: the logits of 1,000 pictures are the engine's, byte for byte, and errors say what the library says; octet.quantize
writes the bytes of octet quantize.

Environment: OCTET_PROGRAM, OCTET_RUNTIME, and OCTET_CHECKPOINT: a trained one for Fashion-MNIST in place of random weights.
"""
import contextlib
import gzip
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

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


def detector(path):
    """Writes a checkpoint of one cell that finds a dog in the same place of every square picture (docs/FORMAT.md)."""
    codes = {"scale": 1, "zero_point": 0, "quant_min": -128, "quant_max": 127}
    nodes = [{"name": "image", "op": "input", "inputs": [], "shape": [3, 8, 8], "out": codes, "clamp": [-128, 127], "float_output": False}]
    arrays = {}
    for name, bias in (("classes", [-3, 2]), ("boxes", [0.5, 0.25, np.log(0.5), np.log(0.25)]), ("objectness", [4])):
        nodes.append({"name": name, "op": "conv2d", "inputs": [0], "shape": [len(bias), 1, 1], "out": codes, "clamp": [-128, 127],
                      "float_output": True, "groups": 1, "weight_bits": 8, "sparsity": "none",
                      "window": {"kernel": [8, 8], "stride": [8, 8], "pad": [0, 0, 0, 0], "dilation": [1, 1]}})
        arrays |= {f"{name}.{key}": np.ones(len(bias), np.float32) for key in ("multiplier", "weight_scale")}
        arrays |= {f"{name}.bias": np.float32(bias), f"{name}.weight": np.zeros((len(bias), 8, 8, 3), np.int8)}
    document = {
        "format_version": 13, "name": "detector", "recipe_hash": "", "accuracies": {}, "class_names": ["cat", "dog"], "nodes": nodes,
        "outputs": [1, 2, 3],
        "preprocessing": {"resize": 0, "crop": 0, "mean": [0, 0, 0], "std": [1, 1, 1], "orientation": "exif", "crop_margin": "down",
                          "fit": "letterbox", "channel_order": "rgb"},
        "boxes": {"head": "yolox", "levels": [{"stride": 8, "boxes": 1, "objectness": 2, "classes": 0}], "score_threshold": 0.25,
                  "iou_threshold": 0.5, "max_boxes": 10}}
    header, data = {"__metadata__": {"octet": json.dumps(document)}}, b""
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].itemsize):
        kind = {"float32": "F32", "int8": "I8"}[str(array.dtype)]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


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

    def test_a_detector_gives_boxes_of_files_and_of_pixels(self):
        detector(self.folder / "detector.safetensors")
        network = octet.load(self.folder / "detector.safetensors", engine="cpu")
        pixels = np.repeat(pictures()[0], 3, axis=2)
        height, width = pixels.shape[:2]
        (box,) = network.boxes(pixels)
        self.assertEqual((box.class_index, box.name), (1, "dog"))
        for got, wanted in zip(box[2:], (0.864955, width / 4, height / 8, width / 2, height / 4), strict=True):
            self.assertAlmostEqual(got, wanted, 4)
        self.assertEqual(network.boxes(pixels, 0.9), [])
        with self.assertRaisesRegex(ValueError, "image: float32"):
            network.boxes(pixels.astype(np.float32))
        with self.assertRaisesRegex(octet.Error, "absent.png"):
            network.boxes("absent.png")

    def test_a_segmentation_gives_the_class_of_each_pixel(self):
        path = str(self.folder / "unet.safetensors")
        self.program("bench", "--model", "unet2", "--size", "32", "--seconds", "0.01", "--quiet", "--save", path)
        network = octet.load(path, engine="cpu")
        image = np.random.default_rng(1).integers(0, 256, (40, 36, 3), np.uint8)
        (logits,) = network(np.ascontiguousarray(image[None, 4:36, 2:34]))
        wanted = np.full((40, 36), 255, np.uint8)  # the input shows the middle
        wanted[4:36, 2:34] = logits[0].argmax(axis=2)
        self.assertGreater(len(np.unique(wanted)), 3)
        np.testing.assert_array_equal(network.mask(image), wanted)
        with self.assertRaisesRegex(ValueError, "image: float32"):
            network.mask(image.astype(np.float32))
        with self.assertRaisesRegex(octet.Error, "no classes of pixels"):
            octet.load(self.checkpoint, engine="cpu").mask(self.images[0])

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


TINY = """threads: 1
data: {format: synthetic, channels: 1, image_size: 8, synthetic_size: 160, validation_fraction: 0.2, limit_test: 120,
  synthetic_classes: 4, mean: [0.5], std: [0.25], workers: 1}
model: {name: small_cnn}
train: {epochs: 1, batch_size: 32, learning_rate: 0.05}
calibrate: {images: 16, batch_size: 8}
qat: {epochs: 0}
"""


class Quantize(unittest.TestCase):
    """octet.quantize is octet quantize: the same bytes, whichever way the inputs are given."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.addClassCleanup(cls.temporary.cleanup)
        (cls.folder / "tiny.yaml").write_text(TINY)
        run = str(cls.folder / "run")
        trained = cls.program("train", str(cls.folder / "tiny.yaml"), "--out", run, "--quiet")
        if "LibTorch" in trained.stderr:
            raise unittest.SkipTest("a build without training has no octet quantize")
        cls.network = str(cls.folder / "net.onnx")
        exported = cls.program("export", run, "--onnx", cls.network, "--float", "--quiet")
        assert exported.returncode == 0, trained.stderr + exported.stderr
        cls.inputs = np.random.default_rng(5).normal(0, 1, (14, 1, 8, 8)).astype(np.float32)
        np.save(cls.folder / "inputs.npy", cls.inputs)
        cls.wanted = cls.folder / "wanted.safetensors"
        words = ["--tensors", str(cls.folder / "inputs.npy"), "--out", str(cls.wanted), "--repair", "fast"]
        made = cls.program("quantize", cls.network, *words)
        assert made.returncode == 0, made.stderr

    @classmethod
    def program(cls, *words):
        return subprocess.run([os.environ["OCTET_PROGRAM"], *words], check=False, capture_output=True, text=True)

    def made(self, data, **options):
        self.addCleanup(lambda: (self.folder / "out.safetensors").unlink(missing_ok=True))
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            result = octet.quantize(self.network, data, out=self.folder / "out.safetensors", force=True, **options)
        return result, shown.getvalue()

    def test_arrays_lists_and_files_give_the_program_s_bytes(self):
        np.savez(self.folder / "inputs.npz", self.inputs)
        np.savez(self.folder / "two.npz", labels=np.arange(3), **{"input": self.inputs})
        x = self.inputs
        for data in (x, x.astype(np.float64), [x[:5], x[5:]], list(x[:, 0][:, None]), (part for part in (x[:9], x[9:])),
                     self.folder / "inputs.npz", str(self.folder / "inputs.npy")):
            with self.subTest(data=type(data)):
                result, shown = self.made(data, repair="fast")
                self.assertEqual(result.checkpoint, str(self.folder / "out.safetensors"))
                self.assertEqual(pathlib.Path(result.checkpoint).read_bytes(), self.wanted.read_bytes())
                self.assertIn("device: ", shown)
        self.assertEqual(result.differing_codes, 0)
        self.assertGreater(result.outputs[0]["sqnr_db"], 15)

    def test_images_and_their_tensors_give_networks_with_the_same_answers(self):
        pixels = np.random.default_rng(7).integers(0, 256, (12, 8, 8, 1), np.uint8)
        files = [str(self.folder / f"{i:02}.png") for i in range(12)]
        for file, image in zip(files, pixels):
            fashion_png.write_png(file, 8, 8, image.tobytes())
        result, _ = self.made(files, preset="none", mean=[0.5], std=0.25, activation="symmetric_s8")
        listed = pathlib.Path(result.checkpoint).read_bytes()
        words = ["--images", *files, "--preset", "none", "--mean", "0.5", "--std", "0.25", "--activation", "symmetric_s8"]
        made = self.program("quantize", self.network, *words, "--out", str(self.folder / "images.safetensors"), "--quiet")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(listed, (self.folder / "images.safetensors").read_bytes())
        tensors = ((pixels.astype(np.float32) / 255 - np.float32(0.5)) / np.float32(0.25)).transpose(0, 3, 1, 2)
        result, _ = self.made(tensors, activation="symmetric_s8")
        of_tensors, of_images = (octet.load(file, engine="cpu") for file in (result.checkpoint, self.folder / "images.safetensors"))
        codes = of_tensors.codes(tensors)
        self.assertEqual((codes.dtype, codes.shape), (np.uint8, pixels.shape))
        self.assertEqual(of_tensors(codes).tobytes(), of_images(pixels).tobytes())
        self.assertGreater(len(np.unique(of_images(pixels))), 20)
        np.testing.assert_array_equal(of_images.codes(pixels.transpose(0, 3, 1, 2)), pixels)
        np.save(self.folder / "codes.npy", codes)  # for the witness, which knows the format alone
        witness = subprocess.run([sys.executable, ROOT / "tools" / "verify_checkpoint.py", result.checkpoint, "--images",
                                  self.folder / "codes.npy"], check=False, capture_output=True, text=True)
        self.assertEqual(witness.returncode, 0, witness.stderr)
        logits = of_images(pixels)
        for i, line in enumerate(witness.stdout.splitlines()[1:]):
            best = int(logits[i].argmax())
            self.assertEqual(line, f"{i}: {best} {logits[i, best]:.6g}")
        with self.assertRaisesRegex(octet.Error, "was quantized with tensors.*does not say how an image becomes its input"):
            of_tensors.read_picture(files[0])

    def test_the_example_quantizes_and_runs(self):
        example = subprocess.run([sys.executable, ROOT / "tools" / "example" / "quantize.py", self.network,
                                  self.folder / "example.safetensors", self.folder / "inputs.npy"], check=False, capture_output=True,
                                 text=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "tools" / "python")))
        self.assertEqual(example.returncode, 0, example.stderr)
        self.assertIn(" dB, same class ", example.stdout)
        self.assertEqual((self.folder / "example.safetensors").read_bytes(), self.wanted.read_bytes())

    def test_refusals_name_keywords_and_no_temporary_file(self):
        for status, words, data, options in (
                (2, "^preset: is for images; tensors are what the network reads", self.inputs, {"preset": "none"}),
                (2, "how do images become the network's input\\? preset imagenet", str(self.folder), {}),
                (2, "unknown argument 'colour'", self.inputs, {"colour": 3}),
                (3, "^inputs: F64|^inputs: I64; the network reads F32", self.inputs.astype(np.int64), {}),
                (3, r"^inputs: \[14, 8, 8, 1\] has its channels last", self.inputs.transpose(0, 2, 3, 1), {}),
                (3, "^inputs: input 0 holds nan", self.inputs * np.nan, {}),
                (3, "absent.npz: cannot read", self.folder / "absent.npz", {}),
                (3, "is compressed; np.savez stores", self.compressed(), {})):
            with self.subTest(words=words), self.assertRaisesRegex(octet.Error, words) as caught:
                self.made(data, **options)
            self.assertEqual(caught.exception.status, status)
        for words, data in (("arrays of different shapes: ", [self.inputs, self.inputs[:, :, 1:]]), ("no images and no inputs", []),
                            ("no images and no inputs", self.inputs[:0])):
            with self.assertRaisesRegex(ValueError, words):
                self.made(data)

    def compressed(self):
        np.savez_compressed(self.folder / "compressed.npz", self.inputs)
        return self.folder / "compressed.npz"

    def test_without_the_program_the_cure_is_said(self):
        with unittest.mock.patch.dict(os.environ, OCTET_PROGRAM=str(self.folder / "none")):
            with self.assertRaisesRegex(octet.Error, "starts the program octet, and there is none at .*set OCTET_PROGRAM"):
                octet.quantize(self.network, self.inputs)


if __name__ == "__main__":
    unittest.main()
