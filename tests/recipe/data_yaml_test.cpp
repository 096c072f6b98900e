// SPDX-License-Identifier: Apache-2.0
// The data.yaml beside YOLO's labels: classes and folders, as Ultralytics and as Roboflow write them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "src/recipe/run.h"
#include "tests/data/images.h"
#include "tests/error_of.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;
using testing::TemporaryFolder;

class DataYaml : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* split : {"train", "valid", "test"}) {
      folder_.write(fmt::format("set/{}/images/p.png", split), testing::png_bytes(testing::noise(20, 20, 3, 1)));
      folder_.write(fmt::format("set/{}/labels/p.txt", split), "1 0.5 0.5 0.5 0.5\n");
    }
  }
  RunData open(const std::string& more = "") const { return open_run_data(parse_recipe(recipe(more), "r.yaml")); }
  std::string recipe(const std::string& more = "") const {
    return fmt::format(
        "data: {{format: yolo, path: {}, validation: val, test: test, image_size: 32{}}}\nmodel: {{name: small_cnn}}\n",
        folder_.path("set"), more);
  }
  void expect_open(const std::vector<std::string>& names) const {
    const RunData data = open();
    EXPECT_EQ(data.train_set->class_names(), names);
    EXPECT_EQ(data.train_set->describe(0), folder_.path("set/train/images/p.png"));
    EXPECT_EQ(data.validation_set->describe(0), folder_.path("set/valid/images/p.png"));
    EXPECT_EQ(data.test_set->describe(0), folder_.path("set/test/images/p.png"));
    EXPECT_EQ(data.test_set->boxes(0).at(0).class_index, 1);
  }
  TemporaryFolder folder_;
};

TEST_F(DataYaml, OfRoboflowBeginsFoldersWithTwoDots) {
  folder_.write(
      "set/data.yaml",
      "train: ../train/images\nval: ../valid/images\ntest: ../test/images\n\nnc: 2\nnames: ['cell', 'dog']\n");
  expect_open({"cell", "dog"});
}

/// In a .tar of the folder, too, below that folder.
TEST_F(DataYaml, IsReadFromATar) {
  folder_.write("set/data.yaml", "train: ../train/images\nval: valid/images\ntest: test/images\nnames: [cell, dog]\n");
  const TemporaryFolder other;
  other.write("set.tar", testing::tar_of(folder_));
  const RunData data = open_run_data(parse_recipe(recipe(), "r.yaml", {"data.path=" + other.path("set.tar")}));
  EXPECT_EQ(data.train_set->class_names(), (std::vector<std::string>{"cell", "dog"}));
  EXPECT_EQ(data.train_set->describe(0), other.path("set.tar/set/train/images/p.png"));
  EXPECT_EQ(data.validation_set->describe(0), other.path("set.tar/set/valid/images/p.png"));
  EXPECT_EQ(data.test_set->boxes(0).at(0).class_index, 1);
  EXPECT_FALSE(data.tests_on_training_images);
}

TEST_F(DataYaml, OfUltralyticsHasAPathAndAMapOfNames) {
  folder_.write("set/data.yaml",
                fmt::format("path: {}  # absolute\ntrain: train/images\nval: valid/images\ntest: test/images\nnames:\n"
                            "  0: cell\n  1: dog\n  2: eel\n",
                            folder_.path("set")));
  expect_open({"cell", "dog", "eel"});
  EXPECT_EQ(open(", class_names: [a, b]").train_set->class_names(), (std::vector<std::string>{"a", "b"}));
}

/// As in Ultralytics' coco128.yaml, whose val is its train.
TEST_F(DataYaml, FoldersThatTwoSplitsShareAreRefusedAsSplitsOfOneNameAre) {
  const auto refused = [&](const std::string& yaml, const std::string& more = "") {
    folder_.write("set/data.yaml", yaml + "names: [cell, dog]\n");
    return error_of([&] { open(more); });
  };
  const std::string train = std::filesystem::canonical(folder_.path("set/train/images")).string();
  expect_part(refused("train: train/images\nval: train/images\ntest: test/images\n"),
              "data.validation: '" + train + "' is data.train too; leave data.validation out");
  expect_part(refused("train: train\nval: valid\ntest: valid/images\n"), "is data.test too, and nothing may be chosen");
  const std::string same = "train: train/images\nval: valid/images\ntest: train\n";
  const std::string trained = error_of([&] {
    folder_.write("set/data.yaml", same + "names: [cell, dog]\n");
    open_run_data(parse_recipe(recipe() + "train: {epochs: 1}\n", "r.yaml"));
  });
  expect_part(trained, "data.test: '" + train + "' is data.train too: figures of images that were trained on");
  EXPECT_TRUE(open().tests_on_training_images);  // post-training quantization alone
  EXPECT_EQ(open().test_set->describe(0), folder_.path("set/train/images/p.png"));
}

TEST_F(DataYaml, NamesOfClassesAreTextsAndAllDifferent) {
  const auto refused = [&](const std::string& names) {
    folder_.write("set/data.yaml", "train: train/images\nnames: " + names + "\n");
    return data_refusal([&] { open(); });
  };
  expect_part(refused("[cell, dog, cell]"), "data.yaml: names: classes 0 and 2 are both called 'cell'");
  expect_part(refused("{0: cell, 1: }"), "class 1 has no name");
  expect_part(refused("[cell, [dog]]"), "class 1 has no name");
  expect_part(refused("[cell, '']"), "data.yaml: names: class 1 has no name");
  expect_part(refused("[cell, dog]\nkpt_shape: [4, 2]"), "data.yaml:3:12: kpt_shape: the labels hold key points");
}

TEST_F(DataYaml, SaysWhatIsMissing) {
  expect_part(data_refusal([&] { open(); }), "data.train: ");
  expect_part(data_refusal([&] { open(); }), "nothing says what the classes of YOLO's labels are");
  folder_.write("set/data.yaml", "train: train/images\n");
  expect_part(data_refusal([&] { open(); }), "data.yaml: no names of classes");
  folder_.write("set/data.yaml", "train: train/images\nnames: {1: cell}\n");
  expect_part(data_refusal([&] { open(); }), "data.yaml:2:9: '1' in the place of class 0");
  folder_.write("set/data.yaml", "train: [train/images]\nnames: [cell, dog]\n");
  expect_part(data_refusal([&] { open(); }), "data.yaml:1:8: train is not one folder");
  folder_.write("set/data.yaml", "train: [\n");
  EXPECT_NE(error_of([&] { open(); }).find("data.yaml:"), std::string::npos);
}

}  // namespace
}  // namespace octet
