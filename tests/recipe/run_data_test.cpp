// SPDX-License-Identifier: Apache-2.0
// Which images train, choose and give the final figures.
#include "src/recipe/run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "src/base/progress.h"
#include "tests/data/images.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;
using testing::TemporaryFolder;

Recipe synthetic(const std::vector<std::string>& set = {}) {
  return parse_recipe(
      "data: {format: synthetic, channels: 1, image_size: 8, synthetic_size: 128, synthetic_classes: 4, mean: [0.5], "
      "std: [0.25]}\nmodel: {name: small_cnn}\ncalibrate: {images: 16}\n",
      "r.yaml", set);
}

std::vector<size_t> shared(const std::vector<size_t>& a, const std::vector<size_t>& b) {
  std::vector<size_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

TEST(RunData, ValidationIsCutFromTrainingAndTestStaysApart) {
  const RunData data = open_run_data(synthetic({"data.validation_fraction=0.25", "data.limit_test=40"}));
  EXPECT_EQ(data.validation_set, data.train_set);
  EXPECT_EQ(data.train.size(), 96u);
  EXPECT_EQ(data.validation.size(), 32u);
  EXPECT_TRUE(shared(data.train, data.validation).empty());
  EXPECT_EQ(data.calibration.size(), 16u);
  EXPECT_EQ(shared(data.train, data.calibration), data.calibration);
  EXPECT_NE(data.test_set, data.train_set);
  EXPECT_NE(data.test_set->read(3).pixels, data.train_set->read(3).pixels);
  EXPECT_EQ(data.test.size(), 40u);
  EXPECT_FALSE(data.tests_on_training_images);

  const EvaluationSet validation = data.validation_images(), test = data.test_images(), first = data.test_images(5);
  EXPECT_EQ(validation.name, "validation");
  EXPECT_EQ(validation.dataset, data.train_set.get());
  EXPECT_EQ(validation.indices, data.validation);
  EXPECT_EQ(test.name, "test");
  EXPECT_EQ(test.dataset, data.test_set.get());
  EXPECT_EQ(test.indices, data.test);
  EXPECT_EQ(first.indices, std::vector<size_t>(data.test.begin(), data.test.begin() + 5));
}

TEST(RunData, ByDefaultTwoPercentOfTheTrainingImagesValidate) {
  const RunData data = open_run_data(synthetic());
  EXPECT_EQ(data.validation.size(), 3u);
  EXPECT_EQ(data.train.size(), 125u);
  EXPECT_EQ(data.test.size(), 128u);
  expect_part(data_refusal([] { open_run_data(synthetic({"data.validation_fraction=0.001"})); }),
              "the validation set has no image: data.validation_fraction 0.001 of 128 training images");
}

/// Folders of two classes with so many grey images each, all different.
void write_split(const TemporaryFolder& folder, const std::string& split, int images) {
  for (int i = 0; i < images; ++i) {
    for (const char* name : {"cat", "dog"}) {
      const Image image = testing::noise(8, 8, 1, std::hash<std::string>()(split + name) + i);
      folder.write(split + "/" + name + "/" + std::to_string(i) + ".png", testing::png_bytes(image));
    }
  }
}

Recipe image_recipe(const TemporaryFolder& folder, std::vector<std::string> set = {}) {
  set.push_back("data.path=" + folder.path());
  return parse_recipe(
      "data: {format: image_folder, channels: 1, image_size: 8}\nmodel: {name: small_cnn}\ncalibrate: {images: 3}\n",
      "r.yaml", set);
}

TEST(RunData, ImagesWithThreePartsNameThem) {
  const TemporaryFolder folder;
  write_split(folder, "train", 10);
  write_split(folder, "val", 3);
  write_split(folder, "test", 4);
  const RunData data = open_run_data(image_recipe(folder, {"data.validation=val", "data.test=test"}));
  EXPECT_EQ(data.train.size(), 20u);
  EXPECT_EQ(data.validation.size(), 6u);
  EXPECT_EQ(data.test.size(), 8u);
  std::set<std::string> names;
  for (const Dataset* set : {data.train_set.get(), data.validation_set.get(), data.test_set.get()})
    for (size_t i = 0; i < set->size(); ++i) names.insert(set->describe(i));
  EXPECT_EQ(names.size(), 34u);
}

TEST(RunData, TestImagesMayLieElsewhere) {
  const TemporaryFolder folder, other;
  write_split(folder, "train", 10);
  write_split(other, "sample", 4);
  const RunData data = open_run_data(
      image_recipe(folder, {"data.test_path=" + other.path("sample"), "data.test=", "data.validation_fraction=0.1"}));
  EXPECT_FALSE(data.tests_on_training_images);
  EXPECT_EQ(data.test.size(), 8u);
  EXPECT_EQ(data.test_set->describe(0), other.path("sample/cat/0.png"));
  EXPECT_EQ(data.train_set->describe(0), folder.path("train/cat/0.png"));
  expect_part(data_refusal([&] { open_run_data(image_recipe(folder, {"data.test_path=" + other.path("none")})); }),
              "data.test: " + other.path("none"));
}

TEST(RunData, ImagesWithoutATestPartAreRefusedWithTheCureAndAllowedForPtq) {
  set_verbosity(Verbosity::quiet);
  const TemporaryFolder folder;
  write_split(folder, "train", 10);
  const std::string refused = data_refusal([&] { open_run_data(image_recipe(folder)); });
  expect_part(refused, "data.test: " + folder.path("test") + ": no such folder");
  expect_part(refused, "set data.test to the folder of the test images");
  expect_part(refused, "quantized after training only: set it to what data.train is");

  const RunData data = open_run_data(image_recipe(folder, {"data.test=train/", "data.validation_fraction=0.25"}));
  EXPECT_TRUE(data.tests_on_training_images);
  EXPECT_EQ(data.test.size(), 20u);
  EXPECT_EQ(data.validation.size(), 5u);
  EXPECT_TRUE(shared(data.validation, data.train).empty());

  const std::string other = data_refusal([&] { open_run_data(image_recipe(folder, {"data.test=tset"})); });
  expect_part(other, "data.test: " + folder.path("tset"));
  EXPECT_EQ(other.find("quantized"), std::string::npos) << other;
}

TEST(RunData, SaysWhatIsLeftOut) {
  const TemporaryFolder folder;
  write_split(folder, "train", 10);
  write_split(folder, "test", 4);
  folder.write("train/cat/a.tiff", "x");
  folder.write("test/dog/b.gif", "x");
  set_verbosity(Verbosity::normal);
  ::testing::internal::CaptureStderr();
  const RunData data = open_run_data(image_recipe(folder, {"data.validation_fraction=0.1"}));
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(data.notes.size(), 2u);
  expect_part(data.notes[0], "data.train: " + folder.path("train") + ": left out: .tiff 1 (cat/a.tiff)");
  expect_part(data.notes[1], "data.test: " + folder.path("test") + ": left out: .gif 1 (dog/b.gif)");
  EXPECT_EQ(said, "note: " + data.notes[0] + "\nnote: " + data.notes[1] + "\n");
}

TEST(RunData, TheCropIsRoundedAsTorchvisionsWhereAnythingIsCut) {
  const TemporaryFolder folder;
  write_split(folder, "train", 10);
  write_split(folder, "test", 4);
  const RunData data = open_run_data(image_recipe(folder, {"data.validation_fraction=0.1"}));
  EXPECT_TRUE(data.evaluation_transform.even_margin);
  EXPECT_TRUE(data.train_transform.even_margin);
  EXPECT_FALSE(open_run_data(synthetic()).evaluation_transform.even_margin);
  EXPECT_TRUE(open_run_data(synthetic({"data.resize=9"})).evaluation_transform.even_margin);
}

TEST(ImageCheck, NamesTheFirstImageThatTestingCouldNotRead) {
  const TemporaryFolder folder;
  write_split(folder, "train", 10);
  write_split(folder, "test", 4);
  const auto refusal = [&](std::vector<std::string> set = {}) {
    set.push_back("data.validation_fraction=0.1");
    const RunData data = open_run_data(image_recipe(folder, set));
    return data_refusal([&] { check_images(data); });
  };
  const std::string good = testing::png_bytes(testing::noise(8, 8, 1, 1));
  for (const char* workers : {"data.workers=0", "data.workers=4"}) {
    folder.write("test/dog/2.png", "no image");
    folder.write("test/dog/3.png", good.substr(0, 20));
    EXPECT_EQ(refusal({workers}),
              "data.test: " + folder.path("test/dog/2.png") + ": neither JPEG nor PNG, BMP or WebP");
    folder.write("test/dog/2.png", good);
    expect_part(refusal({workers}), "data.test: " + folder.path("test/dog/3.png") + ": PNG: ");
    folder.write("test/dog/3.png", testing::png_bytes(testing::noise(8, 7, 1, 1)));
    EXPECT_EQ(refusal({workers}), "data.test: " + folder.path("test/dog/3.png") +
                                      ": image of 8x7 is smaller than the crop of 8x8; a recipe's data.resize, or "
                                      "--resize or --fit letterbox of an .onnx file, fits it");
    folder.write("test/dog/3.png", good);
    EXPECT_TRUE(check_images(open_run_data(image_recipe(folder, {workers, "data.validation_fraction=0.1"}))).empty());
  }
  // What training pads is large enough; the test image is not padded.
  folder.write("train/cat/0.png", testing::png_bytes(testing::noise(6, 6, 1, 1)));
  expect_part(refusal(), "/train/cat/0.png: image of 6x6 is smaller");
  EXPECT_TRUE(check_images(open_run_data(synthetic())).empty());
}

TEST(ImageCheck, CountsOrientationsAndSaysWhatBecomesOfThem) {
  const TemporaryFolder folder;
  write_split(folder, "train", 10);
  write_split(folder, "test", 4);
  const auto turned = [](int height, int width, int orientation) {
    return testing::png_with_exif(testing::png_bytes(testing::noise(height, width, 1, 3)),
                                  testing::exif_bytes(orientation, true));
  };
  folder.write("test/cat/0.png", turned(8, 9, 6));
  folder.write("test/cat/1.png", turned(8, 9, 3));
  folder.write("test/cat/2.png", turned(8, 9, 1));
  const std::vector<std::string> set = {"data.validation_fraction=0.1"};
  EXPECT_EQ(check_images(open_run_data(image_recipe(folder, set))),
            std::vector<std::string>{"data.test: 2 of 8 images carry an EXIF orientation: they are turned upright"});
  EXPECT_EQ(check_images(open_run_data(image_recipe(folder, {set[0], "data.orientation=as_stored"}))),
            std::vector<std::string>{"data.test: 2 of 8 images carry an EXIF orientation: they are read as stored "
                                     "(data.orientation: as_stored)"});
  EXPECT_EQ(open_run_data(image_recipe(folder, set)).test_set->read(0).height, 9);
  EXPECT_EQ(open_run_data(image_recipe(folder, {set[0], "data.orientation=as_stored"})).test_set->read(0).height, 8);
}

TEST(ImageCheck, SixteenBitImagesOfFewerAreSaidToBeBlack) {
  const TemporaryFolder folder;
  write_split(folder, "train", 10);
  write_split(folder, "test", 4);
  std::vector<uint16_t> pixels(64, 100);
  for (int i = 0; i < 40; ++i) {
    pixels[3] = i == 25 ? 4095 : 2000;
    folder.write("test/dog/" + std::to_string(i) + ".png", testing::png_of_16_bits(8, 8, pixels));
  }
  const std::vector<std::string> set = {"data.validation_fraction=0.1"};
  const auto notes = check_images(open_run_data(image_recipe(folder, set)));
  ASSERT_EQ(notes.size(), 1u);
  expect_part(notes[0], "data.test: 40 of 44 images are 16-bit PNGs, and of 16 looked at none uses more than 1");
  expect_part(notes[0], "bits: read as 16 they are nearly black; multiply their values by ");
  for (int i = 0; i < 40; i += 2) {
    pixels[3] = 65535;
    folder.write("test/dog/" + std::to_string(i) + ".png", testing::png_of_16_bits(8, 8, pixels));
  }
  EXPECT_TRUE(check_images(open_run_data(image_recipe(folder, set))).empty());
}

}  // namespace
}  // namespace octet
