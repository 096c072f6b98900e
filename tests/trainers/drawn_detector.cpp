// SPDX-License-Identifier: Apache-2.0
#include "tests/trainers/drawn_detector.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <tuple>
#include <utility>
#include <vector>

#include "src/base/files.h"
#include "src/base/random.h"
#include "src/data/dataset.h"
#include "src/detect/decode.h"
#include "src/engine/engine.h"
#include "src/eval/metrics.h"
#include "src/net/checkpoint.h"

namespace octet::testing_trainers {
namespace {

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

}  // namespace

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

std::string detector_network(int classes, bool fixed) {
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

}  // namespace octet::testing_trainers
