// SPDX-License-Identifier: Apache-2.0
// Detectors trained on drawn images, from files to the proof: of a network that is written down, and of an ONNX file
// whose classes are others.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/random.h"
#include "src/detect/decode.h"
#include "src/engine/engine.h"
#include "src/eval/average_precision.h"
#include "src/net/checkpoint.h"
#include "src/net/onnx/export.h"
#include "tests/trainers/ranks.h"
#include "tests/trainers/tiny.h"
#include "trainers/run/measure.h"
#include "trainers/run/pipeline.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::kNobodyThrew;
using testing_trainers::message_of;
using testing_trainers::run_ranks;

constexpr int kDrawnHeight = 64, kDrawnWidth = 80;

struct Shape2d {
  bool disc = false;
  Box box;
  bool covers(int x, int y) const {
    if (x < box.x || y < box.y || x >= box.x + box.width || y >= box.y + box.height) return false;
    const double dx = 2 * (x + 0.5 - box.x) / box.width - 1, dy = 2 * (y + 0.5 - box.y) / box.height - 1;
    return !disc || dx * dx + dy * dy <= 1;
  }
};

/// Writes FOLDER/SPLIT.json and FOLDER/images/SPLIT: discs and squares of one or two in an image, on noise.
void draw_shapes(const std::string& folder, const std::string& split, int images, uint64_t seed) {
  const std::string place = folder + "/images/" + split;
  std::filesystem::create_directories(place);
  std::string list, annotations;
  for (int i = 0; i < images; ++i) {
    Random random({seed, static_cast<uint64_t>(i)});
    std::vector<Shape2d> shapes;
    for (int left = 0; left < kDrawnWidth; left += kDrawnWidth / 2) {
      if (left > 0 && random.below(3) == 0) continue;
      const double side = 16 + random.below(20);
      shapes.push_back({random.below(2) == 1,
                        {left + 1.0 * random.below(static_cast<uint32_t>(kDrawnWidth / 2 - side)),
                         1.0 * random.below(static_cast<uint32_t>(kDrawnHeight - side)), side, side}});
    }
    Image image{kDrawnHeight, kDrawnWidth, 3, {}};
    for (int y = 0; y < kDrawnHeight; ++y)
      for (int x = 0; x < kDrawnWidth; ++x) {
        int add[3] = {0, 0, 0};
        for (const Shape2d& shape : shapes)
          if (shape.covers(x, y)) add[0] = 110, add[2] = shape.disc ? 0 : 60;
        for (const int by : add) image.pixels.push_back(static_cast<uint8_t>(40 + random.below(60) + by));
      }
    write_file_atomically(fmt::format("{}/{}.png", place, i), encode_png(image));
    list += fmt::format(R"({}{{"id": {}, "file_name": "{}.png", "width": {}, "height": {}}})", i ? ", " : "", i, i,
                        kDrawnWidth, kDrawnHeight);
    for (const Shape2d& shape : shapes)
      annotations += fmt::format(R"({}{{"image_id": {}, "category_id": {}, "bbox": [{}, {}, {}, {}]}})",
                                 annotations.empty() ? "" : ", ", i, shape.disc ? 9 : 4, shape.box.x, shape.box.y,
                                 shape.box.width, shape.box.height);
  }
  write_file_atomically(folder + "/" + split + ".json",
                        fmt::format(R"({{"images": [{}], "categories": [{{"id": 4, "name": "square"}},
                                    {{"id": 9, "name": "disc"}}], "annotations": [{}]}})",
                                    list, annotations));
}

/// Five convolutions and a head of YOLOX at strides 8 and 16, for that many classes. fixed: it takes no other input
/// than 64 pixels high and wide.
std::string detector_network(int classes, bool fixed = false) {
  std::string text = "model:\n  name: graph\n  graph:\n";
  const auto layer = [&](const std::string& name, const std::string& input, int channels, int stride) {
    text += fmt::format(
        "    - {{name: {0}, op: conv2d, inputs: [{1}], out_channels: {2}, kernel: 3, stride: {3}, pad: 1}}\n"
        "    - {{name: {0}_bn, op: batch_norm}}\n    - {{name: {0}_relu, op: relu}}\n",
        name, input, channels, stride);
  };
  layer("c1", "input", 12, 2);
  layer("c2", "c1_relu", 16, 2);
  layer("c3", "c2_relu", 24, 2);
  layer("c4", "c3_relu", 32, 2);
  if (fixed)
    text +=
        "    - {name: pooled, op: avg_pool, inputs: [c4_relu], kernel: 4, stride: 4}\n"
        "    - {name: spread, op: resize, inputs: [pooled], factor: 4}\n"
        "    - {name: both, op: concat, inputs: [c4_relu, spread]}\n";
  std::string outputs;
  for (const auto& [level, from] : {std::pair{"a", "c3_relu"}, std::pair{"b", fixed ? "both" : "c4_relu"}}) {
    layer(fmt::format("{}_cls", level), from, 24, 1);
    layer(fmt::format("{}_reg", level), from, 24, 1);
    for (const auto& [what, branch, channels] :
         {std::tuple{"classes", "cls", classes}, std::tuple{"boxes", "reg", 4}, std::tuple{"objectness", "reg", 1}}) {
      text += fmt::format(
          "    - {{name: {0}_{1}, op: conv2d, inputs: [{0}_{2}_relu], out_channels: {3}, kernel: 1, "
          "bias: true}}\n",
          level, what, branch, channels);
      outputs += fmt::format("{}{}_{}", outputs.empty() ? "" : ", ", level, what);
    }
  }
  return text + "  outputs: [" + outputs + "]\n";
}

std::string detector_recipe(const std::string& folder, const std::string& model, const std::string& more) {
  return fmt::format(R"(
threads: 1
data:
  format: coco
  path: {}
  validation: val
  test: test
  image_size: 64
  channel_order: bgr
  mean: [0.3, 0.3, 0.3]
  std: [0.2, 0.2, 0.2]
  flip: true
  scale: 0.2
  translate: 0.1
  hsv: true
{}calibrate:
  images: 32
  batch_size: 16
evaluate:
  batch_size: 10
  engines: [cpu, reference]
  latency_images: 2
{})",
                     folder, model, more);
}

double score_of(const Report& report, const std::string& name) {
  for (const Row& row : report.rows)
    if (row.evaluation.name == name) return row.evaluation.score();
  ADD_FAILURE() << "no row " << name;
  return 0;
}

/// Returns the AP of a checkpoint, which must say all that a program needs, on the test images.
double ap_of(const std::string& checkpoint, const std::string& folder) {
  const Int8Graph graph = read_checkpoint(checkpoint);
  EXPECT_EQ(graph.class_names, (std::vector<std::string>{"square", "disc"}));
  const auto dataset = open_dataset({.format = "coco", .path = folder, .split = "test", .labels = Labels::boxes});
  const auto program = find_engine("cpu").compile(graph, {.max_batch = 1});
  OutputBuffers outputs(graph, 1);
  std::vector<ImageBoxes> images;
  for (size_t i = 0; i < dataset->size(); ++i) {
    const Image image = dataset->read(i);
    const Image input = evaluation_image(image, evaluation_transform(graph.input_shape(), graph.preprocessing));
    program->run(input.pixels.data(), 1, outputs.memory());
    images.push_back({dataset->boxes(i), decode_boxes(graph, outputs.all(), 0, {image.height, image.width},
                                                      measuring_options(*graph.boxes))});
  }
  return average_precision(images, 2).ap;
}

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

/// Epochs without mosaics are, to the bit, those of a recipe without.
TEST(Detector, MosaicsEndBeforeTheLastEpochs) {
  const Folder folder("detector_mosaic");
  draw_shapes(folder.path(), "train", 24, 1);
  draw_shapes(folder.path(), "val", 4, 2);
  draw_shapes(folder.path(), "test", 4, 3);
  const std::string text = detector_recipe(folder.path(), detector_network(2), R"(train:
  epochs: 2
  batch_size: 12
)");
  const auto weights = [&](const std::string& name, const std::vector<std::string>& keys, int off = 0) {
    const RunDirectory directory{folder.path() + "/" + name};
    Recipe recipe = parse_recipe(text, "drawn.yaml", keys);
    if (off > 0) recipe.data.mosaic_off = off;
    train(recipe, directory, {.command = "octet train", .machine = "test"});
    return read_file(directory.float_weights());
  };
  const std::string plain = weights("plain", {});
  set_verbosity(Verbosity::normal);  // tests before this one may have said otherwise
  testing::internal::CaptureStderr();
  const std::string without = weights("off", {"data.mosaic=1", "data.mosaic_off=1"}, 2);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("float has no mosaics: it has 2 epochs, and data.mosaic_off is 2"), std::string::npos) << said;
  EXPECT_EQ(without, plain);
  EXPECT_NE(weights("one", {"data.mosaic=1", "data.mosaic_off=1"}), plain);
}

/// With all that changes images and YOLOX's course of training: a run that stopped in the float phase, and again in
/// QAT, ends with the bytes of one that did not. The L1 loss is there in the last epoch alone.
TEST(Detector, ResumesToTheSameBytes) {
  const Folder folder("detector_resume");
  draw_shapes(folder.path(), "train", 36, 1);
  draw_shapes(folder.path(), "val", 4, 2);
  draw_shapes(folder.path(), "test", 4, 3);
  const std::vector<std::string> keys = {"data.mosaic=0.5", "data.mixup=0.5",       "data.mosaic_off=1",
                                         "data.degrees=10", "data.multi_scale=0.5", "qat.distill_weight=0.5"};
  const std::string text = detector_recipe(folder.path(), detector_network(2), R"(train:
  epochs: 3
  batch_size: 12
  learning_rate: 0.01
  schedule: yolox
  warmup_epochs: 1
  ema: 0.9
  ema_ramp: 10
  box_l1: true
qat:
  epochs: 2
  batch_size: 12
  ema: 0.9
  box_l1: true
)");
  const Recipe recipe = parse_recipe(text, "drawn.yaml", keys);
  const RunDirectory whole{folder.path() + "/whole"}, stopped{folder.path() + "/stopped"};
  const Report report = train(recipe, whole, {.command = "octet train", .machine = "test"}).value();

  start_run_directory(stopped, recipe, {});
  const auto run = open_run(recipe, stopped);
  {
    Weights weights = starting_weights(run);
    int steps = 0;  // of three an epoch
    message_of(ExitCode::interrupted, [&] { train_float(run, weights, false, [&] { return ++steps == 4; }); });
  }
  Weights weights = starting_weights(run);
  train_float(run, weights, true);
  QuantizedModel model = make_quantized(run, weights);
  calibrate(model, run);
  int steps = 0;
  message_of(ExitCode::interrupted, [&] { train_qat(run, model, false, [&] { return ++steps == 2; }); });
  const Report again = train(recipe, stopped, {.resume = true}).value();
  EXPECT_EQ(read_file(stopped.float_weights()), read_file(whole.float_weights()));
  EXPECT_EQ(read_file(stopped.int8()), read_file(whole.int8()));
  EXPECT_TRUE(again.comparison.identical());

  const RunDirectory plain{folder.path() + "/plain"};
  Recipe without = recipe;
  without.train.box_l1 = false;
  without.qat.epochs = 0;
  without.qat.box_l1 = false;
  const Report other = train(without, plain, {.command = "octet train", .machine = "test"}).value();
  for (int epoch = 0; epoch < 2; ++epoch) EXPECT_EQ(other.epochs[epoch].train_loss, report.epochs[epoch].train_loss);
  EXPECT_GT(report.epochs[2].train_loss, other.epochs[2].train_loss + 0.3);
}

/// Batches of 32, 64 and 96 pixels train one network; with a layer that is made for 64 none does.
TEST(Detector, LearnsFromBatchesOfSeveralSizes) {
  const Folder folder("detector_sizes");
  draw_shapes(folder.path(), "train", 36, 1);
  draw_shapes(folder.path(), "val", 4, 2);
  draw_shapes(folder.path(), "test", 4, 3);
  const std::string training = "train:\n  epochs: 4\n  batch_size: 6\nqat:\n  epochs: 1\n  batch_size: 6\n";
  const auto run = [&](const std::string& name, const std::vector<std::string>& keys) {
    const RunDirectory directory{folder.path() + "/" + name};
    const Recipe recipe =
        parse_recipe(detector_recipe(folder.path(), detector_network(2), training), "drawn.yaml", keys);
    const Report report = train(recipe, directory, {.command = "octet train", .machine = "test"}).value();
    EXPECT_TRUE(report.comparison.identical()) << describe(report.comparison);
    EXPECT_LT(report.epochs.back().train_loss, report.epochs.front().train_loss);
    return read_file(directory.float_weights());
  };
  const std::vector<std::string> several = {"data.multi_scale=0.5", "qat.distill_weight=0.5"};
  const std::string first = run("first", several);
  EXPECT_EQ(first, run("again", several));
  EXPECT_NE(first, run("one", {"qat.distill_weight=0.5"}));
  const Recipe fixed = parse_recipe(detector_recipe(folder.path(), detector_network(2, true), training), "drawn.yaml",
                                    {"data.multi_scale=0.5"});
  const std::string refusal = message_of(ExitCode::usage, [&] { require_trainable(open_run(fixed, {})); });
  EXPECT_EQ(refusal.find("data.multi_scale: the network does not take images of 32x32: "), 0u) << refusal;
  const Recipe one = parse_recipe(detector_recipe(folder.path(), detector_network(2), training), "drawn.yaml",
                                  {"data.multi_scale=0.1"});
  EXPECT_EQ(message_of(ExitCode::usage, [&] { require_trainable(open_run(one, {})); })
                .find("data.multi_scale: 0.1 leaves one size, 64x64: "),
            0u);
}

/// Two ranks, of which one may have most of the boxes of a batch, train, choose and measure as one process does.
TEST(Detector, TwoProcessesTrainAsOne) {
  const Folder folder("detector_ranks");
  draw_shapes(folder.path(), "train", 24, 1);
  draw_shapes(folder.path(), "val", 7, 2);
  draw_shapes(folder.path(), "test", 9, 3);
  const Recipe recipe = parse_recipe(detector_recipe(folder.path(), detector_network(2), R"(train:
  epochs: 3
  batch_size: 12
  optimizer: sgd
  learning_rate: 0.01
  sync_batch_norm: true
qat:
  epochs: 1
  batch_size: 12
  optimizer: sgd
  learning_rate: 0.001
  sync_batch_norm: true
  distill_weight: 0.5
quant:
  scales: fixed
)"),
                                     "drawn.yaml", {"threads=1", "evaluate.batch_size=4"});
  const RunDirectory one{folder.path() + "/one"}, two{folder.path() + "/two"};
  const Report alone = train(recipe, one, {.command = "octet train", .machine = "test"}).value();
  std::optional<Report> shared;
  const auto thrown = run_ranks(2, [&](Ranks& ranks) {
    at::set_num_threads(1);
    const std::shared_ptr<Ranks> lent(&ranks, [](Ranks*) {});
    std::optional<Report> mine = train(recipe, two, {.command = "octet train", .machine = "test", .ranks = lent});
    if (ranks.first()) shared = std::move(mine);
  });
  ASSERT_EQ(thrown, kNobodyThrew);
  ASSERT_TRUE(shared.has_value());
  EXPECT_TRUE(shared->comparison.identical()) << describe(shared->comparison);
  const auto weights = [](const RunDirectory& run) { return read_safetensors(run.float_weights()).tensors; };
  double apart = 0;
  const auto of_one = weights(one), of_two = weights(two);
  for (const auto& [name, tensor] : of_one) {
    const TensorData& other = of_two.at(name);
    for (size_t i = 0; i < tensor.bytes.size(); i += sizeof(float)) {
      float a = 0, b = 0;
      std::memcpy(&a, tensor.bytes.data() + i, sizeof(a));
      std::memcpy(&b, other.bytes.data() + i, sizeof(b));
      apart = std::max(apart, static_cast<double>(std::abs(a - b)));
    }
  }
  EXPECT_LT(apart, 1e-4);
  EXPECT_GT(std::abs(alone.epochs[2].train_loss - alone.epochs[0].train_loss), 0.1);
  EXPECT_NEAR(shared->epochs[2].train_loss, alone.epochs[2].train_loss, 1e-4);
  EXPECT_NEAR(shared->epochs[2].train_top1, alone.epochs[2].train_top1, 1e-4);
  EXPECT_EQ(shared->rows.front().evaluation.images, 9);
  EXPECT_NEAR(score_of(*shared, "float"), score_of(alone, "float"), 0.02);
  EXPECT_EQ(score_of(*shared, "cpu"), ap_of(two.int8(), folder.path()));
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
    ModelSpec spec{.name = "graph", .input = {3, 64, 64}, .classes = 3, .outputs = three.model.outputs};
    for (const GraphNodeRecipe& node : three.model.graph)
      spec.graph.push_back({node.name, node.op, node.inputs, node.attributes});
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
