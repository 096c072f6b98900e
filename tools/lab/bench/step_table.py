#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernels of a training step, from ncu's CSV: for each kind of work and each kernel its launches, time, bytes of memory, and the time
that these bytes alone need.

  ncu --profile-from-start off --clock-control none --cache-control none --csv --page raw --print-units base \\
      --metrics gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum --log-file step.csv \\
      build/bin/train_bench --model resnet50 --phase qat --profile --seconds 0.1
  tools/lab/bench/step_table.py step.csv

ncu runs the kernels one after the other, so that overlaps and gaps are not in the sum. A bytes' floor is that of --bandwidth.
"""
import argparse
import collections
import csv
import pathlib
import re

TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
# The first that fits the name of a kernel, in lower case.
KINDS = [
    ("quantization", r"fake_quantize|bias_gradient|quantize_weights|weights_backward|sum_parts|sum_scale|observe|code_gradient|real_values"
                     r"|weight_codes|pack_weights|quantize_image"),
    ("int8 convolutions", r"wgmma_kernel|mma_kernel|image_conv|depthwise_.x._kernel|dp4a|direct_kernel"),
    ("weight gradients", r"wgrad|dw_wgrad|weight_grad|backward_filter"),
    ("input gradients", r"dgrad|backward_data|bprop"),
    ("forward convolutions", r"fprop|conv2d_forward|conv_depthwise2d_forward|convolve|xmma|cutlass.*conv|implicit_gemm|scudnn|winograd"),
    ("layouts for cuDNN", r"nchwtonhwc|nhwctonchw|nhwcadd|padding|cudnn.*tensor|transformtensor"),
    ("BatchNorm", r"bn_|batch_?norm|batchnorm"),
    ("pools", r"pool"),
    ("matrix products", r"gemm|nvjet|splitk|cublas"),
    ("optimizer", r"sgd|adam|multi_tensor|amp_"),
    ("sums of gradients and other elementwise", r"elementwise|add_"),
    ("reductions", r"reduce|softmax|loss"),
]


def short(name):
    """A kernel's name without its namespaces, arguments and most template arguments."""
    name = re.sub(r"^void ", "", name)
    name = re.sub(r"\((?!anonymous)[^()]*\)\s*$", "", name)
    name = re.sub(r"\(anonymous namespace\)::|at::native::|octet::kernels::|cudnn::|<unnamed>::", "", name)
    return name if len(name) <= 90 else name[:87] + "..."


def kind_of(name):
    return next((kind for kind, pattern in KINDS if re.search(pattern, name.lower())), "other")


def launches(path):
    """(name, seconds, bytes) of each kernel."""
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    rows = list(csv.DictReader(lines[first:]))[1:]  # behind the heads stand the units
    number = lambda text: float(text.replace(",", ""))
    return [(short(row["Kernel Name"]), number(row[TIME]) * 1e-9, number(row[READ]) + number(row[WRITTEN])) for row in rows]


def lines_of(groups, bandwidth, total):
    for name, (count, seconds, size) in sorted(groups.items(), key=lambda item: -item[1][1]):
        yield (f"| {name} | {count} | {seconds * 1e3:.3f} | {100 * seconds / total:.1f} % | {size / 1e9:.2f} "
               f"| {size / bandwidth * 1e3:.3f} | {size / max(seconds, 1e-9) / 1e12:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--bandwidth", type=float, default=4.28, help="TB/s of a copy; 4.28: H200, 3.0: H100")
    parser.add_argument("--kernels", type=int, default=30, help="rows of the second table")
    options = parser.parse_args()
    kinds, kernels = (collections.defaultdict(lambda: [0, 0.0, 0.0]) for _ in range(2))
    for name, seconds, size in launches(options.file):
        for group in (kinds[kind_of(name)], kernels[f"{kind_of(name)}: `{name}`"]):
            group[0] += 1
            group[1] += seconds
            group[2] += size
    total = sum(seconds for _, seconds, _ in kinds.values())
    head = "| {} | launches | ms | share | GB | ms of these bytes | TB/s |\n|---|---|---|---|---|---|---|"
    kinds_and_all = {**kinds, "**all**": [sum(group[i] for group in kinds.values()) for i in range(3)]}
    bandwidth = options.bandwidth * 1e12
    print(head.format("work"), *lines_of(kinds_and_all, bandwidth, total), sep="\n")
    largest = dict(sorted(kernels.items(), key=lambda item: -item[1][1])[:options.kernels])
    print("\n" + head.format("kernel"), *lines_of(largest, bandwidth, total), sep="\n")


if __name__ == "__main__":
    main()
