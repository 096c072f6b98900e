# SPDX-License-Identifier: Apache-2.0
"""tools/check_includes.py names what a file uses of the standard library without its header."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_includes  # noqa: E402


class Includes(unittest.TestCase):
    def faults(self, text, header=""):
        """What is said of src/a.cpp with `text`, beside src/a.h with `header`."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src").mkdir()
            (root / "src" / "a.h").write_text(header)
            (root / "src" / "a.cpp").write_text(text)
            return list(check_includes.faults(root))

    def test_the_tree_has_its_headers(self):
        self.assertEqual(list(check_includes.faults(ROOT)), [])

    def test_each_missing_header_once(self):
        found = self.faults("#include <vector>\nstd::vector<uint8_t> a(std::max(1, 2));\nint b = std::min(1, 2);\n")
        self.assertEqual(found, ["src/a.cpp:2: std::max without #include <algorithm>", "src/a.cpp:2: uint8_t without #include <cstdint>"])

    def test_headers_of_the_project_count(self):
        self.assertEqual(self.faults('#include "src/a.h"\nint a = std::max(1, 2);\n', "#include <algorithm>\n"), [])
        self.assertEqual(len(self.faults('#include "src/a.h"\nint a = std::max(1, 2);\n', "#include <gtest/gtest.h>\n")), 1)

    def test_any_header_that_declares_a_name(self):
        for header in ("cmath", "cstdlib"):
            self.assertEqual(self.faults(f"#include <{header}>\nint a = std::abs(-1);\n"), [])

    def test_containers_bring_move_but_not_exchange(self):
        text = "#include <string>\nint a = std::move(b);\nint c = std::exchange(a, 1);\n"
        self.assertEqual(self.faults(text), ["src/a.cpp:3: std::exchange without #include <utility>"])
        self.assertEqual(self.faults("#include <utility>\n" + text), [])

    def test_comments_and_strings_use_nothing(self):
        self.assertEqual(self.faults('// std::max\n/* std::min\n std::sort */\nconst char* a = "std::find";\n'), [])

    def test_a_name_that_it_does_not_know(self):
        found = self.faults("int a = std::new_in_this_standard;\n")
        self.assertEqual(found, ["src/a.cpp:1: std::new_in_this_standard has no row in HEADERS of tools/check_includes.py"])


if __name__ == "__main__":
    unittest.main()
