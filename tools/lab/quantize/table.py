#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""octet quantize beside OpenVINO NNCF's and ONNX Runtime's post-training quantization: time, memory, codes, accuracy.

Each quantization is a process of its own, one after the other, from the ONNX file and the same pictures to the int8
network's file. Every result becomes a line of OUT/results.jsonl; what stands there and did not fail is not run again.
The tables are printed at the end; --table prints them without running anything. This file needs the standard library
only; the other tools run under --python.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.append(str(HERE.parent / "gpu"))
import markdown  # noqa: E402
import pictures  # noqa: E402

TOOLS = {"octet": "safetensors", "nncf": "xml", "ort": "onnx", "ort_channel": "onnx"}  # what they write
PEERS = {"nncf": "NNCF", "ort": "ORT", "ort_channel": "ORT by channel"}


def run_child(command, limit, **environment):
    """Runs a command: its seconds, its own peak memory, what it printed, and its last words where it failed."""
    row, start = {"load_before": round(os.getloadavg()[0], 2)}, time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **environment})
        timer = threading.Timer(limit, child.kill)
        timer.start()
        _, status, usage = os.wait4(child.pid, 0)  # of this child alone, unlike getrusage(RUSAGE_CHILDREN)
        timer.cancel()
        child.returncode = row["code"] = os.waitstatus_to_exitcode(status)
        row.update(seconds=round(time.perf_counter() - start, 3), cpu_seconds=round(usage.ru_utime + usage.ru_stime, 3),
                   peak_mib=round(usage.ru_maxrss / 1024, 1))
        out.seek(0), err.seek(0)
        lines = [line.strip() for line in err.read().decode(errors="replace").splitlines() if line.strip()]
        if child.returncode != 0:
            last = lines[-1] if lines else f"exit code {child.returncode}"
            row["failed"] = f"not done after {limit} s" if row["seconds"] >= limit else last[:500]
        return {**row, "out": out.read().decode(errors="replace")}


def octet_words(settings):
    """octet's options for what networks.py says of a network's input."""
    words = ["--fit", settings["fit"], "--order", settings.get("order", "rgb")]
    words += ["--mean", ",".join(map(str, settings["mean"])), "--std", ",".join(map(str, settings["std"]))]
    return words + (["--resize", str(settings["resize"])] if settings["fit"] == "crop" else [])


def quantize(options, network, tool):
    """One quantization by one tool, as a row of results.jsonl."""
    onnx = options.networks / f"{network}.onnx"
    place = options.out / "int8" / network
    place.mkdir(parents=True, exist_ok=True)
    out = place / f"{tool}.{TOOLS[tool]}"
    if tool == "octet":
        settings = json.loads(onnx.with_suffix(".json").read_text())
        words = ["--images", options.calibration, "--limit", str(options.limit), "--out", out, "--device", "cpu"]
        words += ["--json", "--quiet", "--force", *octet_words(settings)]
        row = run_child([options.octet, "quantize", onnx, *words], options.seconds)
    else:
        row = run_child([options.python, HERE / "peer.py", tool, onnx, options.calibration, out], options.seconds)
    text = row.pop("out")
    if tool == "octet" and text:
        answer = json.loads(text)
        row.pop("failed", None)  # codes that differ are exit code 1, and a result
        row.update(codes=answer["codes"], differing_codes=answer["differing_codes"], ranges=answer["ranges"],
                   outputs=len(answer["outputs"]), sqnr_db=min(o["sqnr_db"] for o in answer["outputs"]))
    elif "failed" not in row:
        row.update(json.loads(text.splitlines()[-1]))
    return {"network": network, "tool": tool, "limit": options.limit, **row}


def accuracy(options, network):
    """Which pictures of the hold-outs each int8 network and the float one name rightly, as a row of results.jsonl."""
    command = [options.python, HERE / "accuracy.py", options.networks / f"{network}.onnx",
               options.out / "int8" / network, "--wnids", options.wnids, "--limit", str(options.holdout_limit),
               *options.holdout]
    runtime = options.octet.resolve().parent / "src" / "runtime" / "liboctet_runtime.so"
    row = run_child(command, 20 * options.seconds, OCTET_RUNTIME=str(runtime))
    text = row.pop("out")
    if "failed" not in row:
        row["right"] = json.loads(text.splitlines()[-1])
    return {"network": network, "tool": "accuracy", "limit": options.limit, **row}


def read_results(file, limit):
    """The newest row of each network and tool, of runs with so many pictures."""
    rows = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        row = json.loads(line)
        if row["limit"] == limit:
            rows[row["network"], row["tool"]] = row
    return rows


def difference(ours, theirs):
    """Difference of two shares of right answers on the same pictures and half of its 95 % interval, in percent points:
    Wald's interval for matched pairs (Agresti, Categorical Data Analysis, 2nd edition, 10.1.1)."""
    n = len(ours)
    gained = sum(a > b for a, b in zip(ours, theirs, strict=True))
    lost = sum(a < b for a, b in zip(ours, theirs, strict=True))
    mean = (gained - lost) / n
    return 100 * mean, 196 * math.sqrt(max(0.0, (gained + lost) / n - mean * mean) / n)


def cost(row, key, digits=1):
    if row is None:
        return ""
    return "failed" if "failed" in row else f"{row[key]:,.{digits}f}"


def cost_table(networks, rows, trained):
    """CPU seconds and peak memory of each tool, and what octet proved: refusals first, then what takes octet longest.
    CPU seconds, since a busy machine changes them little."""
    header = ["network", "weights", "octet CPU s", "MiB"]
    for title in PEERS.values():
        header += [f"{title} CPU s", "MiB"]
    header += ["octet / NNCF", "codes that differ", "SQNR dB"]
    lines, refused = [], []
    for network in networks:
        ours = rows.get((network, "octet"))
        theirs = rows.get((network, "nncf"))
        line = [network, "trained" if trained[network] else "random"]
        for tool in TOOLS:
            row = rows.get((network, tool))
            line += [cost(row, "cpu_seconds"), cost(row, "peak_mib", 0)]
            if row and "failed" in row:
                refused.append(f"{network}, {tool}: {row['failed']}")
        done = ours and "failed" not in ours
        both = done and theirs and "failed" not in theirs
        line.append(f"{ours['cpu_seconds'] / theirs['cpu_seconds']:.2f}" if both else "")
        line += [f"{ours['differing_codes']:,} of {ours['codes']:,}", f"{ours['sqnr_db']:.1f}"] if done else ["", ""]
        lines.append(((bool(ours) and not done, ours["cpu_seconds"] if ours else 0), line))
    lines.sort(key=lambda entry: entry[0], reverse=True)
    return markdown.table(header, [line for _, line in lines]), refused


def accuracy_table(networks, rows):
    """Top-1 of the hold-outs, and octet's paired differences: where it stands worst against a peer first."""
    header = ["network", "pictures", "float", "octet", *PEERS.values()]
    header += [f"octet - {title}" for title in ("float", *PEERS.values())]
    lines = []
    for network in networks:
        right = rows.get((network, "accuracy"), {}).get("right", {})
        together = {tool: "".join(answers.get(tool, "") for answers in right.values()) for tool in ("float", *TOOLS)}
        for name, answers in [*right.items(), *([("all", together)] if len(right) > 1 else [])]:
            ours = answers.get("octet")
            shares = {t: 100 * text.count("1") / len(text) for t, text in answers.items() if text}
            top1 = [f"{shares[t]:.1f}" if t in shares else "" for t in ("float", *TOOLS)]
            gaps = {t: difference(ours, answers[t]) for t in ("float", *PEERS) if ours and answers.get(t)}
            words = [f"{gaps[t][0]:+.2f} ± {gaps[t][1]:.2f}" if t in gaps else "" for t in ("float", *PEERS)]
            worst = min((gap for t, (gap, _) in gaps.items() if t in PEERS), default=0)
            lines.append((worst, [network, f"{len(answers['float']):,} of {name}", *top1, *words]))
    lines.sort(key=lambda entry: entry[0])
    return markdown.table(header, [line for _, line in lines]) if lines else ""


def report(networks, rows, trained):
    table, refused = cost_table(networks, rows, trained)
    parts = [table, *(f"- {line}" for line in refused)]
    gained = accuracy_table(networks, rows)
    busy = max((row["load_before"] for row in rows.values()), default=0)
    parts += ["", gained] if gained else []
    return "\n".join([*parts, "", f"highest load average before a run: {busy:.1f}"])


def lay_out_calibration(options):
    """The pictures that all tools calibrate on, as files of one folder."""
    folder = options.out / f"calibration{options.limit}"
    if folder.exists():
        return folder
    fresh = folder.with_suffix(".part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for name, read in pictures.evenly_spaced(pictures.files_of(options.images), options.limit):
        (fresh / name.replace("/", "_")).write_bytes(read())
    return fresh.rename(folder)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=pathlib.Path, required=True, help="folder that networks.py wrote")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of results.jsonl and the int8 networks")
    parser.add_argument("--images", type=pathlib.Path, help="folder or .tar of pictures to calibrate on")
    parser.add_argument("--limit", type=int, default=200, help="how many of them (default: 200)")
    parser.add_argument("--holdout", type=pathlib.Path, nargs="*", default=[], help=".tar of pictures by wnids")
    parser.add_argument("--holdout-limit", type=int, default=1000000, help="at most so many of each")
    parser.add_argument("--wnids", type=pathlib.Path, help="file whose line n names class n")
    parser.add_argument("--octet", type=pathlib.Path, default=ROOT / "build" / "octet")
    parser.add_argument("--python", default=sys.executable, help="has numpy, Pillow, nncf, openvino, onnx, onnxruntime")
    parser.add_argument("--only", help="networks, separated by commas")
    parser.add_argument("--tools", default=",".join([*TOOLS, "accuracy"]), help="separated by commas (default: all)")
    parser.add_argument("--seconds", type=float, default=1800, help="a tool that takes longer is ended (default: 1800)")
    parser.add_argument("--again", action="store_true", help="run what stands in results.jsonl, too")
    parser.add_argument("--table", action="store_true", help="print the tables only")
    options = parser.parse_args()
    if not options.table and not options.images:
        parser.error("--images: the folder or .tar to calibrate on")
    return options


def main():
    options = arguments()
    about = {file.stem: json.loads(file.read_text()) for file in sorted(options.networks.glob("*.json"))}
    networks = options.only.split(",") if options.only else list(about)
    unknown = [network for network in networks if network not in about]
    if unknown:
        sys.exit(f"table: no {', '.join(unknown)} in {options.networks}; networks.py writes it")
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "results.jsonl"
    rows = read_results(file, options.limit)
    tools = [] if options.table else options.tools.split(",")
    options.calibration = tools and lay_out_calibration(options)
    for network in networks:
        for tool in tools:
            if not options.again and "failed" not in rows.get((network, tool), {"failed": "not run"}):
                continue
            labelled = options.holdout and about[network]["trained"] and about[network]["classifier"]
            if tool == "accuracy" and not labelled:
                continue
            row = accuracy(options, network) if tool == "accuracy" else quantize(options, network, tool)
            with file.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
            rows[network, tool] = row
            said = f"{network} {tool}: {row['seconds']:.1f} s, {row['peak_mib']:,.0f} MiB {row.get('failed', '')}"
            print(said, file=sys.stderr, flush=True)
    print(report(networks, rows, {network: about[network]["trained"] for network in networks}))


if __name__ == "__main__":
    main()
