// SPDX-License-Identifier: Apache-2.0
// A tiny learnable data set and network for the tests of the loop.
#pragma once

#include <c10/core/Device.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <random>
#include <string>

#include "src/base/error.h"
#include "src/net/zoo.h"
#include "src/recipe/recipe.h"
#include "src/recipe/run.h"

namespace octet::testing_trainers {

inline const at::Device kGpu{at::kCUDA, 0};

/// Grey 8x8 images: one bright quadrant names the class, the rest is noise.
class Quadrants : public Dataset {
 public:
  Quadrants(size_t size, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (size_t i = 0; i < size; ++i) {
      const int label = static_cast<int>(i % 4);
      Image image{8, 8, 1, {}};
      for (int y = 0; y < 8; ++y) {
        for (int x = 0; x < 8; ++x) {
          const bool bright = label == 2 * (y / 4) + x / 4;
          image.pixels.push_back(static_cast<uint8_t>((bright ? 90 : 40) + random() % 120));
        }
      }
      images_.push_back(std::move(image));
      labels_.push_back(label);
    }
  }
  size_t size() const override { return images_.size(); }
  int channels() const override { return 1; }
  int label(size_t index) const override { return labels_[index]; }
  Image read(size_t index) const override { return images_[index]; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::optional<ImageSize> common_size() const override { return ImageSize{8, 8}; }
  std::string describe(size_t index) const override { return "quadrants[" + std::to_string(index) + "]"; }

 private:
  std::vector<Image> images_;
  std::vector<int> labels_;
  std::vector<std::string> names_{"upper left", "upper right", "lower left", "lower right"};
};

inline RunData tiny_data(size_t images = 128) {
  RunData data;
  data.train_set = std::make_shared<Quadrants>(images, 1);
  data.validation_set = std::make_shared<Quadrants>(64, 2);
  data.test_set = std::make_shared<Quadrants>(64, 3);
  for (size_t i = 0; i < images; ++i) data.train.push_back(i);
  for (size_t i = 0; i < 64; ++i) data.validation.push_back(i);
  data.test = data.validation;
  data.calibration = {0, 1, 2, 3, 4, 5, 6, 7};
  data.evaluation_transform.channels = 1;
  data.evaluation_transform.height = data.evaluation_transform.width = 8;
  data.train_transform = data.evaluation_transform;
  data.train_transform.pad = 1;
  data.mean = {0.4f};
  data.std = {0.2f};
  data.workers = 1;
  return data;
}

inline std::vector<NodeSpec> tiny_nodes() {
  return {{"conv1", "conv2d", {}, {{"out_channels", 8}, {"kernel", 3}, {"pad", 1}}},
          {"bn1", "batch_norm", {}, {}},
          {"relu1", "relu", {}, {}},
          {"conv2", "conv2d", {}, {{"out_channels", 8}, {"kernel", 3}, {"pad", 1}, {"stride", 2}}},
          {"bn2", "batch_norm", {}, {}},
          {"relu2", "relu", {}, {}},
          {"flatten", "flatten", {}, {}},
          {"drop", "dropout", {}, {{"dropout", 0.2}}},
          {"fc", "linear", {}, {{"out_channels", 4}}}};
}

inline Graph tiny_graph() {
  return build_model({.name = "graph", .input = {1, 8, 8}, .classes = 4, .graph = tiny_nodes()});
}

/// A whole run on 128 synthetic images, 32 more to validate and 120 to test, a second or two.
inline Recipe tiny_recipe() {
  Recipe recipe;
  recipe.threads = 1;
  recipe.data.format = "synthetic";
  recipe.data.channels = 1;
  recipe.data.image_size = 8;
  recipe.data.synthetic_size = 160;
  recipe.data.validation_fraction = 0.2;
  recipe.data.limit_test = 120;
  recipe.data.synthetic_classes = 4;
  recipe.data.mean = {0.5};
  recipe.data.std = {0.25};
  recipe.data.workers = 1;
  recipe.model.name = "graph";
  recipe.model.graph = tiny_nodes();
  recipe.train.epochs = 2;
  recipe.train.batch_size = 32;
  recipe.train.learning_rate = 0.05;
  recipe.calibrate.images = 16;
  recipe.calibrate.batch_size = 8;
  recipe.qat.epochs = 2;
  recipe.qat.batch_size = 32;
  recipe.qat.learning_rate = 0.01;
  return recipe;
}

/// What `body` throws, which must have this exit code.
inline std::string message_of(ExitCode code, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

/// A folder that goes away with the test.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_((std::filesystem::temp_directory_path() / ("octet_" + name + "_" + std::to_string(getpid()))).string()) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace octet::testing_trainers
