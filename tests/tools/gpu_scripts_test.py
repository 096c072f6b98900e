# SPDX-License-Identifier: Apache-2.0
"""The scripts of tools/lab/gpu where no GPU is needed: packing, reading results, tables. Standard library only."""
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
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools" / "lab" / "gpu"))
import forward  # noqa: E402
import gpus  # noqa: E402
import parts  # noqa: E402
import pictures  # noqa: E402
import sanitize  # noqa: E402
import tensors  # noqa: E402
import tests  # noqa: E402


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


class Pack(WithFolder):
    def test_device_code_that_was_only_checked_is_not_packed(self):
        self.write("build/octet", "").chmod(0o755)
        self.write("build/CMakeCache.txt", "OCTET_CUDA:BOOL=ON\nOCTET_CUDA_CHECK:BOOL=ON\n")
        command = [ROOT / "tools/lab/gpu/pack.sh", self.folder / "pack", "--build", self.folder / "build"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("compiled only to be checked", done.stderr)


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


class Forward(unittest.TestCase):
    def test_both_forward_passes_of_a_network_stand_in_each_turn(self):
        calls = []

        def run(words):
            calls.append(words)
            if "--freeze-batch-norm" in words and "mobilenet_v2" in words:
                return None
            rate = 2000 if "--freeze-batch-norm" in words and "int8" in words else 1000
            return {"images_per_second": rate, "median_ms": 256e3 / rate, "peak_gib": 4.5, "used_gib": 5.5}

        found = forward.rows_of(["resnet50", "mobilenet_v2"], 2, 0.1, "train_bench", run)
        self.assertEqual(len(calls), 2 * 2 * 4)
        self.assertEqual([words[words.index("--forward") + 1] for words in calls[:4]], ["simulation", "int8"] * 2)
        self.assertEqual(calls[:8], calls[8:])
        table = forward.speed_table(found)
        self.assertRegex(table, r"resnet50 +\| frozen +\| int8 +\| 128.00 \| 2,000 +\| 2.00 ")
        self.assertRegex(table, r"resnet50 +\| live +\| int8 +\| 256.00 \| 1,000 +\| 1.00 ")
        self.assertEqual(table.count("failed"), 2)

    def test_every_program_of_its_stage_is_a_gpu_test(self):
        cmake = "".join(path.read_text() for path in (ROOT / "tests").glob("*/CMakeLists.txt"))
        for name in {**forward.NETWORKS, **forward.KERNELS, **forward.UNDER_MEMCHECK}:
            self.assertIn(f"octet_gpu_test({name}", cmake)


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


if __name__ == "__main__":
    unittest.main()
