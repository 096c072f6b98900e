#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the tree to its one direction, who may include whom (CONTRIBUTING.md), and documents and files to a few rules.

Reads the sources and documents of the tree and exits 1 naming each line that includes upwards or uses a library that its layer must not
know; each line of C++ or CUDA, and of a document's prose, that is too long; each link and each name of a file that leads to nothing; each
product file too short to be an idea; each comment on a declaration that is no sentence; and each head without a licence.
"""
import pathlib
import re
import sys

# Each folder and the folders it may include, besides itself.
BASE = ["kernels", "src/base"]
ALLOWED = {
    "kernels": ["src/base"],
    "src/base": [],
    "src/cuda": BASE,
    "src/net": BASE,
    "src/net/import": BASE,
    "src/net/onnx": BASE + ["src/net", "src/quant"],
    "src/data": BASE + ["src/net"],
    "src/detect": BASE + ["src/data", "src/net"],
    "src/quant": BASE + ["src/net"],
    "src/engine": BASE + ["src/cuda", "src/net", "src/quant"],
    "src/eval": BASE + ["src/data", "src/detect", "src/net", "src/quant", "src/engine"],
    "src/recipe": BASE + ["src/net", "src/net/onnx", "src/quant", "src/data", "src/eval"],
    "src/runtime": BASE + ["src/data", "src/detect", "src/net", "src/engine"],
    "src/report": BASE + ["src/data", "src/quant", "src/engine", "src/eval"],
    "src/bench": BASE + ["src/cuda", "src/net", "src/engine", "src/report"],
    "src/train/model": BASE + ["src/net", "src/net/import"],
    "src/train/qat": BASE + ["src/net", "src/quant", "src/engine", "src/train/model"],
    "src/train/proof": BASE + ["src/net", "src/quant", "src/engine", "src/train/model", "src/train/qat"],
    "src/train/repair": BASE + ["src/net", "src/quant", "src/train/model", "src/train/qat", "src/train/proof"],
    "trainers": BASE + ["src"],
    "trainers/parallel": BASE + ["src"],
    "trainers/loop": BASE + ["src", "trainers", "trainers/parallel"],
    "trainers/run": BASE + ["src", "trainers", "trainers/parallel", "trainers/loop"],
    "tools": BASE + ["src", "trainers", "trainers/parallel", "trainers/loop", "trainers/run"],
    "tools/lab": BASE + ["src", "trainers", "trainers/parallel", "trainers/loop", "trainers/run"],
}
TORCH = ["src/train/model", "src/train/qat", "src/train/proof", "src/train/repair", "trainers", "trainers/parallel", "trainers/loop",
         "trainers/run", "tools/lab"]
# Libraries that only some folders may know.
LIBRARIES = {
    r"src/engine/\w+/": ["src/engine"],  # an engine's own steps: what others need of them stands in src/engine/*.h
    r"(torch|ATen|c10)/": TORCH,
    r"ATen/Parallel\.h": ["src/train/model"],  # its loops are on one thread but in src/train/model/threads.cpp
    r"yaml-cpp/": ["src/recipe"],
    r"(google/protobuf/|onnx\.pb\.h)": ["src/net/onnx"],
    r"event\.pb\.h": ["src/report"],
    r"(jpeglib|png|zlib|webp/decode)\.h": ["src/data", "src/net/import"],
    r"pugixml\.hpp": ["src/data"],
    r"CLI/": ["tools", "tools/lab"],
    r"(immintrin|arm_neon)\.h": ["kernels"],
    r"(cuda|cublas|cudnn)\w*\.h": ["kernels", "src/cuda", "src/engine"],
}
LICENCE = "SPDX-License-Identifier: Apache-2.0"
LINES = 25  # a file of fewer is a part of another, unless it stands here with its reason
SMALL = {
    "src/cuda/check.h": "CUDA's headers in it: src/cuda/device.h is included without them",
    "src/report/no_events.cpp": "takes the place of event_file.cpp in a build without protobuf",
    "trainers/run/float_file.h": "what a build without LibTorch knows of a float network, apart from quantize_files.h with LibTorch's headers",
    "tools/octet/untrained.cpp": "takes the place of the training commands in a build without LibTorch",
}
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
COLUMNS = 140  # clang-format breaks at 120 what it may break: not strings and comments
DOCUMENTS = ("docs", "include", "kernels", "recipes", "src", "tests", "tools", "trainers")  # and those at the top
PROSE_COLUMNS = 120  # of every document, tables and code apart
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
QUOTED_FILE = re.compile(r"`([\w./-]*\w\.(?:h|hpp|cpp|cu|cuh))`")  # a source file that a document names; NAME stands for any
COMMENTED_PATH = re.compile(r"(?<![\w/.])(?:kernels|src|trainers|tests|tools)/\w[\w/.]*\w")  # a file or folder that a comment names
TELEGRAM = re.compile(r"\s*/// (Of|The same)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def folder_of(path):
    """The longest listed folder that holds `path`, or None."""
    return max((f for f in ALLOWED if path.startswith(f + "/")), key=len, default=None)


def may_include(allowed, folder):
    """A listed folder stands for itself, "src" for all of its folders."""
    return folder == allowed or (allowed not in ALLOWED and folder.startswith(allowed + "/"))


def faults(root):
    for path in sorted(p for f in ("kernels", "src", "trainers", "tools") for p in (root / f).rglob("*")):
        if path.suffix not in SOURCES:
            continue
        name = path.relative_to(root).as_posix()
        here = folder_of(name)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            target = found.group(1)
            there = folder_of(target)
            if there and there != here and not any(may_include(folder, there) for folder in ALLOWED[here]):
                yield f"{name}:{number}: {here} must not include {there} ({target})"
            for library, users in LIBRARIES.items():
                if re.match(library, target) and here not in users:
                    yield f"{name}:{number}: {here} must not include {target}; only {', '.join(users)} may"


def documents(root):
    return sorted([*root.glob("*.md"), *(p for folder in DOCUMENTS for p in (root / folder).rglob("*.md"))])


def outside_code(text):
    """(number, line) of a document but for its blocks of code."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.startswith("    "):
            yield number, line


def long_lines(root):
    for folder in ("include", "kernels", "src", "trainers", "tools", "tests"):
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in SOURCES):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if len(line) > COLUMNS:
                    yield f"{path.relative_to(root).as_posix()}:{number}: {len(line)} columns, at most {COLUMNS}"
    for path in documents(root):
        for number, line in outside_code(path.read_text(encoding="utf-8")):
            if len(line) > PROSE_COLUMNS and not line.startswith("|"):
                yield f"{path.relative_to(root).as_posix()}:{number}: {len(line)} columns, at most {PROSE_COLUMNS}"


def broken_links(root):
    for path in documents(root):
        for number, line in outside_code(path.read_text(encoding="utf-8")):
            for target in LINK.findall(line):
                if not target.startswith(("http://", "https://")) and not (path.parent / target).exists():
                    yield f"{path.relative_to(root).as_posix()}:{number}: links to {target}, which is not there"


def lost_names(root):
    """Names of files and folders, in documents and comments, that nothing in the tree has."""
    sources = [p for folder in DOCUMENTS for p in (root / folder).rglob("*") if p.suffix in SOURCES | {".hpp"}]
    ends = {"/".join(p.parts[-n:]) for p in sources for n in range(1, len(p.relative_to(root).parts) + 1)}
    for path in documents(root):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for target in QUOTED_FILE.findall(line):
                if not target.startswith("NAME") and target not in ends and not (path.parent / target).exists():
                    yield f"{path.relative_to(root).as_posix()}:{number}: names {target}, which is not there"
    for path in sorted(sources):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for target in COMMENTED_PATH.findall(line.partition("//")[2]):
                if not (root / target).exists():
                    yield f"{path.relative_to(root).as_posix()}:{number}: names {target}, which is not there"


def small_files(root):
    for folder in ("include", "kernels", "src", "trainers", "tools/octet"):
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in SOURCES):
            name, lines = path.relative_to(root).as_posix(), len(path.read_text(encoding="utf-8").splitlines())
            if lines < LINES and name not in SMALL:
                yield f"{name}: {lines} lines, at least {LINES}: put it into the file that uses it, or its reason into check_layers.py"


def telegrams(root):
    """Comments on declarations whose subject stands elsewhere: "Of a row ...", "The same for ..."."""
    for folder in ("include", "kernels", "src", "trainers", "tools", "tests"):
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in SOURCES | {".hpp"}):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if TELEGRAM.match(line):
                    yield f"{path.relative_to(root).as_posix()}:{number}: say what it is or returns, not 'Of ...' or 'The same ...'"


def unlicensed(root):
    for folder in ("include", "kernels", "src", "trainers", "tools", "tests", "cmake"):
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in SOURCES | {".hpp", ".py", ".sh", ".cmake"}):
            if not any(LICENCE in line for line in path.read_text(encoding="utf-8").splitlines()[:3]):
                yield f"{path.relative_to(root).as_posix()}: no '{LICENCE}' in its head"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = [*faults(root), *long_lines(root), *broken_links(root), *lost_names(root), *small_files(root), *telegrams(root),
             *unlicensed(root)]
    print("\n".join(found) if found else "layers: every include points down, no line is too long, no file too short, no link or name leads to nothing")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
