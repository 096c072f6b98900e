#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times octet's cpu engine beside ONNX Runtime and OpenVINO on the same int8 networks, in one run, and prints the table.

    tools/lab/bench/peers.sh            sets up a Python of its own under .deps/ and calls this

Random weights and random images; every runtime gets the same number of threads. Runtimes take turns, so that a slow moment of the
machine hits all of them; the figure is the median over all turns, in milliseconds a batch. With --foreign a turn in which other
processes took more than that share of the cores is made again, up to three times as many turns in all.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime
import openvino

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
import qdq  # noqa: E402
import verify_checkpoint  # noqa: E402


def timed(call, seconds):
    """Milliseconds of each call, for about `seconds`, after two warm-up calls."""
    call(), call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def octet_call(arguments, path, batch):
    def run(seconds):
        out = subprocess.run([arguments.octet, "bench", path, "--engine", "cpu", "--batch", str(batch), "--threads",
                              str(arguments.threads), "--seconds", str(seconds), "--kernels", arguments.kernels, "--json", "--quiet"],
                             check=True, stdout=subprocess.PIPE).stdout
        return [json.loads(out)["results"][0]["median_ms"]]
    return run


def onnxruntime_call(arguments, model, images):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda seconds: timed(lambda: session.run(None, {session.get_inputs()[0].name: images}), seconds)


def openvino_call(arguments, model, images):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model.SerializeToString(), b""), "CPU",
                                  {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": arguments.threads})
    request = compiled.create_infer_request()
    return lambda seconds: timed(lambda: request.infer({0: images}), seconds)


def busy_seconds():
    """Seconds of work of all cores since the start of the machine: of all processes, and of this one and its children."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, interrupts, soft = fields[:7]
    own = os.times()
    return ((user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK"),
            own.user + own.system + own.children_user + own.children_system)


def foreign_share(call):
    """What call() returns, and the share of the cores that other processes took meanwhile."""
    start, (all_before, own_before) = time.perf_counter(), busy_seconds()
    result = call()
    seconds, (all_after, own_after) = time.perf_counter() - start, busy_seconds()
    return result, (all_after - all_before - own_after + own_before) / (seconds * os.cpu_count())


def measure(arguments, model, batch, folder):
    path = str(folder / f"{model}.safetensors")
    if not pathlib.Path(path).exists():
        subprocess.run([arguments.octet, "bench", "--model", model, "--save", path, "--batch", "1", "--seconds", "0.1", "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)
    checkpoint = verify_checkpoint.read_checkpoint(path)
    c, h, w = checkpoint["nodes"][0]["shape"]
    images = np.random.default_rng(1).standard_normal((batch, c, h, w), np.float32)
    network = qdq.to_onnx(checkpoint, batch)
    calls = {"octet": octet_call(arguments, path, batch), "onnxruntime": onnxruntime_call(arguments, network, images),
             "openvino": openvino_call(arguments, network, images)}
    times = {name: [] for name in calls}
    left = 3 * arguments.turns
    for _ in range(arguments.turns):
        turn, share = foreign_share(lambda: {name: call(arguments.seconds) for name, call in calls.items()})
        left -= 1
        while share > arguments.foreign and left > 0:
            turn, share = foreign_share(lambda: {name: call(arguments.seconds) for name, call in calls.items()})
            left -= 1
        if share > arguments.foreign:
            sys.exit(f"peers: {model}, batch {batch}: other processes take {share:.0%} of the cores; end them, or leave --foreign out")
        for name in calls:
            times[name] += turn[name]
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--octet", default="build/octet")
    parser.add_argument("--models", default="resnet50,resnet18,mobilenet_v2")
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kernels", default="auto", help="octet's path, such as avx512_vnni (OpenVINO: ONEDNN_MAX_CPU_ISA)")
    parser.add_argument("--foreign", type=float, default=1.0, help="most of the cores that other processes may take, 0 to 1")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", help="write the figures to this file too")
    arguments = parser.parse_args()
    rows = []
    print(f"{'model':<14}{'batch':>6}{'octet ms':>10}{'onnxruntime':>13}{'openvino':>10}{'octet/openvino':>16}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for model in arguments.models.split(","):
            for batch in map(int, arguments.batch.split(",")):
                row = measure(arguments, model, batch, pathlib.Path(folder))
                rows.append({"model": model, "batch": batch, **row})
                print(f"{model:<14}{batch:>6}{row['octet']:>10.2f}{row['onnxruntime']:>13.2f}{row['openvino']:>10.2f}"
                      f"{row['octet'] / row['openvino']:>16.2f}", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
