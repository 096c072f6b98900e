// SPDX-License-Identifier: Apache-2.0
// What the C functions, and the C++ class over them, make of images: input bytes, boxes and masks.
#include <gtest/gtest.h>
#include <octet/octet.hpp>

#include <algorithm>

#include "kernels/core/quantize.h"
#include "src/base/random.h"
#include "src/net/checkpoint.h"
#include "tests/data/images.h"
#include "tests/detect/detector.h"
#include "tests/engine/random_network.h"
#include "tests/runtime/c_api.h"

namespace octet::test {
namespace {

/// An image whose right half is white is half as large in the input, and its mask has its own size.
TEST_F(CApi, GivesTheMaskOfASegmentation) {
  octet_network* network = load(brightness_segmenter());
  ASSERT_NE(network, nullptr);
  Image image{32, 32, 3, std::vector<uint8_t>(32 * 32 * 3)};
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = i / 3 % 32 < 16 ? 0 : 255;
  folder_.write("a.png", testing::png_bytes(image));
  const std::string file = folder_.path("a.png");
  std::vector<uint8_t> wanted;
  for (int i = 0; i < 32 * 32; ++i) wanted.push_back(i % 32 < 16 ? 0 : 1);
  std::vector<uint8_t> mask(32 * 32);
  int32_t height = 0, width = 0;
  for (const octet_picture& picture :
       {octet_picture{file.c_str(), nullptr, 0, 0}, octet_picture{nullptr, image.pixels.data(), 32, 32}}) {
    ASSERT_EQ(octet_mask(network, &picture, nullptr, 0, &height, &width), OCTET_OK) << last_error();
    EXPECT_EQ(height, 32);
    EXPECT_EQ(width, 32);
    std::fill(mask.begin(), mask.end(), 7);
    ASSERT_EQ(octet_mask(network, &picture, mask.data(), 32 * 32, &height, &width), OCTET_OK) << last_error();
    EXPECT_EQ(mask, wanted);
    expect_error(octet_mask(network, &picture, mask.data(), 32 * 32 - 1, &height, &width), OCTET_USAGE,
                 {"octet_mask: memory for 1023 of 1024 pixels"});
  }
  const octet_picture nothing{};
  expect_error(octet_mask(network, &nothing, nullptr, 0, &height, &width), OCTET_USAGE,
               {"octet_mask: the picture's file and its pixels is NULL"});
  runtime::Network cxx(folder_.path("int8.safetensors"), "cpu");
  EXPECT_EQ(cxx.mask(file).classes, wanted);
  EXPECT_EQ(cxx.mask(file).width, 32);
  octet_free(network);
  octet_network* other = load(one_box_detector());
  expect_error(octet_mask(other, &nothing, nullptr, 0, &height, &width), OCTET_USAGE, {"no classes of pixels"});
  octet_free(other);
}

/// A file and the same pixels give the box in the image's own pixels, in C and in C++.
TEST_F(CApi, GivesTheBoxesOfADetector) {
  const Int8Graph graph = one_box_detector();
  octet_network* network = load(graph);
  ASSERT_NE(network, nullptr);
  EXPECT_EQ(octet_describe(network)->box_classes, 2);
  EXPECT_EQ(octet_describe(network)->max_boxes, 300);
  const Image image = testing::noise(32, 64, 3, 1);  // half as large in the input: rows 16 on are grey
  folder_.write("a.png", testing::png_bytes(image));
  const std::string file = folder_.path("a.png");
  octet_box box{};
  int32_t count = -1;
  for (const octet_picture& picture : {octet_picture{file.c_str(), nullptr, 0, 0},
                                       octet_picture{nullptr, image.pixels.data(), image.height, image.width}}) {
    ASSERT_EQ(octet_boxes(network, &picture, -1, &box, 1, &count), OCTET_OK) << last_error();
    ASSERT_EQ(count, 1);
    EXPECT_EQ(box.class_index, 1);
    EXPECT_NEAR(box.score, 0.864955f, 1e-5);  // sigmoid(4) * sigmoid(2)
    EXPECT_NEAR(box.x, 16, 1e-4);
    EXPECT_NEAR(box.y, 8, 1e-4);
    EXPECT_NEAR(box.width, 32, 1e-4);
    EXPECT_NEAR(box.height, 16, 1e-4);
    ASSERT_EQ(octet_boxes(network, &picture, 0.9f, &box, 1, &count), OCTET_OK) << last_error();
    EXPECT_EQ(count, 0);
  }
  runtime::Network cxx(folder_.path("int8.safetensors"), "cpu");
  ASSERT_EQ(cxx.boxes(file).size(), 1u);
  EXPECT_EQ(cxx.class_name(static_cast<size_t>(cxx.boxes(file)[0].class_index)), "dog");
  EXPECT_TRUE(cxx.boxes(file, 0.9f).empty());

  const octet_picture nothing{}, flat{nullptr, image.pixels.data(), 0, 64}, absent{"absent.png", nullptr, 0, 0};
  expect_error(octet_boxes(network, &nothing, -1, &box, 1, &count), OCTET_USAGE, {"file and its pixels is NULL"});
  expect_error(octet_boxes(network, &flat, -1, &box, 1, &count), OCTET_USAGE, {"pixels of 0x64"});
  expect_error(octet_boxes(network, &absent, -1, &box, 1, &count), OCTET_DATA, {"absent.png"});
  expect_error(octet_boxes(network, &nothing, -1, &box, 0, &count), OCTET_USAGE, {"memory for 0 boxes"});
  expect_error(octet_boxes(network, nullptr, -1, &box, 1, &count), OCTET_USAGE, {"picture is NULL"});
  octet_free(network);
  octet_network* other = load(random_convolution(3));
  expect_error(octet_boxes(other, &nothing, -1, &box, 1, &count), OCTET_USAGE, {"how its outputs become boxes"});
  EXPECT_EQ(octet_describe(other)->box_classes, 0);
  octet_free(other);
}

/// A checkpoint that says nothing of the kind reads images as octet did when it was written.
TEST_F(CApi, TurnsImagesWhereTheCheckpointSaysSo) {
  Int8Graph graph = random_convolution(5);
  const Shape in = graph.input_shape();
  const Image seen = testing::noise(in.h, in.w, in.c == 1 ? 1 : 3, 9);
  Image stored{in.h, in.w, seen.channels, {}};  // upside down: orientation 3
  for (size_t i = seen.pixels.size() / seen.channels; i-- > 0;)
    stored.pixels.insert(stored.pixels.end(), &seen.pixels[i * seen.channels],
                         &seen.pixels[i * seen.channels] + seen.channels);
  const std::string file = testing::png_with_exif(testing::png_bytes(stored), testing::exif_bytes(3, false));
  folder_.write("turned.png", file);
  for (const bool exif : {false, true}) {
    graph.preprocessing.exif_orientation = exif;
    octet_network* network = load(graph);
    std::vector<uint8_t> pixels(seen.pixels.size());
    ASSERT_EQ(octet_read_picture(network, folder_.path("turned.png").c_str(), pixels.data()), OCTET_OK) << last_error();
    EXPECT_EQ(pixels, exif ? seen.pixels : stored.pixels);
    octet_free(network);
  }
}

/// A network that was quantized with tensors reads the bytes of its input's codes, and no images.
TEST_F(CApi, TensorsBecomeTheBytesOfTheirCodes) {
  bool is_signed = false, channels = false;  // met with several pixels
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Int8Graph graph = random_convolution(seed);
    graph.preprocessing.fit = Fit::tensor;
    const QParams codes = graph.nodes.front().out;
    const Shape in = graph.input_shape();
    is_signed = is_signed || codes.is_signed();
    channels = channels || (in.c > 1 && in.h * in.w > 1);
    write_checkpoint(folder_.path("tensor.safetensors"), graph);
    const runtime::Network network(folder_.path("tensor.safetensors"), "cpu");
    std::vector<float> values;
    std::vector<uint8_t> expected(static_cast<size_t>(in.elements()));
    Random random(seed);
    for (int c = 0; c < in.c; ++c)
      for (int pixel = 0; pixel < in.h * in.w; ++pixel) {
        const double code = random.uniform(codes.quant_min - codes.zero_point, codes.quant_max - codes.zero_point);
        values.push_back(codes.scale * static_cast<float>(code));
        expected[static_cast<size_t>(pixel * in.c + c)] =
            static_cast<uint8_t>(quantize(values.back(), codes) + (codes.is_signed() ? 128 : 0));
      }
    EXPECT_EQ(network.codes(values), expected) << seed;
    if (seed > 1) continue;
    values.pop_back();
    EXPECT_THROW(network.codes(values), runtime::Error);
    try {
      network.read_picture("none.png");
      ADD_FAILURE() << "an image is read";
    } catch (const runtime::Error& error) {
      EXPECT_EQ(error.status(), OCTET_USAGE);
      EXPECT_NE(std::string(error.what()).find("was quantized with tensors"), std::string::npos) << error.what();
    }
  }
  EXPECT_TRUE(is_signed && channels);
}

TEST_F(CApi, ReadsImagesAsValidationDoes) {
  octet_network* network = load(random_convolution(5));
  const octet_tensor in = octet_describe(network)->input;
  const Image larger = testing::noise(in.height + 4, in.width + 2, in.channels == 1 ? 1 : 3, 9);
  folder_.write("larger.png", testing::png_bytes(larger));
  folder_.write("text.png", "no image");
  std::vector<uint8_t> pixels(static_cast<size_t>(in.height) * in.width * in.channels), centre;
  if (in.channels != 1 && in.channels != 3) GTEST_FAIL() << "take another seed: " << in.channels << " channels";
  ASSERT_EQ(octet_read_picture(network, folder_.path("larger.png").c_str(), pixels.data()), OCTET_OK) << last_error();
  for (int y = 2; y < in.height + 2; ++y) {
    const auto row = larger.pixels.begin() + (y * larger.width + 1) * in.channels;
    centre.insert(centre.end(), row, row + in.width * in.channels);
  }
  EXPECT_EQ(pixels, centre);
  EXPECT_NE(std::string(octet_picture_note()).find("larger.png: "), std::string::npos) << octet_picture_note();
  EXPECT_NE(std::string(octet_picture_note()).find("it sees the centre only"), std::string::npos);
  folder_.write("exact.png", testing::png_bytes(testing::noise(in.height, in.width, in.channels == 1 ? 1 : 3, 9)));
  ASSERT_EQ(octet_read_picture(network, folder_.path("exact.png").c_str(), pixels.data()), OCTET_OK) << last_error();
  EXPECT_STREQ(octet_picture_note(), "");
  expect_error(octet_read_picture(network, folder_.path("text.png").c_str(), pixels.data()), OCTET_DATA, {"text.png"});
  expect_error(octet_read_picture(network, nullptr, pixels.data()), OCTET_USAGE, {"file is NULL"});
  octet_free(network);
}

}  // namespace
}  // namespace octet::test
