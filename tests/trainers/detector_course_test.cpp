// SPDX-License-Identifier: Apache-2.0
// The course of a detector's training: mosaics that end, a run that is stopped and resumed, batches of several sizes,
// and several processes.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "src/base/files.h"
#include "src/base/progress.h"
#include "tests/trainers/drawn_detector.h"
#include "tests/trainers/ranks.h"
#include "tests/trainers/tiny.h"
#include "trainers/run/pipeline.h"

namespace octet {
namespace {

using testing_trainers::ap_of;
using testing_trainers::detector_network;
using testing_trainers::detector_recipe;
using testing_trainers::draw_shapes;
using testing_trainers::Folder;
using testing_trainers::kNobodyThrew;
using testing_trainers::message_of;
using testing_trainers::run_ranks;
using testing_trainers::score_of;

/// Epochs without mosaics are, to the bit, those of a recipe without.
TEST(Detector, MosaicsEndBeforeTheLastEpochs) {
  const Folder folder("detector_mosaic");
  draw_shapes(folder.path(), "train", 24, 1);
  draw_shapes(folder.path(), "val", 4, 2);
  draw_shapes(folder.path(), "test", 4, 3);
  const std::string text = detector_recipe(folder.path(), detector_network(2), R"(train:
  epochs: 2
  batch_size: 12
)");
  const auto weights = [&](const std::string& name, const std::vector<std::string>& keys, int off = 0) {
    const RunDirectory directory{folder.path() + "/" + name};
    Recipe recipe = parse_recipe(text, "drawn.yaml", keys);
    if (off > 0) recipe.data.mosaic_off = off;
    train(recipe, directory, {.command = "octet train", .machine = "test"});
    return read_file(directory.float_weights());
  };
  const std::string plain = weights("plain", {});
  set_verbosity(Verbosity::normal);  // tests before this one may have said otherwise
  testing::internal::CaptureStderr();
  const std::string without = weights("off", {"data.mosaic=1", "data.mosaic_off=1"}, 2);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("float has no mosaics: it has 2 epochs, and data.mosaic_off is 2"), std::string::npos) << said;
  EXPECT_EQ(without, plain);
  EXPECT_NE(weights("one", {"data.mosaic=1", "data.mosaic_off=1"}), plain);
}

/// With all that changes images and YOLOX's course of training: a run that stopped in the float phase, and again in
/// QAT, ends with the bytes of one that did not. The L1 loss is there in the last epoch alone.
TEST(Detector, ResumesToTheSameBytes) {
  const Folder folder("detector_resume");
  draw_shapes(folder.path(), "train", 36, 1);
  draw_shapes(folder.path(), "val", 4, 2);
  draw_shapes(folder.path(), "test", 4, 3);
  const std::vector<std::string> keys = {"data.mosaic=0.5", "data.mixup=0.5",       "data.mosaic_off=1",
                                         "data.degrees=10", "data.multi_scale=0.5", "qat.distill_weight=0.5"};
  const std::string text = detector_recipe(folder.path(), detector_network(2), R"(train:
  epochs: 3
  batch_size: 12
  learning_rate: 0.01
  schedule: yolox
  warmup_epochs: 1
  ema: 0.9
  ema_ramp: 10
  box_l1: true
qat:
  epochs: 2
  batch_size: 12
  ema: 0.9
  box_l1: true
)");
  const Recipe recipe = parse_recipe(text, "drawn.yaml", keys);
  const RunDirectory whole{folder.path() + "/whole"}, stopped{folder.path() + "/stopped"};
  const Report report = train(recipe, whole, {.command = "octet train", .machine = "test"}).value();

  start_run_directory(stopped, recipe, {});
  auto run = open_run(recipe, stopped);
  {
    Weights weights = starting_weights(run);
    int steps = 0;  // of three an epoch
    message_of(ExitCode::interrupted, [&] { train_float(run, weights, false, [&] { return ++steps == 4; }); });
  }
  Weights weights = starting_weights(run);
  train_float(run, weights, true);
  QuantizedModel model = make_quantized(run, weights);
  calibrate(model, run);
  int steps = 0;
  message_of(ExitCode::interrupted, [&] { train_qat(run, model, false, [&] { return ++steps == 2; }); });
  const Report again = train(recipe, stopped, {.resume = true}).value();
  EXPECT_EQ(read_file(stopped.float_weights()), read_file(whole.float_weights()));
  EXPECT_EQ(read_file(stopped.int8()), read_file(whole.int8()));
  EXPECT_TRUE(again.comparison.identical());

  const RunDirectory plain{folder.path() + "/plain"};
  Recipe without = recipe;
  without.train.box_l1 = false;
  without.qat.epochs = 0;
  without.qat.box_l1 = false;
  const Report other = train(without, plain, {.command = "octet train", .machine = "test"}).value();
  for (int epoch = 0; epoch < 2; ++epoch) EXPECT_EQ(other.epochs[epoch].train_loss, report.epochs[epoch].train_loss);
  EXPECT_GT(report.epochs[2].train_loss, other.epochs[2].train_loss + 0.3);
}

/// Batches of 32, 64 and 96 pixels train one network; with a layer that is made for 64 none does.
TEST(Detector, LearnsFromBatchesOfSeveralSizes) {
  const Folder folder("detector_sizes");
  draw_shapes(folder.path(), "train", 36, 1);
  draw_shapes(folder.path(), "val", 4, 2);
  draw_shapes(folder.path(), "test", 4, 3);
  const std::string training = "train:\n  epochs: 4\n  batch_size: 6\nqat:\n  epochs: 1\n  batch_size: 6\n";
  const auto run = [&](const std::string& name, const std::vector<std::string>& keys) {
    const RunDirectory directory{folder.path() + "/" + name};
    const Recipe recipe =
        parse_recipe(detector_recipe(folder.path(), detector_network(2), training), "drawn.yaml", keys);
    const Report report = train(recipe, directory, {.command = "octet train", .machine = "test"}).value();
    EXPECT_TRUE(report.comparison.identical()) << describe(report.comparison);
    EXPECT_LT(report.epochs.back().train_loss, report.epochs.front().train_loss);
    return read_file(directory.float_weights());
  };
  const std::vector<std::string> several = {"data.multi_scale=0.5", "qat.distill_weight=0.5"};
  const std::string first = run("first", several);
  EXPECT_EQ(first, run("again", several));
  EXPECT_NE(first, run("one", {"qat.distill_weight=0.5"}));
  const Recipe fixed = parse_recipe(detector_recipe(folder.path(), detector_network(2, true), training), "drawn.yaml",
                                    {"data.multi_scale=0.5"});
  const std::string refusal = message_of(ExitCode::usage, [&] { require_trainable(open_run(fixed, {})); });
  EXPECT_EQ(refusal.find("data.multi_scale: the network does not take images of 32x32: "), 0u) << refusal;
  const Recipe one = parse_recipe(detector_recipe(folder.path(), detector_network(2), training), "drawn.yaml",
                                  {"data.multi_scale=0.1"});
  EXPECT_EQ(message_of(ExitCode::usage, [&] { require_trainable(open_run(one, {})); })
                .find("data.multi_scale: 0.1 leaves one size, 64x64: "),
            0u);
  const Recipe codes = parse_recipe(detector_recipe(folder.path(), detector_network(2), training), "drawn.yaml",
                                    {"data.multi_scale=0.5", "qat.forward=int8"});
  EXPECT_EQ(message_of(ExitCode::usage, [&] { require_trainable(open_run(codes, {})); })
                .find("data.multi_scale: qat.forward: int8 has kernels for one size"),
            0u);
}

/// Two ranks, of which one may have most of the boxes of a batch, train, choose and measure as one process does.
TEST(Detector, TwoProcessesTrainAsOne) {
  const Folder folder("detector_ranks");
  draw_shapes(folder.path(), "train", 24, 1);
  draw_shapes(folder.path(), "val", 7, 2);
  draw_shapes(folder.path(), "test", 9, 3);
  const Recipe recipe = parse_recipe(detector_recipe(folder.path(), detector_network(2), R"(train:
  epochs: 3
  batch_size: 12
  optimizer: sgd
  learning_rate: 0.01
  sync_batch_norm: true
qat:
  epochs: 1
  batch_size: 12
  optimizer: sgd
  learning_rate: 0.001
  sync_batch_norm: true
  distill_weight: 0.5
quant:
  scales: fixed
)"),
                                     "drawn.yaml", {"threads=1", "evaluate.batch_size=4"});
  const RunDirectory one{folder.path() + "/one"}, two{folder.path() + "/two"};
  const Report alone = train(recipe, one, {.command = "octet train", .machine = "test"}).value();
  std::optional<Report> shared;
  const auto thrown = run_ranks(2, [&](Ranks& ranks) {
    at::set_num_threads(1);
    const std::shared_ptr<Ranks> lent(&ranks, [](Ranks*) {});
    std::optional<Report> mine = train(recipe, two, {.command = "octet train", .machine = "test", .ranks = lent});
    if (ranks.first()) shared = std::move(mine);
  });
  ASSERT_EQ(thrown, kNobodyThrew);
  ASSERT_TRUE(shared.has_value());
  EXPECT_TRUE(shared->comparison.identical()) << describe(shared->comparison);
  const auto weights = [](const RunDirectory& run) { return read_safetensors(run.float_weights()).tensors; };
  double apart = 0;
  const auto of_one = weights(one), of_two = weights(two);
  for (const auto& [name, tensor] : of_one) {
    const TensorData& other = of_two.at(name);
    for (size_t i = 0; i < tensor.bytes.size(); i += sizeof(float)) {
      float a = 0, b = 0;
      std::memcpy(&a, tensor.bytes.data() + i, sizeof(a));
      std::memcpy(&b, other.bytes.data() + i, sizeof(b));
      apart = std::max(apart, static_cast<double>(std::abs(a - b)));
    }
  }
  EXPECT_LT(apart, 1e-4);
  EXPECT_GT(std::abs(alone.epochs[2].train_loss - alone.epochs[0].train_loss), 0.1);
  EXPECT_NEAR(shared->epochs[2].train_loss, alone.epochs[2].train_loss, 1e-4);
  EXPECT_NEAR(shared->epochs[2].train_top1, alone.epochs[2].train_top1, 1e-4);
  EXPECT_EQ(shared->rows.front().evaluation.images, 9);
  EXPECT_NEAR(score_of(*shared, "float"), score_of(alone, "float"), 0.02);
  EXPECT_EQ(score_of(*shared, "cpu"), ap_of(two.int8(), folder.path()));
}

}  // namespace
}  // namespace octet
