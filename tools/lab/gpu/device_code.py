#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what device code a program holds: each kernel the same machine code and PTX as all others.

    tools/lab/gpu/device_code.py build/octet --code 80,90 --ptx 90                        preset cuda
    tools/lab/gpu/device_code.py build-cuda-all/octet --code 80,86,87,89,90,120 --ptx 80  preset cuda-all

cuobjdump of the CUDA toolkit lists the kernels (CUOBJDUMP names another). Kernels with instructions of one GPU (90a) may have that alone.
Prints how many kernels have what, names up to five that lack something, and exits 1 if any does.
"""
import argparse
import collections
import os
import re
import subprocess
import sys


def kernels(program, option, pattern):
    """{kernel: architectures for which the program holds it}, of machine code (-symbols) or of PTX (-ptx)."""
    tool = os.environ.get("CUOBJDUMP") or os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin/cuobjdump")
    text = subprocess.run([tool, option, program], check=True, stdout=subprocess.PIPE, text=True).stdout
    found, kind, arch = collections.defaultdict(set), "", ""
    for line in text.splitlines():
        if line.startswith("Fatbin "):
            kind = line.split()[1]
        elif match := re.match(r"arch = sm_(\w+)", line):
            arch = match[1]
        elif (match := re.search(pattern, line)) and kind == {"-symbols": "elf", "-ptx": "ptx"}[option]:
            found[match[1]].add(arch)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--code", required=True, help="compute capabilities of which each kernel must have machine code: 80,90")
    parser.add_argument("--ptx", required=True, help="and of which PTX")
    arguments = parser.parse_args()
    code = kernels(arguments.program, "-symbols", r"^FUNC\s.*ENTRY\s+(\S+)")
    ptx = kernels(arguments.program, "-ptx", r"\.entry\s+([\w$]+)")
    wanted = set(arguments.code.split(",")), set(arguments.ptx.split(","))
    counts, lacking = collections.Counter(), []
    for kernel in sorted(code.keys() | ptx.keys()):
        has = code[kernel], ptx[kernel]
        counts[f"machine code {','.join(sorted(has[0])) or '-'}, PTX {','.join(sorted(has[1])) or '-'}"] += 1
        if has[0] != {"90a"} and not (wanted[0] <= has[0] and wanted[1] <= has[1]):
            lacking.append(kernel)
    for what, count in counts.most_common():
        print(f"{count:5} kernels: {what}")
    for kernel in lacking[:5]:
        print(f"lacks: {kernel}")
    if lacking or not counts:
        sys.exit(f"device_code: {len(lacking)} of {sum(counts.values())} kernels lack code; it must have {arguments.code} and PTX of {arguments.ptx}")


if __name__ == "__main__":
    main()
