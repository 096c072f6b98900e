#!/usr/bin/env python3
"""Holds the tree to its one direction, who may include whom (CONTRIBUTING.md), and to lines that fit a screen.

Reads every source file under kernels/, src/, trainers/, tools/ and exits 1 naming each line that includes upwards, or that
uses a library its layer must not know; also each line of C++ or CUDA, and of the first documents' prose, that is too long.
"""
import pathlib
import re
import sys

# Each folder and the folders it may include, besides itself.
BASE = ["kernels", "src/common"]
ALLOWED = {
    "kernels": ["src/common"],
    "src/common": [],
    "src/data": BASE,
    "src/tensor_files": BASE,
    "src/import": BASE + ["src/tensor_files"],
    "src/graph": BASE + ["src/tensor_files"],
    "src/onnx": BASE + ["src/tensor_files", "src/graph", "src/quant"],
    "src/cuda": BASE,
    "src/quant": BASE + ["src/graph"],
    "src/recipe": BASE + ["src/graph", "src/quant"],
    "src/engine": BASE + ["src/cuda", "src/graph", "src/quant"],
    "src/eval": BASE + ["src/data", "src/graph", "src/quant", "src/engine"],
    "src/runtime": BASE + ["src/data", "src/graph", "src/engine", "src/eval"],
    "src/report": BASE + ["src/data", "src/quant", "src/engine", "src/eval"],
    "src/bench": BASE + ["src/cuda", "src/graph", "src/engine", "src/report"],
    "src/events": BASE,
    "src/run": BASE + ["src/tensor_files", "src/onnx", "src/recipe", "src/data", "src/eval"],
    "src/torch": BASE,
    "src/model": BASE + ["src/torch", "src/tensor_files", "src/import", "src/graph"],
    "src/qat": BASE + ["src/torch", "src/cuda", "src/graph", "src/quant", "src/engine", "src/model"],
    "trainers": BASE + ["src"],
    "trainers/ranks": BASE + ["src/torch"],
    "trainers/batches": BASE + ["src", "trainers"],
    "trainers/loop": BASE + ["src", "trainers", "trainers/ranks", "trainers/batches"],
    "trainers/run": BASE + ["src", "trainers", "trainers/ranks", "trainers/batches", "trainers/loop"],
    "trainers/library": BASE + ["src", "trainers", "trainers/loop", "trainers/run"],
    "tools": BASE + ["src", "trainers", "trainers/ranks", "trainers/batches", "trainers/loop", "trainers/run"],
}
# Libraries that only some folders may know.
LIBRARIES = {
    r"src/engine/\w+/": ["src/engine"],  # an engine's own steps: what others need of them stands in src/engine/*.h
    r"(torch|ATen|c10)/": ["src/torch", "src/model", "src/qat", "trainers", "trainers/ranks", "trainers/batches", "trainers/loop",
                             "trainers/run"],
    r"ATen/Parallel\.h": ["src/model"],  # its loops are on one thread but in src/model/parallel.cpp
    r"yaml-cpp/": ["src/recipe"],
    r"(google/protobuf/|onnx\.pb\.h)": ["src/onnx"],
    r"event\.pb\.h": ["src/events"],
    r"(jpeglib|png|zlib|webp/decode)\.h": ["src/data", "src/import"],
    r"CLI/": ["tools"],
    r"(cuda|cublas|cudnn)\w*\.h": ["kernels", "src/cuda", "src/engine"],
}
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
COLUMNS = 140  # clang-format breaks at 120 what it may break: not strings and comments
PROSE = {"CONTRIBUTING.md": 120, "README.md": 120, "src/graph/README.md": 120}  # tables and code apart
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


def prose(text):
    """(number, line) of what is neither a table's row nor code."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            code = not code
        elif not code and not line.startswith(("|", "    ")):
            yield number, line


def long_lines(root):
    for folder in ("include", "kernels", "src", "trainers", "tools", "tests"):
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in SOURCES):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if len(line) > COLUMNS:
                    yield f"{path.relative_to(root).as_posix()}:{number}: {len(line)} columns, at most {COLUMNS}"
    for name, columns in PROSE.items():
        for number, line in prose((root / name).read_text(encoding="utf-8")):
            if len(line) > columns:
                yield f"{name}:{number}: {len(line)} columns, at most {columns}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = [*faults(root), *long_lines(root)]
    print("\n".join(found) if found else "layers: every include points down, no line is too long")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
