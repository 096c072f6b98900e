// SPDX-License-Identifier: Apache-2.0
// Batches made on the GPU are those of the CPU's loader, byte for byte.
#include "trainers/loop/batches.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/cuda/gpu.h"
#include "tests/trainers/tiny.h"

namespace octet {
namespace {

using testing_trainers::message_of;

constexpr int kBatch = 24;  // 7 batches of 170 images, 2 left over

/// Colour images that are not square's best friends: crops of 28 rows and 30 columns from 32x32.
RunData colour_data() {
  RunData data;
  data.train_set = open_dataset({.format = "synthetic", .split = "train", .synthetic_size = 200});
  for (size_t i = 0; i < 170; ++i) data.train.push_back(i + i / 6);  // with gaps
  Transform& t = data.train_transform;
  t.height = 28, t.width = 30;
  t.pad = 3;
  t.flip = true;
  t.cutout = 9;
  t.fill = {10, 100, 200};
  data.mean = {0.4f, 0.5f, 0.6f};
  data.std = {0.2f, 0.25f, 0.3f};
  data.workers = 3;
  return data;
}

/// Epochs, and from which of their batches on.
using Course = std::vector<std::pair<int, long>>;

/// Runs the course; of `epochs` epochs those that follow others are begun before.
void expect_cpu_bytes(const RunData& data, ResidentImages resident_images,
                      const Course& course = {{0, 0}, {1, 2}, {5, 0}}, int epochs = 0) {
  const auto expected = make_batches(data, {.batch_size = kBatch, .joining_epochs = 2});
  const auto actual = make_batches(data, {.batch_size = kBatch,
                                          .device = {at::kCUDA, 0},
                                          .resident_images = resident_images,
                                          .joining_epochs = 2,
                                          .epochs = epochs});
  int compared = 0, wanted = 0;
  for (const auto& [epoch, first] : course) {
    wanted += static_cast<int>(7 - first);
    expected->begin({.seed = 9, .number = epoch}, first);
    actual->begin({.seed = 9, .number = epoch}, first);
    while (const Batches::Labelled* want = expected->next()) {
      const Batches::Labelled* batch = actual->next();
      ASSERT_NE(batch, nullptr);
      ASSERT_TRUE(batch->images.is_cuda());
      ASSERT_TRUE(batch->images.is_contiguous(at::MemoryFormat::ChannelsLast));
      ASSERT_TRUE(batch->images.cpu().equal(want->images)) << "epoch " << epoch << ", comparison " << compared;
      ASSERT_TRUE(batch->labels.cpu().equal(want->labels)) << "epoch " << epoch << ", comparison " << compared;
      ++compared;
    }
    EXPECT_EQ(actual->next(), nullptr);
  }
  EXPECT_EQ(compared, wanted);
}

TEST(BatchesCuda, ResidentAreTheLoaders) {
  OCTET_NEEDS_GPU();
  expect_cpu_bytes(colour_data(), ResidentImages::on);
}

TEST(BatchesCuda, ResidentWithoutAugmentation) {
  OCTET_NEEDS_GPU();
  RunData data = colour_data();
  data.train_transform = {.channels = 3, .height = 32, .width = 32};
  expect_cpu_bytes(data, ResidentImages::on);
}

TEST(BatchesCuda, ResidentGrey) {
  OCTET_NEEDS_GPU();
  RunData data = testing_trainers::tiny_data(170);
  data.train_transform.flip = true;
  expect_cpu_bytes(data, ResidentImages::on);
}

TEST(BatchesCuda, UploadedAreTheLoaders) {
  OCTET_NEEDS_GPU();
  expect_cpu_bytes(colour_data(), ResidentImages::off);
}

/// Also of an epoch that begins again, as after a loss that is not finite, and of one that was not begun.
TEST(BatchesCuda, UploadedOfTheNextEpochAreBegunBefore) {
  OCTET_NEEDS_GPU();
  const Course course = {{0, 0}, {1, 0}, {1, 3}, {1, 0}, {2, 0}, {2, 0}, {3, 0}, {3, 0}, {0, 0}, {2, 1}};
  for (const int epochs : {2, 4, 9}) expect_cpu_bytes(colour_data(), ResidentImages::off, course, epochs);
}

/// The sizes, pixels and masks of a GPU's batches are those of the CPU's.
TEST(BatchesCuda, BatchesOfSeveralSizes) {
  OCTET_NEEDS_GPU();
  RunData data = colour_data();
  data.train_set = open_dataset({.format = "synthetic",
                                 .split = "train",
                                 .synthetic_size = 210,
                                 .synthetic_classes = 4,
                                 .labels = Labels::pixels});
  data.train_transform = {.height = 64, .width = 64, .fit = Fit::letterbox, .flip = true, .scale = 0.3, .hsv = true};
  data.train_transform.mosaic = 0.5;
  data.train_transform.multi_scale = 0.5;
  ASSERT_EQ(input_sizes(data.train_transform).size(), 3u);
  expect_cpu_bytes(data, ResidentImages::automatic, {{0, 0}, {1, 0}, {2, 3}, {3, 0}}, 4);
}

TEST(BatchesCuda, ResizedOnTheCpuAndUploaded) {
  OCTET_NEEDS_GPU();
  RunData data = colour_data();
  data.train_transform.random_resized_crop = true;
  expect_cpu_bytes(data, ResidentImages::automatic);
}

TEST(BatchesCuda, ATransformTheKernelCannotDoIsRefused) {
  OCTET_NEEDS_GPU();
  RunData data = colour_data();
  data.train_transform.random_resized_crop = true;
  const std::string message = message_of(ExitCode::usage, [&] {
    make_batches(data, {kBatch, {at::kCUDA, 0}, ResidentImages::on});
  });
  EXPECT_NE(message.find("random_resized_crop"), std::string::npos) << message;
}

}  // namespace
}  // namespace octet
