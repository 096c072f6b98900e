"""Runs the test programs of a built tree under one fault after the other."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

# The programs most likely to see a fault of a folder; the others follow, the quick ones first.
NEAREST = {
    "kernels": ["test_kernels", "test_kernels_conv2d", "test_engine", "test_quant", "test_qat"],
    "src/quant": ["test_quant", "test_qat"],
    "src/qat": ["test_qat"],
    "trainers": ["test_trainers"],
    "src/graph": ["test_graph", "test_quant"],
    "src/recipe": ["test_recipe"],
    "src/model": ["test_model", "test_qat"],
    "src/data": ["test_data"],
}
SLOWER = 10  # a program may take so many times as long as without a fault, and half a minute more
FAILED = re.compile(r"^\[  FAILED  \] ([\w/.]+)", re.MULTILINE)


class Programs:
    def __init__(self, build, torch, shared):
        self.paths = {path.name: path for path in sorted((pathlib.Path(build) / "bin").glob("test_*"))}
        self.seconds = {}
        libraries = [str(pathlib.Path(build) / "lib"), os.path.join(torch, "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2",
                            "LD_LIBRARY_PATH": ":".join(filter(None, libraries))}
        if pathlib.Path(shared).is_dir():
            self.environment["OCTET_SHARED_DATA"] = str(pathlib.Path(shared).resolve())

    def run(self, name, fault):
        """None when every test passes, else what failed first."""
        limit = SLOWER * self.seconds[name] + 30 if fault else 1800
        with tempfile.TemporaryDirectory() as folder:
            environment = {**self.environment, "OCTET_FAULT": str(fault), "TMPDIR": folder}
            command = [self.paths[name], "--gtest_brief=1"] + (["--gtest_fail_fast"] if fault else [])
            try:
                done = subprocess.run(command, env=environment, cwd=folder, timeout=limit, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, check=False)
            except subprocess.TimeoutExpired:
                return f"{name}: longer than {limit:.0f} s"
        if done.returncode == 0:
            return None
        failed = FAILED.search(done.stdout.decode(errors="replace"))
        return f"{name}: {failed.group(1) if failed else f'ended with {done.returncode}'}"

    def all_pass(self, jobs):
        """Without a fault everything passes, or verdicts would mean nothing. Measures times on the way."""
        def timed(name):
            start = time.perf_counter()
            failure = self.run(name, 0)
            return name, failure, time.perf_counter() - start

        good = True
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for name, failure, seconds in pool.map(timed, self.paths):
                self.seconds[name] = seconds
                print(f"no fault: {name:20} {seconds:6.1f} s  {'passes' if failure is None else failure}", flush=True)
                good = good and failure is None
        return good

    def order(self, file):
        folder = max((f for f in NEAREST if file.startswith(f + "/")), key=len, default="")
        near = [name for name in NEAREST.get(folder, []) if name in self.paths]
        return near + sorted((name for name in self.paths if name not in near), key=self.seconds.get)


def verdict(programs, fault):
    for name in programs.order(fault["file"]):
        killer = programs.run(name, fault["number"])
        if killer is not None:
            return killer
    return None


def run_faults(programs, faults, jobs, log):
    """number: what saw it, or None. Written to `log` as it grows."""
    verdicts = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(verdict, programs, fault): fault for fault in faults}
        for done in concurrent.futures.as_completed(waiting):
            fault = waiting[done]
            verdicts[fault["number"]] = done.result()
            print(f"{fault['number']:3} {fault['place']:48} {fault['what']:70} {done.result() or 'LIVES'}", flush=True)
            log.write_text(json.dumps(verdicts, indent=1))
    return verdicts
