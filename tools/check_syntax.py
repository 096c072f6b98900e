#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every C++ source of a configured build with a second compiler, as far as its last error or warning.

usage: tools/check_syntax.py [BUILD [COMPILER [PATTERN]]]     default: build clang++-19, all sources

Takes the commands of BUILD/compile_commands.json with COMPILER in the place of the compiler there and -fsyntax-only in the place of an
object file, one a core, through ccache where it is installed. Sources that the build compiles together (OCTET_UNITY) are checked one by
one: each has the headers that it uses. Those of tests, half of all, are checked together, in less than half the time. PATTERN, a regular
expression, keeps the sources whose path it matches, tests one by one, too.
Large headers of libraries are compiled once for all sources that may include them, by themselves or by other headers, and stand before
all else: that a header of octet lacks one of these goes unnoticed where its sources have it.
Device code (.cu) and generated sources (.cc) are left out. Exits 1 naming each source that does not compile, with what COMPILER says.
"""
import collections
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
# Headers that take a compiler long, or that most sources have, with the seconds that each adds to those before it (clang 19).
LARGE = {"vector": 0.12, "string": 0.17, "algorithm": 0.05, "functional": 0.05, "memory": 0.14, "filesystem": 0.1, "fmt/format.h": 0.4,
         "nlohmann/json.hpp": 0.6, "CLI/CLI.hpp": 0.4, "gtest/gtest.h": 0.35, "onnx.pb.h": 0.3, "ATen/core/Tensor.h": 1.0,
         "ATen/DeviceGuard.h": 0.4, "ATen/TensorUtils.h": 0.3, "ATen/TensorOperators.h": 0.4, "torch/csrc/autograd/custom_function.h": 0.6,
         "ATen/Functions.h": 2.1, "ATen/ATen.h": 0.6, "torch/csrc/distributed/c10d/Backend.hpp": 1.3}
# What LibTorch's headers include where AT_PER_OPERATOR_HEADERS is not defined, as it is here (cmake/torch.cmake).
ALL_OPERATORS = r"#ifndef AT_PER_OPERATOR_HEADERS\n.*?\n#(?:else|endif)"


def each_source(commands, together=lambda source: False):
    """The entries of compile_commands.json for C++, with one for each source that a file of CMake's unity build includes, unless one of
    them may stay together with the others: a product source in a test program is checked alone where it belongs."""
    for entry in commands:
        if entry["file"].endswith("_cxx.cxx"):
            sources = re.findall(r'^#include "(.+)"$', pathlib.Path(entry["file"]).read_text(encoding="utf-8"), re.M)
            if any(map(together, sources)):
                yield entry
                continue
            for source in sources:
                yield {**entry, "file": source, "command": entry["command"].replace(entry["file"], source)}
        elif entry["file"].endswith(".cpp"):
            yield entry


def options(entry):
    """The options of a command by which its source is read: without the compiler, files, and what only generated code notices."""
    words = shlex.split(entry["command"])
    words = words[next(i for i, word in enumerate(words) if word.startswith("-")):]  # after ccache and the compiler
    joined = []
    for i, word in enumerate(words):
        if word == "-isystem":
            joined.append(word + words[i + 1])
        elif not {word, words[i - 1]} & {"-o", "-MF", "-MT"} and words[i - 1] != "-isystem" and word != entry["file"]:
            joined.append(word)
    return [word for word in joined if not re.match(r"-(c|MD|O\d|fPI[CE]|fmacro-prefix-map=.*)$", word)]


def including(sources, folders):
    """{name: the files that include a header of LARGE}, directly or by headers in `folders`, among `sources` and what they include."""
    included_by, seen, waiting = collections.defaultdict(set), set(sources), list(sources)
    found = {}  # where an #include <...> leads
    while waiting:
        path = waiting.pop()
        text = re.sub(ALL_OPERATORS, "", path.read_text(encoding="utf-8", errors="replace"), flags=re.S)
        for name in re.findall(r'^\s*#\s*include\s*["<]([^">]+)', text, re.M):
            beside = path.parent / name
            if name not in found:
                found[name] = next((folder / name for folder in folders if (folder / name).is_file()), None)
            for header in (found[name], beside if "/" not in name and beside.is_file() else None):
                if header and header not in seen:
                    seen.add(header)
                    waiting.append(header)
                included_by[header].add(path)
            included_by[name].add(path)
    reaching = {}
    for name in LARGE:
        reaching[name], waiting = set(), [name]
        while waiting:
            new = included_by[waiting.pop()] - reaching[name]
            reaching[name] |= new
            waiting.extend(new)
    return reaching


def paying(sharers):
    """Sets of headers of LARGE that save more seconds than precompiling them takes, for {the headers that a source includes: how many
    sources do so}. A source has the one that saves it most among those of which it includes every header."""
    candidates = {one & other for one in sharers for other in sharers}
    seconds = {names: sum(LARGE[name] for name in names) for names in candidates}
    saved, chosen = collections.Counter(), []

    def gain(names):
        more = sum(count * max(0, seconds[names] - saved[own]) for own, count in sharers.items() if names <= own)
        return more - 1.5 * seconds[names] - 0.5  # what a header's templates make is made now, and the set is written

    while candidates and gain(best := max(sorted(candidates, key=sorted), key=gain)) > 0:
        chosen.append(best)
        for own in sharers:
            if best <= own:
                saved[own] = max(saved[own], seconds[best])
    return chosen


def of_libraries(entry):
    """The options of a source that headers of libraries can notice: not octet's own folders and definitions."""
    return frozenset(option for option in options(entry) if not re.match("-I|-DOCTET|.*_EXPORTS$|.*/generated$", option))


def run(words, directory, remembered):
    """(whether a compiler accepts what it is given, what it says); through ccache where that may remember the answer."""
    # A clone elsewhere finds in ccache what was compiled here.
    environment = {**os.environ, "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1", "CCACHE_SLOPPINESS": "pch_defines,time_macros"}
    launcher = ["ccache"] if remembered and shutil.which("ccache") else []
    done = subprocess.run([*launcher, *words], cwd=directory, env=environment, capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def precompile(entry, names, compiler, header):
    """Compiles large headers with the options of a source; `header` is the file that includes them."""
    header.write_text("".join(f"#include <{name}>\n" for name in LARGE if name in names), encoding="utf-8")
    # Clang takes GCC's suffix, too; told so, it makes what the headers' templates make once for all.
    for_all = ["-fpch-instantiate-templates", "-Xclang", "-fno-pch-timestamp"] if "clang" in compiler else []
    words = [compiler, *(option for option in options(entry) if not re.match("-DOCTET|.*_EXPORTS$", option)), *WARNINGS, *for_all, "-x", "c++-header", str(header), "-o", f"{header}.gch"]
    # Not by ccache: a precompiled header names the folder that it was made in, and ccache would give a clone elsewhere another's.
    compiles, said = run(words, entry["directory"], remembered=False)
    if not compiles:
        raise RuntimeError(f"{', '.join(names)} as {entry['file']} includes them: {said}")
    return header


def check(entry, header, compiler):
    """(source, whether it compiles, what the compiler says), with a precompiled header before it unless that is None."""
    first = ["-include", str(header)] if header else []
    return entry["file"], *run([compiler, *options(entry), *WARNINGS, *first, "-fsyntax-only", "-c", entry["file"]], entry["directory"], remembered=True)


def check_all(entries, compiler, folder, pool):
    """What check() returns of each entry, in turn. Precompiled headers are put into `folder`."""
    every_option = dict.fromkeys(option for entry in entries for option in options(entry))
    places = [pathlib.Path(re.sub("^-(I|isystem)", "", option)) for option in every_option if re.match("-(I|isystem)/", option)]
    files = including([pathlib.Path(entry["file"]) for entry in entries], places)
    sharing = collections.defaultdict(lambda: collections.defaultdict(list))  # by options, then by headers
    for entry in entries:
        sharing[of_libraries(entry)][frozenset(name for name in LARGE if pathlib.Path(entry["file"]) in files[name])].append(entry)
    checks, sets = [], 0
    for sharers in sharing.values():
        made = {}
        for names in paying({own: len(alike) for own, alike in sharers.items()}):
            folder.mkdir(exist_ok=True)
            entry = next(alike[0] for own, alike in sharers.items() if names <= own)
            made[names] = pool.submit(precompile, entry, names, compiler, folder / f"{sets}.h")
            sets += 1
        for own, alike in sharers.items():
            fitting = max((names for names in made if names <= own), key=lambda names: sum(LARGE[name] for name in names), default=None)
            checks.append((made.get(fitting), alike))
    if sets:
        print(f"large headers, compiled once: {sets} sets", flush=True)
    # All are precompiled before the first check waits for one.
    checks = [pool.submit(check, entry, header and header.result(), compiler) for header, alike in checks for entry in alike]
    for done in checks:
        yield done.result()
    if sets:
        shutil.rmtree(folder)


def main():
    build, compiler, pattern = [*sys.argv[1:], *["build", "clang++-19", ""][len(sys.argv) - 1:]]
    commands = json.loads((pathlib.Path(build) / "compile_commands.json").read_text(encoding="utf-8"))
    in_tests = (lambda source: False) if pattern else lambda source: pathlib.Path(source).is_relative_to(ROOT / "tests")
    wanted = [entry for entry in each_source(commands, in_tests) if re.search(pattern, entry["file"])]
    failed = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name, compiles, said in check_all(wanted, compiler, pathlib.Path(build).resolve() / "large_headers", pool):
            if not compiles:
                failed += 1
                print(f"{os.path.relpath(name, ROOT)} does not compile with {compiler}:\n{said}", flush=True)
    print(f"{len(wanted)} sources, {failed} do not compile with {compiler}")
    return 1 if failed or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
