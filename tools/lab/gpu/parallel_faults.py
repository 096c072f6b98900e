# SPDX-License-Identifier: Apache-2.0
"""Parts faults and hang of parallel.py: one of the processes dies or stops."""
import os
import pathlib
import signal
import subprocess
import time

import parallel_runs

SECONDS_TO_STOP = SECONDS_TO_SEE_A_HANG = 30
SYNTHETIC = ["data.format=synthetic", "data.path=", "data.channels=3", "data.image_size=32", "data.validation_fraction=0.2",
             "data.limit_validation=64", "data.limit_test=256", "data.mean=[0.5,0.5,0.5]", "data.std=[0.25,0.25,0.25]"]


def disturbed(options, name, number, limit):
    """A run one of whose processes gets a signal once its first state is saved."""
    folder = options.folder / name
    settings = [*SYNTHETIC, *parallel_runs.SHORT, "qat.epochs=1", "data.synthetic_size=1280", "data.limit_train=1024", "train.epochs=1000",
                "train.precision=fp32", "qat.precision=fp32"]
    words = [str(word) for word in parallel_runs.train("resnet20_cifar10_int8", folder, options.count, settings, options)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        begin = time.monotonic()
        while not (folder / "checkpoints/float.state.safetensors").exists():
            if process.poll() is not None or time.monotonic() > begin + 60:
                process.kill()
                raise parallel_runs.Failed(f"no state was saved: {process.communicate()[1].strip()[-400:]}")
            time.sleep(0.05)
        time.sleep(2)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[-1]), number)
        start = time.monotonic()
        errors = process.communicate(timeout=limit + 20)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise parallel_runs.Failed(f"the others did not stop in {limit + 20} s") from None
    seconds = time.monotonic() - start
    words = [line for line in errors.strip().splitlines() if "rank" in line]
    named = any(f"stops: rank {options.count - 1}" in line for line in words)  # by another rank, not by the launcher that killed it
    return {"good": process.returncode == 1 and seconds <= limit and named,
            "seconds_to_stop": round(seconds, 1), "exit": process.returncode, "words": words}


def faults(options):
    result = disturbed(options, "faults", signal.SIGKILL, SECONDS_TO_STOP)
    process = subprocess.Popen([str(options.octet), "train", str(options.folder / "faults"), "--resume", "--gpus", str(options.count),
                                "--device", options.device], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(15 if options.device == "cuda" else 10)  # 1000 epochs are not waited for: Ctrl-C saves
    process.send_signal(signal.SIGINT)
    try:
        errors = process.communicate(timeout=30)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        raise parallel_runs.Failed("resumed, it did not stop on Ctrl-C") from None
    resumed = [line for line in errors.splitlines() if "resumed from" in line]
    return {**result, "good": result["good"] and process.returncode == 130 and bool(resumed), "resumed": resumed, "exit_of_resumed": process.returncode}


def hang(options):
    return disturbed(options, "hang", signal.SIGSTOP, SECONDS_TO_SEE_A_HANG)
