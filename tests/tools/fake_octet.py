# SPDX-License-Identifier: Apache-2.0
"""Stands in for octet in accuracy_scripts_test.py: `train`, its run directory, its --resume and its exit codes, without any training."""
import json
import os
import pathlib
import shlex
import signal
import sys
import time

WEIGHTS = ("float.safetensors", "qat.safetensors", "int8.safetensors", "checkpoints/qat.state.safetensors")


def report(settings):
    """Top-1 by seed and variant; each phase ends at the figure of its last epoch."""
    top1 = 0.9 + 0.01 * int(settings["seed"])
    top1 += 0.01 if settings.get("data.cutout") == "12" else 0
    top1 -= 0.002 if settings.get("quant.scales") == "observed" else 0
    control = settings.get("qat.float_control") == "true"
    phases = [phase for phase, key in (("float", "train.epochs"), ("qat", "qat.epochs")) if settings.get(key) != "0"]
    counts = {"float": 2, "qat": int(settings.get("qat.epochs", 2))}
    epochs = [{"phase": phase, "epoch": epoch, "validation_top1": top1 - (0.1 if epoch == 1 else 0), "validation_loss": 1 - top1,
               "images_per_second": 1000 * epoch, "seconds": 2.0, "learning_rate": float(settings.get("qat.learning_rate", 0.004))}
              for phase in phases + (["float_control"] if control else []) for epoch in range(1, 1 + counts.get(phase, counts["qat"]))]
    baseline = "float_control" if control else "float"
    rows = {"float": top1, "ptq": top1 - 0.01, baseline: top1, "qat_graph": top1 - 0.001, "cuda": top1 - 0.001}
    told = "FAKE_OLD" not in os.environ  # which of the 10,000 pictures are right: the first ones
    right = {name: f"{(1 << 10000) - (1 << 10000 - round(10000 * rows[name])):02500x}" if told else None for name in rows}
    qat = "".join(f"  {name.removeprefix('qat.')}: {value}\n" for name, value in settings.items() if name.startswith("qat."))
    return {"epochs": epochs, "seed": int(settings["seed"]), "machine": "a CPU, 16 cores; a GPU", "seconds": 60.0,
            "recipe": f"seed: {settings['seed']}\n\nqat:\n{qat}",
            "rows": [{"name": name, "top1": rows[name], "right": right[name]} for name in rows],
            "headline": {"baseline": baseline, "int8_row": "cuda", "points_lost": 0.1, "only_baseline_right": 30, "only_int8_right": 20,
                         "paired_images": 10000, "compared_codes": 1000},
            "comparison": {"programs": ["qat_graph", "simulation", "cuda"], "exact": [False, True],
                           "layers": [{"differing": [9, 0]}, {"differing": [9, int(settings["seed"]) // 2]}]}}


def main():
    words = sys.argv[1:]
    settings = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--set")
    resumed = "--resume" in words
    folder = pathlib.Path(words[1] if resumed else words[words.index("--out") + 1])
    with open(os.environ["FAKE_CALLS"], "a") as calls:
        print(json.dumps({"words": words, "settings": settings, "gpu": os.environ.get("CUDA_VISIBLE_DEVICES")}), file=calls)
    if resumed:
        settings = json.loads((folder / "recipe.yaml").read_text())
    weights = settings.get("model.weights")
    if weights and not pathlib.Path(weights).exists():
        sys.exit(f"octet: {weights}: no such file")
    if os.environ.get("FAKE_FAILS", "nothing") in str(folder):
        print("octet: training diverged\n", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "command.txt", "a") as commands:
        print("octet", shlex.join(words), file=commands)
    (folder / "recipe.yaml").write_text(json.dumps(settings))
    if not resumed and os.environ.get("FAKE_SLOW", "nothing") in str(folder):
        signal.signal(signal.SIGINT, lambda *_: ((folder / "saved").touch(), os._exit(130)))
        print("float 1/2: slow", file=sys.stderr, flush=True)
        time.sleep(60)
    for name in WEIGHTS:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    (folder / "report.json").write_text(json.dumps(report(settings)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
