# SPDX-License-Identifier: Apache-2.0
"""The scripts of tools/lab/gpu and tools/lab/bench where no GPU is needed: packing, reading results, tables. Standard library only."""
import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tools" / "lab" / "gpu"), str(ROOT / "tools" / "lab" / "bench")]
sys.modules["training_peers"] = types.ModuleType("training_peers")  # the real one imports PyTorch
import gpus  # noqa: E402
import parts  # noqa: E402
import pictures  # noqa: E402
import sanitize  # noqa: E402
import step_model  # noqa: E402
import tensors  # noqa: E402
import tests  # noqa: E402
import training_proof  # noqa: E402
import turns  # noqa: E402


class WithFolder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def write(self, path, content):
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(content)
        return self.folder / path


class Parts(WithFolder):
    def make(self):
        for path, size in {"tools/lab/gpu/run.sh": 100, "bin/octet": 700_000, "data/a": 600_000, "data/b": 600_000, "data/empty": 0}.items():
            self.write(f"all/{path}", "")
            (self.folder / f"all/{path}").write_bytes(random.Random(size).randbytes(size))
        (self.folder / "all/bin/octet").chmod(0o755)
        self.write("all/bin/test", "x" * 2 * parts.MIB)
        parts.split(self.folder / "all", self.folder / "parts", 1)

    def test_each_part_fits_and_brings_the_scripts(self):
        self.make()
        folders = sorted((self.folder / "parts").iterdir())
        self.assertEqual([folder.name for folder in folders], ["part1", "part2", "part3"])
        for folder in folders:
            self.assertTrue((folder / "tools/lab/gpu/run.sh").exists())
            self.assertLessEqual(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), parts.MIB)
        self.assertLess((folders[0] / "bin/test.xz").stat().st_size, 10_000)
        self.assertTrue((folders[0] / "bin/octet.xz").exists())

    def test_joined_in_any_order_they_are_the_folder(self):
        self.make()
        home, seen, in_tools = self.folder / "home", [], []
        for number in (3, 1, 2):
            parts.join(self.folder / f"parts/part{number}", home)
            seen.append(parts.missing(home))
            in_tools.append(parts.missing(home, "tools/"))
        self.assertEqual((seen, in_tools), ([[1, 2], [2], []], [[], [], []]))
        for path in parts.files_of(self.folder / "all"):
            self.assertEqual((home / path).read_bytes(), (self.folder / "all" / path).read_bytes())
        self.assertTrue(os.access(home / "bin/octet", os.X_OK))

    def test_a_damaged_part_another_package_and_a_large_file_are_refused(self):
        self.make()
        for damaged, at in (("tools/lab/gpu/run.sh", 3), ("bin/octet.xz", 300_000)):
            content = bytearray((self.folder / "parts/part1" / damaged).read_bytes())
            content[at] ^= 1
            (self.folder / "parts/part1" / damaged).write_bytes(content)
            with self.assertRaisesRegex(SystemExit, f"{damaged.removesuffix('.xz')} came damaged"):
                parts.join(self.folder / "parts/part1", self.folder / "home")
            content[at] ^= 1
            (self.folder / "parts/part1" / damaged).write_bytes(content)
        self.write("home2/manifest.json", '{"parts": 1, "files": {}}')
        with self.assertRaisesRegex(SystemExit, "holds another package"):
            parts.join(self.folder / "parts/part2", self.folder / "home2")
        with self.assertRaisesRegex(SystemExit, "data/a alone is 2.0 MiB"):
            parts.assign({"data/a": 2 * parts.MIB}, parts.MIB)


class GoogleTestResults(WithFolder):
    def test_counts_failed_skipped_and_disabled_cases(self):
        path = self.write("r.xml", """<testsuites><testsuite name="A">
            <testcase name="good" status="run" result="completed" time="0.250" classname="A"/>
            <testcase name="bad" status="run" result="completed" time="1" classname="A"><failure message="x.cpp:3&#x0A;1 is not 2"/></testcase>
            <testcase name="none" status="run" result="skipped" time="0" classname="A"><skipped message="x.cpp:4&#x0A;needs a GPU"/></testcase>
            <testcase name="off" status="notrun" result="suppressed" time="0" classname="A"/></testsuite></testsuites>""")
        self.assertEqual(tests.cases(path), [("A.good", "passed", 0.25, ""), ("A.bad", "failed", 1, "1 is not 2"),
                                             ("A.none", "skipped", 0, "needs a GPU"), ("A.off", "skipped", 0, "disabled")])

    def test_a_program_that_died_left_no_cases(self):
        self.assertEqual(tests.cases(self.write("cut.xml", "<testsuites><testsuite")), [])
        self.assertEqual(tests.cases(self.folder / "none.xml"), [])

    def test_quick_cases_fit_the_budget_and_are_never_none(self):
        found = [tests.Case(name, result, seconds, "") for name, result, seconds in
                 (("slow", "passed", 0.9), ("a", "passed", 0.1), ("b", "passed", 0.15), ("skipped", "skipped", 0.0))]
        self.assertEqual(sanitize.quick_cases(found, 0.3), ["a", "b"])
        self.assertEqual(sanitize.quick_cases(found, 0), ["a"])
        self.assertEqual(sanitize.quick_cases(found[3:], 1), [])


class Tensors(WithFolder):
    def put(self, name, **tensors_):
        header, data = {"__metadata__": {"a": "b"}}, b""
        for key, values in tensors_.items():
            part = struct.pack(f"<{len(values)}f", *values)
            header[key] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(part)]}
            data += part
        text = json.dumps(header).encode()
        (self.folder / name).write_bytes(struct.pack("<Q", len(text)) + text + data)
        return self.folder / name

    def test_the_farthest_tensor_is_named(self):
        one, other = self.put("one", a=[3, 4], b=[0, 2]), self.put("other", a=[3, 4], b=[0, 1.5])
        apart = tensors.largest_distance(one, other)
        self.assertEqual((apart["largest"], apart["of"]), (0.25, "b"))
        self.assertAlmostEqual(apart["of_all"], 0.5 / 29**0.5)
        with self.assertRaisesRegex(ValueError, "different tensors"):
            tensors.largest_distance(one, self.put("third", a=[3, 4]))


class Pictures(WithFolder):
    def test_all_are_in_the_files_in_their_order(self):
        train, test = pictures.records(32, seed=1), pictures.records(7, seed=2)
        pictures.write(self.folder / "all", train, test)
        files = [(self.folder / "all" / name).read_bytes() for name in pictures.TRAIN_FILES]
        self.assertTrue(all(files))
        self.assertEqual(b"".join(files), b"".join(train))
        self.assertEqual({len(record) for record in train}, {3073})
        self.assertEqual([record[0] for record in train[8:12]], [8, 9, 0, 1])
        self.assertNotEqual(train[0], train[10])
        self.assertEqual(pictures.records(32, seed=1), train)
        self.assertEqual((self.folder / "all/test_batch.bin").read_bytes(), b"".join(test))


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


class Sharing(unittest.TestCase):
    def test_every_job_is_done_once(self):
        done = []
        gpus.share(range(20), ["0", "1", "1"], lambda job, gpu: done.append((job, gpu)))
        self.assertEqual(sorted(job for job, _ in done), list(range(20)))
        self.assertLessEqual({gpu for _, gpu in done}, {"0", "1"})

    def test_programs_are_chosen_by_name(self):
        known = ["test_a", "test_b", "test_c"]
        self.assertEqual(tests.chosen("", known), known)
        self.assertEqual(tests.chosen("test_c,test_a", known), ["test_c", "test_a"])
        with self.assertRaisesRegex(SystemExit, "no GPU test program 'test_d'; there are test_a"):
            tests.chosen("test_a,test_d", known)

    def test_gpus_wait_for_jobs_that_others_make_ready(self):
        done, together = set(), threading.Barrier(2, timeout=20)

        def work(job, gpu):
            if job == "weights":
                time.sleep(0.3)
            else:
                together.wait()  # both at once, so neither GPU went home
            done.add(job)
        gpus.share(["variant", "other", "weights", "never"], ["0", "1"], work,
                   ready=lambda job: job == "weights" or job != "never" and "weights" in done)
        self.assertEqual(done, {"weights", "variant", "other"})

    def test_a_job_that_raises_is_no_success(self):
        def work(job, gpu):
            if job == 2:
                raise OSError("disk full")
        with self.assertRaisesRegex(OSError, "disk full"):
            gpus.share(range(5), ["0"], work)


class SanitizerReports(unittest.TestCase):
    LOG = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at octet::(anonymous namespace)::pool(int *)+0x90 in pool.cu:12
=========     by thread (32,0,0) in block (0,0,0)
=========     Access to 0x7f1 is out of bounds
=========
========= Uninitialized __global__ memory read of size 4 bytes
=========     at cudnn::kernel()+0x10
========= ERROR SUMMARY: 2 errors
"""

    def test_reports_have_a_place(self):
        self.assertEqual(sanitize.reports(self.LOG), [
            ("Invalid __global__ write of size 4 bytes", "octet::(anonymous namespace)::pool(int *)+0x90 in pool.cu:12"),
            ("Uninitialized __global__ memory read of size 4 bytes", "cudnn::kernel()+0x10")])

    def test_ours_are_octets_kernels_that_the_tool_can_judge(self):
        self.assertEqual([sanitize.is_ours(report, "test_engine_cudnn", "initcheck") for report in sanitize.reports(self.LOG)], [True, False])
        sums = sanitize.Report("Uninitialized read", "octet::kernels::rescale_sums_kernel(int)+0x430")
        self.assertFalse(sanitize.is_ours(sums, "test_engine_cudnn", "initcheck"))
        self.assertTrue(sanitize.is_ours(sums, "test_engine_cudnn", "memcheck"))
        self.assertTrue(sanitize.is_ours(sums, "test_kernels_codes_cuda", "initcheck"))

    def test_a_log_without_a_summary_did_not_finish(self):
        self.assertTrue(sanitize.finished(self.LOG))
        self.assertFalse(sanitize.finished(self.LOG.replace("ERROR SUMMARY", "")))


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


class Help(WithFolder):
    def test_needs_no_pytorch(self):
        self.write("torch.py", 'raise ImportError("no PyTorch here")')
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        for what in ("training", "inference"):
            for flag in ("--help", "-h"):
                command = [ROOT / "tools" / "lab" / "bench" / f"{what}.sh", flag]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("--turns TURNS", done.stdout)


if __name__ == "__main__":
    unittest.main()
