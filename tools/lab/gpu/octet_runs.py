# SPDX-License-Identifier: Apache-2.0
"""Runs `octet train` for the jobs of accuracy_plan.py: goes on with what was stopped, repeats nothing, stops in time."""
import signal
import subprocess
import sys
import threading
import time

import accuracy_plan
import gpus

SECONDS_TO_SAVE = 30


def finished(job):
    return (job.folder / "report.json").exists()


def ready(job):
    return job.needs is None or job.needs.exists()


class Runner:
    def __init__(self, program, device, minutes=None):
        self.program, self.device = str(program), device
        self.deadline = time.monotonic() + 60 * minutes if minutes else None
        self.problems = []

    def late(self):
        return self.deadline is not None and time.monotonic() >= self.deadline

    def run(self, job, gpu):
        if not finished(job) and not self.late():
            self.call(job, gpu, self.training(job))
            if finished(job):
                leave_only(job)
        print(f"  {job.folder.parent.name}/{job.folder.name}: {'done' if finished(job) else 'not finished'}", file=sys.stderr, flush=True)

    def training(self, job):
        if (job.folder / "recipe.yaml").exists():
            return ["train", str(job.folder), "--resume"]
        sets = [word for setting in job.settings for word in ("--set", setting)]
        return ["train", str(job.recipe or accuracy_plan.recipe_file(job.network)), "--out", str(job.folder), *sets]

    def call(self, job, gpu, words):
        """stdout of octet, or None if it failed or the time was over; stderr goes to a log beside the run, each line with its second."""
        command, start = [self.program, *words, "--device", self.device], time.monotonic()
        job.folder.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{job.folder}.log", "a") as log:
            print("$", " ".join(command), file=log, flush=True)
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                       env=gpus.environment(gpu))
            last = ["no message"]

            def follow():
                for line in process.stderr:
                    last[0] = line.strip() or last[0]
                    print(f"{time.monotonic() - start:7.1f}  {line.rstrip()}", file=log, flush=True)
            out = []
            readers = [threading.Thread(target=follow), threading.Thread(target=lambda: out.append(process.stdout.read()))]
            for reader in readers:
                reader.start()
            stopped = not self.wait(process)
            for reader in readers:
                reader.join()
        if process.returncode != 0 and not stopped:
            self.problems.append(f"{job.folder.parent.name}/{job.folder.name}: {words[0]}: exit {process.returncode}: {last[0]}")
        return out[0] if process.returncode == 0 else None

    def wait(self, process):
        """Whether it ended by itself; at the deadline it is told to save its state, and is ended if it does not."""
        try:
            process.wait(None if self.deadline is None else max(0.0, self.deadline - time.monotonic()))
            return True
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(SECONDS_TO_SAVE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return False


def leave_only(job):
    """Weights and states fill disks: a hundred runs of 150 MB."""
    for path in job.folder.rglob("*.safetensors"):
        if not path.match(job.keep or "nothing"):
            path.unlink()
