# SPDX-License-Identifier: Apache-2.0
"""tools/lab/quantize with programs in the place of octet and the peers: what is run, kept, printed. No packages."""
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools" / "lab" / "quantize"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOOLS))
import pictures  # noqa: E402
import table  # noqa: E402

# As octet: keeps its words, takes memory, and answers by the network's name.
FAKE_OCTET = r"""
import json, os, pathlib, sys
words = sys.argv[1:]
print(json.dumps(words), file=open(os.environ["FAKE_CALLS"], "a"))
name = pathlib.Path(words[1]).stem
if name == "refused":
    print("octet: refused.onnx: node 'x': no such operator", file=sys.stderr)
    sys.exit(2)
memory = bytearray(80 << 20)
pathlib.Path(words[words.index("--out") + 1]).write_text("int8")
outputs = [{"sqnr_db": 30.0}, {"sqnr_db": 20.5}]
differing = 3 * (name == "differs")
print(json.dumps({"codes": 1000, "differing_codes": differing, "ranges": "mse", "outputs": outputs}, indent=2))
sys.exit(differing > 0)
"""
# As a Python that has the peers: peer.py and accuracy.py are called by it.
FAKE_PEER = r"""
import json, os, pathlib, sys
words = sys.argv[1:]
print(json.dumps(words), file=open(os.environ["FAKE_CALLS"], "a"))
if words[0].endswith("accuracy.py"):
    print(json.dumps({"holdout": {"float": "1111", "octet": "1110", "nncf": "1100", "ort": "1111"}}))
elif words[1] == "ort":
    print("a line\nValueError: cannot", file=sys.stderr)
    sys.exit(1)
else:
    pathlib.Path(words[4]).write_text("int8")
    print("progress")
    print(json.dumps({"call_seconds": 0.5, "version": "1"}))
"""


class Whole(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.networks, self.out, self.calls_file = self.folder / "networks", self.folder / "out", self.folder / "calls"
        self.networks.mkdir()
        for program, text in (("octet", FAKE_OCTET), ("peer", FAKE_PEER)):
            (self.folder / f"{program}.py").write_text(text)
            script = f"#!/bin/sh\nexec '{sys.executable}' -S -E '{self.folder}/{program}.py' \"$@\"\n"
            (self.folder / program).write_text(script)
            (self.folder / program).chmod(0o755)
        for name, trained in (("good", True), ("refused", False), ("differs", False)):
            settings = {"fit": "crop", "size": 224, "resize": 256, "mean": [0.5] * 3, "std": [0.25] * 3,
                        "trained": trained, "classifier": True}
            (self.networks / f"{name}.json").write_text(json.dumps(settings))
            (self.networks / f"{name}.onnx").write_text("ONNX")
        with tarfile.open(self.folder / "images.tar", "w") as archive:
            for number in range(6):
                (self.folder / f"{number}.jpg").write_text(str(number))
                archive.add(self.folder / f"{number}.jpg", f"n{number}/{number}.jpg")

    def call(self, *words):
        self.calls_file.unlink(missing_ok=True)
        command = [sys.executable, "-S", TOOLS / "table.py", "--networks", self.networks, "--out", self.out, "--images",
                   self.folder / "images.tar", "--limit", "3", "--octet", self.folder / "octet", "--python",
                   self.folder / "peer", "--holdout", self.folder / "images.tar", "--wnids", self.folder, *words]
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                                env={**os.environ, "FAKE_CALLS": str(self.calls_file)})
        self.assertEqual(answer.returncode, 0, answer.stderr)
        calls = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return answer.stdout, [json.loads(line) for line in calls]

    def test_the_table_has_refusals_first_then_the_slowest(self):
        out, calls = self.call()
        lines = [line.strip("|") for line in out.splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in line.split("|")] for line in lines]
        self.assertEqual(rows[2][:3], ["refused", "random", "failed"])
        by_name = {row[0]: row for row in rows[:5]}
        self.assertEqual(by_name["differs"][-2:], ["3 of 1,000", "20.5"])
        self.assertEqual(by_name["good"][-2:], ["0 of 1,000", "20.5"])
        self.assertGreater(int(by_name["good"][3]), 80)  # the memory of the child, not of table.py
        self.assertLess(int(by_name["good"][5]), 80)  # nor of the child before
        self.assertEqual(by_name["good"][6], "failed")  # ort
        self.assertIn("- refused, octet: octet: refused.onnx: node 'x': no such operator", out)
        self.assertIn("- good, ort: ValueError: cannot", out)
        self.assertEqual(rows[-1], ["good", "4 of holdout", "100.0", "75.0", "50.0", "100.0", "",
                                    "-25.00 ± 42.44", "+25.00 ± 42.44", "-25.00 ± 42.44", ""])
        self.assertEqual(len([call for call in calls if call[0].endswith("accuracy.py")]), 1)  # of the trained network

    def test_octet_gets_the_preprocessing_and_all_tools_the_same_pictures(self):
        _, calls = self.call("--only", "good")
        ours = next(call for call in calls if call[0] == "quantize")
        self.assertEqual(ours[ours.index("--fit"):], ["--fit", "crop", "--order", "rgb", "--mean", "0.5,0.5,0.5",
                                                      "--std", "0.25,0.25,0.25", "--resize", "256"])
        folder = pathlib.Path(ours[ours.index("--images") + 1])
        self.assertEqual([file.read_text() for file in sorted(folder.iterdir())], ["0", "2", "4"])
        self.assertEqual({call[3] for call in calls if call[0].endswith("peer.py")}, {str(folder)})

    def test_what_is_done_is_not_run_again_and_what_failed_is(self):
        first, _ = self.call("--only", "good")
        second, calls = self.call("--only", "good")
        self.assertEqual([call[1] for call in calls], ["ort"])
        _, calls = self.call("--only", "good", "--table")
        self.assertEqual(calls, [])
        self.assertEqual(first.splitlines()[0], second.splitlines()[0])
        _, calls = self.call("--only", "good", "--limit", "4", "--tools", "octet")  # other pictures are another result
        self.assertEqual(len(calls), 1)

    def test_a_tool_that_takes_too_long_is_ended(self):
        row = table.run_child([sys.executable, "-S", "-c", "import time; time.sleep(60)"], 0.5)
        self.assertEqual(row["failed"], "not done after 0.5 s")


class Parts(unittest.TestCase):
    def test_the_interval_of_paired_differences(self):
        # Agresti, Categorical Data Analysis, 2nd edition, 10.1.1: 794 150 / 86 570, difference 0.04, deviation 0.0095.
        ours = "1" * 794 + "1" * 150 + "0" * 86 + "0" * 570
        theirs = "1" * 794 + "0" * 150 + "1" * 86 + "0" * 570
        mean, half = table.difference(ours, theirs)
        self.assertAlmostEqual(mean, 4.0)
        self.assertAlmostEqual(half / 196, 0.0095, places=4)
        self.assertEqual(table.difference("0101", "0101"), (0.0, 0.0))
        with self.assertRaises(ValueError):
            table.difference("01", "011")

    def test_pictures_are_spaced_evenly(self):
        self.assertEqual(pictures.evenly_spaced(list(range(10)), 3), [0, 3, 6])
        self.assertEqual(pictures.evenly_spaced([1, 2], 3), [1, 2])


if __name__ == "__main__":
    unittest.main()
