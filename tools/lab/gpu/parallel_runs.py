# SPDX-License-Identifier: Apache-2.0
"""Running octet and train_bench as one process and as several."""
import socket
import subprocess

import gpus
import programs

RECIPES = programs.ROOT / "recipes"
SHORT = ["train.warmup_epochs=0", "calibrate.images=64", "evaluate.reference_images=8"]


class Failed(Exception):
    pass


def free_port():
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def run(command, seconds, environment=None):
    """stdout; Failed with the last words of stderr, or at the time limit."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    return finish(process, seconds)


def finish(process, seconds):
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()  # what octet --gpus started ends with it
        process.communicate()
        raise Failed(f"not done in {seconds} s") from None
    if process.returncode != 0:
        raise Failed(f"exit {process.returncode}: {' | '.join(errors.strip().splitlines()[-4:])}")
    return out


def train(recipe, folder, count, settings, options):
    """The command; `count` 1 is one process on one GPU."""
    together = ["--gpus", count] if count > 1 else []
    sets = [word for setting in settings for word in ("--set", setting)]
    return [options.octet, "train", RECIPES / f"{recipe}.yaml", "--out", folder, "--device", options.device, *together, *sets]


def of_one(options):
    return gpus.environment(options.visible[0]) if options.visible else None
