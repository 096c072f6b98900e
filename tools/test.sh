#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds and runs every test: the README's second command, and CI's. Arguments go to ctest (-R NAME, -V).
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh --tests
results=$PWD/build/tests.xml
# Two more than cores: tests of what waits (a process that hangs, a port in use) leave theirs idle for seconds.
verdict=0
ctest --test-dir build --output-on-failure -j "$(($(nproc) + 2))" --output-junit "$results" --test-output-size-passed 10000000 "$@" || verdict=$?
python3 tools/test_results.py "$results"
exit $verdict
