# SPDX-License-Identifier: Apache-2.0
"""tools/lab/gpu/parallel.py, part report, with a program in octet's place: which runs it makes, how it goes on, what it finds good."""
import json
import os
import pathlib
import struct
import sys
import tarfile
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import accuracy_scripts_test  # noqa: E402

sys.path.insert(0, str(accuracy_scripts_test.TOOLS))
import parallel_agree  # noqa: E402
import parallel_folder  # noqa: E402
import parallel_report  # noqa: E402
import parallel_speed  # noqa: E402

REPORT = ("--only", "report", "--seeds", "0,1", "--set", "train.epochs=3")
RUNS = [f"report/{count}_gpus/resnet18-seed{seed}" for count in (2, 1) for seed in (0, 1)]


class Report(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.place = accuracy_scripts_test.Place(pathlib.Path(temporary.name))

    def report(self, *words, **environment):
        done = self.place.call("parallel.py", *(words or REPORT), **environment)
        return done, json.loads((self.place.out / "parallel.json").read_text())["report"]

    def test_the_same_recipe_and_seeds_on_all_and_on_one(self):
        done, found = self.report()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.place.names(), RUNS)
        calls = self.place.calls()
        self.assertEqual([call["words"][-4:-2] == ["--gpus", "2"] for call in calls], [True, True, False, False])
        self.assertEqual([call["settings"] for call in calls[:2]], [call["settings"] for call in calls[2:]])
        self.assertEqual([calls[1]["settings"][key] for key in ("train.epochs", "seed")], ["3", "1"])
        self.assertEqual(found["all"], {"seeds": [0, 1], "float": [90.0, 91.0], "int8": [89.9, 90.9], "compared_codes": 2000, "differing_codes": 0})
        self.assertEqual(found["apart"]["int8"], {"points": 0.0, "standard_error": 0.707, "within": True})
        self.assertEqual(self.report()[0].returncode, 0)
        self.assertEqual(self.place.calls(), [])

    def test_stopped_in_time_the_same_command_goes_on(self):
        done, found = self.report(*REPORT, "--minutes", "0.03", FAKE_SLOW="2_gpus/resnet18-seed0")
        self.assertEqual((done.returncode, found["finished"], found["good"]), (1, False, False))
        self.assertEqual(self.report()[0].returncode, 0)
        first = self.place.calls()[0]["words"]
        self.assertEqual((first[2], first[3:5]), ("--resume", ["--gpus", "2"]))

    def test_a_code_that_differs_and_a_run_that_fails_are_not_good(self):
        done, found = self.report("--only", "report", "--seeds", "1,2")  # the program in octet's place finds one in seed 2
        self.assertEqual((done.returncode, found["finished"], found["all"]["differing_codes"]), (1, True, 1))
        done, found = self.report("--only", "report", "--seeds", "3", FAKE_FAILS="1_gpus")
        self.assertEqual((done.returncode, found["problems"]), (1, ["1_gpus/resnet18-seed3: train: exit 1: octet: training diverged"]))

    def test_one_seed_is_not_judged_by_a_scatter_it_has_not(self):
        done, found = self.report("--only", "report", "--seeds", "1")
        self.assertEqual((done.returncode, found["good"], found["apart"]["float"]["within"]), (0, True, None))


class Agree(unittest.TestCase):
    def test_beside_a_control_that_may_be_equal(self):
        self.assertEqual(parallel_agree.judged(0, 0), {"reached": True, "times_another_order": None, "good": True})
        self.assertEqual(parallel_agree.judged(2e-4, 0), {"reached": False, "times_another_order": None, "good": False})
        self.assertEqual(parallel_agree.judged(2e-4, 1.5e-4), {"reached": False, "times_another_order": 1.33, "good": True})
        self.assertFalse(parallel_agree.judged(4e-4, 1.5e-4)["good"])


def state(folder, epoch, weight, finished=False):
    """As octet replaces it."""
    position = json.dumps({"epoch": epoch, "finished": finished})
    tensors = {"weights.a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "optimizer.a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}
    header = json.dumps({"__metadata__": {"octet_state": position}, **tensors}).encode()
    (folder / "new").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", weight, 7))
    os.replace(folder / "new", folder / "float.state.safetensors")


class Speed(unittest.TestCase):
    def test_one_two_four_eight_and_all(self):
        self.assertEqual([parallel_speed.counts(available) for available in (2, 3, 4, 8)], [[2], [2, 3], [2, 4], [2, 4, 8]])


class Folder(unittest.TestCase):
    def test_pictures_of_an_archive_are_resized_once_and_linked_as_often_as_asked(self):
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("needs Pillow")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for number in range(3):
                Image.new("RGB", (30, 20), (number * 80, 0, 0)).save(folder / f"{number}.jpg")
            with tarfile.open(folder / "some.tar", "w") as tar:
                for number in (2, 0, 1):
                    tar.add(folder / f"{number}.jpg", f"n01/{number}.jpg")
            sources = parallel_folder.jpegs(folder / "some.tar")
            self.assertEqual(sources, [(folder / f"{number}.jpg").read_bytes() for number in range(3)])
            parallel_folder.write_folder(folder / "out", sources, 25)
            files = sorted((folder / "out/train").rglob("*.jpg"))
            self.assertEqual(len(files), 25)
            self.assertEqual(len({path.stat().st_ino for path in files}), 3)
            self.assertEqual(len(list((folder / "out/val").rglob("*.jpg"))), 64)
            with Image.open(files[-1]) as image:
                self.assertEqual(image.size, parallel_folder.SIZE)


class Following(unittest.TestCase):
    def test_weights_after_the_steps_asked_for(self):
        with tempfile.TemporaryDirectory() as name:
            run = pathlib.Path(name)
            following = parallel_agree.Following(run, (1, 3))
            following.look()  # there is no state yet
            (run / "checkpoints").mkdir()
            for epoch, weight in ((0, 1.0), (1, 2.0), (2, 4.0)):
                state(run / "checkpoints", epoch, weight)
                following.look()
                following.look()
            self.assertEqual({step: list(weights["weights.a"]) for step, weights in following.weights.items()}, {1: [1.0], 3: [4.0]})
            self.assertEqual(list(following.weights[3]), ["weights.a"])
            last = parallel_agree.Following(run, (3,))
            state(run / "checkpoints", 3, 4.5, finished=True)
            with last:
                pass
            self.assertEqual(parallel_agree.by_step(following.weights, last.weights), {3: 0.125})


    def test_a_later_file_with_the_number_of_an_earlier_one(self):
        with tempfile.TemporaryDirectory() as name:
            run = pathlib.Path(name)
            (run / "checkpoints").mkdir()
            following = parallel_agree.Following(run, (1, 3))
            path = run / "checkpoints/float.state.safetensors"
            state(run / "checkpoints", 0, 1.0)
            kept, when = path.stat().st_ino, path.stat().st_mtime_ns
            following.look()
            state(run, 2, 4.0)
            path.write_bytes((run / "float.state.safetensors").read_bytes())  # the number stays
            os.utime(path, ns=(when, when + 1))
            self.assertEqual(path.stat().st_ino, kept)
            following.look()
            self.assertEqual(sorted(following.weights), [1, 3])


class Apart(unittest.TestCase):
    def test_means_beside_their_scatter(self):
        self.assertTrue(parallel_report.apart([95.0, 95.2, 95.4], [95.1, 95.2, 95.6])["within"])
        far = parallel_report.apart([95.0, 95.2, 95.4], [94.6, 94.8, 94.7])
        self.assertEqual(far, {"points": -0.5, "standard_error": 0.129, "within": False})
        self.assertIsNone(parallel_report.apart([95.0], [95.0])["within"])


if __name__ == "__main__":
    unittest.main()
