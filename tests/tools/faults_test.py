# SPDX-License-Identifier: Apache-2.0
"""tools/lab/faults: the list names places that are there, and every fault is behind its switch."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools" / "lab" / "faults"))
import faults  # noqa: E402
import schemata  # noqa: E402

COMMON = {"src/base/CMakeLists.txt": b"octet_library(octet_common\n  SOURCES files.cpp)\n"}


class Faults(unittest.TestCase):
    def inserted(self, text, source):
        sources = {**COMMON, "a.cpp": source.encode()}
        schemata.insert(sources, schemata.parse(text, "list.txt"))
        self.assertIn(b"SOURCES octet_fault.cpp files.cpp", sources["src/base/CMakeLists.txt"])
        return sources["a.cpp"].decode().removeprefix(schemata.INCLUDE)

    def test_expressions_and_statements(self):
        text = "== a.cpp\n: one\n- a + b\n+ a - b\n: two\n- a + b\n+ b\n: three\n@ 1;\n@ y = c;\n- y = c;\n+ ;\n"
        self.assertEqual(self.inserted("== a.cpp\n: one\n- int{0}\n+ 1\n", "x = int{0};"), "x = (OCTET_FAULT(1) ? (1) : (int{0}));")
        self.assertEqual(self.inserted(text, "x = a + b;\nz = 1;\ny = c;\ny = c;\n"),
                         "x = (OCTET_FAULT(2) ? (b) : ((OCTET_FAULT(1) ? (a - b) : (a + b))));\nz = 1;\n"
                         "if (OCTET_FAULT(3)) { ; } else { y = c; }\ny = c;\n")

    def test_what_cannot_be_placed_is_named(self):
        for text, source, part in (("- a\n+ b", "a a", "2 times: a"), ("- a\n+ b", "", "0 times: a"), ("- a", "a", "begins with '+'"),
                                   ("- a b\n+ c\n: other\n- b\n+ d", "a b", "overlaps"),
                                   ("- a * b\n+ a", "c / a * b", "whole product"), ("- a + b\n+ a", "a + b % 2", "whole product")):
            with self.assertRaisesRegex(SystemExit, "list.txt:2.*" + part.replace("+", r"\+") if "other" not in text else part):
                self.inserted("== a.cpp\n: one\n" + text, source)

    def test_the_list_fits_the_sources(self):
        listed = faults.read_list()
        sources = {**COMMON, **{fault.file: (ROOT / fault.file).read_bytes() for fault in listed}}
        schemata.insert(sources, listed)
        self.assertEqual(len(listed), 197)
        self.assertEqual(len({(fault.file, fault.start, fault.new) for fault in listed}), 197)


if __name__ == "__main__":
    unittest.main()
