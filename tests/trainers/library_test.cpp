// SPDX-License-Identifier: Apache-2.0
// octet::training as a program of its own has it (include/octet/training.hpp): what it gives, stops, resumes and
// refuses.
#include <octet/training.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/random.h"
#include "src/base/safetensors.h"
#include "src/net/checkpoint.h"
#include "src/net/zoo.h"
#include "src/train/model/model.h"
#include "tests/tools/tiny_recipe.h"
#include "tests/trainers/tiny.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using training::Epoch;
using training::Options;
using training::Result;
using training::Status;

class TrainingLibrary : public ::testing::Test {
 protected:
  TrainingLibrary() : folder_("library") { write_file_atomically(recipe_, test::kTinyRecipe); }
  Options in(const std::string& run) const {
    Options options;
    options.directory = folder_.path() + "/" + run;
    options.device = "cpu";
    options.quiet = true;
    return options;
  }
  static Status status_of(const std::string& recipe, const Options& options, const std::string& part) {
    try {
      training::train(recipe, options);
    } catch (const training::Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      return error.status();
    }
    ADD_FAILURE() << "nothing is refused";
    return Status::promise;
  }
  void TearDown() override { set_verbosity(Verbosity::normal); }  // options.quiet stays as long as the process
  const Folder folder_;
  const std::string recipe_ = folder_.path() + "/tiny.yaml";
};

TEST_F(TrainingLibrary, GivesTheRunAndTheRowsOfItsReport) {
  std::vector<std::string> epochs;
  Options options = in("run");
  options.set = {"qat.epochs=2", "qat.val_interval=2"};
  options.epoch_done = [&](const Epoch& epoch) {
    epochs.push_back(epoch.phase + " " + std::to_string(epoch.epoch));
    EXPECT_GT(epoch.train_loss, 0);
    const bool validated = epoch.phase == "float" || epoch.epoch == 2;
    ASSERT_EQ(epoch.validation_loss.has_value(), validated) << epoch.phase << epoch.epoch;
    ASSERT_EQ(epoch.validation_top1.has_value(), validated) << epoch.phase << epoch.epoch;
    if (!validated) return;
    EXPECT_GT(*epoch.validation_loss, 0);
    EXPECT_GE(*epoch.validation_top1, 0);
    EXPECT_LE(*epoch.validation_top1, 1);
  };
  testing::internal::CaptureStderr();
  const Result result = training::train(recipe_, options);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(epochs, (std::vector<std::string>{"float 1", "qat 1", "qat 2"}));
  EXPECT_EQ(result.directory, options.directory);
  EXPECT_EQ(read_checkpoint(result.checkpoint).classes(), 4);
  const nlohmann::json rows = nlohmann::json::parse(read_file(result.directory + "/report.json")).at("rows");
  ASSERT_EQ(result.rows.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(result.rows[i].name, rows[i].at("name").get<std::string>());
    EXPECT_EQ(result.rows[i].top1, rows[i].at("top1").get<double>());
    EXPECT_EQ(result.rows[i].images, 120);
    EXPECT_GT(result.rows[i].per_second, 0);
  }
  EXPECT_EQ(result.rows.back().name, "reference");
  EXPECT_EQ(result.rows.back().differing, 0);
  EXPECT_EQ(result.rows.back().bytes, static_cast<long>(std::filesystem::file_size(result.checkpoint)));
  EXPECT_NE(read_file(result.report).find("octet::training::train"), std::string::npos);  // how it was made
}

TEST_F(TrainingLibrary, AStoppedRunGoesOnToTheSameBytes) {
  const Result whole = training::train(recipe_, in("whole"));
  Options options = in("stopped");
  options.epoch_done = [](const Epoch&) { std::thread(training::stop).join(); };
  EXPECT_EQ(status_of(recipe_, options, "interrupted"), Status::stopped);
  options.epoch_done = {};
  options.resume = true;
  const Result resumed = training::train(recipe_, options);
  EXPECT_EQ(read_file(resumed.checkpoint), read_file(whole.checkpoint));
}

/// As the README calls it: a program that names no folder finds its run under runs/ in the working directory.
TEST_F(TrainingLibrary, WithoutAFolderEachRunMakesTheNextUnderRuns) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  Options options = in("");
  options.directory.clear();
  options.set = {"qat.epochs=0"};
  std::vector<std::string> found;
  for (int run = 0; run < 2; ++run) found.push_back(training::train("tiny.yaml", options).directory);
  EXPECT_EQ(found, (std::vector<std::string>{"runs/tiny-1", "runs/tiny-2"}));
  for (const std::string& run : found) EXPECT_TRUE(std::filesystem::exists(run + "/report.html")) << run;
  std::filesystem::current_path(before);
}

/// Whatever this machine has: what is refused is the run that is not there.
TEST_F(TrainingLibrary, TakesTheDeviceItFindsUnlessOneIsNamed) {
  Options options = in("none");
  options.resume = true;
  for (const std::string& device : {Options().device, std::string("auto"), std::string("cpu")}) {
    options.device = device;
    EXPECT_EQ(status_of(recipe_, options, "there is no run"), Status::usage) << device;
  }
}

TEST_F(TrainingLibrary, RefusesWithAStatusAndAText) {
  EXPECT_EQ(status_of(folder_.path() + "/none.yaml", in("run"), "none.yaml"), Status::data);
  Options options = in("run");
  options.set = {"train.epoch=3"};
  EXPECT_EQ(status_of(recipe_, options, "did you mean 'epochs'"), Status::usage);
  options.set = {"data.format=cifar10", "data.path=/no\x1b[2J"};
  EXPECT_EQ(status_of(recipe_, options, "/no?[2J"), Status::usage);
  options = in("");
  options.directory.clear();
  options.resume = true;
  EXPECT_EQ(status_of(recipe_, options, "Options::directory"), Status::usage);
  options = in("none");
  options.resume = true;
  EXPECT_EQ(status_of(recipe_, options, "none: Options::resume, but there is no run"), Status::usage);
  options = in("full");
  std::filesystem::create_directory(options.directory);
  write_file_atomically(options.directory + "/file", "");
  EXPECT_EQ(status_of(recipe_, options, "continue that run with Options::resume, or choose another Options::directory"),
            Status::usage);
  options.set = {"train.epochs=none"};
  EXPECT_EQ(status_of(recipe_, options, "Options::set 'train.epochs=none'"), Status::usage);
  options = in("run");
  options.device = "abacus";
  EXPECT_EQ(status_of(recipe_, options, "abacus"), Status::usage);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/run"));
  options = in("thrown");
  options.epoch_done = [](const Epoch&) { throw std::out_of_range("of the program"); };
  EXPECT_THROW(training::train(recipe_, options), std::out_of_range);
}

/// A network of the zoo with random weights.
class QuantizeLibrary : public ::testing::Test {
 protected:
  QuantizeLibrary() : folder_("quantize") {
    const ModelSpec spec{.name = "small_cnn", .input = {3, 16, 16}, .classes = 4};
    options_.weights = folder_.path() + "/weights.safetensors";
    save_weights(initial_weights(build_model(spec), 1), options_.weights);
    options_.classes = 4;
    options_.image_size = 16;
    options_.device = "cpu";
    options_.quiet = true;
    options_.out = folder_.path() + "/int8.safetensors";
    Random random({3});
    for (int i = 0; i < kInputs * 3 * 16 * 16; ++i) inputs_.push_back(static_cast<float>(random.uniform(-2, 3)));
  }
  void TearDown() override { set_verbosity(Verbosity::normal); }
  void expect_refused(const training::QuantizeOptions& options, Status status, const std::string& part) const {
    try {
      training::quantize("small_cnn", options);
      ADD_FAILURE() << "nothing is refused";
    } catch (const training::Error& error) {
      EXPECT_EQ(error.status(), status);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  static constexpr int kInputs = 60;  // of 12, two would choose and two be measured, by which mse loses 4 or 9 %
  const Folder folder_;
  training::QuantizeOptions options_;
  std::vector<float> inputs_;
};

TEST_F(QuantizeLibrary, InputsInMemoryAreThoseOfAFile) {
  options_.inputs = inputs_;
  options_.repair = "fast";
  const training::Quantized made = training::quantize("small_cnn", options_);
  EXPECT_EQ(made.checkpoint, options_.out);
  ASSERT_EQ(made.outputs.size(), 1u);
  EXPECT_GT(made.outputs[0].sqnr_db, 15);
  EXPECT_LT(made.outputs[0].lost, 0.06);
  EXPECT_GT(made.codes, 0);
  EXPECT_NE(made.repairs, "");
  const std::string bytes = read_file(made.checkpoint);
  EXPECT_EQ(read_checkpoint(made.checkpoint).preprocessing.fit, Fit::tensor);

  options_.tensors = folder_.path() + "/inputs.safetensors";
  write_safetensors(options_.tensors, {{{"x", float_tensor({kInputs, 3, 16, 16}, inputs_.data())}}, {}});
  options_.inputs.clear();
  options_.out = folder_.path() + "/other.safetensors";
  EXPECT_EQ(read_file(training::quantize("small_cnn", options_).checkpoint), bytes);
}

TEST_F(QuantizeLibrary, RefusesWithTheNamesOfMembers) {
  training::QuantizeOptions none = options_;
  expect_refused(none, Status::usage, "what shall it be calibrated on? images FOLDER with preset, or tensors FILE");
  none.images = {folder_.path()};
  none.preset = "coco";
  expect_refused(none, Status::usage, "preset: 'coco' is none of imagenet, yolo, yolox, none");
  none.preset = "none";
  none.scale = 7;
  expect_refused(none, Status::usage, "scale: 7; takes 1 or 255");
  options_.inputs = inputs_;
  training::QuantizeOptions wrong = options_;
  wrong.preset = "imagenet";
  expect_refused(wrong, Status::usage, "preset: is for images; tensors are what the network reads");
  wrong = options_;
  wrong.inputs.pop_back();
  expect_refused(wrong, Status::data, "inputs: 46079 values are no whole number of inputs of 3 x 16 x 16");
  wrong = options_;
  wrong.device = "abacus";
  expect_refused(wrong, Status::usage, "device 'abacus': takes auto, cpu, cuda");
  wrong = options_;
  wrong.weights.clear();
  expect_refused(wrong, Status::usage, "a network of the zoo needs weights (weights FILE)");
  EXPECT_FALSE(std::filesystem::exists(options_.out));
  write_file_atomically(options_.out, "mine");
  expect_refused(options_, Status::usage, "exists and stays as it is: name another file, or say force");
  EXPECT_EQ(read_file(options_.out), "mine");
}

}  // namespace
}  // namespace octet
