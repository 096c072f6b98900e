#!/usr/bin/env python3
"""After ctest: how many tests were skipped, and why. Usage: skipped_tests.py JUNIT_FILE (of ctest --output-junit)"""
import collections
import re
import sys
import xml.etree.ElementTree

tests = list(xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase"))
reasons = collections.Counter()
for test in tests:
    if test.find("skipped") is not None:
        told = re.search(r": Skipped\n(.+)", test.findtext("system-out") or "")
        reasons[told.group(1) if told else "no reason given"] += 1
print(f"{len(tests)} tests, {sum(reasons.values())} skipped" + (":" if reasons else ""))
for reason, count in reasons.most_common():
    print(f"{count:>5}  {reason}")
