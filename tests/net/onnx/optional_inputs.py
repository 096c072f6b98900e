#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every optional input and attribute of every operator that octet reads, left out and given: does octet compute what ONNX Runtime and
onnx.reference compute, or refuse it by name?

usage: optional_inputs.py ONNX_LOGITS [PART OF A CASE'S NAME]
ONNX_LOGITS: the program of onnx_logits.cpp. A list of cases is a module with cases(), OPERATORS (whose options they cover) and EXEMPT, a
reason by (operator, option). Exits 1 where a case fails or an option has none; 77 (skipped) where onnx or onnxruntime is missing.
"""
import sys
import tempfile

sys.dont_write_bytecode = True
try:
    import exporter_forms
    import judge
    import optional_float
    import optional_plain
    import optional_qdq
    import qdq_operators
except ImportError as missing:
    print(f"optional_inputs: Skipped\n{missing}; tools/setup.sh --tests installs it into .deps/venv")
    sys.exit(77)

LISTS = [optional_qdq, qdq_operators, optional_float, optional_plain, exporter_forms]


def main():
    program, part = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    cases = [case for module in LISTS for case in module.cases()]
    operators = set().union(*(module.OPERATORS for module in LISTS))
    exempt = {key: why for module in LISTS for key, why in module.EXEMPT.items()}
    chosen = [case for case in cases if part in case.name]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        found = judge.faults(chosen, judge.by_octet(program, folder, chosen))
        found += [f"{name}: octet reads no such operator" for name in operators - judge.operators_of(program, other)]
    if not part:
        found += judge.untested(cases, operators, exempt)
    for line in found:
        print(line)
    print(f"{len(chosen)} cases, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
