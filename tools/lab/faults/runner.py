# SPDX-License-Identifier: Apache-2.0
"""Runs the test programs of a built tree under one fault after the other."""
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import tempfile

# By the beginning of a file's name, the programs most likely to see a fault of it, or some of their tests; the others follow.
NEAREST = {
    "kernels": ["test_kernels", "test_kernels_conv2d", "test_engine", "test_quant", "test_qat"],
    "src/base": ["test_base"],
    "src/net": ["test_net", "test_quant"],
    "src/net/import": ["test_import"],
    "src/net/onnx": ["test_onnx_files", "test_onnx"],
    "src/data": ["test_data"],
    "src/quant": ["test_quant", "test_qat"],
    "src/quant/bit_": ["test_quant", "test_qat", "test_tools:Search.*"],
    "src/recipe": ["test_recipe"],
    "src/eval": ["test_eval", "test_report"],
    "src/report": ["test_report", "test_tools:Analyze*"],
    "src/runtime": ["test_runtime"],
    "include": ["test_runtime"],
    "src/train": ["test_qat"],
    "src/train/model": ["test_model", "test_qat"],
    "src/train/repair/quantization_noise": ["test_qat", "test_tools:Search.*"],
    "trainers": ["test_trainers"],
    "trainers/run/ptq_search": ["test_tools:Search.*"],
    "trainers/run/library": ["test_trainers:TrainingLibrary.*"],
    "tools/octet": ["test_tools"],
    "tools/octet/compare": ["test_tools:Train.*"],
    "tools/octet/search": ["test_tools:Search.*"],
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
        """The exit status, None when it took longer, and what the program said; of each test its name, its seconds, whether it passed."""
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
        tests = [(f"{suite['name']}.{test['name']}", float(test["time"][:-1]), "failures" not in test)
                 for suite in suites for test in suite["testsuite"]]
        return done.returncode, done.stdout.decode(errors="replace"), tests

    def suites(self, name):
        command = [self.paths[name], "--gtest_list_tests"]
        listed = subprocess.run(command, env=self.environment, check=True, stdout=subprocess.PIPE, text=True)
        return [line.split()[0] for line in listed.stdout.splitlines() if re.match(r"[\w/]+\.(\s|$)", line)]

    def all_pass(self, jobs, kept, go_on):
        """Without a fault everything passes, or verdicts would mean nothing; with `go_on`, what fails is left out and asked nothing. Keeps
        in the file `kept` how long the tests of each program took, and asks only programs that are new since."""
        known = json.loads(kept.read_text()) if kept.exists() else {}
        made = {name: path.stat().st_mtime for name, path in self.paths.items()}
        self.tests = {name: known[name]["tests"] for name in self.paths if known.get(name, {}).get("made") == made[name]}
        good = True
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            new = [name for name in self.paths if name not in self.tests]
            waiting = {name: {suite: pool.submit(self.start, name, 0, 1800, f"--gtest_filter={suite}*") for suite in self.suites(name)}
                       for name in new}
            for name, of_suites in waiting.items():
                failed = []
                self.tests[name] = {}
                for suite, done in of_suites.items():
                    status, said, tests = done.result()
                    self.tests[name].update({test: seconds for test, seconds, passed in tests if passed})
                    failed += [test for test, _, passed in tests if not passed] or ([suite + "*"] if status != 0 else [])
                    if status != 0:
                        print(said[-2000:])
                print(f"no fault: {name:20} {len(self.tests[name]):4} tests {sum(self.tests[name].values()):6.1f} s  "
                      f"{'fails: ' + ', '.join(failed) if failed else 'pass'}", flush=True)
                good = good and not failed
                if not failed or go_on:
                    known[name] = {"made": made[name], "tests": self.tests[name]}
                    kept.write_text(json.dumps(known))
        return good or go_on

    def failure(self, name, fault, tests):
        """What fails first with the fault among some tests of a program; None: they pass."""
        limit = SLOWER * sum(self.tests[name][test] for test in tests) + 30
        status, said, _ = self.start(name, fault, limit, "--gtest_fail_fast", f"--gtest_filter={':'.join(tests)}")
        if status == 0:
            return None
        return f"{name}: longer than {limit:.0f} s" if status is None else f"{name}: {first_failure(said, status)}"

    def runs(self, file):
        """Two lists of (program, tests), each to be run in one process: of the near programs, and of the others. In both, the quick tests
        of each program come first, together; then suite by suite the slow ones."""
        beginning = max((f for f in NEAREST if file.startswith(f)), key=len, default="")
        near = {}
        for entry in NEAREST.get(beginning, []):
            name, _, pattern = entry.partition(":")
            near[name] = fnmatch.filter(self.tests.get(name, []), pattern or "*")
        others = {name: [test for test in self.tests[name] if test not in set(near.get(name, []))]
                  for name in sorted(self.paths, key=lambda name: sum(self.tests[name].values()))}
        lists = []
        for chosen in (near, others):
            runs = [(name, [test for test in tests if self.tests[name][test] <= SLOW]) for name, tests in chosen.items()]
            for name, tests in chosen.items():
                slow = {}
                for test in tests:
                    if self.tests[name][test] > SLOW:
                        slow.setdefault(test.rpartition(".")[0], []).append(test)
                runs += [(name, of_suite) for of_suite in slow.values()]
            lists.append([run for run in runs if run[1]])
        return lists


def first_failure(said, status):
    failed = FAILED.search(said)
    return failed.group(1) if failed else f"ended with {status}"


def run_faults(programs, faults, jobs, log, near_only=False):
    """number: what saw it, or None. Written to `log` as it grows. One run of each fault is under way, more of one where jobs are left."""
    verdicts, left, under_way = {}, {}, {}
    for fault in faults:
        near, others = programs.runs(fault["file"])
        left[fault["number"]] = near if near_only else near + others
    by_number = {fault["number"]: fault for fault in faults}

    def decide(number, killer):
        verdicts[number] = killer
        fault = by_number[number]
        said = killer or ("the near ones pass" if near_only else "LIVES")
        print(f"{number:3} {fault['place']:48} {fault['what']:70} {said}", flush=True)
        log.write_text(json.dumps(verdicts, indent=1))

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        while undecided := [number for number in left if number not in verdicts]:
            while len(under_way) < jobs and (waiting := [number for number in undecided if left[number]]):
                number = min(waiting, key=list(under_way.values()).count)
                name, tests = left[number].pop(0)
                under_way[pool.submit(programs.failure, name, number, tests)] = number
            for number in undecided:
                if not left[number] and number not in under_way.values():
                    decide(number, None)
            if not under_way:
                continue
            finished, _ = concurrent.futures.wait(under_way, return_when=concurrent.futures.FIRST_COMPLETED)
            for done in finished:
                number = under_way.pop(done)
                if done.result() is not None and number not in verdicts:
                    decide(number, done.result())
    return verdicts
