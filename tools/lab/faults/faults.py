#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the faults of list/*.txt into octet, one at a time, and says which tests see each: see README.md here.

    tools/lab/faults/faults.py build             copies the tree to build-faults/tree with every fault behind a switch, and builds it once
    tools/lab/faults/faults.py run --jobs 2      runs the tests with no fault, then with each; prints the table
    tools/lab/faults/faults.py pack FILE.tar     what `run` needs, for another machine: tar -xf FILE.tar -C / there
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tarfile

import runner
import schemata

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WORK = ROOT / "build-faults"
TREE = WORK / "tree"
BUILD = TREE / "build"  # lies to the sources as in any checkout, so that ccache finds what was compiled there
TARGETS = ["octet", "test_base", "test_bench", "test_data", "test_engine", "test_eval", "test_net", "test_import", "test_kernels",
           "test_kernels_conv2d", "test_model", "test_onnx", "test_onnx_files", "test_qat", "test_quant", "test_recipe", "test_report",
           "test_runtime", "test_tools", "test_trainers", "test_witness"]


def read_list():
    faults = []
    for path in sorted((HERE / "list").glob("*.txt")):
        faults += schemata.parse(path.read_text(encoding="utf-8"), path.name)
    return faults


def build(arguments):
    faults = read_list()
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")
    sources = {name: (ROOT / name).read_bytes() for name in names if name and (ROOT / name).is_file()}
    schemata.insert(sources, faults)
    schemata.write_tree(TREE, sources)
    if not (TREE / ".deps").is_symlink():
        (TREE / ".deps").symlink_to(ROOT / ".deps")
    built = [dict(number=number, **fault.described()) for number, fault in enumerate(faults, 1)]
    (WORK / "faults.json").write_text(json.dumps(built, indent=1))
    print(f"{len(faults)} faults in {len({fault.file for fault in faults})} files of {TREE}")
    if arguments.no_build:
        return 0
    configure = ["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DOCTET_TESTS=ON", "-DOCTET_CUDA=OFF",
                 f"-DOCTET_TORCH_DIR={TREE / '.deps/torch'}", "-DCMAKE_BUILD_TYPE=Release"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    return subprocess.run(["ninja", "-C", BUILD, "-j", str(arguments.jobs), "-k", "0", *TARGETS], check=False).returncode


def run(arguments):
    faults = json.loads((WORK / "faults.json").read_text())
    chosen = {int(number) for number in arguments.only.split(",")} if arguments.only else {fault["number"] for fault in faults}
    programs = runner.Programs(BUILD, arguments.torch, arguments.shared)
    if not programs.all_pass(arguments.jobs, WORK / "no-fault.json", arguments.go_on):
        return 1
    verdicts = runner.run_faults(programs, [fault for fault in faults if fault["number"] in chosen], arguments.jobs, WORK / "verdicts.json",
                                 arguments.near)
    alive = [fault for fault in faults if fault["number"] in verdicts and verdicts[fault["number"]] is None]
    print(f"\n{len(verdicts)} faults, {len(alive)} {'that the near programs do not see' if arguments.near else 'live'}")
    for fault in alive:
        print(f"  {fault['number']:3} {fault['place']}: {fault['what']}")
    return 0


def pack(arguments):
    """Programs, and of the tree all that tests read; libraries but LibTorch's, which --torch names there."""
    programs = [*BUILD.glob("octet"), *sorted((BUILD / "bin").glob("test_*"))]  # those that are built: the near ones may do
    libraries = set()
    for program in programs:
        for line in subprocess.run(["ldd", program], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
            path = line.split("=>")[-1].split("(")[0].strip()
            if any(part in path for part in ("yaml", "fmt", "jpeg", "png", "webp", "sharpyuv", "protobuf", "gtest", "libz.")):
                libraries.add(path)
    with tarfile.open(arguments.file, "w:gz") as tar:
        for path in [*programs, *(TREE / name for name in (TREE / ".written").read_text().splitlines()), WORK / "faults.json", HERE]:
            tar.add(path, arcname=str(path).lstrip("/"), filter=lambda entry: None if entry.name.endswith(".pyc") else entry)
        for path in sorted({*libraries, *map(str, (BUILD / "src/runtime").glob("liboctet_runtime.so.?.?"))}):
            tar.add(os.path.realpath(path), arcname=str(BUILD / "lib" / os.path.basename(path)).lstrip("/"))
    print(f"{arguments.file}: {len(programs)} programs, {os.path.getsize(arguments.file) >> 20} MiB")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("build")
    command.add_argument("--jobs", type=int, default=2)
    command.add_argument("--no-build", action="store_true", help="only write the tree")
    command.set_defaults(action=build)
    command = commands.add_parser("run")
    command.add_argument("--jobs", type=int, default=2, help="faults at a time")
    command.add_argument("--only", default="", help="numbers of faults, as 3,14")
    command.add_argument("--near", action="store_true", help="only the test programs nearest to each fault")
    command.add_argument("--go-on", action="store_true", help="leave out tests that fail without a fault, which are named")
    command.add_argument("--torch", default=str(ROOT / ".deps/torch"), help="the torch folder, with lib/ in it")
    command.add_argument("--shared", default=str(ROOT / "../shared/data"), help="the tests' shared data, if there is any")
    command.set_defaults(action=run)
    command = commands.add_parser("pack")
    command.add_argument("file")
    command.set_defaults(action=pack)
    arguments = parser.parse_args()
    return arguments.action(arguments)


if __name__ == "__main__":
    sys.exit(main())
