# SPDX-License-Identifier: Apache-2.0
"""tools/lab/gpu/science.py with a program in octet's place: which runs the rows share, what they set, what the tables say."""
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from accuracy_scripts_test import Place  # noqa: E402  (and with it tools/lab/gpu)
import accuracy_plan  # noqa: E402
import science_plan  # noqa: E402
import science_table  # noqa: E402


def cells(text, title):
    """{variant: cells of its line} of the first table below a title."""
    lines = text[text.index(title):].split("\n")
    start = next(at for at, line in enumerate(lines) if line.startswith("|---") or line.startswith("| -"))
    header = [word.strip() for word in lines[start - 1].split("|")[1:-1]]
    rows = {}
    for line in lines[start + 1:]:
        if not line.startswith("|"):
            break
        words = [word.strip() for word in line.split("|")[1:-1]]
        rows[words[header.index("variant")]] = dict(zip(header, words))
    return rows


class WithPlace(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.place = Place(pathlib.Path(temporary.name))

    def science(self, *words, **more):
        return self.place.call("science.py", *words, **more)

    def settings(self):
        return dict(zip(self.place.names(), (call["settings"] for call in self.place.calls())))


class Rows(WithPlace):
    def test_two_rows_of_a_network_share_its_float_phase_its_control_and_their_common_runs(self):
        done = self.science("--rows", "4,10", "--only", "w4a4,w4a4-lsq,w4a8,w4a4-observed")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        names = [f"science/mobilenet_v2{variant}-seed1" for variant in ("", "-w4a4", "-w4a8", "-w4a4-lsq", "-w4a4-observed")]
        self.assertEqual(self.place.names(), names)
        of = self.settings()
        self.assertEqual(of[names[0]]["qat.epochs"], "0")
        self.assertNotIn("model.weights", of[names[0]])
        for name in names[1:]:
            self.assertEqual(of[name]["model.weights"], str(self.place.out / names[0] / "float.safetensors"))
            self.assertEqual((of[name]["qat.epochs"], of[name]["evaluate.latency_images"]), ("20", "0"))
        self.assertEqual([of[name]["qat.float_control"] for name in names[1:]], ["true", "false", "false", "false"])
        self.assertEqual((of[names[2]]["quant.weight_bits"], of[names[2]]["quant.activation_bits"]), ("4", "8"))
        self.assertEqual(sorted(path.name for path in (self.place.out / "science").rglob("*.safetensors")), ["float.safetensors"])

    def test_what_trains_longer_or_at_another_rate_has_a_control_of_its_own(self):
        self.science("--rows", "1,2,9", "--only", "w2a2,w4a4,w8a8,2to4", "--set", "resnet18:qat.epochs=7")
        controls = {name: values["qat.float_control"] for name, values in self.settings().items()}
        self.assertEqual({name for name, value in controls.items() if value == "true"},
                         {f"science/{name}-seed1" for name in ("resnet20-w2a2", "resnet20-w4a4", "resnet18-w4a4", "resnet18-2to4")})
        epochs = {name: values["qat.epochs"] for name, values in self.settings().items()}
        self.assertEqual([epochs[f"science/{name}-seed1"] for name in ("resnet20-w2a2", "resnet20-w4a4", "resnet18-w4a4", "resnet18-2to4")],
                         ["120", "60", "7", "7"])

    def test_a_control_of_an_earlier_call_serves_those_of_its_schedule(self):
        def controls(*words):
            done = self.science("--rows", "10", *words)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return {name.removeprefix("science/mobilenet_v2"): values["qat.float_control"] for name, values in self.settings().items()}, done.stdout

        self.assertEqual(controls("--only", "w4a4-lsq")[0], {"-seed1": "false", "-w4a4-lsq-seed1": "true"})
        with open(self.place.out / "science/mobilenet_v2-w4a4-lsq-seed1/command.txt", "a") as commands:
            commands.write("octet train FOLDER --resume\n")
        trained, tables = controls("--only", "w4a4,w4a4-lsq,w4a4-lsq-bf16")
        self.assertEqual(trained, {"-w4a4-seed1": "false", "-w4a4-lsq-bf16-seed1": "true"})  # another precision, another control
        self.assertEqual(cells(tables, "## Row 10")["w4a4"]["minus control"], "-0.10")
        listed = self.science("--rows", "10", "--only", "w4a4-lsq", "--list").stdout
        self.assertTrue(listed.strip().endswith("qat.float_control=true"), listed)  # as it was trained
        self.assertEqual(controls("--only", "w4a4-observed", "--set", "mobilenet_v2:qat.epochs=8")[0], {"-w4a4-observed-seed1": "true"})
        self.assertEqual(controls("--only", "w4a4-lsq-again", "--seeds", "2")[0], {"-seed2": "false", "-w4a4-lsq-again-seed2": "true"})

    def test_settings_go_to_a_network_or_to_one_of_its_variants_and_leave_what_makes_it_one(self):
        self.science("--rows", "2,1", "--only", "w2a2,w4a4", "--set", "resnet18:train.epochs=30", "--set", "resnet20-w2a2:qat.epochs=9", "--set",
                     "quant.weight_bits=8")
        of = self.settings()
        self.assertEqual((of["science/resnet18-seed1"]["train.epochs"], of["science/resnet18-w2a2-seed1"]["train.epochs"]), ("30", "0"))
        self.assertNotIn("train.epochs", of["science/resnet20-seed1"])
        self.assertEqual((of["science/resnet20-w2a2-seed1"]["qat.epochs"], of["science/resnet20-w4a4-seed1"]["qat.epochs"]), ("9", "60"))
        self.assertEqual(of["science/resnet20-w2a2-seed1"]["quant.weight_bits"], "2")

    def test_tables_pair_every_variant_with_the_shared_control_and_every_effect_with_its_neighbour(self):
        done = self.science("--rows", "10,2", "--only", "w4a4,w4a4-observed,w4a4-lsq", "--seeds", "1,2")
        text = done.stdout
        row = cells(text, "## Row 10")
        # int8 is 0.1 points below its control; `observed` 0.2 lower than the others, and so is its own float network
        self.assertEqual(row["w4a4"]["minus control"], "-0.10 ± 0.00")
        self.assertEqual(row["w4a4-lsq"]["paired 95 %"], "-0.14 .. -0.06")
        self.assertEqual(row["w4a4-lsq"]["right: control, int8 alone"], "20, 0")
        self.assertEqual((row["w4a4-observed"]["minus control"], row["w4a4-observed"]["right: control, int8 alone"]), ("-0.30 ± 0.00", "60, 0"))
        self.assertEqual((row["w4a4"]["asked"], row["w4a4"]["reached"], row["w4a4"]["W/A"]), ("-1.50", "yes", "4/4"))
        effects = cells(text, "\n| variant")
        self.assertEqual(effects["w4a4"], {"variant": "w4a4", "beside": "w4a4-observed", "seeds": "2", "on the same chip": "2 of 2",
                                           "points": "+0.20 ± 0.00", "paired 95 %": "+0.14 .. +0.26", "right: it, the other alone": "40, 0"})
        self.assertEqual(effects["w4a4-lsq"]["points"], "+0.00 ± 0.00")
        absolute = cells(text, "## Row 2")["w4a4"]
        self.assertEqual((absolute["asked"], absolute["reached"]), ("95.20", "no, by 3.80"))

    def test_nothing_is_told_against_a_control_that_is_not_there(self):
        run = {"seed": 1, "top1": {"float": 95.0, "ptq": 90.0, "float_control": None, "int8": 94.5}, "points": -0.5, "images": 10000,
               "only_baseline_right": 100, "only_int8_right": 50, "compared_codes": 1, "differing_codes": {"cuda": 0}, "epochs": 20, "rate": 0.01,
               "chip": "a GPU"}
        row = science_plan.ROWS["2"]
        line = cells("# t\n" + science_table.variants_table(row, {"resnet18-w4a4": {"runs": [run]}}), "# t")["w4a4"]
        self.assertEqual([line[key] for key in ("minus control", "paired 95 %", "right: control, int8 alone")], ["-", "-", "-"])

    def test_effects_pair_only_what_was_trained_alike(self):
        run = {"seed": 1, "epochs": 20, "rate": 0.01, "images": 10000, "top1": {"int8": 94.0}, "right": {"int8": "f0"}}
        pairs = science_table.pairs_of([run], [{**run, "right": {"int8": "0f"}}])
        self.assertEqual(science_table.effect(pairs), ([0.0], (4, 4, 10000)))
        self.assertEqual(science_table.pairs_of([run], [{**run, "epochs": 8}]), [])

    def test_tables_say_on_which_chips_runs_were(self):
        run = {"seed": 1, "epochs": 20, "rate": 0.01, "images": 10000, "top1": {"int8": 94.0}, "right": {"int8": "f0"}, "chip": "NVIDIA H200"}
        other = {**run, "seed": 2, "chip": "NVIDIA H100"}
        found = {"mobilenet_v2-w4a4": {"runs": [run, other]}, "mobilenet_v2-w4a4-observed": {"runs": [run, {**other, "chip": "NVIDIA H200"}]}}
        effects = cells("# t\n" + science_table.effects_table(science_plan.ROWS["10"], found), "# t")
        self.assertEqual(effects["w4a4"]["on the same chip"], "1 of 2")
        self.assertEqual(science_table.chips_of([run, other, run]), "NVIDIA H100, NVIDIA H200")

    def test_a_control_is_shared_only_by_what_it_would_do_alike(self):
        changes = ["mobilenet_v2-w4a4-lsq:qat.weight_decay=0"]
        jobs = science_plan.jobs(pathlib.Path("/f"), ["10"], [1], ["w4a4", "w4a4-lsq", "w4a4-lsq-bf16"], {"cifar10": []}, changes)
        controlled = {job.folder.name for job in jobs if science_plan.last(job.settings, "qat.float_control") == "true"}
        self.assertEqual(controlled, {"mobilenet_v2-w4a4-seed1", "mobilenet_v2-w4a4-lsq-seed1", "mobilenet_v2-w4a4-lsq-bf16-seed1"})

    def test_stopped_in_time_the_same_command_goes_on(self):
        words = ("--rows", "2", "--only", "w4a4")
        done = self.science(*words, "--minutes", "0.03", FAKE_SLOW="resnet18-seed1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing is finished", done.stdout)
        self.assertIn("not finished: 2 of 2 (resnet18-seed1, resnet18-w4a4-seed1", done.stdout)
        self.assertEqual(self.science(*words, FAKE_SLOW="resnet18-seed1").returncode, 0)
        self.assertIn("--resume", self.place.calls()[0]["words"])
        self.science(*words)
        self.assertEqual(self.place.calls(), [])

    def test_row_5_reads_another_data_set(self):
        self.assertIn("--tiny FILE", self.science("--rows", "5").stderr)
        tiny = self.place.folder / "tiny.tar"
        tiny.write_text("pictures")
        self.assertEqual(self.science("--rows", "5,2", "--tiny", tiny, "--only", "w4a4").returncode, 0)
        of = self.settings()
        self.assertEqual(of["science/resnet18_tiny_imagenet-w4a4-seed1"]["data.path"], str(tiny))
        self.assertEqual(of["science/resnet18-w4a4-seed1"]["data.path"], str(self.place.data.resolve()))
        self.assertTrue(self.place.calls()[0]["words"][1].endswith("recipes/resnet18_tiny_imagenet_int8.yaml"))

    def test_a_data_set_that_no_row_reads_need_not_be_there(self):
        tiny = self.place.folder / "tiny.tar"
        tiny.write_text("pictures")
        shutil.rmtree(self.place.data)
        done = self.science("--rows", "5", "--tiny", tiny, "--only", "w4a4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({values["data.path"] for values in self.settings().values()}, {str(tiny)})
        self.assertIn("CIFAR-10's binary files; name it with --data", self.science("--rows", "5,2", "--tiny", tiny, "--only", "w4a4").stderr)

    def test_unknown_rows_and_variants_are_refused(self):
        self.assertIn("no row '6'; there are 1, 2", self.science("--rows", "6").stderr)
        self.assertIn("--only leaves no variant", self.science("--rows", "2", "--only", "w5a5").stderr)


class Plan(unittest.TestCase):
    def test_every_row_has_a_recipe_what_is_asked_for_its_bits_and_known_neighbours(self):
        for number, row in science_plan.ROWS.items():
            self.assertTrue((science_plan.recipe_of(row) or accuracy_plan.recipe_file(row.network)).exists(), number)
            self.assertEqual({science_plan.bits_of(name) for name in row.variants}, set(row.asked), number)
            for pair in row.effects:
                self.assertLessEqual(set(pair), set(row.variants))

    def test_what_is_asked_is_points_or_top_1(self):
        run = {"points": -0.5, "top1": {"float_control": 95.7, "int8": 95.2}}
        self.assertEqual(science_table.reached(-0.5, [run]), ("-0.50", "yes"))
        self.assertEqual(science_table.reached(-0.38, [run]), ("-0.38", "no, by 0.12"))
        self.assertEqual(science_table.reached(95.2, [run]), ("95.20", "yes"))
        self.assertEqual(science_table.reached(-0.5, [run, {**run, "top1": {"float_control": None, "int8": 95.2}}]), ("-0.50", "no control yet"))


if __name__ == "__main__":
    unittest.main()
