// SPDX-License-Identifier: Apache-2.0
// data.decode: gpu. What the CPU decodes becomes the loader's bytes; JPEGs that the GPU decodes differ by few levels,
// in pixels that lie where the loader puts them.
#include "trainers/loop/gpu_images.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "tests/data/images.h"
#include "tests/trainers/decoded_batches.h"
#include "tests/trainers/tiny.h"
#include "trainers/loop/batches.h"

namespace octet {
namespace {

using testing::jpeg_bytes;
using testing::jpeg_of;
using testing::JpegForm;
using testing::noise;
using testing::png_bytes;
using testing::TemporaryFolder;
using testing_trainers::Differences;
using testing_trainers::differences;
using testing_trainers::message_of;
using testing_trainers::painted;

constexpr int kBatch = testing_trainers::kDecodedBatch;

/// 30 files of different sizes in two classes, written by `file(height, width, number)`.
template <typename File>
RunData folder_of(const TemporaryFolder& folder, const std::string& ending, const File& file) {
  for (int i = 0; i < 30; ++i) {
    const std::string name = "class" + std::to_string(i % 2) + "/" + std::to_string(100 + i) + ending;
    folder.write(name, file(64 + i * 37 % 200, 64 + i * 53 % 300, i));
  }
  RunData data =
      testing_trainers::gpu_decoded({.format = "image_folder", .path = folder.path(), .split = "", .channels = 3});
  Transform& t = data.train_transform;
  t.height = 56, t.width = 48;
  t.random_resized_crop = true;
  t.flip = true;
  return data;
}

RunData png_data(const TemporaryFolder& folder) {
  return folder_of(folder, ".png", [](int height, int width, int i) { return png_bytes(noise(height, width, 3, i)); });
}

RunData jpeg_data(const TemporaryFolder& folder, bool progressive = false) {
  return folder_of(folder, ".jpg", [&](int height, int width, int i) {
    return jpeg_bytes(painted(height, width, i), 92, progressive);
  });
}

void expect_equal(const RunData& data) {
  const Differences found = differences(data);
  EXPECT_EQ(found.batches, 6);
  EXPECT_EQ(found.largest, 0);
}

TEST(GpuImages, WhatTheCpuDecodesIsTheLoaders) {
  OCTET_NEEDS_NVJPEG();
  const TemporaryFolder folder;
  RunData data = png_data(folder);
  expect_equal(data);
  Transform& t = data.train_transform;
  t.cutout = 21;
  t.fill = {3, 120, 250};
  t.random_erasing = 0.6;
  expect_equal(data);
  t.order = ChannelOrder::bgr;
  expect_equal(data);
  t.random_resized_crop = false;
  t.resize = 60;
  t.pad = 11;
  expect_equal(data);
  t.resize = 0;
  expect_equal(data);
}

TEST(GpuImages, GreyAndWiderThanABlock) {
  OCTET_NEEDS_NVJPEG();
  const TemporaryFolder folder;
  RunData data = folder_of(folder, ".png", [](int height, int width, int i) {
    return png_bytes(noise(height, width, 1, static_cast<uint64_t>(i)));
  });
  data.train_set = open_dataset({.format = "image_folder", .path = folder.path(), .split = "", .channels = 1});
  data.train_transform.channels = 1;
  data.train_transform.width = 301;
  data.mean = {0.4f}, data.std = {0.2f};
  const auto plain = [&] {
    RunData cpu = data;
    cpu.decode = Decoding::cpu;
    return cpu;
  }();
  const auto expected = make_batches(plain, {.batch_size = kBatch});
  const auto actual = make_batches(data, {.batch_size = kBatch, .device = {at::kCUDA, 0}});
  expected->begin({.seed = 1}, 0);
  actual->begin({.seed = 1}, 0);
  EXPECT_TRUE(actual->next()->images.cpu().equal(expected->next()->images));
}

TEST(GpuImages, ProgressiveFilesAreDecodedByTheCpu) {
  OCTET_NEEDS_NVJPEG();
  const TemporaryFolder folder;
  expect_equal(jpeg_data(folder, /*progressive=*/true));
}

/// The bounds of recipes/README.md. A crop that were off by one pixel, or not mirrored, would differ by more.
TEST(GpuImages, JpegsDifferByFewLevels) {
  OCTET_NEEDS_NVJPEG();
  const TemporaryFolder folder;
  const Differences found = differences(jpeg_data(folder));
  std::printf("levels: mean %.3f, largest %.1f\n", found.mean, found.largest);
  EXPECT_EQ(found.batches, 6);
  EXPECT_LE(found.mean, 0.6);
  EXPECT_LE(found.largest, 6);
  EXPECT_GT(found.mean, 0) << "nothing was decoded by another decoder";
}

/// nvJPEG may refuse some of these, which the CPU then decodes; its answer differs from the CPU's by few levels.
TEST(GpuImages, UnusualFilesAreDecodedBySomebody) {
  OCTET_NEEDS_NVJPEG();
  const std::vector<JpegForm> forms = {{.extended = true},       {.restarts = 3},          {.across = 1, .down = 1},
                                       {.across = 2, .down = 1}, {.across = 1, .down = 2}, {}};
  const TemporaryFolder folder;
  const RunData data = folder_of(folder, ".jpg", [&](int height, int width, int i) {
    const size_t form = static_cast<size_t>(i) % forms.size();
    if (form + 1 == forms.size()) height = 1 + i, width = 40 - i;  // down to less than a block
    return jpeg_of(painted(height, width, i), forms[form].extended ? 12 : 92, forms[form]);
  });
  const Differences found = differences(data);
  std::printf("levels: mean %.3f, largest %.1f\n", found.mean, found.largest);
  EXPECT_EQ(found.batches, 6);
  EXPECT_LE(found.mean, 1);
  EXPECT_LE(found.largest, 24);
}

TEST(GpuImages, GreyOfJpegsInColour) {
  OCTET_NEEDS_NVJPEG();
  const TemporaryFolder folder;
  RunData data = jpeg_data(folder);
  data.train_set = open_dataset({.format = "image_folder", .path = folder.path(), .split = "", .channels = 1});
  data.train_transform.channels = 1;
  RunData cpu = data;
  cpu.decode = Decoding::cpu;
  data.mean = cpu.mean = {0.4f}, data.std = cpu.std = {0.2f};
  const auto expected = make_batches(cpu, {.batch_size = kBatch});
  const auto actual = make_batches(data, {.batch_size = kBatch, .device = {at::kCUDA, 0}});
  expected->begin({.seed = 1}, 0);
  actual->begin({.seed = 1}, 0);
  const at::Tensor levels = actual->next()->images.cpu().sub(expected->next()->images).abs().mul(0.2 * 255);
  EXPECT_LE(levels.max().item<double>(), 4);
}

/// Batches whose images do not fit into the memory at once are made in parts; both lanes are used, several times.
TEST(GpuImages, InParts) {
  OCTET_NEEDS_NVJPEG();
  const TemporaryFolder folder;
  const RunData data = png_data(folder);
  const LoaderOptions options{.batch_size = kBatch, .train = true, .seed = 3};
  LoaderOptions planned = options;
  planned.plan = true;
  const size_t image = size_t{56} * 48 * 3;
  for (const size_t most : {size_t{1}, size_t{300'000}, size_t{1} << 30}) {
    GpuImages gpu_images(data, most);
    const Stream stream;
    const DeviceBuffer made(kBatch * image, "a batch");
    for (int epoch = 0; epoch < 2; ++epoch) {
      planned.epoch = epoch;
      LoaderOptions plain = options;
      plain.epoch = epoch;
      Loader expected(*data.train_set, data.train, data.train_transform, plain);
      Loader plans(*data.train_set, data.train, data.train_transform, planned);
      Batch want, batch;
      for (int b = 0; expected.next(want); ++b) {
        ASSERT_TRUE(plans.next(batch));
        int writes = 0;
        gpu_images.make(batch, b % GpuImages::kLanes, made.data(), stream.get(), [&] { ++writes; });
        std::vector<uint8_t> pixels(kBatch * image);
        copy_to_host(pixels.data(), made.data(), pixels.size(), stream.get());
        stream.wait("making a batch");
        EXPECT_TRUE(std::equal(pixels.begin(), pixels.end(), want.images.begin(), want.images.end())) << most;
        EXPECT_GE(writes, most == 1 ? kBatch : 1);
      }
    }
  }
}

TEST(GpuImages, ADamagedFileIsNamed) {
  OCTET_NEEDS_NVJPEG();
  const TemporaryFolder folder;
  const RunData data = folder_of(folder, ".jpg", [&](int height, int width, int i) {
    const std::string file = jpeg_bytes(painted(height, width, i), 92);
    return i == 7 ? file.substr(0, file.size() / 2) : file;
  });
  const std::string message = message_of(ExitCode::data, [&] { differences(data); });
  EXPECT_NE(message.find("107.jpg"), std::string::npos) << message;
}

TEST(GpuImages, WhatAGpuCannotMakeIsRefused) {
  OCTET_NEEDS_NVJPEG();
  const TemporaryFolder folder;
  RunData data = png_data(folder);
  data.train_transform.rand_augment = 2;
  const BatchesOptions options{.batch_size = kBatch, .device = {at::kCUDA, 0}};
  const std::string message = message_of(ExitCode::usage, [&] { make_batches(data, options); });
  EXPECT_NE(message.find("data.decode: gpu, but data.color_jitter"), std::string::npos) << message;
}

}  // namespace
}  // namespace octet
