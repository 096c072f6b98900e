#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What octet advises where it refuses a command is done here, and succeeds.

usage: advice_test.py OCTET [-v] [Class.test]. Needs nothing but Python. The advice about files of ONNX is tested by
tests/net/onnx/qdq_advice_test.py, that about keys of a recipe by tests/recipe/advice_test.cpp.
"""
import json
import os
import pathlib
import re
import shlex
import sys
import tempfile
import unittest
import zipfile

sys.dont_write_bytecode = True
import forked_octet  # noqa: E402
from written_files import picture, png, tensors_of, write_pth  # noqa: E402

OCTET = forked_octet.Program(sys.argv.pop(1), os.environ.get("OCTET_FORK_LIBRARY", ""))
TINY = """threads: 1
data: {format: synthetic, channels: 1, image_size: 8, synthetic_size: 160, validation_fraction: 0.2,
  limit_test: 120, synthetic_classes: 4, mean: [0.5], std: [0.25], workers: 1}
model: {name: small_cnn}
train: {epochs: 1, batch_size: 32, learning_rate: 0.05}
calibrate: {images: 16, batch_size: 8}
qat: {epochs: 1, batch_size: 32, learning_rate: 0.01}
evaluate: {engines: [reference]}
"""
UNTRAINED = ["--set", "train.epochs=0", "--set", "qat.epochs=0"]


class Advice(unittest.TestCase):
    @classmethod
    def begin(cls):
        """Trains the run that all tests go out from, once."""
        temporary = tempfile.TemporaryDirectory()
        unittest.addModuleCleanup(temporary.cleanup)
        unittest.addModuleCleanup(OCTET.close)
        cls.folder = pathlib.Path(temporary.name)
        cls.recipe = cls.folder / "tiny.yaml"
        cls.recipe.write_text(TINY, encoding="utf-8")
        cls.picture = cls.folder / "picture.png"
        cls.picture.write_bytes(png(picture(1, 255)))
        cls.run_folder = cls.folder / "affine"
        cls.octet("train", cls.recipe, "--out", cls.run_folder)
        cls.weights = next(cls.run_folder.rglob("float.safetensors"))

    @classmethod
    def octet(cls, *words, code=0):
        """What it says, on both streams."""
        done = OCTET.run(words, cls.folder, {**os.environ, "OMP_WAIT_POLICY": "passive"})
        if done.returncode != code:
            raise AssertionError(f"octet {shlex.join(map(str, words))}: {done.returncode}, expected {code}\n{done.stderr}")
        return done.stdout + done.stderr

    def refused(self, *words, advice, code=2):
        message = self.octet(*words, code=code)
        self.assertIn(advice, message)
        return message

    def answer(self, checkpoint):
        return self.octet("run", checkpoint, self.picture, "--quiet")

    def shares(self, checkpoint):
        """Of a picture: class -> probability."""
        top = json.loads(self.octet("run", checkpoint, self.picture, "--quiet", "--json"))[0]["top"]
        return {entry["name"]: entry["probability"] for entry in top}

    def new(self, name):
        """A path that nothing has yet."""
        path = self.folder / f"{self.id().rsplit('.', 1)[1]}-{name}"
        self.assertFalse(path.exists())
        return path

    def start(self, *words, name="run", recipe=None):
        """Trains into a new folder, which it returns."""
        out = self.new(name)
        self.octet("train", recipe or self.recipe, "--out", out, *words)
        return out


def setUpModule():
    Advice.begin()


class Exported(Advice):
    def test_tensorrt_takes_a_run_of_symmetric_codes(self):
        file = self.new("file.onnx")
        export = ["export", self.run_folder, "--onnx", file, "--profile"]
        self.refused(*export, "tensorrt", advice="train with quant.activation symmetric_s8, or choose another --profile")
        self.assertFalse(file.exists())
        run = self.start("--set", "quant.activation=symmetric_s8")
        self.octet("export", run, "--onnx", file, "--profile", "tensorrt")
        self.assertEqual(self.answer(file), self.answer(run))
        for profile in ("onnxruntime", "openvino", "int32_bias"):
            self.octet(*export, profile)
            for name, share in self.shares(file).items():  # int32_bias rounds biases
                self.assertAlmostEqual(share, self.shares(self.run_folder)[name], delta=0.002, msg=profile)

    def test_a_quantized_file_is_run_measured_and_exported(self):
        file = self.new("file.onnx")
        self.octet("export", self.run_folder, "--onnx", file)
        said = {}
        for command, code in (("train", 2), ("calibrate", 2), ("analyze", 2), ("search", 2), ("inspect", 3)):
            said[command] = self.octet(command, file, code=code)
            self.assertIn("octet run and bench take it, octet export ", said[command])
        self.assertEqual(self.answer(file), self.answer(self.run_folder))
        self.octet("bench", file, "--engine", "reference", "--seconds", "0.01")
        self.octet("compare", file)
        words = shlex.split(re.search(r"octet (export .* --out int8.safetensors) makes a checkpoint", said["train"])[1])
        self.octet(*words)
        self.assertEqual(self.answer(self.folder / "int8.safetensors"), self.answer(self.run_folder))
        self.refused("export", file, advice="name the checkpoint: --out int8.safetensors")

    def test_words_that_do_not_belong_together(self):
        file, run = self.new("file.onnx"), self.run_folder
        export = ["export", run, "--onnx", file]
        self.refused(*export, "--float", "--profile", "openvino", advice="leave one out")
        self.octet(*export, "--float")
        self.octet("inspect", file)
        self.octet(*export, "--profile", "openvino")
        self.refused(*export, "--set", "seed=3", advice="--set changes nothing; leave it out")
        self.refused("export", run, "--onnx", self.folder / "file.bin", advice="name a file that ends in .onnx")
        self.refused(*export, "--out", self.folder / "x.safetensors", advice="--onnx names the file already")
        self.octet(*export)
        checkpoint = self.new("int8.safetensors")
        self.octet("export", run, "--out", checkpoint)
        self.refused("export", checkpoint, "--onnx", file, "--float", advice="export --float needs the run directory")

    def test_a_report_of_another_is_removed(self):
        run = self.start(*UNTRAINED, "--set", f"model.weights={self.weights}")
        (run / "report.json").write_text("{}", encoding="utf-8")
        self.refused("export", run, advice="remove it to export without accuracies", code=3)
        (run / "report.json").unlink()
        self.octet("export", run)

    def test_files_are_named_where_they_can_be_written(self):
        export = ["export", self.run_folder, "--onnx"]
        folder = self.new("none")
        self.refused(*export, folder / "file.onnx", advice=f"there is no folder {folder}; make it first", code=3)
        folder.mkdir()
        self.octet(*export, folder / "file.onnx")
        (folder / "other.onnx").mkdir()
        self.refused(*export, folder / "other.onnx", advice="is a folder; name a file in it", code=3)
        self.octet(*export, folder / "other.onnx" / "file.onnx")


class Weights(Advice):
    def untrained(self, weights, *words, code=0):
        out = self.folder / f"{self.id().rsplit('.', 1)[1]}-{len(list(self.folder.iterdir()))}"
        return self.octet("train", self.recipe, "--out", out, *UNTRAINED, "--set", f"model.weights={weights}", *words, code=code)

    def test_weights_of_pytorch_are_those_of_a_recipe(self):
        file = self.new("weights.pth")
        write_pth(file, tensors_of(self.weights))
        said = {command: self.octet(command, file, code=code) for command, code in (("compare", 3), ("train", 2))}
        for message in said.values():
            self.assertIn("weights of PyTorch; a recipe takes them by --set model.weights=", message)
        setting = shlex.split(re.search(r"by (--set \S+)", said["train"])[1])
        run = self.start(*UNTRAINED, *setting)
        self.assertEqual(tensors_of(next(run.rglob("float.safetensors"))), tensors_of(self.weights))

    def test_weights_that_do_not_fit(self):
        file = self.new("weights.pth")
        write_pth(file, tensors_of(self.weights))
        advice = "Use the model, number of classes and shortcut that the file was trained with, or name layers that are to begin at random in model.new_layers."
        for wrong in ("model.name=resnet8", "data.synthetic_classes=5"):
            self.assertIn(advice, self.untrained(file, "--set", wrong, code=3))
        self.untrained(file, "--set", "model.name=small_cnn", "--set", "data.synthetic_classes=4")

    def test_a_shortcut_that_does_not_fit(self):
        resnet = ["--set", "model.name=resnet8", "--set"]
        run = self.start(*resnet, "model.shortcut=B", "--set", "qat.epochs=0")
        weights = next(run.rglob("float.safetensors"))
        message = self.untrained(weights, *resnet, "model.shortcut=A", code=3)
        self.assertIn("name it in model.name", message)
        self.untrained(weights, *resnet, "model.shortcut=B")

    def test_a_whole_network_is_saved_as_its_weights(self):
        whole, compressed, again = self.new("whole.pth"), self.new("compressed.pth"), self.new("again.pth")
        write_pth(whole, tensors_of(self.weights), whole=True)
        self.assertIn("save the weights alone: torch.save(model.state_dict(), FILE)", self.untrained(whole, code=3))
        write_pth(compressed, tensors_of(self.weights), compression=zipfile.ZIP_DEFLATED)
        self.assertIn("save the file again with it", self.untrained(compressed, code=3))
        write_pth(again, tensors_of(self.weights))
        self.untrained(again)

    def test_a_checkpoint_in_the_place_of_a_recipe_or_run(self):
        checkpoint = self.new("int8.safetensors")
        self.octet("export", self.run_folder, "--out", checkpoint)
        message = self.octet("train", checkpoint, code=2)
        self.assertRegex(message, r"octet run and inspect take an int8\s+checkpoint")
        self.answer(checkpoint)
        self.octet("compare", checkpoint)
        self.octet("inspect", checkpoint)

    def test_commands_that_need_trained_weights(self):
        for command in ("calibrate", "analyze", "search"):
            self.refused(command, self.recipe, advice="needs trained weights; set model.weights (--set model.weights=FILE)")
            self.octet(command, self.recipe, "--set", f"model.weights={self.weights}")


class Runs(Advice):
    def test_a_finished_run(self):
        self.refused("train", self.run_folder, advice="name a recipe, or add --resume to go on with this run")
        message = self.octet("train", self.run_folder, "--resume")
        for command in re.findall(r"octet ((?:compare|evaluate) [^\s,]+)", message):
            self.octet(*shlex.split(command))
        self.assertEqual(message.count("octet compare") + message.count("octet evaluate"), 2)
        self.refused("train", self.recipe, "--resume", advice="--resume needs the run to go on with: octet train RUN --resume")

    def test_a_folder_that_is_taken(self):
        again = ["train", self.recipe, "--out", self.run_folder]
        self.refused(*again, advice="continue that run with --resume, or choose another --out")
        self.octet(*again, "--resume")
        message = self.octet(*again, "--resume", "--set", "seed=7", code=2)
        self.assertIn("pass that file, or train into another --out", message)
        own = re.search(r"the run's own (\S+) \(", message)[1]
        self.octet("train", own, "--out", self.run_folder, "--resume")
        self.start("--set", "seed=7")

    def test_what_was_trained_is_trained_again(self):
        words = ["--set", "quant.weight_bits=6"]
        for command in ("compare", "evaluate", "export"):
            self.refused(command, self.run_folder, *words, advice="train another run to change them")
        self.octet("compare", self.start(*words))

    def test_checkpoints_are_not_written_over_other_weights(self):
        advice = "name another file for the int8 checkpoint (export.file in the recipe, or --out)"
        self.refused("export", self.run_folder, "--out", self.weights, advice=advice)
        self.octet("export", self.run_folder, "--out", self.new("int8.safetensors"))
        self.refused("train", self.recipe, "--out", self.new("run"), "--set", "export.file=float.safetensors", advice=advice)
        self.start("--set", "export.file=other.safetensors")
        search = ["search", self.run_folder, "--mean-bits", "8", "--out"]
        file = self.new("plan.yaml")
        self.refused(*search, file, "--html", file, advice="name another file")
        self.octet(*search, file, "--html", self.new("page.html"))

    def test_keys_without_effect(self):
        words = [*UNTRAINED[:2], "--set", f"model.weights={self.weights}", "--set", "quant.averaging=0.5"]
        self.refused("train", self.recipe, "--out", self.new("fixed"), *words, advice="set observed, or leave it out")
        self.octet("train", self.recipe, "--out", self.new("observed"), *words, "--set", "quant.scales=observed")

    def test_search(self):
        plan = self.new("a plan.yaml")
        search = ["search", self.run_folder]
        self.refused(*search, "--out", plan, advice="name --accuracy-drop or --mean-bits, by which to choose")
        self.refused(*search, "--bits", "4", advice="name at least two of 8 to 2, falling, as in 8,4")
        self.refused(*search, "--bits", "8,6", "--mean-bits", "4", advice="name fewer bits in --bits", code=1)
        message = self.octet(*search, "--bits", "8,2", "--mean-bits", "4", "--out", plan)
        words = shlex.split(re.search(r"wrote .*: octet (train .*) goes on", message)[1])
        self.octet(*words, "--out", self.new("run"))

    def test_words_of_other_commands_are_left_out(self):
        run, recipe, picture_ = self.run_folder, self.recipe, self.picture
        checkpoint = self.new("int8.safetensors")
        self.octet("export", run, "--out", checkpoint)
        masks = self.new("masks")
        masks.mkdir()
        succeeded = []
        small = ["bench", "--model", "resnet8", "--size", "32", "--engine", "reference", "--seconds", "0.01"]
        for words, more in ((["inspect", checkpoint], ["--image-size", "8"]), (["inspect", checkpoint], ["--outputs", "a"]),
                            (["inspect", checkpoint], ["--set", "seed=3"]), (["run", run, picture_], ["--masks", masks]),
                            (["compare", run], ["--fallback", "cuda"]), (small, ["--kernels", "avx2"]), (small, ["--fallback", "cuda"])):
            self.refused(*words, *more, advice="leave ")
            if words not in succeeded:
                self.octet(*words)
                succeeded.append(words)
        self.refused("inspect", recipe, advice="--stages N proposes where to cut its network, a checkpoint or a run directory shows one")
        self.octet("inspect", recipe, "--stages", "2")
        self.octet("inspect", run)
        save = ["--save", self.new("saved.safetensors")]
        self.refused(*small[:3], "--size", "32,40", *small[5:], *save, advice="--save writes one network; give one --size")
        self.octet(*small, *save)
        self.refused("compare", checkpoint, "--against", "onnxruntime", "--set", "seed=3", advice="are for a run directory")

    def test_a_machine_without_a_gpu(self):
        bench = ["bench", self.run_folder, "--seconds", "0.01"]
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")
        self.refused(*bench, "--device", "cuda", advice="use --device cpu")
        self.octet(*bench, "--device", "cpu")
        self.refused(*bench, "--engine", "cuda", advice="--engine auto takes what can")
        self.octet(*bench, "--engine", "auto")

    def test_an_interrupted_run_is_finished(self):
        run = self.start("--set", "seed=9")
        for file in ("int8.safetensors", "qat.safetensors", "report.json"):
            for found in run.rglob(file):
                found.unlink()
        for command in ("run", "export"):
            words = [command, run, self.picture] if command == "run" else [command, run]
            message = self.refused(*words, advice="finish it with octet train", code=3)
        self.octet(*shlex.split(re.search(r"finish it with octet (train \S+ --resume)", message)[1]))
        self.answer(run)


class Pictures(Advice):
    FOLDER = "threads: 1\ndata: {format: image_folder, path: PATH, channels: 1, image_size: 8, mean: [0.5], std: [0.25], workers: 1, " \
             "validation_fraction: 0.2}\nmodel: {name: small_cnn}\ntrain: {epochs: 0}\ncalibrate: {images: 8, batch_size: 8}\n" \
             "evaluate: {engines: [reference]}\n"

    def folders(self, name, splits, most=255, bits=8, times=1):
        path = self.new(name)
        for number, split in enumerate(splits):
            for label in range(4):
                folder = path / split / f"class{label}"
                folder.mkdir(parents=True)
                for seed in range(8):
                    values = picture(100 * number + 10 * label + seed, most)
                    (folder / f"{seed}.png").write_bytes(png([[times * v for v in row] for row in values], bits))
        recipe = path.with_suffix(".yaml")
        recipe.write_text(self.FOLDER.replace("PATH", str(path)), encoding="utf-8")
        return recipe, ["--set", f"model.weights={self.weights}"]

    def test_without_test_images(self):
        recipe, weights = self.folders("pictures", ["train", "mine"])
        self.refused("train", recipe, *weights, "--out", self.new("run"), code=3, advice="set data.test to the folder of the test "
                     "images, or data.test_path. Images without such a part can be quantized after training only: set it to what "
                     "data.train is")
        self.start(*weights, "--set", "data.test=mine", name="named", recipe=recipe)
        self.start(*weights, "--set", "data.test=train", "--set", "qat.epochs=0", name="same", recipe=recipe)
        self.folders("other", ["test"])
        other = self.folder / "test_without_test_images-other"
        self.start(*weights, "--set", f"data.test_path={other}", name="elsewhere", recipe=recipe)

    def test_sixteen_bits(self):
        nearly_black = "multiply their values by 16, or write them with 8 bits"
        for name, (bits, most, times) in {"dark": (16, 4095, 1), "multiplied": (16, 4095, 16), "eight": (8, 255, 1)}.items():
            recipe, weights = self.folders(name, ["train", "test"], most, bits, times)
            said = self.octet("train", recipe, *weights, "--out", self.new(name + "-run"))
            self.assertEqual(nearly_black in said, name == "dark", said)


if __name__ == "__main__":
    unittest.main()
