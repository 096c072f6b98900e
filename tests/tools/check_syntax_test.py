# SPDX-License-Identifier: Apache-2.0
"""tools/check_syntax.py compiles the sources of a build with another compiler and names those that fail."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_syntax.py"


class Syntax(unittest.TestCase):
    def check(self, sources, *arguments, build=None):
        """(exit code, output, files left in the build folder) for a build of these sources, {name: text}, or of those named."""
        with tempfile.TemporaryDirectory() as folder:
            commands = []
            for name, text in sources.items():
                path = pathlib.Path(folder) / name
                path.write_text(text.replace("FOLDER", folder))
                if build is not None and name not in build:
                    continue
                command = f"/usr/bin/ccache /nowhere/c++ -DVALUE=1 -Wall -std=c++20 -o {name}.o -c {path}"
                commands.append({"directory": folder, "command": command, "file": str(path)})
            (pathlib.Path(folder) / "compile_commands.json").write_text(json.dumps(commands))
            place = pathlib.Path(folder)  # named as CI names it, from the folder around it
            done = subprocess.run([sys.executable, TOOL, place.name, "g++", *arguments], cwd=place.parent, capture_output=True, text=True)
            left = sorted(path.name for path in pathlib.Path(folder).iterdir())
        return done.returncode, done.stdout + done.stderr, left

    def test_a_source_that_compiles(self):
        code, said, left = self.check({"good.cpp": "int a = VALUE;\n"})
        self.assertEqual((code, said), (0, "1 sources, 0 do not compile with g++\n"))
        self.assertEqual(left, ["compile_commands.json", "good.cpp"])

    def test_errors_and_warnings_fail_by_name(self):
        code, said, _ = self.check({"good.cpp": "int a;\n", "bad.cpp": "int a = b;\n", "warned.cpp": "int f(int a) { if (a = 1) return 2; return 3; }\n"})
        self.assertEqual(code, 1)
        self.assertRegex(said, r"bad.cpp does not compile with g\+\+:\n(.|\n)*not declared")
        self.assertRegex(said, "warned.cpp does not compile with g")
        self.assertRegex(said, "3 sources, 2 do not compile")

    def test_a_pattern_chooses_and_nothing_chosen_fails(self):
        sources = {"good.cpp": "int a;\n", "bad.cpp": "int a = b;\n", "device.cu": "no C++\n"}
        self.assertEqual(self.check(sources, "good")[0], 0)
        self.assertEqual(self.check(sources, "device")[0], 1)

    def test_sources_that_are_compiled_together_are_checked_alone(self):
        sources = {"a.h": "#pragma once\nint value();\n", "one.cpp": '#include "a.h"\nint a = value();\n', "two.cpp": "int b = value();\n",
                   "unity_0_cxx.cxx": '#include "FOLDER/one.cpp"\n\n#include "FOLDER/two.cpp"\n'}
        code, said, _ = self.check(sources, "one|two", build=["unity_0_cxx.cxx"])
        self.assertEqual(code, 1)
        self.assertRegex(said, "two.cpp does not compile")
        self.assertRegex(said, "2 sources, 1 do not compile")

    def test_large_headers_are_compiled_once_for_those_that_include_them(self):
        sources = {"format.h": "#pragma once\n#include <fmt/format.h>\n"}
        sources |= {f"with_{i}.cpp": f'#include "format.h"\nstd::string s{i} = fmt::format("{{}}", {i});\n' for i in range(8)}
        sources["without.cpp"] = "using Error = fmt::format_error;\n"
        code, said, left = self.check(sources, build=[name for name in sources if name.endswith(".cpp")])
        self.assertEqual(code, 1)
        self.assertRegex(said, "without.cpp does not compile")
        self.assertRegex(said, "9 sources, 1 do not compile")
        self.assertRegex(said, "large headers, compiled once: 1 sets")
        self.assertNotIn("large_headers", left)

    def test_sets_of_large_headers_are_those_that_pay(self):
        sys.path.insert(0, str(TOOL.parent))
        import check_syntax
        text, both = frozenset({"fmt/format.h"}), frozenset({"fmt/format.h", "nlohmann/json.hpp"})
        self.assertEqual(check_syntax.paying({text: 40, both: 10, both | {"CLI/CLI.hpp"}: 1}), [text, both])
        self.assertEqual(check_syntax.paying({both | {"CLI/CLI.hpp"}: 5, both | {"gtest/gtest.h"}: 5}), [both])  # what both have
        self.assertEqual(check_syntax.paying({text: 1, both: 1}), [])
        self.assertEqual(check_syntax.paying({}), [])

    def test_sources_of_tests_are_checked_together(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            for name in ("tools", "tests", "src", "build"):
                (root / name).mkdir()
            tool, commands = shutil.copy(TOOL, root / "tools"), []
            (root / "src" / "c.cpp").write_text("int c;\n")  # of src, and a test program has it, too
            for name in ("tests", "src"):
                for source, text in (("a.cpp", "#include <vector>\nstd::vector<int> a;\n"), ("b.cpp", "std::vector<int> b;\n")):
                    (root / name / source).write_text(text)
                unity = root / "build" / f"{name}_cxx.cxx"
                unity.write_text("".join(f'#include "{root / name / source}"\n\n' for source in ("a.cpp", "b.cpp")) + f'#include "{root / "src" / "c.cpp"}"\n' * (name == "tests"))
                commands.append({"directory": str(root), "command": f"c++ -std=c++20 -o a.o -c {unity}", "file": str(unity)})
            (root / "build" / "compile_commands.json").write_text(json.dumps(commands))

            def said(*pattern):
                return subprocess.run([sys.executable, tool, root / "build", "g++", *pattern], capture_output=True, text=True).stdout

            everything, tests = said(), said("tests")
        self.assertRegex(everything, r"^src/b.cpp does not compile")
        self.assertIn("3 sources, 1 do not compile", everything)
        self.assertRegex(tests, r"^tests/b.cpp does not compile")
        self.assertIn("2 sources, 1 do not compile", tests)

    @unittest.skipUnless(shutil.which("clang++-19") and shutil.which("ccache"), "a clone elsewhere shares ccache's answers, of clang 19")
    def test_a_clone_elsewhere_with_the_same_ccache(self):
        with tempfile.TemporaryDirectory() as folder:
            for clone in ("first", "second"):
                root = pathlib.Path(folder) / clone
                (root / "tools").mkdir(parents=True)
                (root / "build").mkdir()
                tool = shutil.copy(TOOL, root / "tools")
                commands = []
                for i in range(8):
                    path = root / f"{i}.cpp"
                    path.write_text(f'#include <fmt/format.h>\nstd::string s{i} = fmt::format("{{}}", {i});  // the {clone}\n')
                    commands.append({"directory": str(root / "build"), "command": f"c++ -std=c++20 -o {i}.o -c {path}", "file": str(path)})
                (root / "build" / "compile_commands.json").write_text(json.dumps(commands))
                environment = {**os.environ, "CCACHE_DIR": f"{folder}/ccache"}
                done = subprocess.run([sys.executable, tool, root / "build", "clang++-19"], env=environment, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertIn("compiled once", done.stdout)
                shutil.move(root, f"{root}.moved")


if __name__ == "__main__":
    unittest.main()
