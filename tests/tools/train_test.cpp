// SPDX-License-Identifier: Apache-2.0
// octet train and what follows from its run directory, on a tiny synthetic set.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "src/base/files.h"
#include "src/base/safetensors.h"
#include "src/engine/engine.h"
#include "src/net/checkpoint.h"
#include "tests/data/images.h"
#include "tests/tools/built.h"
#include "tests/tools/train_tool.h"

namespace octet::test {
namespace {

namespace fs = std::filesystem;

TEST_F(Train, ARunDirectoryHoldsEverythingAndStdoutOneDocument) {
  const Answer answer = train("run", {"--json", "--quiet"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.err, "");
  EXPECT_EQ(nlohmann::json::parse(answer.out), nlohmann::json::parse(read_file(directory("run").report_json())));
  const RunDirectory run = directory("run");
  for (const std::string& file :
       {run.recipe(), run.command(), run.environment(), run.metrics(), run.float_state(), run.qat_state(),
        run.float_weights(), run.quantized(), run.int8(), run.report_json(), run.report_html(), run.report_svg()}) {
    EXPECT_TRUE(fs::is_regular_file(file)) << file;
  }
  expect_part(read_file(run.command()), "octet train " + path("tiny.yaml") + " --out ");
}

TEST_F(Train, TheReportAndInspectSayInWhichNodesKernelAMergedOneIs) {
  const Answer trained =
      train("run", {"--device", "cpu", "--set", "model.name=graph", "--set",
                    "model.graph=[{name: c, op: conv2d, out_channels: 2, kernel: 3}, {name: s, op: silu}, "
                    "{name: f, op: flatten}, {name: l, op: linear, out_channels: 4}]"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  expect_part(read_file(directory("run").report_html()), "merged into c");
  const auto of_node = [](const nlohmann::json& nodes) {
    for (const auto& node : nodes)
      if (node.at("name") == "s") return node.at("kernel").get<std::string>();
    return std::string("no such node");
  };
  EXPECT_EQ(of_node(nlohmann::json::parse(read_file(directory("run").report_json())).at("layers")), "merged into c");
  const Answer inspected = octet({"inspect", path("run"), "--device", "cpu", "--json"});
  EXPECT_EQ(of_node(nlohmann::json::parse(inspected.out).at("nodes")), "merged into c");
}

TEST_F(Train, AnEngineThatCannotRunHereIsRefusedBeforeTraining) {
  if (find_engine("cuda").available().ok) GTEST_SKIP() << "this machine has a GPU";
  expect_refusal(train("run", {"--set", "evaluate.engines=[cpu, cuda]", "--quiet"}), 2,
                 {"engine cuda cannot run on this machine", "--set evaluate.engines=[auto]"});
  EXPECT_FALSE(fs::exists(path("run")));
}

/// Images with and without an orientation, one file that is no image's, and one that is damaged.
TEST_F(Train, PhotosAreTurnedCheckedBeforeTrainingAndTheCheckpointSaysSo) {
  for (const char* split : {"train", "test"}) {
    for (const char* name : {"cat", "dog"}) fs::create_directories(path(fmt::format("photos/{}/{}", split, name)));
    for (int i = 0; i < 48; ++i) {
      const std::string name = fmt::format("photos/{}/{}/{}.png", split, i % 2 ? "cat" : "dog", i);
      const std::string png = testing::png_bytes(testing::noise(8, 8 + i % 4, 1, static_cast<uint64_t>(i)));
      write(name, i % 6 ? png : testing::png_with_exif(png, testing::exif_bytes(6, true)));
    }
  }
  write("photos/train/cat/scan.tiff", "x");
  const std::vector<std::string> set = {
      "--set", "data.format=image_folder", "--set", "data.path=" + path("photos"), "--set", "qat.epochs=0", "--device",
      "cpu"};
  write("photos/test/dog/99.png", "damaged");
  expect_refusal(train("refused", set), 3, {"data.test: " + path("photos/test/dog/99.png") + ": neither JPEG nor PNG"});
  EXPECT_FALSE(fs::exists(path("refused")));
  fs::remove(path("photos/test/dog/99.png"));

  const Answer answer = train("run", set);
  ASSERT_EQ(answer.code, 0) << answer.err;
  const std::vector<std::string> wanted = {"left out: .tiff 1 (cat/scan.tiff)",
                                           "data.test: 8 of 48 images carry an EXIF orientation: they are turned"};
  const auto notes = nlohmann::json::parse(read_file(directory("run").report_json())).at("notes");
  for (const std::string& part : wanted) {
    expect_part(answer.err, part);
    EXPECT_EQ(answer.err.find(part), answer.err.rfind(part)) << "said twice: " << part;
    expect_part(notes.dump(), part);
  }
  const Int8Graph graph = read_checkpoint(directory("run").int8());
  EXPECT_TRUE(graph.preprocessing.exif_orientation);
  EXPECT_TRUE(graph.preprocessing.even_margin);
  EXPECT_EQ(octet({"compare", path("run"), "--device", "cpu", "--quiet"}).code, 0);

  // A run, or a checkpoint, that an octet wrote which did not know the key.
  const std::string recipe = read_file(directory("run").recipe()), line = "  orientation: exif\n";
  const size_t place = recipe.find(line);
  ASSERT_NE(place, std::string::npos);
  write("run/recipe.yaml", recipe.substr(0, place) + recipe.substr(place + line.size()));
  EXPECT_EQ(octet({"export", path("run"), "--out", path("older.safetensors"), "--device", "cpu"}).code, 0);
  EXPECT_FALSE(read_checkpoint(path("older.safetensors")).preprocessing.exif_orientation);
}

TEST_F(Train, ExportWritesTheVeryBytesOfTraining) {
  ASSERT_EQ(train("run").code, 0);
  const Answer answer = octet({"export", path("run"), "--out", path("again.safetensors")});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(read_file(path("again.safetensors")), read_file(directory("run").int8()));
}

TEST_F(Train, EvaluateMeasuresEveryRow) {
  ASSERT_EQ(train("run").code, 0);
  const Answer answer =
      octet({"evaluate", path("run"), "--all", "--json", "--quiet", "--set", "evaluate.engines=[reference, cpu]"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.err, "");
  std::map<std::string, double> trained, measured;
  const auto report = nlohmann::json::parse(read_file(directory("run").report_json()));
  for (const auto& row : report.at("rows")) trained[row.at("name")] = row.at("top1");
  std::vector<std::string> names;
  const auto document = nlohmann::json::parse(answer.out);
  for (const auto& row : document.at("rows")) {
    names.push_back(row.at("name"));
    EXPECT_EQ(row.at("top1").get<double>(), trained.at(names.back())) << names.back();
    EXPECT_EQ(row.at("differing_predictions").is_null(), names.back() == "qat_graph");
    if (names.back() == "cpu") {
      EXPECT_EQ(row.at("differing_predictions"), 0);
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"float", "simulation", "qat_graph", "reference", "cpu"}));
}

TEST_F(Train, EvaluateMeasuresTheFloatControlToo) {
  ASSERT_EQ(train("run", {"--set", "qat.float_control=true"}).code, 0);
  const Answer answer = octet({"evaluate", path("run"), "--all", "--json", "--quiet"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto document = nlohmann::json::parse(answer.out);
  EXPECT_EQ(document.at("rows").at(1).at("name"), "float_control");
  EXPECT_EQ(document.at("headline").at("baseline"), "float_control");
  expect_refusal(octet({"export", path("run"), "--out", path("run/float_control.safetensors")}), 2,
                 {"other weights of this run"});
}

TEST_F(Train, CompareFindsOneChangedWeightCode) {
  ASSERT_EQ(train("run").code, 0);
  const Answer good = octet({"compare", path("run"), "--json", "--quiet"});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(good.err, "");
  const auto compared = nlohmann::json::parse(good.out);
  EXPECT_EQ(compared.at("identical"), true);
  EXPECT_EQ(compared.at("programs").at(1), "simulation");
  EXPECT_EQ(compared.at("programs").at(2), "trained_fp32");
  EXPECT_EQ(compared.at("exact").at(1), false);
  EXPECT_EQ(compared.at("program_images").at(1), 120);

  TensorFile file = read_safetensors(directory("run").int8());
  auto& code = file.tensors.at("conv3.weight").bytes.at(7);
  code = static_cast<std::byte>(static_cast<signed char>(code) > 0 ? -100 : 100);
  write_safetensors(path("changed.safetensors"), file);
  const Answer broken = octet({"compare", path("run"), "--checkpoint", path("changed.safetensors")});
  EXPECT_EQ(broken.code, 1);
  const size_t verdict = broken.out.find("BROKEN");
  ASSERT_NE(verdict, std::string::npos) << broken.out;
  expect_part(broken.out.substr(verdict), "conv3");
}

/// Three units in the last place change no code of a few images: only the second derivation sees them.
TEST_F(Train, CompareFindsAConstantThatDoesNotFollowFromTheTrainedWeights) {
  ASSERT_EQ(train("run").code, 0);
  const auto report = nlohmann::json::parse(read_file(directory("run").report_json())).at("comparison");
  EXPECT_GT(report.at("constants"), 1000);
  EXPECT_EQ(report.at("wrong_constants"), 0);
  expect_part(read_file(directory("run").report_html()),
              "derived again in double from what was trained: none is wrong");
  const Answer good = octet({"compare", path("run"), "--quiet"});
  EXPECT_EQ(good.code, 0) << good.err;
  expect_part(good.out, "derived again in double from what was trained: none is wrong");

  Int8Graph graph = read_checkpoint(directory("run").int8());
  Int8Node& layer = graph.nodes[1];
  ASSERT_FALSE(layer.multiplier.empty());
  for (int i = 0; i < 3; ++i) layer.multiplier[2] = std::nextafter(layer.multiplier[2], INFINITY);
  write_checkpoint(path("changed.safetensors"), graph);
  const Answer broken = octet({"compare", path("run"), "--checkpoint", path("changed.safetensors"), "--images", "1",
                               "--engine", "reference", "--json", "--quiet"});
  EXPECT_EQ(broken.code, 1) << broken.err;
  const auto document = nlohmann::json::parse(broken.out);
  expect_part(document.at("verdict"), "BROKEN: 1 of ");
  expect_part(document.at("verdict"), "first at " + layer.name + "; codes: identical: 0 of ");
  EXPECT_EQ(document.at("identical"), false);
  const auto& constants = document.at("constants");
  EXPECT_EQ(constants.at("derived"), report.at("constants"));
  EXPECT_EQ(constants.at("wrong"), 1);
  EXPECT_EQ(constants.at("first_wrong").at(0).at("node"), layer.name);
  EXPECT_EQ(constants.at("first_wrong").at(0).at("what"), "multiplier");
  EXPECT_EQ(constants.at("first_wrong").at(0).at("index"), 2);
}

TEST_F(Train, WhatWasTrainedCannotBeSetAfterwards) {
  ASSERT_EQ(train("run").code, 0);
  for (const char* command : {"compare", "evaluate", "export"}) {
    expect_refusal(octet({command, path("run"), "--set", "quant.activation=symmetric_s8"}), 2, {"model and quant"});
  }
  expect_refusal(octet({"compare", path("run"), "--checkpoint", random_checkpoint()}), 2, {"3x32x32", "1x8x8"});
  expect_refusal(octet({"compare", path("run"), "--fallback", "cuda"}), 2,
                 {"--fallback is for engines cudnn and cutlass", "--engine"});
}

TEST_F(Train, CalibrateTriesEveryCalibratorAndWritesTheBest) {
  ASSERT_EQ(train("run").code, 0);
  const Answer answer =
      octet({"calibrate", path("run"), "--all", "--json", "--quiet", "--out", path("ptq.safetensors")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.err, "");
  const auto document = nlohmann::json::parse(answer.out);
  ASSERT_EQ(document.at("results").size(), 15u);
  EXPECT_EQ(document.at("validation_images"), 32);
  EXPECT_EQ(document.at("test_images"), 120);
  const auto& best =
      *std::max_element(document.at("results").begin(), document.at("results").end(), [](const auto& a, const auto& b) {
        const double left = a.at("validation_top1"), right = b.at("validation_top1");
        return left != right ? left < right : a.at("validation_loss") > b.at("validation_loss");
      });
  const auto& chosen = document.at("chosen");
  EXPECT_EQ(chosen.at("activation"), best.at("activation"));
  EXPECT_EQ(chosen.at("calibrator"), best.at("calibrator"));
  for (const auto& result : document.at("results")) {
    EXPECT_FALSE(result.contains("test_top1"));
    EXPECT_EQ(std::fmod(32 * result.at("validation_top1").get<double>(), 1), 0) << result;
  }
  EXPECT_EQ(std::round(120 * chosen.at("test_top1").get<double>()) / 120, chosen.at("test_top1").get<double>());
  // The file is the chosen one, with its figure.
  const Answer inspected = octet({"inspect", path("ptq.safetensors"), "--json"});
  ASSERT_EQ(inspected.code, 0) << inspected.err;
  EXPECT_EQ(nlohmann::json::parse(inspected.out).at("accuracies").at("int8_top1"), chosen.at("test_top1"));
  expect_refusal(octet({"calibrate", path("tiny.yaml")}), 2, {"model.weights"});
}

TEST_F(Train, TestImagesAreReadWhenAllIsTrained) {
  const Answer answer = train("run");
  ASSERT_EQ(answer.code, 0) << answer.err;
  const size_t qat = answer.err.find("qat 1/1: "), first = answer.err.find("of 120 test images");
  ASSERT_NE(qat, std::string::npos) << answer.err;
  ASSERT_NE(first, std::string::npos) << answer.err;
  EXPECT_LT(qat, first);
  expect_part(answer.err, "float: top-1 ");
  expect_part(answer.out, ", 120 test images");
}

TEST_F(Train, ARunOfAnOlderOctetIsRefusedWithTheCure) {
  ASSERT_EQ(train("run").code, 0);
  std::string recipe = read_file(directory("run").recipe());
  const size_t validation = recipe.find("  validation: "), classes = recipe.find("  classes: ");
  ASSERT_LT(validation, classes);
  recipe.replace(validation, classes - validation, "  validation: test\n");
  write("run/recipe.yaml", recipe);
  for (const char* command : {"compare", "evaluate", "export", "calibrate"})
    expect_refusal(octet({command, path("run")}), 2,
                   {"run/recipe.yaml:", "data.validation", "rename validation to test"});
}

TEST_F(Train, TheDeviceIsToldAndWhyItIsNoGpu) {
  const Support gpu = find_engine("cuda").available();
  const std::string why = built_for_cuda() && !gpu.ok ? " (" + gpu.reason + ")" : "";
  const std::string expected = "device: cpu" + why + "\n";
  expect_part(train("run", {"--device", "cpu"}).err, expected);
  expect_part(octet({"calibrate", path("run"), "--device", "cpu"}).err, expected);
}

/// With a network of 8 TB, where a process may have 4.
TEST_F(Train, WhatLibTorchRefusesIsToldAfterTrainingToo) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more addresses";
#endif
  ASSERT_EQ(train("run").code, 0);
  std::string recipe = read_file(directory("run").recipe());
  const size_t model = recipe.find("model:"), next = recipe.find("\ntrain:");
  ASSERT_LT(model, next);
  recipe.replace(
      model, next - model,
      "model: {name: graph, graph: [{name: a, op: conv2d, out_channels: 60000, kernel: 1}, {name: b, op: conv2d, "
      "out_channels: 60000, kernel: 24, pad: 8}, {name: pool, op: global_avg_pool}, {name: flat, op: flatten}, "
      "{name: fc, op: linear, out_channels: 4}]}");
  write("run/recipe.yaml", recipe);
  const Start start{.address_space_limit = long{1} << 42};
  expect_refusal(octet({"evaluate", path("run"), "--all", "--device", "cpu"}, start), 1,
                 {"octet: LibTorch: ", "memory"});
  expect_refusal(octet({"compare", path("run"), "--device", "cpu"}, start), 1, {"octet: LibTorch: ", "memory"});
}

TEST_F(Train, InterruptedItSavesAndResumesToTheSameBytes) {
  // Long enough to be caught in the middle of QAT, short enough for a test.
  const std::vector<std::string> longer = {"--set", "data.synthetic_size=512", "--set", "qat.epochs=30"};
  ASSERT_EQ(train("whole", longer).code, 0);
  const auto interrupt = [&](pid_t child) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!fs::exists(directory("stopped").qat_state()) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(child, SIGINT);
  };
  const Answer stopped = train("stopped", longer, {.during = interrupt});
  EXPECT_EQ(stopped.code, 130) << stopped.err;
  EXPECT_EQ(stopped.out, "");
  expect_part(stopped.err, "octet: interrupted");
  expect_part(stopped.err, "saved: octet train " + path("stopped") + " --resume");
  EXPECT_TRUE(fs::exists(directory("stopped").qat_state()));
  EXPECT_FALSE(fs::exists(directory("stopped").int8()));
  expect_refusal(octet({"run", path("stopped"), "x.png"}), 3, {"octet train " + path("stopped") + " --resume"});
  expect_refusal(octet({"export", path("stopped")}), 3, {"octet train " + path("stopped") + " --resume"});

  const Answer resumed = octet({"train", path("stopped"), "--resume", "--quiet"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(resumed.err, "");
  EXPECT_EQ(read_file(directory("stopped").int8()), read_file(directory("whole").int8()));
}

TEST_F(Train, ExportReplacesNoOtherWeightsAndMendsADamagedCheckpoint) {
  ASSERT_EQ(train("run").code, 0);
  const std::string quantized = directory("run").quantized(), int8 = read_file(directory("run").int8());
  const std::string before = read_file(quantized);
  expect_refusal(octet({"calibrate", path("run"), "--out", path("none/x.safetensors")}), 3, {"no folder", "none"});
  expect_refusal(octet({"export", path("run"), "--out", path("run/checkpoints/../qat.safetensors")}), 2,
                 {"other weights of this run", "--out"});
  expect_refusal(octet({"calibrate", path("run"), "--out", quantized}), 2, {"other weights of this run", "--out"});
  EXPECT_EQ(read_file(quantized), before);
  fs::resize_file(directory("run").int8(), 1000);
  expect_refusal(octet({"inspect", path("run")}), 3, {"int8.safetensors", "octet export " + path("run")});
  expect_refusal(octet({"compare", path("run")}), 3, {"int8.safetensors", "octet export " + path("run")});
  EXPECT_EQ(octet({"export", path("run")}).code, 0);
  EXPECT_EQ(read_file(directory("run").int8()), int8);
}

TEST_F(Train, ANetworkOfSeveralOutputsIsNotMeasuredByItsClasses) {
  ASSERT_EQ(train("run").code, 0);
  Int8Graph graph = read_checkpoint(directory("run").int8());
  const std::string &logits = graph.nodes[graph.outputs[0]].name, &first = graph.nodes[1].name;
  graph.class_names.clear();
  graph.outputs.push_back(1);
  write_checkpoint(path("two.safetensors"), graph);
  for (const char* command : {"evaluate", "compare"})
    expect_refusal(octet({command, path("run"), "--checkpoint", path("two.safetensors")}), 2,
                   {"two.safetensors: gives '" + logits + "' float32 [4, 1, 1], '" + first + "' codes [",
                    "so it must give one output, [4, 1, 1]; train one output"});
}

TEST_F(Train, KernelsOfAnEngineThatHasNoneAreRefused) {
  ASSERT_EQ(train("run").code, 0);
  expect_refusal(octet({"run", path("run"), "x.png", "--engine", "reference", "--kernels", "avx2"}), 2,
                 {"run: --kernels is for engines cpu and cuda"});
}

TEST_F(Train, AFullDiskNamesTheFileAndKeepsTheOldCheckpoint) {
  expect_refusal(train("run", {}, {.file_size_limit = 256}), 3, {"recipe.yaml", "File too large"});
  ASSERT_EQ(train("run").code, 0);  // what the full disk left is no run
  const std::string old = read_file(directory("run").int8());
  const Answer exported = octet({"export", path("run")}, {.file_size_limit = 16384});
  expect_refusal(exported, 3, {"int8.safetensors: cannot write: File too large"});
  EXPECT_EQ(read_file(directory("run").int8()), old);
  const Answer trained = train("other", {"--quiet"}, {.file_size_limit = 16384});
  expect_refusal(trained, 3, {"float.state.safetensors: cannot write: File too large", "No state was saved yet"});
}

}  // namespace
}  // namespace octet::test
