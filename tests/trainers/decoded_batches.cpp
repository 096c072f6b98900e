// SPDX-License-Identifier: Apache-2.0
#include "tests/trainers/decoded_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "trainers/loop/batches.h"

namespace octet::testing_trainers {

Image painted(int height, int width, int number) {
  Image image{height, width, 3, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const double right = static_cast<double>(x) / width, down = static_cast<double>(y) / height;
      image.pixels.push_back(static_cast<uint8_t>(20 + 200 * right));
      image.pixels.push_back(static_cast<uint8_t>(30 + 180 * down));
      image.pixels.push_back(static_cast<uint8_t>(128 + 90 * std::sin(3 * right + 5 * down + number)));
    }
  }
  return image;
}

RunData gpu_decoded(const DatasetSpec& spec) {
  RunData data;
  data.train_set = open_dataset(spec);
  for (size_t i = 0; i < data.train_set->size(); ++i) data.train.push_back(i);
  data.mean = {0.4f, 0.5f, 0.6f};
  data.std = {0.2f, 0.25f, 0.3f};
  data.workers = 3;
  data.decode = Decoding::gpu;
  return data;
}

Differences differences(const RunData& data) {
  RunData on_cpu = data;
  on_cpu.decode = Decoding::cpu;
  const auto expected = make_batches(on_cpu, {.batch_size = kDecodedBatch, .joining_epochs = 2});
  const auto actual =
      make_batches(data, {.batch_size = kDecodedBatch, .device = {at::kCUDA, 0}, .joining_epochs = 2, .epochs = 3});
  Differences found;
  double sum = 0, values = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    expected->begin({.seed = 9, .number = epoch}, 0);
    actual->begin({.seed = 9, .number = epoch}, 0);
    while (const Batches::Labelled* want = expected->next()) {
      const Batches::Labelled* batch = actual->next();
      if (batch == nullptr) {
        ADD_FAILURE() << "a batch lacks";
        return found;
      }
      EXPECT_TRUE(batch->labels.cpu().equal(want->labels)) << "epoch " << epoch;
      EXPECT_EQ(batch->images.sizes(), want->images.sizes());
      const at::Tensor levels = batch->images.cpu().sub(want->images).abs().contiguous();  // [N, C, H, W]
      const float* level = levels.const_data_ptr<float>();
      const int64_t plane = levels.size(2) * levels.size(3);
      for (int64_t i = 0; i < levels.numel(); ++i) {
        const double difference = level[i] * data.std.at(static_cast<size_t>(i / plane % 3)) * 255;
        sum += difference;
        found.largest = std::max(found.largest, difference);
      }
      values += static_cast<double>(levels.numel());
      ++found.batches;
    }
    EXPECT_EQ(actual->next(), nullptr);
  }
  found.mean = sum / values;
  return found;
}

}  // namespace octet::testing_trainers
