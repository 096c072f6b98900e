// SPDX-License-Identifier: Apache-2.0
// idx and CIFAR files: what is read, and what is refused.
#include <gtest/gtest.h>

#include "src/base/files.h"
#include "src/data/dataset.h"
#include "src/data/memory_dataset.h"
#include "tests/data/images.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;
using testing::gzip_bytes;
using testing::TemporaryFolder;

std::string word(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

constexpr int kIdxPixels = 28 * 28;

/// `count` images; pixel p of image i is (i + p) % 251, its label i % 10.
std::string idx_images(int count) {
  std::string data = word(0x803) + word(count) + word(28) + word(28);
  for (int i = 0; i < count; ++i) {
    for (int p = 0; p < kIdxPixels; ++p) data += static_cast<char>((i + p) % 251);
  }
  return data;
}
std::string idx_labels(int count) {
  std::string data = word(0x801) + word(count);
  for (int i = 0; i < count; ++i) data += static_cast<char>(i % 10);
  return data;
}

DatasetSpec spec_of(const std::string& format, const TemporaryFolder& folder, const std::string& split) {
  return {.format = format, .path = folder.path(), .split = split};
}

TEST(Idx, PlainAndGzippedGiveTheSameImages) {
  for (const bool gzipped : {false, true}) {
    const TemporaryFolder folder;
    const std::string ending = gzipped ? ".gz" : "";
    const auto pack = [&](const std::string& data) { return gzipped ? gzip_bytes(data) : data; };
    folder.write("t10k-images-idx3-ubyte" + ending, pack(idx_images(12)));
    folder.write("t10k-labels-idx1-ubyte" + ending, pack(idx_labels(12)));
    const auto dataset = open_dataset(spec_of("fashion_mnist", folder, "test"));
    ASSERT_EQ(dataset->size(), 12u);
    EXPECT_EQ(dataset->label(11), 1);
    EXPECT_EQ(dataset->class_names().at(9), "Ankle boot");
    const Image image = dataset->read(11);
    ASSERT_EQ(image.pixels.size(), size_t{kIdxPixels});
    for (int p = 0; p < kIdxPixels; ++p) ASSERT_EQ(image.pixels[p], (11 + p) % 251);
    expect_part(dataset->describe(11), "t10k-images-idx3-ubyte" + ending + "[11]");
  }
}

class IdxFiles : public ::testing::Test {
 protected:
  std::string refusal(const std::string& images, const std::string& labels) {
    folder_.write("i", images);
    folder_.write("l", labels);
    return data_refusal([&] { read_idx_pair(folder_.path("i"), folder_.path("l"), 10); });
  }
  TemporaryFolder folder_;
};

TEST_F(IdxFiles, DamageIsNamed) {
  const std::string images = idx_images(3), labels = idx_labels(3);
  expect_part(refusal(images.substr(0, 9), labels), "ends inside the header");
  expect_part(refusal(images.substr(0, images.size() - 1), labels),
              "has 2351 bytes of data, its header announces 2352");
  expect_part(refusal(images + "x", labels), "goes on after the 2352 bytes");
  expect_part(refusal(labels, images), "magic 00000801");
  expect_part(refusal(images, idx_labels(4)), "4 labels for the 3 images");
  expect_part(refusal(images, word(0x801) + word(3) + std::string("\x00\x0a\x01", 3)), "label 10 of image 1");
  expect_part(refusal(word(0x803) + word(0) + word(28) + word(28), labels), "has no image");
  expect_part(refusal(word(0x803) + word(1) + word(32) + word(32), labels), "images of 32x32");
  // 3 TB announced in 16 bytes: refused before that memory is asked for.
  expect_part(refusal(word(0x803) + word(0xFFFFFFFF) + word(28) + word(28), labels), "has 0 bytes of data");
}

TEST_F(IdxFiles, DamagedGzip) {
  const std::string labels = gzip_bytes(idx_labels(3)), images = gzip_bytes(idx_images(3));
  expect_part(refusal(images.substr(0, images.size() / 2), labels), "i: ");
  for (size_t at : {images.size() / 2, images.size() - 6}) {  // pixels; the checksum
    std::string altered = images;
    altered[at] = static_cast<char>(altered[at] ^ 0x55);
    expect_part(refusal(altered, labels), "corrupt");
  }
  // A gzip bomb: 64 MiB of zeros behind a header of one image.
  const std::string bomb = word(0x803) + word(1) + word(28) + word(28) + std::string(64 << 20, '\0');
  expect_part(refusal(gzip_bytes(bomb), gzip_bytes(idx_labels(1))), "goes on after the 784 bytes");
}

TEST(Idx, MissingFilesNameTheCure) {
  const TemporaryFolder folder;
  expect_part(data_refusal([&] { open_dataset(spec_of("fashion_mnist", folder, "train")); }), "dataset-fashion-mnist");
  EXPECT_THROW(open_dataset(spec_of("fashion_mnist", folder, "val")), Error);
}

TEST(Idx, FashionMnistOfDebian) {
  const std::string folder = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder << ": apt-get install dataset-fashion-mnist";
  DatasetSpec spec{.format = "fashion_mnist", .path = folder, .split = "test"};
  const auto dataset = open_dataset(spec);
  ASSERT_EQ(dataset->size(), 10000u);
  std::vector<int> counts(10);
  double sum = 0;
  for (size_t i = 0; i < dataset->size(); ++i) {
    ++counts.at(dataset->label(i));
    for (const uint8_t pixel : dataset->read(i).pixels) sum += pixel;
  }
  EXPECT_EQ(counts, std::vector<int>(10, 1000));
  EXPECT_EQ(dataset->label(0), 9);  // the first test image is an ankle boot
  EXPECT_NEAR(sum / (10000.0 * kIdxPixels * 255), 0.2868, 0.0001);
}

constexpr int kPlane = 32 * 32;

/// Record with the label bytes, red 10, green 20, blue the pixel's row.
std::string cifar_record(const std::string& labels) {
  std::string record = labels + std::string(kPlane, 10) + std::string(kPlane, 20);
  for (int p = 0; p < kPlane; ++p) record += static_cast<char>(p / 32);
  return record;
}

TEST(Cifar, PlanesBecomePixels) {
  const TemporaryFolder folder;
  for (int i = 1; i <= 5; ++i) {
    folder.write("data_batch_" + std::to_string(i) + ".bin", cifar_record(std::string(1, char(i))));
  }
  const auto ten = open_dataset(spec_of("cifar10", folder, "train"));
  ASSERT_EQ(ten->size(), 5u);
  EXPECT_EQ(ten->label(4), 5);
  EXPECT_EQ(ten->class_names().at(5), "dog");
  const Image image = ten->read(2);
  ASSERT_EQ(image.pixels.size(), 3u * kPlane);
  for (int p = 0; p < kPlane; ++p) {
    ASSERT_EQ(image.pixels[3 * p], 10);
    ASSERT_EQ(image.pixels[3 * p + 1], 20);
    ASSERT_EQ(image.pixels[3 * p + 2], p / 32);
  }
  folder.write("test.bin", cifar_record(std::string("\x03\x63", 2)));
  const auto hundred = open_dataset(spec_of("cifar100", folder, "test"));
  EXPECT_EQ(hundred->label(0), 99);  // the fine label comes second
  EXPECT_EQ(hundred->class_names().at(99), "worm");
}

TEST(Cifar, DamageIsNamed) {
  const auto refusal = [](const std::string& bytes, const CifarLayout& layout) {
    MemoryImages images;
    return data_refusal([&] { append_cifar_records(bytes, layout, "x.bin", images); });
  };
  const std::string record = cifar_record("a");
  expect_part(refusal("", {1, 10}), "x.bin: 0 bytes are not whole records of 3073");
  expect_part(refusal(record.substr(1), {1, 10}), "3072 bytes");
  expect_part(refusal(cifar_record(std::string(1, 0)) + cifar_record("\x0a"), {1, 10}), "label 10 of record 1");
  expect_part(refusal(cifar_record("\x01\x64"), {2, 100}), "label 100 of record 0");
  const TemporaryFolder folder;
  expect_part(data_refusal([&] { open_dataset(spec_of("cifar10", folder, "train")); }),
              "data_batch_1.bin: no such file");
}

}  // namespace
}  // namespace octet
