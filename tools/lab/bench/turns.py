#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times octet on the GPU beside PyTorch, in one run: a table, and on request JSON and an SVG chart.

    tools/lab/bench/training.sh         a training step: octet's float and QAT steps; PyTorch's AMP, AMP + torch.compile; QAT of
                                    nvidia-modelopt, torchao and torch.ao, each shown to quantize and to have gradients
    tools/lab/bench/inference.sh        images in, logits out: octet's int8 engines, PyTorch fp16 with folded BatchNorm in a CUDA graph

Each measurement is a process of its own (peak memory is its alone) on random data. All of them take turns, so that a slow moment of the
machine hits everybody; the figure is the median of the turns' medians, images/s follow from it.
"""
import argparse
import importlib
import json
import multiprocessing
import pathlib
import statistics
import subprocess
import sys
import warnings

import bar_chart

MODELS = ("resnet18", "resnet50", "mobilenet_v2")
MORE = {"training": ("efficientnet_b0",), "inference": ("efficientnet_b0", "mobilenet_v3_large")}  # with --models
TRAINING = {  # label: (program, what the program calls it)
    "octet QAT fp16": ("train_bench", "qat fp16"),
    "octet QAT BatchNorm frozen": ("train_bench", "qat fp16 --freeze-batch-norm"),
    "octet QAT frozen on codes": ("train_bench", "qat fp16 --freeze-batch-norm --forward int8"),
    "octet float fp16": ("train_bench", "float fp16"),
    "PyTorch AMP fp16": ("torch", "amp"),
    "PyTorch AMP + compile": ("torch", "amp_compile"),
    "modelopt QAT AMP": ("torch", "modelopt"),
    "PT2E patched AMP + compile": ("torch", "pt2e_compile"),
    "torch.ao QAT TF32": ("torch", "qat"),
    "torch.ao QAT AMP": ("torch", "qat_amp"),
}
TRAINING_BASELINE, INFERENCE_BASELINE = "modelopt QAT AMP", "PyTorch fp16 CUDA graph"
INFERENCE = {
    "octet int8 cuda": ("octet", "cuda"),
    "octet int8 cudnn": ("octet", "cudnn"),
    "PyTorch fp16 CUDA graph": ("torch", "inference"),
}
PROOF = ("parameters", "largest_zero_share", "quantization_effect", "quantization_noise")  # of training_proof.py
PACKAGES = pathlib.Path(__file__).with_name("training_peers.txt")


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"


def run_program(command):
    """The JSON document that the program prints; its last words if it fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        return {"refused": f"{command[0]}: {error.strerror}"}
    if done.returncode != 0:
        return {"refused": last_line(done.stderr)}
    return json.loads(done.stdout)


def send_result(connection, module, function, arguments):
    warnings.simplefilter("ignore")
    try:
        connection.send(getattr(importlib.import_module(module), function)(*arguments))
    except ModuleNotFoundError as error:
        connection.send({"refused": f"missing Python package {error.name}; python3 -m pip install -r {PACKAGES}"})
    except Exception as error:  # shown in the table: one peer that cannot run stops nobody else
        connection.send({"refused": last_line(f"{type(error).__name__}: {error}")})


def in_child(function, *arguments, module="training_peers"):
    """What the module's function returns, called in a forked process: only children touch the GPU."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=send_result, args=(sender, module, function, arguments))
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        child.join()
        return {"refused": f"the process died with exit code {child.exitcode}"}
    finally:
        child.join()


def run_once(program, what, options):
    sizes = ["--batch", str(options.batch), "--size", str(options.size), "--seconds", str(options.seconds)]
    if program == "torch":
        return in_child("measure", what, options)
    if program == "train_bench":
        phase, precision, *flags = what.split()
        return run_program([options.train_bench, "--model", options.model, "--phase", phase, "--precision", precision, *flags, *sizes])
    document = run_program([options.octet, "bench", "--model", options.model, "--engine", what, *sizes, "--json", "--quiet"])
    return document if "refused" in document else document["results"][0]


def summary(turns):
    """One row from the turns of one measurement: the median turn; what all turns share is kept."""
    good = [turn for turn in turns if "refused" not in turn]
    if not good:
        return {"refused": turns[-1]["refused"]}
    row = {"median_ms": statistics.median(turn["median_ms"] for turn in good), "turns_ms": [turn["median_ms"] for turn in good]}
    if "peak_gib" in good[0]:
        row["peak_gib"] = max(turn["peak_gib"] for turn in good)
    return row | {key: good[-1][key] for key in PROOF if key in good[-1]}


def rows_of(model, batch, turns):
    """A row for each label that had a turn."""
    rows = []
    for label in (label for label in turns if turns[label]):
        row = {"model": model, "batch": batch, "label": label, **summary(turns[label])}
        if "median_ms" in row:
            row["images_per_second"] = 1e3 * batch / row["median_ms"]
        rows.append(row)
    return rows


def measure(entries, cases, arguments, keep):
    """keep(rows) after every turn: what was measured stays when a machine is taken away before the last."""
    rows = []
    for model, batch in cases:
        options = argparse.Namespace(**vars(arguments), model=model, batch=batch)
        turns = {label: [] for label in entries}
        for turn in range(arguments.turns):
            for label, (program, what) in entries.items():
                if turns[label] and "refused" in turns[label][-1]:
                    continue  # it will not change its mind
                print(f"  {model} {batch}: {label}, turn {turn + 1} of {arguments.turns}", file=sys.stderr, flush=True)
                turns[label].append(run_once(program, what, options))
                keep(rows + rows_of(model, batch, turns))
        rows += rows_of(model, batch, turns)
    return rows


def table(rows, baseline):
    """Aligned text; the last column compares each row with the baseline of its model and batch."""
    base = {(row["model"], row["batch"]): row.get("images_per_second") for row in rows if row["label"] == baseline}
    lines = [f"{'model':<14}{'batch':>6}  {'program':<28}{'ms':>10}{'images/s':>11}{'peak GiB':>10}{'x ' + baseline:>{len(baseline) + 4}}"]
    for row in rows:
        line = f"{row['model']:<14}{row['batch']:>6}  {row['label']:<28}"
        if "refused" in row:
            lines.append(f"{line}  refused: {row['refused']}")
            continue
        peak = f"{row['peak_gib']:.1f}" if "peak_gib" in row else ""
        other = base.get((row["model"], row["batch"]))
        times = f"{row['images_per_second'] / other:.2f}" if other else ""
        lines.append(f"{line}{row['median_ms']:>10.3f}{row['images_per_second']:>11,.0f}{peak:>10}{times:>{len(baseline) + 4}}")
    return "\n".join(lines)


def chart(rows, title):
    groups = {}
    for row in rows:
        bar = bar_chart.Bar(row["label"], row.get("images_per_second"), row.get("refused", ""))
        groups.setdefault(f"{row['model']}, batch {row['batch']}", []).append(bar)
    return bar_chart.bar_chart(title, "images/s", groups)


def main():
    build = pathlib.Path(__file__).resolve().parents[3] / "build"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("training", "inference"))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batch", help="comma-separated (default: training 256; inference 1,32,128,256)")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring, each turn")
    parser.add_argument("--only", help="comma-separated labels as in the table (default: all)")
    parser.add_argument("--octet", default=str(build / "octet"))
    parser.add_argument("--train-bench", default=str(build / "bin" / "train_bench"))
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    parser.add_argument("--svg", type=pathlib.Path, help="write the chart to this file")
    arguments = parser.parse_args()

    training = arguments.what == "training"
    entries = TRAINING if training else INFERENCE
    if arguments.only:
        unknown = [label for label in arguments.only.split(",") if label not in entries]
        if unknown:
            parser.error(f"--only: '{unknown[0]}' is none of {', '.join(entries)}")
        entries = {label: entries[label] for label in arguments.only.split(",")}
    known = MODELS + MORE[arguments.what]
    unknown = [model for model in arguments.models.split(",") if model not in known]
    if unknown:
        parser.error(f"--models: '{unknown[0]}' is none of {', '.join(known)}")
    batches = [int(batch) for batch in (arguments.batch or ("256" if training else "1,32,128,256")).split(",")]
    del arguments.batch
    import training_peers  # noqa: F401 -- PyTorch: once, for all children, but not for --help and wrong arguments
    machine = in_child("machine")
    if "refused" in machine:
        sys.exit(f"turns: PyTorch has no GPU: {machine['refused']}")

    def keep(rows):
        if arguments.json:
            document = {"what": arguments.what, "size": arguments.size, "turns": arguments.turns, **machine, "rows": rows}
            arguments.json.write_text(json.dumps(document, indent=2) + "\n")
        if arguments.svg:
            arguments.svg.write_text(chart(rows, f"{arguments.what.capitalize()}, {arguments.size}x{arguments.size}, {machine['gpu']}"))

    rows = measure(entries, [(model, batch) for model in arguments.models.split(",") for batch in batches], arguments, keep)
    print(table(rows, TRAINING_BASELINE if training else INFERENCE_BASELINE))
    if any("refused" in row and row["label"].startswith("octet") for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
