#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""After ctest: how many cases ran, how many were skipped, and why; then what each failed one printed, last, where a log's reader looks first.
Usage: test_results.py JUNIT_FILE (of ctest --output-junit)"""
import collections
import re
import sys
import xml.etree.ElementTree

LINES_OF_A_FAILURE = 40

tests = list(xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase"))
reasons = collections.Counter()
failed = []
cases = 0
for test in tests:
    output = test.findtext("system-out") or ""
    if "test output was removed" in output:
        sys.exit(f"{test.get('name')}: ctest has cut what it printed, so skips cannot be counted: --test-output-size-passed")
    cases += int((re.search(r"^\[=+\] (\d+) tests? from .* ran\.", output, re.M) or [1, 1])[1])
    told = re.findall(r": Skipped\n(.+)", output)
    if test.find("skipped") is not None and not told:
        told = ["no reason given"]
    reasons.update(told)
    if test.get("status") == "fail":
        failed.append((test.get("name"), float(test.get("time")), output))
print(f"{cases} test cases, {len(failed)} of {len(tests)} entries failed, {sum(reasons.values())} skipped" + (":" if reasons else ""))
for reason, count in reasons.most_common():
    print(f"{count:>5}  {reason}")
for name, seconds, output in failed:
    print(f"\nfailed: {name}, after {seconds:.1f} s")
    print("\n".join(output.strip().splitlines()[-LINES_OF_A_FAILURE:]))
