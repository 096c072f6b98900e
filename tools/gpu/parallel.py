#!/usr/bin/env python3
"""Several processes that train one network, a GPU each: how fast beside one, whether alike, what happens when one dies.

Parts, each with a time limit of its own; what is known is in parallel.json after every part:
    speed    a QAT step in fp16 on random pictures: images/s of all GPUs beside one, in this call
    pipeline ResNet-50 cut in two where the GPU's own times say, 8 micro-batches of 128 and of 32: images/s and peak memory beside one GPU
    agree    fp32, deterministic: 50 steps with the same batches on one GPU and on all; how far apart the weights are, and, as a control
             (other_order), those of one GPU that gets the pictures of each batch in another order. After each step octet itself holds
             the bits of all ranks together, ranges included, and stops where they differ.
    faults   a process is killed: do the others stop, how soon, with which words; --resume goes on with as many
    hang     a process is stopped (SIGSTOP): likewise
    report   a run of ResNet-18 on CIFAR-10 from data to report, on one GPU and on all, with octet compare after it
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent import futures

import gpus
import pictures
import programs
import tensors

sys.path.append(str(programs.ROOT / "tools" / "bench"))
import step_model  # noqa: E402

RECIPES = programs.ROOT / "recipes"
MODELS = {"resnet50": 1.94, "resnet18": 1.90, "mobilenet_v2": 1.90}  # images/s of two GPUs beside one, to reach
SYNCHRONIZED = {"resnet50": 1.85}  # likewise with synchronized BatchNorm
JUDGED_BATCH = 1024  # part pipeline: 8 micro-batches of 128
LARGEST_DISTANCE, SECONDS_TO_STOP, SECONDS_TO_SEE_A_HANG = 1e-5, 30, 30
SYNTHETIC = ["data.format=synthetic", "data.path=", "data.channels=3", "data.image_size=32", "data.validation_fraction=0.2",
             "data.limit_validation=64", "data.limit_test=256", "data.mean=[0.5,0.5,0.5]", "data.std=[0.25,0.25,0.25]"]
SHORT = ["train.warmup_epochs=0", "calibrate.images=64", "evaluate.reference_images=8"]
NETWORK = [*SHORT, "qat.epochs=1"]


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


def step_times(model, count, options, *more, limit=60):
    """What train_bench prints: one process, or `count` that train together."""
    command = [programs.program("train_bench"), "--model", model, *more, *(["--seconds", "0.05", "--batch", "32"] if options.dry else [])]
    if count == 1:
        return json.loads(run(command, limit, gpus.environment(options.visible[0])))
    common = {**os.environ, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    others = [subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, env={**common, "RANK": str(rank)})
              for rank in range(1, count)]
    try:
        return json.loads(run(command, limit, {**common, "RANK": "0"}))
    finally:
        for other in others:
            other.kill()
            other.wait()


def speed(options):
    """waiting_ms: of a step, what the backward pass did not hide of the exchange; exchange_ms: the exchange alone, one sum of all gradients."""
    if options.device == "cpu":
        return {"skipped": "needs GPUs"}
    rows = {}
    for model, least in MODELS.items():
        one = step_times(model, 1, options)
        variants = {model: (least, []), f"{model} fp16 exchange": (None, ["--exchange", "fp16"])}
        if model in SYNCHRONIZED:
            variants[f"{model} sync_batch_norm"] = (SYNCHRONIZED[model], ["--sync-batch-norm"])
        for name, (to_reach, more) in variants.items():
            all_ = step_times(model, options.count, options, *more)
            rows[name] = {"factor": round(all_["images_per_second"] / one["images_per_second"], 3),
                          "to_reach": to_reach if options.count == 2 else None,
                          "milliseconds": [one["median_ms"], all_["median_ms"]], "peak_gib": [one["peak_gib"], all_["peak_gib"]],
                          "images_per_second": [round(one["images_per_second"]), round(all_["images_per_second"])], "batch": one["batch"],
                          **{key: all_[key] for key in ("exchange_ms", "waiting_ms", "gradient_bytes")}}
            print(f"  {name}: {rows[name]}", file=sys.stderr, flush=True)
    print(step_model.table({"processes": options.count, "speed": rows}, [4, 8, 16], network=50), file=sys.stderr, flush=True)
    return {"good": options.dry or all(row["to_reach"] is None or row["factor"] >= row["to_reach"] for row in rows.values()), **rows}


def piped(options, bench, batch, ones):
    """Two stages of 8 micro-batches, recorded as a CUDA graph as runs are; where that fails, launched kernel by kernel."""
    words = ["--micro-batches", "8", *(["--size", "64"] if options.dry else ["--batch", str(batch), "--seconds", "1"])]
    size = ["--batch", "32"] if options.dry else []
    proposed = json.loads(run([bench, "--model", "resnet50", "--propose", "2", *words, *size], 60, gpus.environment(options.visible[0])))
    words += ["--stages", proposed["stages"][0]]
    alone = step_times("resnet50", 1, options, *words)  # the same micro-batches, both stages on one GPU
    tries = {}
    for name, more in (("recorded", []), ("eager", ["--eager"])):
        try:
            tries[name] = step_times("resnet50", 2, options, *words, *more, limit=40)
            break
        except Failed as failure:
            tries[name] = {"failed": str(failure)}
            print(f"  {name}: {failure}", file=sys.stderr, flush=True)
    two = tries[name]
    if "failed" in two:
        raise Failed(f"{tries}")
    one = ones[batch]
    fastest = max(ones.values(), key=lambda times: times["images_per_second"])
    row = {"factor": round(two["images_per_second"] / fastest["images_per_second"], 3), "beside_one_with_batch": fastest["batch"],
           "memory": round(max(two["peak_gib_by_rank"]) / one["peak_gib"], 3), "proposed": proposed, "how": name,
           "milliseconds": {"one": one["median_ms"], "one_with_micro_batches": alone["median_ms"], "two": two["median_ms"]},
           "images_per_second": {"one": round(one["images_per_second"]), "one_with_micro_batches": round(alone["images_per_second"]),
                                 "two": round(two["images_per_second"])},
           "peak_gib": {"one": one["peak_gib"], "two": two["peak_gib_by_rank"]}, "waiting_ms": two["waiting_ms"],
           "failed": [text for text in (tried.get("failed") for tried in tries.values()) if text]}
    print(f"  batch {batch}: {row}", file=sys.stderr, flush=True)
    return row


def pipeline(options):
    """Two stages whatever the number of GPUs. Judged is the larger batch: with 8 micro-batches of 32 pictures a GPU is not filled, whoever
    computes them. Its images/s stand beside those of the faster of the two whole batches on one GPU, its memory beside one GPU's with the
    same batch."""
    if options.device == "cpu":
        return {"skipped": "needs GPUs"}
    ones = {batch: step_times("resnet50", 1, options, *([] if options.dry else ["--batch", str(batch)])) for batch in (JUDGED_BATCH, 256)}
    rows = {f"{batch} pictures": piped(options, programs.program("train_bench"), batch, ones) for batch in ones}
    judged = rows[f"{JUDGED_BATCH} pictures"]
    return {"good": options.dry or (judged["factor"] >= 1.6 and judged["memory"] <= 0.65), "judged": f"{JUDGED_BATCH} pictures",
            "to_reach": 1.6, "memory_to_reach": 0.65, **rows}


def train(recipe, folder, count, settings, options):
    """The command; `count` 1 is one process on one GPU."""
    together = ["--gpus", count] if count > 1 else []
    sets = [word for setting in settings for word in ("--set", setting)]
    return [programs.program("octet"), "train", RECIPES / f"{recipe}.yaml", "--out", folder, "--device", options.device, *together, *sets]


def of_one(options):
    return gpus.environment(options.visible[0]) if options.visible else None


def agree(options):
    """BatchNorm would normalize each share by itself: a network without. An epoch is a step with one batch of all pictures: bits are compared
    after each, and the pictures' order in their files is that in the batch, shuffled alike. The control says what an order is worth."""
    steps, batch = 3 if options.dry else 50, 256 if options.device == "cuda" else 32
    train_pictures, others = pictures.records(batch, seed=1), pictures.records(320, seed=2)
    for name, records in {"pictures": train_pictures, "other_order": train_pictures[::-1]}.items():
        pictures.write(options.folder / name, records, others[:64])
    pictures.write(options.folder / "test", train_pictures, others[64:])
    settings = [*SHORT, "model.folded=true", "train.precision=fp32", "qat.precision=fp32", "cuda.deterministic=true", "cuda.tf32=false",
                "data.validation=test", "data.validation_fraction=0", "data.test=test", f"data.test_path={options.folder / 'test'}",
                "data.pad=0", "data.flip=false", "data.cutout=0", f"train.batch_size={batch}", f"qat.batch_size={batch}",
                "train.learning_rate=0.01", f"train.epochs={steps}", "quant.scales=fixed", "qat.epochs=0", "qat.float_control=false",
                "data.limit_validation=8", "data.limit_test=8"]
    seconds = {}

    def timed(name, count, of, gpu=0):
        start = time.monotonic()
        words = train("resnet20_cifar10_int8", options.folder / f"agree_{name}", count, [*settings, f"data.path={options.folder / of}"], options)
        run(words, 90, gpus.environment(options.visible[gpu]) if count == 1 and options.visible else None)
        seconds[name] = round(time.monotonic() - start, 1)

    with futures.ThreadPoolExecutor() as pool:  # a GPU each
        for done in [pool.submit(timed, "one", 1, "pictures", 0), pool.submit(timed, "control", 1, "other_order", 1)]:
            done.result()
    timed("all", options.count, "pictures")
    apart, other_order = (tensors.largest_distance(*(options.folder / f"agree_{name}/float.safetensors" for name in ("one", other)))
                          for other in ("all", "control"))
    return {"good": apart["largest"] <= LARGEST_DISTANCE, "steps": steps, **apart, "other_order": other_order,
            "of_what_another_order_does": round(apart["largest"] / other_order["largest"], 3), "seconds": seconds}


def disturbed(options, name, number, limit):
    """A run one of whose processes gets a signal once its first state is saved."""
    folder = options.folder / name
    settings = [*SYNTHETIC, *NETWORK, "data.synthetic_size=1280", "data.limit_train=1024", "train.epochs=1000", "train.precision=fp32",
                "qat.precision=fp32"]
    words = [str(word) for word in train("resnet20_cifar10_int8", folder, options.count, settings, options)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        begin = time.monotonic()
        while not (folder / "checkpoints/float.state.safetensors").exists():
            if process.poll() is not None or time.monotonic() > begin + 60:
                process.kill()
                raise Failed(f"no state was saved: {process.communicate()[1].strip()[-400:]}")
            time.sleep(0.05)
        time.sleep(2)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[-1]), number)
        start = time.monotonic()
        errors = process.communicate(timeout=limit + 20)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Failed(f"the others did not stop in {limit + 20} s") from None
    seconds = time.monotonic() - start
    words = [line for line in errors.strip().splitlines() if "rank" in line]
    named = any(f"stops: rank {options.count - 1}" in line for line in words)  # by another rank, not by the launcher that killed it
    return {"good": process.returncode == 1 and seconds <= limit and named,
            "seconds_to_stop": round(seconds, 1), "exit": process.returncode, "words": words}


def faults(options):
    result = disturbed(options, "faults", signal.SIGKILL, SECONDS_TO_STOP)
    process = subprocess.Popen([str(programs.program("octet")), "train", str(options.folder / "faults"), "--resume", "--gpus", str(options.count),
                                "--device", options.device], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(15 if options.device == "cuda" else 10)  # 1000 epochs are not waited for: Ctrl-C saves
    process.send_signal(signal.SIGINT)
    try:
        errors = process.communicate(timeout=30)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed("resumed, it did not stop on Ctrl-C") from None
    resumed = [line for line in errors.splitlines() if "resumed from" in line]
    return {**result, "good": result["good"] and process.returncode == 130 and bool(resumed), "resumed": resumed, "exit_of_resumed": process.returncode}


def hang(options):
    return disturbed(options, "hang", signal.SIGSTOP, SECONDS_TO_SEE_A_HANG)


def report(options):
    if not (options.data / "test_batch.bin").exists():
        raise Failed(f"{options.data}: no test_batch.bin of CIFAR-10 there (--data)")
    short = ["train.warmup_epochs=0", "calibrate.images=256", "data.limit_train=1024", "data.limit_test=256"] if options.dry else ["train.warmup_epochs=1"]
    settings = [f"data.path={options.data}", f"train.epochs={1 if options.dry else options.epochs}", "qat.epochs=1", "qat.warmup_epochs=0", *short]
    rows = {}
    for count in (options.count, 1):
        folder, start = options.folder / f"report{count}", time.monotonic()
        words = train("resnet18_cifar10_int8", folder, count, settings, options)
        made = json.loads(run([*words, "--quiet", "--json"], 120 + 10 * options.epochs, of_one(options) if count == 1 else None))
        seconds = round(time.monotonic() - start, 1)
        run([programs.program("octet"), "compare", folder, "--quiet", "--device", options.device, "--images", "2000"], 90, of_one(options))
        rows[f"{count} processes"] = {"float_top1": made["headline"]["float_top1"], "int8_top1": made["headline"]["int8_top1"],
                                      "differing_codes": made["headline"]["differing_codes"], "seconds": seconds,
                                      "images_per_second": [round(epoch["images_per_second"]) for epoch in made["epochs"]]}
        shutil.copy(folder / "report.json", options.out / f"parallel_report{count}.json")
        print(f"  {count} processes: {rows[f'{count} processes']}", file=sys.stderr, flush=True)
    return {"good": all(row["differing_codes"] == 0 for row in rows.values()), **rows}


PARTS = {"speed": speed, "pipeline": pipeline, "agree": agree, "faults": faults, "hang": hang, "report": report}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, default=programs.ROOT / "data/binary", help="CIFAR-10's binary files, for part report")
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--epochs", type=int, default=3, help="report: of the float phase")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: two processes over Gloo, to try this script")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    unknown = set(options.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--only {','.join(unknown)}: of {', '.join(PARTS)}")
    options.visible = gpus.visible() if options.device == "cuda" else []
    options.count = max(2, len(options.visible))
    if options.device == "cuda" and len(options.visible) < 2:
        sys.exit("parallel: needs two GPUs")
    options.out.mkdir(parents=True, exist_ok=True)
    result = {"processes": options.count, "device": options.device}
    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        for name in options.only.split(","):
            print(f"== {name}", file=sys.stderr, flush=True)
            start = time.monotonic()
            try:
                result[name] = PARTS[name](options)
            except Failed as failure:
                result[name] = {"good": False, "failed": str(failure)}
            result[name]["seconds_of_part"] = round(time.monotonic() - start, 1)
            (options.out / "parallel.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    sys.exit(0 if all(result[name].get("good", True) for name in options.only.split(",")) else 1)


if __name__ == "__main__":
    main()
