#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws places for faults, and what goes wrong at each, by a seed: nobody chooses them. See README.md here.

    tools/lab/faults/draw.py --seed 20261126 --commit d30d6ed --count 20     the first 20 places of every area, in the order drawn
"""
import argparse
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
# The sources of each area: patterns of their whole names, in today's folders and in those of older commits (src/qat, src/run). Code for the
# GPU is left out, because the tests run on the CPU.
AREAS = {
    "search": r"src/quant/bit_(search|plan)\.(cpp|h)|(src/qat/sensitivity|src/train/repair/quantization_noise)\.(cpp|h)"
              r"|trainers/run/(bit|ptq)_search\.(cpp|h)|tools/octet/search(_page)?\.(cpp|h)",
    "repairs": r"src/qat/(correct_biases|channel_moments)\.(cpp|h)|src/qat/reconstruct/\w+\.(cpp|h)"
               r"|src/train/repair/(?!quantization_noise)\w+\.(cpp|h)"
               r"|trainers/run/(calibrate|ptq_choice)\.(cpp|h)",
    "equalization": r"src/quant/(equalize|absorb_biases)\.(cpp|h)",
    "data": r"src/data/\w+\.(cpp|h)|src/(recipe/)?run(/\w+)?\.(cpp|h)",
    "runtime": r"src/runtime/\w+\.cpp|include/octet/\w+\.(h|hpp)|trainers/(run/library|library/\w+)\.cpp",
    "reports": r"src/report/\w+\.(cpp|h)|src/eval/(?!derive)(?!constants)\w+\.(cpp|h)",
}
FOR_GPU = re.compile(r"cuda|gpu")
COMPARISON = re.compile(r" (<=|>=|<|>) ")
SIGN = re.compile(r" ([-+]=?) ")
TERM = re.compile(r" ([-+*/%]|&&|\|\|) ")
ORDERED = re.compile(r" ([-/%]) ")
INDEX = re.compile(r"(?<=[\w\])])\[(?=[^\]])")
CONDITION = re.compile(r"\b(?:if|while) \(| (\?|==|!=) ")
CONSTANT = re.compile(r"(?<![\w.'])\d[\w.']*")
INTEGER = re.compile(r"\b(?:size_t|u?int\d*(?:_t)?|long) \w+ = ")
ASSIGNMENT = re.compile(r"[\w.\[\]()>*:+ -]*[\w\])] (?:[-+*/|&^%]|<<|>>)?= ")
DECLARATION = re.compile(r"(?:const|static|constexpr|auto|using|template|return|throw|case|default|else|namespace|struct|class|enum|for)\b"
                         r"|[\w:<>*&, ]+[\w>*&] [*&]?\w+(?: =|;|\{|\()")
PARAMETER = re.compile(r"\s*(?:const )?[\w:<>]+[&*]* [&*]*\w+(?: = .*)?")
CALL = re.compile(r"[\w.:>\[\]()-]+\(.*")
JUMP = re.compile(r"(?:continue|break);|if \(.*;|(?:\+\+|--)[\w.]+;|[\w.]+(?:\+\+|--);")


def without_text(source):
    """The source with comments, strings, characters and directives as blanks; lines and columns stay."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'(?!\w)|^[ \t]*#(?:\\\n|[^\n])*',
                         re.DOTALL | re.MULTILINE)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), source)


def argument_commas(line):
    """The column of each comma between two arguments of a call, or of a list in braces, that begins and ends on the line: parameters that
    are declared there are none."""
    brackets, found = [], []
    for column, character in enumerate(line):
        if character in "([{":
            brackets.append((column, []))
        elif character in ")]}" and brackets:
            begin, commas = brackets.pop()
            parts = [line[left + 1:right] for left, right in zip([begin, *commas], [*commas, column])]
            if not any(PARAMETER.fullmatch(part) for part in parts):
                found += commas
        elif character == "," and brackets:
            brackets[-1][1].append(column)
    return sorted(found)


def begins_statement(lines, number):
    """Whether the line begins a statement that can be left out: no declaration, and no part of the statement before."""
    text = lines[number].strip()
    before = next((line.strip() for line in reversed(lines[:number]) if line.strip()), "")
    if before and before[-1] not in ";{})":
        return False
    if JUMP.match(text):
        return True
    if DECLARATION.match(text):
        return False
    is_call = CALL.match(text) is not None and text[-1] != "{" and ";" in "".join(lines[number:number + 4])
    return ASSIGNMENT.match(text) is not None or is_call


def sites(lines, number):
    """What can go wrong on the line: the kind of fault, and the columns where it can."""
    line = lines[number]
    if re.match(r"\s*(?:template|using|static_assert|namespace|enum|(?:inline |static )*constexpr)\b", line):
        return {}
    columns = {
        "< for <=, > for >=, or the other way": [m.start(1) for m in COMPARISON.finditer(line)],
        "+ for -, or the other way": [m.start(1) for m in SIGN.finditer(line)],
        "operands or arguments swapped": [m.start(1) for m in ORDERED.finditer(line)] + argument_commas(line),
        "the term before it dropped": [m.start(1) for m in TERM.finditer(line)],
        "the term after it dropped": [m.start(1) for m in TERM.finditer(line)],
        "wrong index": [m.start() for m in INDEX.finditer(line)],
        "condition negated": [m.start() for m in CONDITION.finditer(line)],
        "constant changed": [m.start() for m in CONSTANT.finditer(line)],
        "off by one": [m.end() for m in INTEGER.finditer(line)],
        "statement skipped": [len(line) - len(line.lstrip())] if begins_statement(lines, number) else [],
    }
    return {kind: found for kind, found in columns.items() if found}


def git(*command):
    return subprocess.run(["git", *command], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode()


def draw(area, pattern, seed, commit, count):
    places = []
    for name in sorted(git("ls-tree", "-r", "--name-only", commit).splitlines()):
        if not re.fullmatch(pattern, name) or FOR_GPU.search(name):
            continue
        source = git("show", f"{commit}:{name}")
        lines = without_text(source).split("\n")
        for number in range(len(lines)):
            found = sites(lines, number)
            if found:
                places.append((name, number + 1, found, source.split("\n")[number]))
    generator = random.Random(f"{seed} {area}")
    print(f"\n{area}: {len(places)} lines")
    for turn, (name, number, found, text) in enumerate(generator.sample(places, min(count, len(places))), 1):
        kind = generator.choice(sorted(found))
        column = generator.choice(found[kind])
        print(f"{turn:3} {name}:{number}:{column + 1}: {kind}\n      {text}\n      {' ' * column}^")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--commit", default="HEAD", help="whose sources are drawn from, so that a draw can be repeated")
    parser.add_argument("--count", type=int, default=20, help="places of every area")
    arguments = parser.parse_args()
    for area, pattern in AREAS.items():
        draw(area, pattern, arguments.seed, arguments.commit, arguments.count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
