# SPDX-License-Identifier: Apache-2.0
"""suite.py and trials.py of tools/lab/defaults with a program in octet's place: which runs they make, what these set, what the tables say."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from accuracy_scripts_test import Place  # noqa: E402

DEFAULTS = pathlib.Path(__file__).resolve().parents[2] / "tools/lab/defaults"


class Suite(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.place = Place(pathlib.Path(temporary.name))

    def suite(self, *words, **more):
        return self.place.call("../defaults/suite.py", "--networks-from", str(self.place.folder / "onnx"), *words, **more)

    def test_the_variants_of_a_network_start_from_one_float_network_and_share_one_control(self):
        done = self.suite("--networks", "resnet18,googlenet", "--only", "w8a8,w8a8-observed,w4a4,w8a8-frozen", "--set", "resnet18:train.epochs=2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        of = dict(zip(self.place.names(), (call["settings"] for call in self.place.calls())))
        ends = ("", "-w8a8", "-w8a8-observed", "-w4a4", "-w8a8-frozen")
        self.assertEqual(set(of), {f"suite/{network}{end}-seed1" for network in ("resnet18", "googlenet") for end in ends})
        first, default = of["suite/resnet18-seed1"], of["suite/resnet18-w8a8-seed1"]
        self.assertEqual((first["train.epochs"], first["qat.epochs"], first["data.limit_test"]), ("2", "0", "16"))
        self.assertNotIn("data.limit_test", default)
        self.assertEqual(first["model.onnx"], str(self.place.folder / "onnx/resnet18.onnx"))
        self.assertEqual(default["model.weights"], str(self.place.out / "suite/resnet18-seed1/float.safetensors"))
        self.assertFalse({key for key in default if key.startswith(("quant.", "calibrate.", "qat.")) and key not in ("qat.precision", "qat.float_control")})  # defaults only
        controls = {end: of[f"suite/resnet18{end}-seed1"]["qat.float_control"] for end in ends[1:]}
        self.assertEqual(controls, {"-w8a8": "true", "-w8a8-observed": "false", "-w4a4": "false", "-w8a8-frozen": "true"})
        self.assertEqual(len({call["words"][1] for call in self.place.calls()}), 1)
        self.assertEqual(self.suite("--networks", "resnet18", "--only", "w8a8").returncode, 0)
        self.assertEqual(self.place.calls(), [])  # nothing is trained twice

    def test_the_worst_network_comes_first_and_all_are_summed_up(self):
        done = self.suite("--networks", "resnet18,googlenet", "--only", "w8a8,w8a8-observed")
        before, observed = done.stdout.split("## w8a8-observed")
        self.assertIn("-0.10 (", before)
        lines = [line.split("|")[1].strip() for line in observed.split("## All")[0].splitlines() if line.startswith("| ")][1:]
        self.assertEqual(set(lines), {"resnet18", "googlenet"})
        summary = {cells[1].strip(): [cell.strip() for cell in cells[2:-1]]
                   for cells in (line.split("|") for line in observed.split("## All")[1].splitlines() if line.startswith("| w8"))}
        self.assertEqual(summary["w8a8"][:3], ["2", "-1.00", "-1.00"])
        self.assertEqual(summary["w8a8-observed"], ["2", "-1.00", "-1.00", "-0.30", "-0.30"])

    def test_a_control_that_training_ruined_counts_in_no_mean(self):
        sys.path.append(str(DEFAULTS))
        import suite_table

        def row(network, control, int8):  # of 1,000 images the first so many are right; float: 450
            right = {name: f"{(1 << 1000) - (1 << 1000 - count):0250x}" for name, count in (("float", 450), ("ptq", 440), ("float_control", control), ("int8", int8))}
            alone = max(0, control - int8), max(0, int8 - control)
            run = {"seed": 1, "right": right, "top1": {"float": 45.0, "ptq": 44.0, "float_control": control / 10, "int8": int8 / 10}, "points": (int8 - control) / 10,
                   "only_baseline_right": alone[0], "only_int8_right": alone[1], "images": 1000, "differing_codes": {"cuda": 0}, "seconds": 1}
            return {"network": f"{network}-w8a8", "runs": [run]}
        table = suite_table.table([row("regnet_y_400mf", 300, 458), row("resnet18", 460, 459), row("googlenet", 440, 438)])
        self.assertRegex(table, r"regnet_y_400mf .*\+15.80 \(\+13.54 .. \+18.06\), of a ruined control")
        self.assertEqual(table.count("ruined"), 1)
        self.assertEqual([cell.strip() for cell in table.splitlines()[-1].split("|")[5:7]], ["-0.20", "-0.15"])

    def test_a_name_that_is_none_is_refused(self):
        for words, what in ((("--networks", "resnet19"), "'resnet19' is no network"), (("--only", "w8a9"), "'w8a9' is no variant")):
            done = self.suite(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(what, done.stderr)

    def test_the_other_variants_come_when_each_network_has_its_first(self):
        self.suite("--networks", "resnet18,googlenet", "--only", "w8a8,w4a4")
        names = [name.partition("/")[2].rpartition("-seed")[0] for name in self.place.names()]
        self.assertEqual(names, ["resnet18", "resnet18-w8a8", "googlenet", "googlenet-w8a8", "resnet18-w4a4", "googlenet-w4a4"])

    def test_trials_read_no_test_image(self):
        done = self.place.call("../defaults/trials.py", "--networks-from", str(self.place.folder / "onnx"), "--networks", "resnet18,googlenet",
                               "--only", "w4a4,w4a4-rate-0.02,googlenet:w8a8")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        of = dict(zip(self.place.names(), (call["settings"] for call in self.place.calls())))
        ends = ["resnet18", "googlenet", "resnet18-w4a4", "googlenet-w4a4", "resnet18-w4a4-rate-0.02", "googlenet-w4a4-rate-0.02", "googlenet-w8a8"]
        self.assertEqual(list(of), [f"trials/{end}-seed1" for end in ends])
        for settings in of.values():
            data = pathlib.Path(settings["data.path"])
            self.assertEqual((data / "test_batch.bin").resolve().name, "data_batch_1.bin")
            self.assertEqual((settings["data.validation_fraction"], settings["data.limit_test"]), ("0.1", "16"))
        rated = of["trials/resnet18-w4a4-rate-0.02-seed1"]
        self.assertEqual((rated["qat.learning_rate"], rated["quant.weight_bits"], rated["train.epochs"]), ("0.02", "4", "0"))
        self.assertEqual(rated["model.weights"], str(self.place.out / "trials/resnet18-seed1/float.safetensors"))
        self.assertNotIn("quant.weight_bits", of["trials/googlenet-w8a8-seed1"])
        self.assertIn("| w4a4-rate-0.02", done.stdout)


if __name__ == "__main__":
    unittest.main()
