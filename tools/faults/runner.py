"""Runs the test programs of a built tree under one fault after the other."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import tempfile

# The programs most likely to see a fault of a folder; the others follow, the quick ones first.
NEAREST = {
    "kernels": ["test_kernels", "test_kernels_conv2d", "test_engine", "test_quant", "test_qat"],
    "src/quant": ["test_quant", "test_qat"],
    "src/qat": ["test_qat"],
    "trainers": ["test_trainers"],
    "src/graph": ["test_graph", "test_quant"],
    "src/import": ["test_import"],
    "src/tensor_files": ["test_tensor_files", "test_graph"],
    "src/recipe": ["test_recipe"],
    "src/onnx": ["test_onnx_files", "test_onnx"],
    "src/model": ["test_model", "test_qat"],
    "src/data": ["test_data"],
}
SLOW = 1.0  # seconds: tests that take longer are only asked once all others pass
SLOWER = 10  # a test may take so many times as long as without a fault, and half a minute more
FAILED = re.compile(r"^\[  FAILED  \] ([\w/.]+)", re.MULTILINE)


class Programs:
    def __init__(self, build, torch, shared):
        self.paths = {path.name: path for path in sorted((pathlib.Path(build) / "bin").glob("test_*"))}
        self.tests = {}  # of each program, the seconds of each test without a fault
        libraries = [str(pathlib.Path(build) / "lib"), os.path.join(torch, "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2",
                            "LD_LIBRARY_PATH": ":".join(filter(None, libraries))}
        if pathlib.Path(shared).is_dir():
            self.environment["OCTET_SHARED_DATA"] = str(pathlib.Path(shared).resolve())

    def start(self, name, fault, limit, *options):
        """The exit status, None when it took longer, and what the program said; its tests' reports, if there are any."""
        with tempfile.TemporaryDirectory() as folder:
            environment = {**self.environment, "OCTET_FAULT": str(fault), "TMPDIR": folder}
            command = [self.paths[name], "--gtest_brief=1", f"--gtest_output=json:{folder}/report.json", *options]
            try:
                done = subprocess.run(command, env=environment, cwd=folder, timeout=limit, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, check=False)
            except subprocess.TimeoutExpired:
                return None, "", []
            report = pathlib.Path(folder) / "report.json"
            suites = json.loads(report.read_text())["testsuites"] if report.exists() else []
        tests = [(f"{suite['name']}.{test['name']}", float(test["time"][:-1])) for suite in suites for test in suite["testsuite"]]
        return done.returncode, done.stdout.decode(errors="replace"), tests

    def all_pass(self, jobs, kept):
        """Without a fault everything passes, or verdicts would mean nothing. Keeps in the file `kept` how long the tests of each program
        took, and asks only programs that are new since."""
        known = json.loads(kept.read_text()) if kept.exists() else {}
        made = {name: path.stat().st_mtime for name, path in self.paths.items()}
        self.tests = {name: known[name]["tests"] for name in self.paths if known.get(name, {}).get("made") == made[name]}
        good = True
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            waiting = {pool.submit(self.start, name, 0, 1800): name for name in self.paths if name not in self.tests}
            for done in concurrent.futures.as_completed(waiting):
                name, (status, said, tests) = waiting[done], done.result()
                self.tests[name] = dict(tests)
                print(f"no fault: {name:20} {len(tests):4} tests {self.seconds(name):6.1f} s  "
                      f"{'pass' if status == 0 else first_failure(said, status)}", flush=True)
                good = good and status == 0
                if status == 0:
                    known[name] = {"made": made[name], "tests": self.tests[name]}
                    kept.write_text(json.dumps(known))
        return good

    def seconds(self, name, slow=(False, True)):
        return sum(seconds for seconds in self.tests[name].values() if (seconds > SLOW) in slow)

    def failure(self, name, fault, slow):
        """What fails first with the fault among the slow tests of a program, or among its others; None: they pass."""
        slow_ones = [test for test, seconds in self.tests[name].items() if seconds > SLOW]
        chosen = slow_ones if slow else [test for test in self.tests[name] if test not in slow_ones]
        if not chosen:
            return None
        limit = SLOWER * self.seconds(name, (slow,)) + 30
        names = ":".join(slow_ones)
        pattern = names if slow else f"-{names}" if names else "*"
        status, said, _ = self.start(name, fault, limit, "--gtest_fail_fast", f"--gtest_filter={pattern}")
        if status == 0:
            return None
        return f"{name}: longer than {limit:.0f} s" if status is None else f"{name}: {first_failure(said, status)}"

    def order(self, file):
        folder = max((f for f in NEAREST if file.startswith(f + "/")), key=len, default="")
        near = [name for name in NEAREST.get(folder, []) if name in self.paths]
        return near, sorted((name for name in self.paths if name not in near), key=self.seconds)


def first_failure(said, status):
    failed = FAILED.search(said)
    return failed.group(1) if failed else f"ended with {status}"


def verdict(programs, fault, near_only=False):
    """Which test sees the fault: asked are the quick tests of the near programs, then their slow ones, then the other programs."""
    near, others = programs.order(fault["file"])
    for names in (near,) if near_only else (near, others):
        for slow in (False, True):
            for name in names:
                killer = programs.failure(name, fault["number"], slow)
                if killer is not None:
                    return killer
    return None


def run_faults(programs, faults, jobs, log, near_only=False):
    """number: what saw it, or None. Written to `log` as it grows."""
    verdicts = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(verdict, programs, fault, near_only): fault for fault in faults}
        for done in concurrent.futures.as_completed(waiting):
            fault = waiting[done]
            verdicts[fault["number"]] = done.result()
            print(f"{fault['number']:3} {fault['place']:48} {fault['what']:70} {done.result() or ('the near ones pass' if near_only else 'LIVES')}", flush=True)
            log.write_text(json.dumps(verdicts, indent=1))
    return verdicts
