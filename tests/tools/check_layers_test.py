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
        found = self.faults("src/quant/a.cpp", "src/graph/graph.h", "src/engine/engine.h")
        self.assertEqual(found, ["src/quant/a.cpp:2: src/quant must not include src/engine (src/engine/engine.h)"])

    def test_every_header_of_cuda(self):
        headers = ["cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "cublasLt.h", "cudnn.h", "cudnn_frontend.h", "cuda_fp16.h"]
        self.assertEqual(len(self.faults("trainers/loop/a.cpp", *headers)), len(headers))
        self.assertEqual(self.faults("src/cuda/a.cpp", *headers), [])

    def test_loops_on_threads_have_one_place(self):
        self.assertEqual(len(self.faults("src/qat/a.cpp", "ATen/Parallel.h", "ATen/Functions.h")), 1)

    def test_long_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, columns in check_layers.PROSE.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                long = "x" * (columns + 1)
                (root / name).write_text(f"{'x' * columns}\n| {long} |\n```\n{long}\n```\n{long}\n")
            (root / "tests").mkdir()
            (root / "tests" / "a.cu").write_text("é" * 140 + "\n" + "x" * 141 + "\n", encoding="utf-8")
            found = list(check_layers.long_lines(root))
        self.assertEqual(found, ["tests/a.cu:2: 141 columns, at most 140"] +
                         [f"{name}:6: {columns + 1} columns, at most {columns}" for name, columns in check_layers.PROSE.items()])

    def test_no_line_of_the_tree_is_too_long(self):
        self.assertEqual(list(check_layers.long_lines(pathlib.Path(__file__).resolve().parents[2])), [])


if __name__ == "__main__":
    unittest.main()
