# SPDX-License-Identifier: Apache-2.0
"""tools/check_layers.py names the includes that point upwards, and the libraries that a layer must not know."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_layers  # noqa: E402


class Layers(unittest.TestCase):
    def faults(self, path, *includes):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("kernels", "src", "trainers", "tools"):
                (root / name).mkdir()
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("".join(f"#include <{name}>\n" for name in includes))
            return list(check_layers.faults(root))

    def test_the_tree_points_down(self):
        self.assertEqual(list(check_layers.faults(pathlib.Path(__file__).resolve().parents[2])), [])

    def test_upwards(self):
        found = self.faults("src/quant/a.cpp", "src/net/graph.h", "src/engine/engine.h")
        self.assertEqual(found, ["src/quant/a.cpp:2: src/quant must not include src/engine (src/engine/engine.h)"])

    def test_every_header_of_cuda(self):
        headers = ["cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "cublasLt.h", "cudnn.h", "cudnn_frontend.h", "cuda_fp16.h"]
        self.assertEqual(len(self.faults("trainers/loop/a.cpp", *headers)), len(headers))
        self.assertEqual(self.faults("src/cuda/a.cpp", *headers), [])

    def test_loops_on_threads_have_one_place(self):
        self.assertEqual(len(self.faults("src/train/qat/a.cpp", "ATen/Parallel.h", "ATen/Functions.h")), 1)

    def test_long_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            for name in ("README.md", "docs/A.md"):
                (root / name).write_text(f"{'x' * 120}\n| {'x' * 121} |\n```\n{'x' * 121}\n```\n{'x' * 121}\n")
            (root / "tests").mkdir()
            (root / "tests" / "a.cu").write_text("é" * 140 + "\n" + "x" * 141 + "\n", encoding="utf-8")
            found = list(check_layers.long_lines(root))
        self.assertEqual(found, ["tests/a.cu:2: 141 columns, at most 140", "README.md:6: 121 columns, at most 120",
                                 "docs/A.md:6: 121 columns, at most 120"])

    def test_links_to_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "docs" / "A.md").write_text("[a](B.md), [b](../README.md#part)\n[c](https://example.org/C.md) [d](D.md#e)\n")
            (root / "README.md").write_text("[a](docs/A.md) and [docs](docs)\n")
            self.assertEqual(list(check_layers.broken_links(root)), ["docs/A.md:1: links to B.md, which is not there",
                                                                     "docs/A.md:2: links to D.md, which is not there"])

    def test_names_of_files_that_are_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src" / "base").mkdir(parents=True)
            (root / "src" / "base" / "a.h").write_text("// As src/base/a.h says (src/base).\nint x;  // see src/common/a.h, x/src/y.h\n")
            (root / "README.md").write_text("`a.h`, `base/a.h`, `NAME.cu` and\n`src/base/b.h`, `common/a.h`\n")
            self.assertEqual(list(check_layers.lost_names(root)),
                             [f"README.md:2: names {name}, which is not there" for name in ("src/base/b.h", "common/a.h")] +
                             ["src/base/a.h:2: names src/common/a.h, which is not there"])

    def test_no_name_of_the_tree_is_lost(self):
        self.assertEqual(list(check_layers.lost_names(pathlib.Path(__file__).resolve().parents[2])), [])

    def test_no_link_of_the_tree_is_broken(self):
        self.assertEqual(list(check_layers.broken_links(pathlib.Path(__file__).resolve().parents[2])), [])

    def test_small_files_and_heads_without_a_licence(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src" / "report").mkdir(parents=True)
            (root / "src" / "a.h").write_text(f"// {check_layers.LICENCE}\n" * 24)
            (root / "src" / "b.h").write_text("int x;\n" * 25)
            (root / "src" / "report" / "no_events.cpp").write_text(f"// {check_layers.LICENCE}\n")  # has its reason
            self.assertEqual([line.split(":")[0] for line in check_layers.small_files(root)], ["src/a.h"])
            self.assertEqual([line.split(":")[0] for line in check_layers.unlicensed(root)], ["src/b.h"])

    def test_a_comment_on_a_declaration_is_a_sentence(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src").mkdir()
            (root / "src" / "a.h").write_text("/// Of a row.\nint a;\n  /// The same, signed.\nint b;\n/// Offset of a row.\nint c;  ///< of it\n")
            self.assertEqual([line.split(" ")[0] for line in check_layers.telegrams(root)], ["src/a.h:1:", "src/a.h:3:"])
        self.assertEqual(list(check_layers.telegrams(pathlib.Path(__file__).resolve().parents[2])), [])

    def test_no_line_of_the_tree_is_too_long(self):
        self.assertEqual(list(check_layers.long_lines(pathlib.Path(__file__).resolve().parents[2])), [])


if __name__ == "__main__":
    unittest.main()
