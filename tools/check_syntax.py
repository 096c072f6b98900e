#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every C++ source of a configured build with a second compiler, as far as its last error or warning.

usage: tools/check_syntax.py [BUILD [COMPILER [PATTERN]]]     default: build clang++-19, all sources

Takes the commands of BUILD/compile_commands.json with COMPILER in the place of the compiler there and -fsyntax-only in the place of an
object file, one a core, through ccache where it is installed. Sources that the build compiles together (OCTET_UNITY) are checked one by
one: each has the headers that it uses. PATTERN, a regular expression, keeps the sources whose path it matches.
Device code (.cu) and generated sources (.cc) are left out. Exits 1 naming each source that does not compile, with what COMPILER says.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A warning is an error, but those of GCC's flags and attributes that clang does not know and of what libstdc++ 12 itself uses (clang 19
# takes std::stable_sort's temporary buffer for deprecated).
WARNINGS = ["-Werror", "-Wno-unknown-warning-option", "-Wno-ignored-attributes", "-Wno-deprecated-declarations"]


def checking(command, compiler):
    """A command of compile_commands.json as a list of words, for `compiler` and without its object file."""
    words = shlex.split(command)
    words = words[next(i for i, word in enumerate(words) if word.startswith("-")):]  # after ccache and the compiler
    output = words.index("-o")
    launcher = ["ccache"] if shutil.which("ccache") else []
    return [*launcher, compiler, *words[:output], *words[output + 2:], "-fsyntax-only", *WARNINGS]


def each_source(commands):
    """The entries of compile_commands.json, with one for each source that a file of CMake's unity build includes."""
    for entry in commands:
        if entry["file"].endswith("_cxx.cxx"):
            for source in re.findall(r'^#include "(.+)"$', pathlib.Path(entry["file"]).read_text(encoding="utf-8"), re.M):
                yield {**entry, "file": source, "command": entry["command"].replace(entry["file"], source)}
        else:
            yield entry


def compile_one(entry, compiler):
    """(source, whether it compiles, what the compiler said)."""
    environment = {**os.environ, "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}  # a clone elsewhere finds what was compiled here
    done = subprocess.run(checking(entry["command"], compiler), cwd=entry["directory"], env=environment, capture_output=True, text=True)
    return entry["file"], done.returncode == 0, done.stdout + done.stderr


def main():
    build, compiler, pattern = [*sys.argv[1:], *["build", "clang++-19", ""][len(sys.argv) - 1:]]
    commands = json.loads((pathlib.Path(build) / "compile_commands.json").read_text(encoding="utf-8"))
    wanted = [entry for entry in each_source(commands) if entry["file"].endswith(".cpp") and re.search(pattern, entry["file"])]
    failed = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name, compiles, said in pool.map(lambda entry: compile_one(entry, compiler), wanted):
            if not compiles:
                failed += 1
                print(f"{os.path.relpath(name, ROOT)} does not compile with {compiler}:\n{said}", flush=True)
    print(f"{len(wanted)} sources, {failed} do not compile with {compiler}")
    return 1 if failed or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
