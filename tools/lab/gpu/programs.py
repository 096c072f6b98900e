#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where octet's programs are: in a package made by pack.sh (bin/, gpu_tests.txt), or in a build tree.

    programs.py [--build FOLDER]      the names of the test programs with label gpu
    programs.py --path NAME           where a program is
"""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGED = (ROOT / "manifest.json").exists()
BUILD = ROOT / "build"


def program(name):
    """Path of octet, train_bench or a test program."""
    if PACKAGED:
        return ROOT / "bin" / name
    return BUILD / name if name == "octet" else BUILD / "bin" / name


def gpu_tests(build=BUILD):
    """Names of the test programs that ctest knows under the label gpu."""
    if PACKAGED:
        return (ROOT / "gpu_tests.txt").read_text().split()
    listing = subprocess.run(["ctest", "--test-dir", build, "-L", "^gpu$", "--show-only=json-v1"], stdout=subprocess.PIPE, check=True).stdout
    names = []
    for test in json.loads(listing)["tests"]:
        if "command" not in test:  # how ctest shows a program that was not built
            sys.exit(f"{test['name'].removesuffix('.0')} is not built; build all targets first (tools/setup.sh --tests)")
        name = pathlib.Path(test["command"][0]).name
        if name not in names:
            names.append(name)
    if not names:
        sys.exit(f"{build} has no tests with label gpu; configure with -DOCTET_CUDA=ON -DOCTET_TESTS=ON, as tools/setup.sh --tests does where nvcc is")
    return names


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=BUILD)
    parser.add_argument("--path", metavar="NAME")
    arguments = parser.parse_args()
    print(program(arguments.path) if arguments.path else "\n".join(gpu_tests(arguments.build)))
