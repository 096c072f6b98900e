// SPDX-License-Identifier: Apache-2.0
// The whole job on the GPU, and what its run directory says about it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "src/base/files.h"
#include "src/engine/engine.h"
#include "tests/cuda/gpu.h"
#include "tests/trainers/drawn_detector.h"
#include "tests/trainers/tiny.h"
#include "trainers/run/pipeline.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::tiny_recipe;

TEST(PipelineCuda, TrainsCalibratesAndKeepsThePromise) {
  OCTET_NEEDS_GPU();
  const Folder folder("pipeline_cuda");
  const RunDirectory directory{folder.path() + "/run"};
  Recipe recipe = tiny_recipe();
  recipe.train.precision = recipe.qat.precision = Precision::fp16;
  recipe.evaluate.engines.clear();
  for (const Engine* engine : exact_engines()) recipe.evaluate.engines.emplace_back(engine->name());
  const Report report = train(recipe, directory, {.machine = "test", .device = {at::kCUDA, 0}}).value();
  EXPECT_TRUE(report.comparison.identical());
  for (const Row& row : report.rows) {
    const auto& engines = recipe.evaluate.engines;
    const bool engine = std::find(engines.begin(), engines.end(), row.evaluation.name) != engines.end();
    EXPECT_EQ(row.differing, engine ? 0 : row.differing) << row.evaluation.name;
  }
  EXPECT_NE(read_file(directory.environment()).find(gpu_status().name), std::string::npos);
  const std::vector<EpochMetrics> epochs = read_metrics(directory.metrics());
  ASSERT_EQ(epochs.size(), 4u);
  for (const EpochMetrics& epoch : epochs) {
    EXPECT_GT(epoch.gpu_memory_bytes, 0);
    EXPECT_LE(epoch.data_wait_share, 1);
  }
}

/// Steps of three sizes of batches, as they are and recorded, train the same network but for the order of sums; a step
/// that read another size's memory, or another batch, would not. So does the CPU's float phase, of the same batches.
TEST(PipelineCuda, ADetectorLearnsFromRecordedStepsOfSeveralSizes) {
  OCTET_NEEDS_GPU();
  const Folder folder("detector_sizes_cuda");
  testing_trainers::draw_shapes(folder.path(), "train", 60, 1);
  testing_trainers::draw_shapes(folder.path(), "val", 4, 2);
  testing_trainers::draw_shapes(folder.path(), "test", 4, 3);
  const std::string text = testing_trainers::detector_recipe(
      folder.path(), testing_trainers::detector_network(2),
      "train:\n  epochs: 4\n  batch_size: 4\n  learning_rate: 0.0005\nqat:\n  epochs: 2\n  batch_size: 4\n");
  const auto run = [&](const std::string& name, at::Device device, const char* graph) {
    const Recipe recipe = parse_recipe(
        text, "drawn.yaml",
        {"data.multi_scale=0.5", "data.mosaic=0.5", "data.mosaic_off=1", "qat.distill_weight=0.5",
         "qat.learning_rate=0.0002", "cuda.tf32=false", "cuda.benchmark=false", std::string("cuda.graph=") + graph});
    const RunDirectory directory{folder.path() + "/" + name};
    return train(recipe, directory, {.command = "octet train", .machine = "test", .device = device}).value();
  };
  const at::Device gpu(at::kCUDA, 0);
  const Report launched = run("launched", gpu, "false"), recorded = run("recorded", gpu, "true"),
               on_cpu = run("cpu", at::kCPU, "true");
  EXPECT_TRUE(recorded.comparison.identical()) << describe(recorded.comparison);
  ASSERT_EQ(recorded.epochs.size(), launched.epochs.size());
  for (size_t i = 0; i < launched.epochs.size(); ++i) {
    const double loss = launched.epochs[i].train_loss;
    const double share = i < 4 ? 0.003 : 0.03;  // rounding to codes, and ranges, enlarge differences in QAT
    EXPECT_NEAR(recorded.epochs[i].train_loss, loss, share * loss) << "epoch " << i;
    if (i < 4) {
      EXPECT_NEAR(on_cpu.epochs[i].train_loss, loss, share * loss) << "epoch " << i;
    }
  }
}

}  // namespace
}  // namespace octet
