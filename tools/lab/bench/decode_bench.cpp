// SPDX-License-Identifier: Apache-2.0
// decode_bench FOLDER|TAR: images a second that become training batches on the GPU, with no step between them, decoded
// by the CPU and by the GPU in turns; and how long the host is kept by a batch. Of images with boxes (--format coco,
// voc) mosaics of four, changed as YOLOX changes them.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <numeric>

#include "src/cuda/device.h"
#include "src/data/dataset.h"
#include "trainers/gpu.h"
#include "trainers/loop/batches.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Options {
  std::string path, split = "train", format = "image_folder";
  int size = 0, batch = 256, batches = 60, workers = 16, turns = 2;
};

RunData data_of(const Options& options) {
  RunData data;
  const bool boxes = has_boxes(options.format);
  data.train_set = open_dataset({.format = options.format,
                                 .path = options.path,
                                 .split = options.split,
                                 .channels = 3,
                                 .labels = boxes ? Labels::boxes : Labels::image});
  data.train.resize(data.train_set->size());
  std::iota(data.train.begin(), data.train.end(), size_t{0});
  Transform& t = data.train_transform;
  t.height = t.width = options.size > 0 ? options.size : boxes ? 640 : 224;
  t.random_resized_crop = !boxes;
  t.flip = true;
  if (boxes) {
    t.fit = Fit::letterbox_corner;
    t.scale = 0.5, t.translate = 0.1, t.degrees = 10, t.shear = 2;
    t.hsv = true;
    t.mosaic = 1;
  }
  data.mean = {0.485f, 0.456f, 0.406f};
  data.std = {0.229f, 0.224f, 0.225f};
  data.workers = options.workers;
  return data;
}

void measure(RunData& data, Decoding decode, const Options& options) {
  constexpr int kWarmUp = 8;  // batches: buffers grow, the loader gets ahead
  data.decode = decode;
  const int all = options.batches + kWarmUp;  // at most so many epochs
  const auto batches =
      make_batches(data, {.batch_size = options.batch, .device = {at::kCUDA, 0}, .joining_epochs = all, .epochs = all});
  int number = 0;
  double held = 0;
  Clock::time_point start = Clock::now();
  for (int epoch = 0; number < all; ++epoch) {
    batches->begin({.seed = 1, .number = epoch}, 0);
    for (;;) {
      const Clock::time_point before = Clock::now();
      if (number == all || batches->next() == nullptr) break;
      held += seconds_since(before);
      if (++number == kWarmUp) {
        gpu_finishes_its_work();
        start = Clock::now(), held = 0;
      }
    }
  }
  gpu_finishes_its_work();
  const double seconds = seconds_since(start);
  fmt::print("{}: {:.0f} images/s; next() holds the host {:.2f} ms a batch\n", name_in(kDecodings, decode),
             options.batches * options.batch / seconds, held / options.batches * 1e3);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("images a second that become training batches on the GPU");
  app.add_option("path", options.path, "class folders or images with boxes, or a .tar of them")->required();
  app.add_option("--split", options.split, "folder in it, \"\": none; of images with boxes their split");
  app.add_option("--format", options.format, "image_folder, coco or voc");
  app.add_option("--size", options.size, "height and width of the batches; 0: 224, of images with boxes 640");
  app.add_option("--batch", options.batch);
  app.add_option("--batches", options.batches, "that are timed");
  app.add_option("--workers", options.workers);
  app.add_option("--turns", options.turns);
  CLI11_PARSE(app, argc, argv);
  const GpuGuard guard(0);
  RunData data = data_of(options);
  for (int turn = 0; turn < options.turns; ++turn)
    for (const Decoding decode : {Decoding::cpu, Decoding::gpu}) measure(data, decode, options);
  return 0;
}

}  // namespace
}  // namespace octet

int main(int argc, char** argv) {
  try {
    return octet::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "decode_bench: %s\n", error.what());
    return 1;
  }
}
