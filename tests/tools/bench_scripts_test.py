# SPDX-License-Identifier: Apache-2.0
"""The scripts of tools/lab/bench where no GPU is needed: turns, tables, charts, the proof of a peer. Standard library only."""
import argparse
import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools" / "lab" / "bench"))
sys.modules["training_peers"] = types.ModuleType("training_peers")  # the real one imports PyTorch
import detector_gpu  # noqa: E402
import step_model  # noqa: E402
import training_proof  # noqa: E402
import turns  # noqa: E402


class StepModel(unittest.TestCase):
    row = {"gradient_bytes": 100_000_000, "batch": 256,
           "by_gpus": {"1": {"ms": 40.0}, "2": {"ms": 41.0, "exchange_ms": 0.4}, "4": {"ms": 42.0, "exchange_ms": 0.7}}}

    def test_measured_steps_stay_and_a_ring_of_eight_sends_seven_quarters(self):
        self.assertEqual([step_model.step(self.row, gpus, 50) for gpus in (1, 2)], [40.0, 41.0])
        self.assertAlmostEqual(step_model.step(self.row, 8, 50), 40 + 1.75 * 0.4 + 0.6)

    def test_between_hosts_each_gpu_sends_its_eighth(self):
        over_two_hosts = step_model.exchange(self.row, 16, 50) - step_model.exchange(self.row, 8, 50)
        self.assertAlmostEqual(over_two_hosts, 2 * 0.5 * 100_000_000 / 8 / 50e9 * 1e3)

    def test_what_was_measured_is_held_against_the_model_that_one_and_two_gpus_give(self):
        self.assertAlmostEqual(step_model.off_by(self.row, 4, 50), (40 + 1.5 * 0.4 + 0.6) / 42 - 1)
        self.assertEqual([step_model.off_by(self.row, gpus, 50) for gpus in (1, 2, 8)], [None, None, None])

    def test_the_table_says_what_was_measured(self):
        lines = step_model.table({"good": True, "resnet50": self.row}, [8], 50).splitlines()
        self.assertEqual([line.split()[1] for line in lines], ["1", "2", "4", "8"])
        self.assertEqual([line.split("x  ")[-1] for line in lines], ["measured", "measured", "measured, model -1.9 %", "model"])
        self.assertIn("1.95x", lines[1])
        self.assertIn("3.81x", lines[2])


class Turns(unittest.TestCase):
    def rows(self, keep=lambda rows: None):
        answers = {"ours": [{"median_ms": 10.0, "peak_gib": 2.0}, {"median_ms": 12.0, "peak_gib": 3.0}], "theirs": [{"median_ms": 22.0}] * 2,
                   "cannot": [{"refused": "expected Half"}]}
        original = turns.run_once
        self.addCleanup(setattr, turns, "run_once", original)
        turns.run_once = lambda program, what, options: answers[what].pop(0)
        entries = {"octet": ("p", "ours"), "base": ("p", "theirs"), "refuses": ("p", "cannot")}
        return turns.measure(entries, [("resnet18", 11)], argparse.Namespace(turns=2), keep)

    def test_median_of_turns_and_ratio(self):
        ours, base, refuses = self.rows()
        self.assertEqual((ours["median_ms"], ours["images_per_second"], ours["peak_gib"]), (11.0, 1000.0, 3.0))
        self.assertEqual(base["images_per_second"], 500.0)
        self.assertEqual(refuses["refused"], "expected Half")
        lines = turns.table([ours, base, refuses], "base").splitlines()
        self.assertEqual(lines[1].split(), ["resnet18", "11", "octet", "11.000", "1,000", "3.0", "2.00"])
        self.assertIn("refused: expected Half", lines[3])

    def test_every_turn_is_kept_when_it_is_done(self):
        kept = []
        self.rows(lambda rows: kept.append([(row["label"], row.get("median_ms")) for row in rows]))
        self.assertEqual(kept[0], [("octet", 10.0)])
        self.assertEqual(kept[2], [("octet", 10.0), ("base", 22.0), ("refuses", None)])
        self.assertEqual(kept[-1][0], ("octet", 11.0))
        self.assertEqual(len(kept), 5)  # who refuses once is not asked again

    def test_the_chart_is_markup_with_a_bar_each(self):
        picture = turns.chart(self.rows(), "A <title>")
        xml.dom.minidom.parseString(picture)
        self.assertEqual(picture.count("<rect"), 3)  # the ground and two bars
        self.assertIn("1,000", picture)

    def test_a_program_that_is_missing_or_fails_is_a_reason(self):
        self.assertEqual(turns.run_program(["/nowhere/train_bench"]), {"refused": "/nowhere/train_bench: No such file or directory"})
        self.assertEqual(turns.run_program(["sh", "-c", "echo a >&2; echo last >&2; exit 2"]), {"refused": "last"})

    def test_the_proof_of_a_peer_stays_with_its_row(self):
        proof = {"parameters": 161, "largest_zero_share": 0.02, "quantization_effect": 0.1, "quantization_noise": 0.0}
        self.assertEqual(turns.summary([{"median_ms": 3.0, **proof, "runs": 7}]), {"median_ms": 3.0, "turns_ms": [3.0], **proof})

    def test_a_missing_package_is_named_with_its_cure(self):
        def measure(peer, options):
            raise ModuleNotFoundError("No module named 'modelopt'", name="modelopt")
        sys.modules["training_peers"].measure = measure
        self.addCleanup(delattr, sys.modules["training_peers"], "measure")
        message = turns.run_once("torch", "modelopt", argparse.Namespace(batch=1, size=8, seconds=1))["refused"]
        start, file = message.split(" -r ")
        self.assertEqual(start, "missing Python package modelopt; python3 -m pip install")
        pins = pathlib.Path(file).read_text()
        self.assertRegex(pins, "(?m)^nvidia-modelopt==.*\ntorchao==")

    def test_train_bench_gets_the_flags_of_its_entry(self):
        original = turns.run_program
        self.addCleanup(setattr, turns, "run_program", original)
        turns.run_program = lambda command: command
        command = turns.run_once(*turns.TRAINING["octet QAT BatchNorm frozen"],
                                 argparse.Namespace(train_bench="tb", model="resnet50", batch=256, size=224, seconds=1))
        self.assertEqual(command[:8], ["tb", "--model", "resnet50", "--phase", "qat", "--precision", "fp16", "--freeze-batch-norm"])

    def test_octet_bench_chooses_the_codes_and_the_fallback_of_an_engine_itself(self):
        original = turns.run_program
        self.addCleanup(setattr, turns, "run_program", original)
        commands = []
        turns.run_program = lambda command: commands.append(command) or {"results": ["first"]}
        options = argparse.Namespace(octet="o", model="resnet50", batch=8, size=224, seconds=1)
        for label in ("octet int8 cuda", "octet int8 cudnn"):
            self.assertEqual(turns.run_once(*turns.INFERENCE[label], options), "first")
        for engine, command in zip(("cuda", "cudnn"), commands, strict=True):
            self.assertEqual(command, ["o", "bench", "--model", "resnet50", "--engine", engine, "--batch", "8", "--size", "224",
                                       "--seconds", "1", "--json", "--quiet"])

    def test_labels_can_be_named_in_only(self):
        for label in [*turns.TRAINING, *turns.INFERENCE]:
            self.assertNotIn(",", label)
        self.assertIn(turns.TRAINING_BASELINE, turns.TRAINING)
        self.assertIn(turns.INFERENCE_BASELINE, turns.INFERENCE)


class Numbers(list):
    """As much of a tensor as training_proof.py asks of one."""
    grad, requires_grad = None, True

    def numel(self):
        return len(self)

    def count_nonzero(self):
        return Numbers([sum(value != 0 for value in self)])

    def item(self):
        return self[0]

    def norm(self):
        return Numbers([sum(value * value for value in self) ** 0.5])

    def __sub__(self, other):
        return Numbers(a - b for a, b in zip(self, other))

    def clone(self):
        return Numbers(self)

    def copy_(self, other):
        self[:] = other

    def detach(self):
        return self

    float = detach


class TrainingProof(unittest.TestCase):
    def model(self, *gradients):
        parameters = []
        for gradient in gradients:
            parameter = Numbers([1.0, 1.0, 1.0, 1.0])
            parameter.grad = gradient and Numbers(gradient)
            parameters.append((f"p{len(parameters)}", parameter))
        self.ranges = Numbers([1.0])
        return types.SimpleNamespace(named_parameters=lambda: parameters, buffers=lambda: [self.ranges])

    def test_gradients_that_are_there(self):
        self.assertEqual(training_proof.check_gradients(self.model([0, 1, 0, 2], [1, 2, 3, 4]), Numbers([2.5])),
                         {"parameters": 2, "largest_zero_share": 0.5})

    def test_a_zero_or_missing_gradient_and_a_loss_that_is_no_number_are_seen(self):
        for gradient in ([0, 0, 0, 0], None):
            with self.assertRaisesRegex(training_proof.NotTraining, r"1 of 2 gradients are zero everywhere \(p1"):
                training_proof.check_gradients(self.model([1, 1, 1, 1], gradient), Numbers([2.5]))
        with self.assertRaisesRegex(training_proof.NotTraining, "loss is nan"):
            training_proof.check_gradients(self.model([1, 1, 1, 1]), Numbers([float("nan")]))

    def check(self, quantized, drift=0.0):
        """Of a network whose logits are (3, 4) without quantization; each run moves its ranges, and the logits by as much as `drift` says."""
        model, state = self.model([1]), types.SimpleNamespace(on=None, runs=0)

        def logits():
            state.runs += 1
            self.ranges[0] += 1  # a moving average: from the same place every time
            self.assertEqual(self.ranges, [2.0])
            return Numbers(quantized if state.on else [3.0, 4.0 + drift * state.runs])
        return training_proof.check_quantization(model, logits, lambda on: setattr(state, "on", on))

    def test_active_quantization_moves_the_logits(self):
        self.assertEqual(self.check([3.0, 4.5]), {"quantization_effect": 0.1, "quantization_noise": 0.0})

    def test_quantization_that_does_nothing_is_seen(self):
        with self.assertRaisesRegex(training_proof.NotTraining, "not active"):
            self.check([3.0, 4.0])
        with self.assertRaisesRegex(training_proof.NotTraining, "not active"):
            self.check([3.0, 4.5], drift=0.2)  # the noise alone is that large


class Help(unittest.TestCase):
    def test_needs_no_pytorch(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        (pathlib.Path(folder.name) / "torch.py").write_text('raise ImportError("no PyTorch here")')
        environment = {**os.environ, "PYTHONPATH": folder.name, "PYTHONDONTWRITEBYTECODE": "1"}
        for what in ("training", "inference"):
            for flag in ("--help", "-h"):
                command = [ROOT / "tools" / "lab" / "bench" / f"{what}.sh", flag]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("--turns TURNS", done.stdout)



class DetectorOnAGpu(unittest.TestCase):
    options = argparse.Namespace(train_bench="tb", device="cuda", batch=64, size=640, seconds=2.0, rate=0.001, boxes=8, turns=2)

    def rows(self, answers):
        """What training() returns and prints, and what it asked for."""
        taken = []
        self.addCleanup(setattr, detector_gpu, "training_once", detector_gpu.training_once)
        detector_gpu.training_once = lambda what, options: (taken.append(what), answers(what))[1]
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()):
            rows = detector_gpu.training(self.options, lambda rows: None)
        return rows, said.getvalue(), taken

    def test_ours_and_theirs_take_turns_and_the_faster_of_theirs_counts(self):
        times = {True: 300.0, False: 500.0}
        rows, said, taken = self.rows(lambda what: {"median_ms": times.get(what, 100.0) if isinstance(what, bool) else 100.0})
        self.assertEqual(taken, list(detector_gpu.TRAINING.values()) * 2)
        self.assertEqual(rows["octet QAT fp16"]["median_ms"], 100.0)
        self.assertIn("100.00 ms       640 images/s    0.0 GiB  3.00 times the faster YOLOX", said.splitlines()[0])
        self.assertIn("0.60 times", next(line for line in said.splitlines() if line.startswith("YOLOX AMP fp16  ")))

    def test_who_cannot_run_is_said_and_not_asked_again(self):
        rows, said, taken = self.rows(lambda what: {"refused": "no GPU"} if isinstance(what, bool) else {"median_ms": 1.0})
        self.assertEqual(sum(isinstance(what, bool) for what in taken), 2)
        self.assertIn("refused: no GPU", said)
        self.assertNotIn("times", said)

    def test_train_bench_gets_the_same_step(self):
        original = turns.run_program
        self.addCleanup(setattr, turns, "run_program", original)
        turns.run_program = lambda command: {"command": command}
        command = detector_gpu.training_once(["--phase", "qat"], self.options)["command"]
        words = dict(zip(command[1::2], command[2::2]))
        self.assertEqual(command[0], "tb")
        self.assertEqual(words, {"--model": "yolox_s", "--classes": "80", "--precision": "fp16", "--ema": "0.9998", "--device": "cuda",
                                 "--phase": "qat", "--batch": "64", "--size": "640", "--seconds": "2.0", "--rate": "0.001", "--boxes": "8"})

if __name__ == "__main__":
    unittest.main()
