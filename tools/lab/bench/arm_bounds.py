#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The static bound of the Arm kernels' inner loops: what LLVM's model of a processor says that one pass takes.

usage: tools/lab/bench/arm_bounds.py [BUILD]     default: build-arm64, made by cmake --preset arm64; needs llvm-mca-19 (Debian: llvm-19)

Takes the full tile's loop from each object file of kernels/conv/cpu and prints multiply-adds a cycle and their share of the modelled peak. It
is a bound for data in L1: no memory, no packing, no end of a tile, and no measurement. LLVM 19 has models of the processors below; for Cortex-A76,
A78 and X1 it takes that of Cortex-A57, so they are left out.
"""
import pathlib
import re
import subprocess
import sys

# The loop of a kernel: object file, what its function's name contains, the instruction that marks it, multiply-adds of one instruction.
LOOPS = {
    "neon, 2x8": ("neon", "gemmILi2E", r"sm(ull|lal)2?$", 8),
    "dotprod, 4x16": ("dotprod", "gemmILi4ELi2E", r"sdot$", 16),
    "i8mm, 4x16": ("i8mm", "gemmILi4ELi2E", r"usmmla$", 32),
    "depthwise": ("neon", "run_pixels", r"sm(ull|lal)2?$", 8),
}
# Instructions a cycle of the kind that a path multiplies with (Arm's software optimization guides).
PEAK = {"neoverse-n1": {"neon": 1, "dotprod": 2}, "neoverse-n2": {"neon": 2, "dotprod": 2, "i8mm": 2},
        "neoverse-v1": {"neon": 2, "dotprod": 4, "i8mm": 4}}
PASSES = 1000


def functions(object_file):
    """The functions of an object file: (name, [(address, mnemonic, operands)])."""
    text = subprocess.run(["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", object_file], capture_output=True, text=True, check=True)
    found = []
    for line in text.stdout.splitlines():
        if name := re.match(r"[0-9a-f]+ <(.*)>:", line):
            found.append((name[1], []))
        elif found and (instruction := re.match(r"\s+([0-9a-f]+):\s+(\S+)\s*([^/]*)", line)):
            found[-1][1].append((int(instruction[1], 16), instruction[2], instruction[3].strip()))
    return found


def inner_loop(object_file, function, mark):
    """The loop with the largest share of instructions that match `mark`, as a list of lines, and how many of them match."""
    best, most = [], 0.0
    for name, body in functions(object_file):
        if function not in name:
            continue
        index = {address: i for i, (address, _, _) in enumerate(body)}
        for i, (_, mnemonic, operands) in enumerate(body):
            target = re.match(r"([0-9a-f]+) <", operands) if mnemonic.startswith("b.") else None
            loop = body[index.get(int(target[1], 16), i):i + 1] if target else []
            share = sum(bool(re.match(mark, m)) for _, m, _ in loop) / max(len(loop), 1)
            if share > most:
                best, most = loop, share
    lines = [f"{mnemonic} {operands}" for _, mnemonic, operands in best[:-1]]
    return lines, round(most * len(best))


def cycles(lines, processor):
    """The cycles of one pass, of many in a row."""
    code = ".loop:\n" + "\n".join(lines) + "\nb.ne .loop\n"
    said = subprocess.run(["llvm-mca-19", "-mtriple=aarch64", f"-mcpu={processor}", "-mattr=+dotprod,+i8mm", f"-iterations={PASSES}",
                           "--instruction-info=0", "--resource-pressure=0"], input=code, capture_output=True, text=True, check=True)
    return int(re.search(r"Total Cycles:\s+(\d+)", said.stdout)[1]) / PASSES


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build-arm64")
    print("| inner loop | modelled processor | instructions | cycles | multiply-adds a cycle | of the modelled peak |\n|---|---|---|---|---|---|")
    for title, (source, function, mark, products) in LOOPS.items():
        lines, marked = inner_loop(build / f"kernels/CMakeFiles/octet_kernels.dir/conv/cpu/{source}.cpp.o", function, mark)
        for processor, peaks in PEAK.items():
            if source in peaks:
                took = cycles(lines, processor)
                rate, peak = marked * products / took, peaks[source] * products
                print(f"| {title} | {processor} | {len(lines) + 1} | {took:.1f} | {rate:.1f} | {rate / peak:.2f} |")


if __name__ == "__main__":
    main()
