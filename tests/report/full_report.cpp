// SPDX-License-Identifier: Apache-2.0
#include "tests/report/full_report.h"

#include <fmt/format.h>

#include <array>

namespace octet::testing {

Evaluation right_from(const std::string& name, long first, long last) {
  Evaluation e;
  e.name = name;
  e.images = 10000;
  e.right.assign(e.images, false);
  for (long i = first; i < last; ++i) e.right[i] = true;
  e.top1 = static_cast<double>(last - first) / static_cast<double>(e.images);
  return e;
}

Report full_report(int classes) {
  Report report;
  report.title = "run <one> & \"two\"";
  report.model = "resnet20";
  report.recipe = "data:\n  path: \"<a> & b\"\n";
  report.recipe_hash = "0123abcd";
  report.command = "octet train 'a & b.yaml' --set data.path=<x>";
  report.machine = "2 cores";
  report.versions = {{"octet", "0.1.0"}, {"compiler", "<GCC>"}};
  report.seed = 7;
  report.multiply_adds = 41100000;
  report.seconds = 261;
  for (int i = 0; i < classes; ++i) report.class_names.push_back(fmt::format("<class {}>", i));
  const struct {
    const char* name;
    long first, last;
    double images_per_second;
    long bytes, differing;
  } rows[] = {{"float", 0, 9173, 800, 1100000, 41},
              {"ptq", 0, 9142, 400, 0, 77},
              {"qat_graph", 10, 9179, 100, 0, 0},
              {"cpu", 10, 9179, 6000, 275000, 0},
              {"reference", 10, 9179, 20, 275000, 0}};
  for (const auto& r : rows) {
    Row row;
    Evaluation& e = row.evaluation;
    e = right_from(r.name, r.first, r.last);
    e.top5 = 0.99;
    e.loss = 0.3;
    e.images_per_second = r.images_per_second;
    e.latency_median_ms = 1;
    e.latency_p99_ms = 2;
    e.latency_runs = 100;
    e.confusion.assign(static_cast<size_t>(classes) * classes, 0);
    for (int k = 0; k < classes; ++k) e.confusion[k * classes + k] = 9;
    e.confusion[1] = 3;            // class 0 taken for class 1
    e.confusion[2 * classes] = 1;  // class 2 taken for class 0
    row.bytes = r.bytes;
    row.differing = r.differing;
    report.rows.push_back(row);
  }
  report.epochs = {{"float", 1, 1.3, 0.9, 0.7, 0.8, 0.75, 0.1, 2400, 0.01, 9},
                   {"float", 2, 0.9, 0.5, 0.8, 0.4, 0.85, 0.05, 2400, 0.01, 9},
                   {"qat", 1, 0.7, 0.3, 0.9, 0.3, 0.91, 0.01, 1500, 0.02, 12}};
  report.epochs.back().ranks = {{750, 0.02, 0.125, 3'000'000'000}, {750, 0.01, 0.0625, 2'500'000'000}};
  report.layers = {
      {{"conv<1>", "conv2d", "u8 scale 0.02 zero 3", "-7..7", 38.5, 41, {-1, 1, {1, 4, 2}}, {0, 6, {9, 3, 1}}},
       {{"cpu", "cpu", "conv3x3_avx2"}, {"cudnn", "cudnn", "cudnn_conv engine 1"}}},
      {{"pool", "avg_pool", "u8 scale 0.02 zero 3", "", 36, 0, {}, {0, 3, {1, 1}}}, {{"cpu", "cpu", "pool_portable"}}}};
  report.comparison.programs = {"qat_graph", "cpu", "reference"};
  report.comparison.images = 100;
  report.comparison.layers = {{"conv<1>", false, 1000, {0, 0}, {0, 0}}, {"fc", true, 500, {0, 0}, {0, 0}}};
  report.comparison.differing_predictions = {0, 0};
  report.comparison.program_images = {100, 100};
  report.comparison.exact = {true, true};
  report.comparison.constants = {
      .derived = true, .multipliers = 1200, .table_entries = 256, .weights = 4000, .edges = 12};
  report.notes = {"a <note>"};
  return report;
}

Report pixels_report() {
  Report report;
  report.labels = Labels::pixels;
  report.title = report.model = "unet";
  report.class_names = {"background", "<shape>"};
  const auto add = [&](const char* name, std::vector<Overlap> overlaps, double mean_iou) {
    Row row;
    Evaluation& e = row.evaluation;
    e.name = name;
    e.task = {Labels::pixels, {2, 2, 2}};
    e.images = 2;
    e.top1 = 0.9;
    e.mean_iou = mean_iou;
    e.overlaps = std::move(overlaps);
    e.confusion = {6, 1, 0, 3};
    report.rows.push_back(std::move(row));
  };
  add("float", {{3, 3}, {1, 1}, {2, 3}, {1, 2}}, (5.0 / 6 + 2.0 / 3) / 2);
  add("cpu", {{2, 3}, {1, 2}, {2, 3}, {1, 2}}, (4.0 / 6 + 2.0 / 4) / 2);
  report.epochs = {{"float", 1, 1.3, 0.9, 0.7, 0.8, 0.75, 0.1, 2400, 0.01, 9, 0, 0.7}};
  report.masks = {{"test[<0>]", {2, 2, 1, {1, 2, 3, 4}}, {0, 1, 0, -100}, {0, 1, 0, 0}, {0, 1, 1, 0}, 1, 0.5}};
  return report;
}

Report boxes_report() {
  Report report;
  report.labels = Labels::boxes;
  report.title = report.model = "yolox";
  report.class_names = {"<cell>"};
  const auto add = [&](const char* name, int found, double ap) {
    Row row;
    Evaluation& e = row.evaluation;
    e.name = name;
    e.task = {Labels::boxes, {1, 1, 1}};
    e.images = 3;
    e.ap = ap;
    e.ap50 = ap + 0.05;
    for (int i = 0; i < 3; ++i) {
      const Box box{10, 10, 20, 20};
      e.boxes.push_back({{{box, 0, std::array{400.0, 2000.0, 20000.0}[i], false}}, {}});  // small, medium, large
      if (i < found) e.boxes.back().detections.push_back({box, 0, 0.9});
    }
    report.rows.push_back(std::move(row));
  };
  add("float", 3, 0.9);
  add("cpu", 2, 0.6);
  const auto image = [](uint8_t grey) { return Image{1, 1, 1, {grey}}; };
  report.boxes = {{"test[<7>]", image(1), image(2), image(3), 1, 0.25}};
  report.epochs = {{"float", 1, 1.3, 0.9, 0.7, 0.4, 0.65, 0.1, 2400, 0.01, 9, 0, std::nullopt, 0.61}};
  return report;
}

}  // namespace octet::testing
