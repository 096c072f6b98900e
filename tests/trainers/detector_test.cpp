// SPDX-License-Identifier: Apache-2.0
// Detectors trained on drawn images, from files to the proof: of a network that is written down, and of an ONNX file
// whose classes are others.
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "src/base/files.h"
#include "src/detect/decode.h"
#include "src/net/onnx/onnx.h"
#include "tests/trainers/drawn_detector.h"
#include "tests/trainers/tiny.h"
#include "trainers/run/pipeline.h"

namespace octet {
namespace {

using testing_trainers::ap_of;
using testing_trainers::detector_network;
using testing_trainers::detector_recipe;
using testing_trainers::draw_shapes;
using testing_trainers::Folder;
using testing_trainers::message_of;
using testing_trainers::score_of;

TEST(Detector, LearnsDrawnShapesAndRunsAsItWasTrained) {
  const Folder folder("detector");
  draw_shapes(folder.path(), "train", 60, 1);
  draw_shapes(folder.path(), "val", 20, 2);
  draw_shapes(folder.path(), "test", 40, 3);
  const Recipe recipe = parse_recipe(detector_recipe(folder.path(), detector_network(2), R"(train:
  epochs: 40
  batch_size: 12
  optimizer: adamw
  learning_rate: 0.004
  warmup_epochs: 2
qat:
  epochs: 4
  batch_size: 12
  learning_rate: 0.0004
  optimizer: adamw
  distill_weight: 0.5
)"),
                                     "drawn.yaml");
  EXPECT_EQ(recipe.data.labels, Labels::boxes);
  EXPECT_EQ(recipe.data.fit, Fit::letterbox_corner);
  const RunDirectory directory{folder.path() + "/run"};
  const Report report = train(recipe, directory, {.command = "octet train", .machine = "test"}).value();
  EXPECT_GT(score_of(report, "float"), 0.5);
  EXPECT_GT(score_of(report, "cpu"), score_of(report, "float") - 0.05);
  EXPECT_TRUE(report.comparison.identical()) << describe(report.comparison);
  EXPECT_TRUE(report.comparison.constants.derived);
  for (const Row& row : report.rows) {
    const bool engine = row.evaluation.name == "cpu" || row.evaluation.name == "reference";
    if (engine) {
      EXPECT_EQ(row.differing, 0);
    }
  }
  EXPECT_EQ(score_of(report, "cpu"), score_of(report, "qat_graph"));
  EXPECT_EQ(score_of(report, "cpu"), ap_of(directory.int8(), folder.path()));
  EXPECT_EQ(report.epochs.size(), 44u);
  EXPECT_GT(report.epochs.back().validation_ap.value(), 0.4);
  EXPECT_GT(report.epochs.back().train_top1, report.epochs.front().train_top1);
  ASSERT_EQ(report.boxes.size(), 6u);  // those on which int8 is far below float come first
  const auto lost = [](const ReportBoxes& of) { return of.before_ap - of.int8_ap; };
  for (size_t i = 1; i < report.boxes.size(); ++i) {
    const bool far = lost(report.boxes[i]) > 0.05;
    EXPECT_TRUE(far ? lost(report.boxes[i - 1]) >= lost(report.boxes[i]) - 1e-12
                    : lost(report.boxes[i - 1]) > 0.05 || report.boxes[i - 1].int8_ap <= report.boxes[i].int8_ap);
  }
  EXPECT_NE(report.boxes[0].truth.pixels, report.boxes[0].int8.pixels);
  const std::string page = read_file(directory.report_html());
  EXPECT_NE(page.find("AP50"), std::string::npos);
  EXPECT_NE(page.find("95 % interval"), std::string::npos);

  const Recipe other =
      parse_recipe(detector_recipe(folder.path(), detector_network(3), "train:\n  epochs: 1\n"), "3.yaml");
  EXPECT_NE(message_of(ExitCode::usage, [&] { open_run(other, {}); }).find("boxes of 3 classes, the data set has 2"),
            std::string::npos);
}

TEST(Detector, BeginsLastLayersAnewForOtherClasses) {
  if (!has_onnx()) GTEST_SKIP() << "built without ONNX";
  const Folder folder("detector_onnx");
  draw_shapes(folder.path(), "train", 24, 1);
  draw_shapes(folder.path(), "val", 4, 2);
  draw_shapes(folder.path(), "test", 4, 3);
  const std::string file = folder.path() + "/three.onnx";
  {
    const Recipe three = parse_recipe(
        detector_recipe(folder.path(), detector_network(3), "train:\n  epochs: 1\n  batch_size: 12\n"), "3.yaml");
    const ModelSpec spec{.name = "graph",
                         .input = {3, 64, 64},
                         .classes = 3,
                         .graph = three.model.graph,
                         .outputs = three.model.outputs};
    const Graph graph = build_model(spec);
    TensorFile weights;
    for (const auto& [name, tensor] : initial_weights(graph, 5))
      weights.tensors.emplace(name,
                              float_tensor(tensor.sizes().vec(), tensor.detach().contiguous().const_data_ptr<float>()));
    write_file_atomically(file, write_float(graph, weights, {.mean = {0, 0, 0}, .std = {1, 1, 1}}, 13));
  }
  const std::string model = fmt::format("model:\n  name: onnx\n  onnx: {}\n", file);
  const Recipe recipe = parse_recipe(
      detector_recipe(folder.path(), model, "train:\n  epochs: 0\nqat:\n  epochs: 1\n  batch_size: 12\n"), "onnx.yaml");
  const auto run = open_run(recipe, {});
  ASSERT_EQ(run.new_layers.size(), 2u);
  EXPECT_EQ(run.data.detector->classes(), 2);
  const Weights weights = starting_weights(run);
  const auto imported = import_onnx(file).weights.tensors;
  long same = 0;
  for (const auto& [name, tensor] : weights) {
    const bool is_new = name.starts_with(run.new_layers[0] + ".") || name.starts_with(run.new_layers[1] + ".");
    if (is_new) {
      const at::Tensor from = name.ends_with(".bias") ? tensor - std::log(0.01 / 0.99) : tensor;
      EXPECT_LT(from.abs().max().item<float>(), name.ends_with(".bias") ? 1e-6 : 0.06) << name;
      continue;
    }
    const auto& from = imported.at(name);
    EXPECT_EQ(std::memcmp(from.bytes.data(), tensor.detach().contiguous().const_data_ptr(), from.bytes.size()), 0)
        << name;
    ++same;
  }
  EXPECT_GT(same, 20);
  const Report report = train(recipe, {folder.path() + "/run"}, {.command = "octet train", .machine = "test"}).value();
  EXPECT_TRUE(report.comparison.identical()) << describe(report.comparison);
}

}  // namespace
}  // namespace octet
