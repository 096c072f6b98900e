# SPDX-License-Identifier: Apache-2.0
"""Faults as text, and all of them in one copy of the sources: each place asks whether its number is OCTET_FAULT."""
import dataclasses
import pathlib
import re
import sys

INCLUDE = '#include "src/base/octet_fault.h"\n'
HEADER = """// Which fault of tools/lab/faults is on: the number in OCTET_FAULT, 0 for none.
#pragma once
namespace octet {
extern const int kFault;
}
#define OCTET_FAULT(number) (::octet::kFault == (number))
"""
SOURCE = """#include "src/base/octet_fault.h"
#include <cstdlib>
namespace octet {
const int kFault = std::getenv("OCTET_FAULT") != nullptr ? std::atoi(std::getenv("OCTET_FAULT")) : 0;
}
"""


@dataclasses.dataclass
class Fault:
    file: str
    what: str
    old: str
    new: str
    context: str = ""  # text that occurs once in the file and holds `old`; empty: `old` itself occurs once
    origin: str = ""  # "kernels.txt:12"
    start: int = -1  # of `old` in the file, and its line: set by insert()
    line: int = 0

    def statement(self):
        return self.old.rstrip().endswith(";")

    def described(self):
        return {"file": self.file, "what": self.what, "place": f"{self.file}:{self.line}", "old": self.old, "new": self.new}


def stop(message):
    sys.exit(f"faults: {message}")


def parse(text, name):
    """`== FILE`, then for each fault `: WHAT`, perhaps `@ CONTEXT`, `- OLD` and `+ NEW`, each of one or several lines."""
    faults, file, entry = [], None, None
    for number, line in enumerate(text.splitlines() + ["=="], 1):
        kind, rest = line[:1], line[2:]
        if kind in ("=", ":") and entry is not None:
            for field in "-+":
                if field not in entry:
                    stop(f"{entry['origin']}: no line that begins with '{field}'")
            faults.append(Fault(file, entry[":"], entry["-"], entry["+"], entry.get("@", ""), entry["origin"]))
            entry = None
        if kind == "=":
            file = line[2:].strip()
        elif kind == ":":
            entry = {":": rest, "origin": f"{name}:{number}"}
        elif kind in ("@", "-", "+") and entry is not None:
            entry[kind] = entry[kind] + "\n" + rest if kind in entry else rest
        elif line.strip() and kind != "#":
            stop(f"{name}:{number}: cannot read '{line}'")
    return faults


def find(fault, text):
    """Where `old` begins: once in the file, or once in the one place of its context."""
    begin, part = 0, text
    if fault.context:
        if text.count(fault.context) != 1:
            stop(f"{fault.origin}: {fault.file} has this {text.count(fault.context)} times: {fault.context}")
        begin, part = text.index(fault.context), fault.context
    if part.count(fault.old) != 1:
        stop(f"{fault.origin}: {fault.context or fault.file} has this {part.count(fault.old)} times: {fault.old}")
    start = begin + part.index(fault.old)
    before, after = text[:start].rstrip()[-1:], text[start + len(fault.old):].lstrip()[:1]
    if not fault.statement() and has_operator(fault.old) and {before, after} & {"*", "/", "%"}:
        stop(f"{fault.origin}: a factor of a product, which brackets would change: put the whole product here: {fault.old}")
    return start


def has_operator(expression):
    """Whether parts of it stand side by side, outside brackets."""
    while (shorter := re.sub(r"\([^()]*\)|\[[^\[\]]*\]|<[\w:]+>", "", expression)) != expression:
        expression = shorter
    return re.search(r" [-+*/%<>=!&|?^]+ ", expression) is not None


def switch(faults, numbers):
    """The text for one place: what is there, or what the fault that is on makes of it."""
    text = faults[0].old
    for fault, number in zip(faults, numbers):
        if fault.statement():
            text = f"if (OCTET_FAULT({number})) {{ {fault.new} }} else {{ {text} }}"
        else:
            text = f"(OCTET_FAULT({number}) ? ({fault.new}) : ({text}))"
    return text


def insert(sources, faults):
    """Rewrites `sources` (name: bytes) so that each fault is there, and adds the switch to octet_common."""
    numbered = {}
    for number, fault in enumerate(faults, 1):
        if fault.file not in sources:
            stop(f"{fault.origin}: there is no {fault.file}")
        text = sources[fault.file].decode()
        fault.start = find(fault, text)
        fault.line = text.count("\n", 0, fault.start) + 1
        numbered.setdefault(fault.file, {}).setdefault((fault.start, fault.old), []).append((fault, number))
    for name, places in numbered.items():
        text, end = sources[name].decode(), None
        for (start, old), entries in sorted(places.items(), reverse=True):
            if end is not None and start + len(old) > end:
                stop(f"{entries[0][0].origin}: overlaps another fault of {name}")
            end = start
            text = text[:start] + switch([e[0] for e in entries], [e[1] for e in entries]) + text[start + len(old):]
        sources[name] = (INCLUDE + text).encode()
    sources["src/base/octet_fault.h"] = HEADER.encode()
    sources["src/base/octet_fault.cpp"] = SOURCE.encode()
    cmake = sources["src/base/CMakeLists.txt"].decode()
    added, count = re.subn(r"octet_library\(octet_common\s+SOURCES\b", r"\g<0> octet_fault.cpp", cmake, count=1)
    if count != 1:
        stop("src/base/CMakeLists.txt: no octet_library(octet_common SOURCES")
    sources["src/base/CMakeLists.txt"] = added.encode()


def write_tree(folder, sources):
    """Only what changed is written, so that a second build is short; files written earlier that are no longer there go."""
    folder = pathlib.Path(folder)
    record = folder / ".written"
    earlier = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    for name in set(earlier) - set(sources):
        (folder / name).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    record.write_text("\n".join(sorted(sources)), encoding="utf-8")
    for name, content in sources.items():
        path = folder / name
        if path.exists() and path.read_bytes() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if content.startswith(b"#!"):
            path.chmod(0o755)
